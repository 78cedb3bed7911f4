"""Entry point of the `kvcompass` command."""

import argparse
import sys
from collections.abc import Sequence

from cli import hash_key, lab_commands, plan_commands, simulate, status, warm
from services.runtime.version import add_version


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the answer is no, 2 it could not run."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="kvcompass", description="A discovery plane for prefix caches across regions."
    )
    add_version(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    plan_commands.add_arguments(commands)
    status.add_arguments(commands)
    lab_commands.add_arguments(commands, wanted=arguments[:1] == ["lab"])
    simulate.add_arguments(commands)
    hash_key.add_arguments(commands)
    warm.add_arguments(commands)
    options = parser.parse_args(arguments)
    code: int = options.command(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
