"""A file is the old one or the new one, whole, whenever the power goes."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.runtime.disk import LocalDisk
from services.runtime.whole_file import read_whole, remove_leftovers, replace_file, write_whole
from tests.models.crashing_disk import CrashingDisk, PowerCut

PATH = Path("/d/unit.snapshot")
OLD, PARTS = b"the old one, whole", [b"the ", b"new ", b"one"]
NEW = b"".join(PARTS)
STEPS = 8
"""create, three writes, sync, close, replace, sync_folder."""
REPLACE_STEPS = STEPS - 2
"""One write."""


def new_parts(disk: CrashingDisk) -> None:
    write_whole(disk, PATH, PARTS)


def replaced(disk: CrashingDisk) -> None:
    replace_file(disk, PATH, NEW, writer="unit-0")


def names_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def cut(
    disk: CrashingDisk, *, old: bytes | None = OLD, write: Callable[[CrashingDisk], None] = new_parts
) -> set[bytes | None]:
    if old is not None:
        disk.put(PATH, old)
    with suppress(PowerCut):
        write(disk)
    return set(disk.futures(PATH))


@pytest.mark.parametrize("steps", range(STEPS + 1))
@pytest.mark.parametrize("old", [OLD, None])
def test_after_a_power_cut_at_any_step_the_file_is_the_old_one_or_the_new_one(steps, old):
    disk = CrashingDisk(cut_after=steps)
    futures = cut(disk, old=old)
    assert futures <= {old, NEW}
    assert disk.steps == steps, "every step was counted"
    if steps == STEPS:
        assert futures == {NEW}, "written is written"


@pytest.mark.parametrize("steps", range(REPLACE_STEPS + 1))
def test_a_file_that_is_replaced_is_as_safe_and_the_next_start_finds_nothing_beside_it(steps):
    disk = CrashingDisk(cut_after=steps)
    futures = cut(disk, write=replaced)
    assert futures <= {OLD, NEW}
    assert disk.steps == steps, "every step was counted"
    if steps == REPLACE_STEPS:
        assert futures == {NEW}, "written is written"
    disk.cut_after = 1_000_000
    remove_leftovers(disk, PATH, writer="unit-0")
    assert set(disk.names_now) == {PATH}


def test_a_disk_that_lies_about_what_is_synced_would_be_noticed():
    assert not cut(CrashingDisk(lies="sync")) <= {OLD, NEW}
    assert not cut(CrashingDisk(lies="sync"), write=replaced) <= {OLD, NEW}
    assert cut(CrashingDisk(lies="sync_folder")) == {OLD, NEW}


@pytest.mark.parametrize("broken", ["write", "sync", "close", "replace"])
def test_a_disk_that_refuses_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, broken):
    path = tmp_path / "unit.snapshot"
    path.write_bytes(OLD)
    disk = LocalDisk()
    whole = getattr(disk, broken)

    def refuse(*arguments: object) -> None:
        if broken == "close":
            whole(*arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, broken, refuse)
    with pytest.raises(OSError, match="No space"):
        write_whole(disk, path, PARTS)
    assert path.read_bytes() == OLD
    assert names_in(tmp_path) == {path.name}


def test_parts_that_cannot_be_made_leave_the_old_file(tmp_path):
    path = tmp_path / "unit.snapshot"
    path.write_bytes(OLD)

    def parts() -> Iterator[bytes]:
        yield b"the new"
        raise MemoryError

    with pytest.raises(MemoryError):
        write_whole(LocalDisk(), path, parts())
    assert path.read_bytes() == OLD
    assert names_in(tmp_path) == {path.name}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_nobody_else_may_read_it(tmp_path, mask):
    path = tmp_path / "unit.snapshot"
    path.write_bytes(OLD)
    path.chmod(0o644)
    before = os.umask(mask)
    try:
        assert write_whole(LocalDisk(), path, PARTS) == len(NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == NEW


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_that_is_replaced_keeps_its_mode_and_the_link_to_it(tmp_path, mode):
    path, link = tmp_path / "there" / "plan.toml", tmp_path / "plan.toml"
    path.parent.mkdir()
    path.write_bytes(OLD)
    path.chmod(mode)
    link.symlink_to(path)
    replace_file(LocalDisk(), link, NEW)
    assert link.is_symlink()
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (NEW, mode)
    assert (names_in(tmp_path), names_in(path.parent)) == ({"there", "plan.toml"}, {"plan.toml"})


def test_a_file_that_is_not_there_is_not_replaced(tmp_path):
    with pytest.raises(FileNotFoundError):
        replace_file(LocalDisk(), tmp_path / "plan.toml", NEW)
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        replace_file(LocalDisk(), loop, NEW)
    assert names_in(tmp_path) == {loop.name}


def test_two_processes_that_write_at_once_leave_one_whole_file(tmp_path):
    path = tmp_path / "unit.snapshot"

    def slow() -> Iterator[bytes]:
        yield b"the "
        write_whole(LocalDisk(), path, [b"another"])
        assert path.read_bytes() == b"another"
        yield b"new one"

    write_whole(LocalDisk(), path, slow())
    assert path.read_bytes() == NEW
    assert names_in(tmp_path) == {path.name}


def test_what_a_killed_process_left_beside_it_is_removed_and_nothing_else(tmp_path):
    path = tmp_path / "unit.snapshot"
    others = {"unit.snapshot", "unit.snapshot.refused", ".other.snapshot.ab.tmp", "unit.snapshot.ab.tmp"}
    for name in (*others, ".unit.snapshot.ab.tmp", ".unit.snapshot.cd.tmp"):
        (tmp_path / name).write_bytes(b"x")
    remove_leftovers(LocalDisk(), path)
    assert names_in(tmp_path) == others


def test_who_shares_a_file_removes_only_its_own_leftovers(tmp_path):
    path = tmp_path / "plan.toml"
    others = {
        "plan.toml",
        ".plan.toml.unit-1.ab.tmp",
        ".plan.toml.unit-0.x.ab.tmp",
        ".plan.toml.ab.tmp",
    }
    for name in (*others, ".plan.toml.unit-0.ab.tmp"):
        (tmp_path / name).write_bytes(b"x")
    remove_leftovers(LocalDisk(), path, writer="unit-0")
    assert names_in(tmp_path) == others


def test_reading_is_bounded_and_takes_plain_files_only(tmp_path):
    path = tmp_path / "unit.snapshot"
    with pytest.raises(FileNotFoundError):
        read_whole(path, 100)
    path.write_bytes(NEW)
    assert read_whole(path, len(NEW)) == NEW
    assert read_whole(path, len(NEW) - 1) is None
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match=r"plain file|directory"):
            read_whole(other, 100)
