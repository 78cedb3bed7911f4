"""What writing a file takes of a file system, so that a test may cut its power."""

import os
from pathlib import Path
from typing import Protocol


class Disk(Protocol):
    """What writing a file whole takes of a file system. All of it raises OSError."""

    def followed(self, path: Path) -> Path:
        """Where a link leads in the end; any other path is itself, one that leads nowhere too."""
        ...

    def mode(self, path: Path) -> int:
        """Who may do what with a file: its nine permission bits."""
        ...

    def names(self, folder: Path) -> list[Path]:
        """What is in a folder."""
        ...

    def create(self, path: Path, mode: int) -> int:
        """Creates a file of this mode, which must not be there; returns its handle."""
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

    def followed(self, path: Path) -> Path:
        """See `Disk`."""
        return Path(os.path.realpath(path))

    def mode(self, path: Path) -> int:
        """See `Disk`."""
        return path.stat().st_mode & 0o777

    def names(self, folder: Path) -> list[Path]:
        """See `Disk`."""
        return list(folder.iterdir())

    def create(self, path: Path, mode: int) -> int:
        """See `Disk`."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(handle, mode)
        except BaseException:
            os.close(handle)
            raise
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
