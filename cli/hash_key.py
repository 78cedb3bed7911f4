"""`kvcompass hash-key`: the SHA-256 of an API key, as settings hold it."""

import argparse
import getpass
import secrets
import sys
from typing import Any, Final

from services.runtime.auth import hash_api_key

_NEW_KEY_BYTES: Final = 32


def add_arguments(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `hash-key`."""
    parser = commands.add_parser(
        "hash-key",
        help="print the SHA-256 of an API key for the settings",
        description="Reads the key from standard input (without echo on a terminal), so that it stays out of "
        "the shell's history and the process list.",
    )
    # Taken only to be refused: it is in the shell's history now, and the user should know.
    parser.add_argument("key", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--new", action="store_true", help="make a random key; print the key, then its hash")
    parser.set_defaults(command=_hash_key)


def _hash_key(options: argparse.Namespace) -> int:
    if options.key is not None:
        print("give the key on standard input, not as an argument, which others can see", file=sys.stderr)
        return 2
    if options.new:
        key = f"kvc-{secrets.token_urlsafe(_NEW_KEY_BYTES)}"
        print(key)
    else:
        key = _read_key()
    if not key:
        print("the key is empty; pass it on standard input", file=sys.stderr)
        return 2
    print(hash_api_key(key))
    return 0


def _read_key() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("API key: ").strip()
    return sys.stdin.readline().strip()
