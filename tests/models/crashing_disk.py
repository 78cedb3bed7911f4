"""A disk that may lose power after any step, and everything it may then have: see `futures`."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


class PowerCut(BaseException):
    """The machine stopped here."""


@dataclass
class _File:
    data: bytes = b""
    synced: int = 0
    """Bytes that survive for sure."""


@dataclass
class CrashingDisk:
    """Twin of `LocalDisk` for one folder. What is not synced survives in part, names in the order given."""

    cut_after: int = 1_000_000
    """Steps until the power cut."""
    lies: str = ""
    """The method of this name returns at once and does nothing."""
    steps: int = 0
    names_now: dict[Path, _File] = field(default_factory=dict)
    pending: list[dict[Path, _File]] = field(default_factory=list)
    """What names meant after each change since the last `sync_folder`, from the oldest on."""
    durable: dict[Path, _File] = field(default_factory=dict)
    handles: list[_File] = field(default_factory=list)

    def put(self, path: Path, data: bytes) -> None:
        """A file that was there before."""
        self.names_now[path] = _File(data, len(data))
        self.durable = dict(self.names_now)

    def _step(self) -> None:
        if self.steps == self.cut_after:
            raise PowerCut
        self.steps += 1

    def followed(self, path: Path) -> Path:
        return path

    def mode(self, path: Path) -> int:
        assert path in self.names_now
        return 0o640

    def names(self, folder: Path) -> list[Path]:
        return [path for path in self.names_now if path.parent == folder]

    def create(self, path: Path, _mode: int) -> int:
        self._step()
        assert path not in self.names_now
        self.names_now[path] = _File()
        self.pending.append(dict(self.names_now))
        self.handles.append(self.names_now[path])
        return len(self.handles) - 1

    def write(self, handle: int, data: bytes) -> None:
        self._step()
        self.handles[handle].data += data

    def sync(self, handle: int) -> None:
        self._step()
        if self.lies != "sync":
            self.handles[handle].synced = len(self.handles[handle].data)

    def close(self, _handle: int) -> None:
        self._step()

    def replace(self, source: Path, target: Path) -> None:
        self._step()
        self.names_now[target] = self.names_now.pop(source)
        self.pending.append(dict(self.names_now))

    def sync_folder(self, _folder: Path) -> None:
        self._step()
        if self.lies != "sync_folder":
            self.durable, self.pending = dict(self.names_now), []

    def remove(self, path: Path) -> None:
        self._step()
        del self.names_now[path]
        self.pending.append(dict(self.names_now))

    def futures(self, path: Path) -> Iterator[bytes | None]:
        """What may be in a file after a power cut now; None where it may be missing."""
        for names, share in itertools.product([self.durable, *self.pending], (0.0, 0.5, 1.0)):
            file = names.get(path)
            if file is None:
                yield None
            else:
                yield file.data[: file.synced + int(share * (len(file.data) - file.synced))]
