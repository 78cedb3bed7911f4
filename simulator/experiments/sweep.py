"""Many cells, over several processes, each cell in a process of its own that ends with it."""

import multiprocessing
import signal
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from kvcompass.errors import KVCompassError
from simulator.errors import SimulationError
from simulator.experiments.cell import Cell
from simulator.experiments.run import Finished, run_cell
from simulator.experiments.store import CellStore


class Progress(Protocol):
    """Who is told how a sweep goes."""

    def planned(self, cells: Sequence[Cell], missing: Sequence[Cell]) -> None:
        """So many cells are wanted, and so many of them are to be run."""

    def reached(self, cell: Cell, ended: int) -> None:
        """So many of a cell's requests have ended."""

    def finished(self, cell: Cell) -> None:
        """It is in the store, or has failed."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Finished cells in the order in which they were asked for, and why the others failed."""

    finished: Sequence[Finished]
    failures: Sequence[tuple[Cell, str]]


def run_cells(cells: Sequence[Cell], store: CellStore, progress: Progress, jobs: int) -> Swept:
    """Run what a store does not have of some cells, and return all of them.

    A cell that fails, or whose process is killed, does not stop the others. On KeyboardInterrupt every
    process is ended at once, and the store keeps what was finished.

    Args:
        cells: Wanted, no two alike.
        store: Where they are kept.
        progress: Told of every step.
        jobs: Processes at once; with 1 the cells run in this one.

    Raises:
        SimulationError: Somebody took a file out of the store meanwhile.
    """
    missing = [cell for cell in cells if store.get(cell) is None]
    progress.planned(cells, missing)
    failures = (_in_processes if jobs > 1 else _here)(missing, store, progress, jobs)
    failed = {cell for cell, _ in failures}
    return Swept([_kept(cell, store) for cell in cells if cell not in failed], failures)


def _kept(cell: Cell, store: CellStore) -> Finished:
    found = store.get(cell)
    if found is None:
        message = f"{store.folder}: {cell.name} was there and is gone; is the folder used otherwise?"
        raise SimulationError(message, field="out-dir")
    return found


def _here(cells: Sequence[Cell], store: CellStore, progress: Progress, _jobs: int) -> list[tuple[Cell, str]]:
    failures = []
    for cell in cells:

        def tell(ended: int, cell: Cell = cell) -> None:
            progress.reached(cell, ended)

        try:
            store.put(run_cell(cell, tell))
        except KVCompassError as error:
            failures.append((cell, str(error)))
        except Exception:
            failures.append((cell, traceback.format_exc()))
        progress.finished(cell)
    return failures


@dataclass(slots=True, eq=False)
class _Worker:
    """A process at a cell."""

    cell: Cell
    process: BaseProcess
    messages: Connection
    failure: str = ""


def _in_processes(
    cells: Sequence[Cell], store: CellStore, progress: Progress, jobs: int
) -> list[tuple[Cell, str]]:
    waiting, failures = list(reversed(cells)), []
    workers: dict[Connection, _Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                worker = _start(waiting.pop(), store)
                workers[worker.messages] = worker
            for messages in wait(list(workers)):
                assert isinstance(messages, Connection)
                worker = workers[messages]
                if _hear(worker, progress):
                    continue
                del workers[messages]
                if worker.failure or worker.process.exitcode:
                    failures.append((worker.cell, worker.failure or _killed(worker.process.exitcode)))
                progress.finished(worker.cell)
    finally:
        for worker in workers.values():
            worker.process.kill()
            worker.process.join()
    return failures


def _start(cell: Cell, store: CellStore) -> _Worker:
    # Spawned, not forked: a child begins with nothing of this process's memory, threads and locks.
    context = multiprocessing.get_context("spawn")
    messages, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_work, name=cell.name, args=(cell, store.folder, store.code, theirs), daemon=True
    )
    process.start()
    theirs.close()
    return _Worker(cell, process, messages)


def _hear(worker: _Worker, progress: Progress) -> bool:
    """Take one message; False when the process has ended."""
    try:
        message: int | str = worker.messages.recv()
    except EOFError:
        worker.process.join()
        worker.messages.close()
        return False
    if isinstance(message, int):
        progress.reached(worker.cell, message)
    else:
        worker.failure = message
    return True


def _killed(exit_code: int | None) -> str:
    if exit_code == -signal.SIGKILL:
        return "its process was killed; was there memory enough? fewer --jobs take less"
    return f"its process ended with {exit_code}"


def _work(cell: Cell, folder: Path, code: str, messages: Connection) -> None:
    """What a process does. Ctrl-C is for the parent, which ends its children; without it there is no work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        try:
            store = CellStore(folder)
            if store.code != code:
                # A spawned process has the code of now, and may not even read the cell as it was meant.
                messages.send("the code was changed after the sweep began; run the same again")
                return
            store.put(run_cell(cell, messages.send))
        except KVCompassError as error:
            messages.send(str(error))
        except BrokenPipeError:
            raise
        except Exception:
            messages.send(traceback.format_exc())
