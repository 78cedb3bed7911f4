"""How a lab ends: no process is left, and a directory only where it is said to be."""

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import lab.fleet
import lab.run
from lab.blueprint import Blueprint, Stage
from lab.fleet import Fleet
from lab.interrupts import interruptible
from lab.ports import LoopbackPorts
from lab.process import LabError, LabProcess, ProcessSpec
from lab.three_regions import LabOptions, three_regions


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where run directories are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def blueprint() -> Blueprint:
    """Of a fleet without a process."""
    return replace(three_regions(LabOptions(), LoopbackPorts(random.Random(7))), stages=())


def test_a_start_that_fails_keeps_its_logs_and_says_where(
    directories: Path, blueprint: Blueprint, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = ProcessSpec("absent", "lab.absent", "", "127.0.0.1:1")
    with (
        pytest.raises(LabError, match="absent ended with status 1"),
        Fleet(replace(blueprint, stages=(Stage("nothing", (spec,)),))),
    ):
        raise AssertionError
    (kept,) = directories.iterdir()
    assert "No module named lab.absent" in (kept / "absent.log").read_text()
    assert str(kept) in capsys.readouterr().err


def test_a_start_that_is_interrupted_leaves_nothing(directories: Path, blueprint: Blueprint) -> None:
    def interrupt(_step: str) -> None:
        raise KeyboardInterrupt

    staged = replace(blueprint, stages=(Stage("nothing", ()),))
    with pytest.raises(KeyboardInterrupt), Fleet(staged, on_step=interrupt):
        raise AssertionError
    assert list(directories.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "keep", "kept"), [(None, False, 0), (None, True, 1), (LabError("x"), False, 1)]
)
def test_a_directory_is_kept_where_it_is_wanted(
    error: LabError | None,
    keep: bool,
    kept: int,
    directories: Path,
    blueprint: Blueprint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with suppress(LabError), Fleet(blueprint, keep=keep):
        if error is not None:
            raise error
    said = capsys.readouterr().err
    assert [str(path) in said for path in directories.iterdir()] == [True] * kept
    assert bool(said) == bool(kept)


@pytest.fixture
def handlers_as_they_were() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers_as_they_were")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_interrupt_does_not_keep_the_first_from_ending_all(
    number: int, directories: Path, blueprint: Blueprint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_all(_processes: list[LabProcess], _grace_s: float) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr(lab.fleet, "stop_all", stop_all)
    interruptible()
    with Fleet(blueprint):
        pass
    assert list(directories.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


async def test_an_error_of_the_sampler_is_not_swallowed() -> None:
    async def breaks() -> None:
        raise KeyError("kvcompass_mock")

    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(KeyError, match="kvcompass_mock"):
        async with lab.run._running(breaks()):
            await asyncio.sleep(0)
    async with lab.run._running(waits()):
        await asyncio.sleep(0)
