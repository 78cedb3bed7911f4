"""`kvcompass warm`: compile the index's kernels now, so that no service does it at its start."""

import argparse
import time


def add_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    parser = commands.add_parser("warm", help="compile the index's kernels (once a machine, about 40 s)")
    parser.set_defaults(command=warm_kernels)


def warm_kernels(_options: argparse.Namespace) -> int:
    """Compiles what is not in the kernel cache yet."""
    from kvcompass.warm import warm  # numba is slow to import; other commands do without it

    started = time.monotonic()
    warm()
    print(f"Kernels are ready ({time.monotonic() - started:.1f} s).")
    return 0
