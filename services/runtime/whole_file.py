"""A file that is always whole: the old one or the new one, whenever the process or the machine stops."""

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from services.runtime.disk import Disk

PRIVATE: Final = 0o600
_SUFFIX: Final = ".tmp"
_READ: Final = 1 << 20


def write_whole(
    disk: Disk, path: Path, parts: Iterable[bytes], *, mode: int = PRIVATE, writer: str = ""
) -> int:
    """Writes a file beside `path`, then gives it that name; returns its size in bytes.

    The name beside is new each time, so that a process that still ends and its successor do not write into
    one file. `writer` names whose it is, where several share `path`. Errors: OSError, and `path` is what it
    was, or the new file.
    """
    beside = path.with_name(f"{_prefix(path, writer)}{secrets.token_hex(8)}{_SUFFIX}")
    size = 0
    try:
        handle = disk.create(beside, mode)
        try:
            for part in parts:
                disk.write(handle, part)
                size += len(part)
            disk.sync(handle)
        finally:
            disk.close(handle)
        disk.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            disk.remove(beside)
        raise
    disk.sync_folder(path.parent)
    return size


def replace_file(disk: Disk, path: Path, data: bytes, *, writer: str = "") -> None:
    """Writes a file that is there anew: its mode stays, and a link still leads to it. Errors: OSError."""
    path = disk.followed(path)
    write_whole(disk, path, [data], mode=disk.mode(path), writer=writer)


def remove_leftovers(disk: Disk, path: Path, *, writer: str = "") -> None:
    """Removes what processes of this writer left beside a file when they were killed. Errors: OSError.

    As `write_whole` it takes the path as it is: follow a link first where `replace_file` writes.
    """
    prefix = _prefix(path, writer)
    for each in disk.names(path.parent):
        is_beside = each.name.startswith(prefix) and each.name.endswith(_SUFFIX)
        if is_beside and "." not in each.name[len(prefix) : -len(_SUFFIX)]:
            with suppress(FileNotFoundError):
                disk.remove(each)


def read_whole(path: Path, bytes_most: int) -> bytes | None:
    """What is in a file; None when it is larger than that. Errors: OSError, also when it is no plain file."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        data = bytearray()
        while part := os.read(handle, _READ):
            data += part
            if len(data) > bytes_most:
                return None
        return bytes(data)
    finally:
        os.close(handle)


def _prefix(path: Path, writer: str) -> str:
    return f".{path.name}.{writer}." if writer else f".{path.name}."
