"""`kvcompass lab`: handed to the lab, which is imported only when it is wanted."""

import argparse
from typing import Any


def add_arguments(commands: "argparse._SubParsersAction[Any]", *, wanted: bool) -> None:
    """Add `lab`; its own subcommands only when `wanted`, so that other commands start quickly."""
    parser = commands.add_parser("lab", help="start a fleet of several regions on this machine")
    subcommands = parser.add_subparsers(title="lab commands", metavar="COMMAND", required=True)
    if wanted:
        from lab.commands import add_arguments as add_lab_arguments

        add_lab_arguments(subcommands)
