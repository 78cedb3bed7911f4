"""`kvcompass warm`: compile the index's kernels now, so that no service does it at its start."""

import argparse
import time


def add_arguments(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    parser = commands.add_parser("warm", help="compile the index's kernels (once a machine, about 40 s)")
    parser.add_argument(
        "--all-layouts", action="store_true", help="not only of the default layout: for tests"
    )
    parser.set_defaults(command=warm_kernels)


def warm_kernels(options: argparse.Namespace) -> int:
    """Compiles what is not in the kernel cache yet."""
    from kvcompass.index.layout import LAYOUTS  # numba is slow to import; other commands do without it
    from kvcompass.warm import warm

    print("Getting the kernels ready (a minute, the first time) ...", flush=True)
    started = time.monotonic()
    for layout in LAYOUTS if options.all_layouts else LAYOUTS[:1]:
        warm(layout.name, layout.value_bits)
    print(f"Kernels are ready ({time.monotonic() - started:.1f} s).")
    return 0
