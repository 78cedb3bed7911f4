"""A file that is always whole: the old one or the new one, whenever the process or the machine stops."""

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_MODE = 0o600
_READ = 1 << 20


class Disk(Protocol):
    """What writing a file whole takes of a file system. All of it raises OSError."""

    def create(self, path: Path) -> int:
        """Creates a file that nobody else may read, and must not be there; returns its handle."""
        ...

    def write(self, handle: int, data: bytes) -> None:
        """Appends all of the data."""
        ...

    def sync(self, handle: int) -> None:
        """Returns once what was written survives a power cut."""
        ...

    def close(self, handle: int) -> None:
        """Gives the handle back."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Gives a file another name, at once; a file that had it is gone."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Returns once the names in a folder survive a power cut."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file."""
        ...


class LocalDisk:
    """The machine's file system."""

    def create(self, path: Path) -> int:
        """See `Disk`."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        os.fchmod(handle, _MODE)
        return handle

    def write(self, handle: int, data: bytes) -> None:
        """See `Disk`."""
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]

    def sync(self, handle: int) -> None:
        """See `Disk`."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """See `Disk`."""
        os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        """See `Disk`."""
        source.replace(target)

    def sync_folder(self, folder: Path) -> None:
        """See `Disk`."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        """See `Disk`."""
        path.unlink()


def write_whole(disk: Disk, path: Path, parts: Iterable[bytes]) -> int:
    """Writes a file beside `path`, then gives it that name; returns its size in bytes.

    The name beside is new each time, so that a process that still ends and its successor do not write into
    one file. Errors: OSError, and `path` is what it was, or the new file.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    size = 0
    handle = disk.create(beside)
    try:
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


def remove_leftovers(disk: Disk, path: Path) -> None:
    """Removes what earlier processes left beside a file when they were killed. Errors: OSError."""
    for each in list(path.parent.iterdir()):
        if each.name.startswith(f".{path.name}.") and each.name.endswith(".tmp"):
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
