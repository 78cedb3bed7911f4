"""Which version of KVCompass this is."""

import argparse
from importlib.metadata import version
from typing import Final

VERSION: Final = version("kvcompass")


def add_version(parser: argparse.ArgumentParser) -> None:
    """Gives a command `--version`."""
    parser.add_argument("--version", action="version", version=f"{parser.prog} {VERSION}")
