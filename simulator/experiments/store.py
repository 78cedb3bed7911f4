"""A folder of finished cells, so that a sweep that was interrupted goes on where it was."""

import ast
import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Final

from simulator.errors import SimulationError
from simulator.experiments.cell import Cell, digest
from simulator.experiments.run import Finished
from simulator.results.figures import RunFigures
from simulator.results.parts import Parts
from simulator.results.percentiles import Percentiles

_PACKAGES: Final = ("kvcompass", "simulator")
_SHOWN: Final = (
    "simulator/results/table",
    "simulator/results/plot",
    "simulator/results/measured",
    "simulator/experiments/compare",
)
"""Code that only shows what cells found: its changes make no cell anew."""


class CellStore:
    """Cells by the digest of their inputs and of the code that ran them. A file each, whole or not there.

    Several processes may write to one folder.
    """

    def __init__(self, folder: Path, *, any_code: bool = False) -> None:
        """Make the folder where it is missing.

        Args:
            folder: Nothing else should be in it.
            any_code: Also take cells that other code made.

        Raises:
            SimulationError: The folder cannot be written to.
        """
        self.folder: Final = folder
        self._any_code = any_code
        self.code: Final = code_digest()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            message = f"{folder}: cannot be written to: {error.strerror}; choose another folder"
            raise SimulationError(message, field="out-dir") from error

    def get(self, cell: Cell) -> Finished | None:
        """Return a finished cell; None when it is to be run: no file, a damaged one, or other figures."""
        inputs = cell.inputs()
        found = _read(self._path(cell, inputs))
        if found is None or found.get("inputs") != inputs:
            return None
        if not self._any_code and found.get("code") != self.code:
            return None
        try:
            return Finished(cell, found["source"], figures_from(found["figures"]), found["wall_s"])
        except (KeyError, TypeError):
            return None

    def put(self, finished: Finished) -> None:
        """Keep a finished cell."""
        inputs = finished.cell.inputs()
        found = {
            "inputs": inputs,
            "code": self.code,
            "source": finished.source,
            "wall_s": round(finished.wall_s, 3),
            "figures": asdict(finished.figures),
        }
        write_whole(self._path(finished.cell, inputs), json.dumps(found, indent=1))

    def _path(self, cell: Cell, inputs: dict[str, Any]) -> Path:
        return self.folder / f"{cell.name}-{digest(inputs)}.json"


def figures_from(found: dict[str, Any]) -> RunFigures:
    """Read `asdict(RunFigures)` back from JSON."""
    nested: dict[str, Any] = {name: Percentiles(**found[name]) for name in ("ttft_ms", "e2e_ms", "queue_ms")}
    for name in ("parts", "parts_middle", "parts_slowest", "parts_longest"):
        nested[name] = None if found[name] is None else Parts(**found[name])
    return RunFigures(**found | nested | {"ttft_curve_ms": tuple(found["ttft_curve_ms"])})


def write_whole(path: Path, text: str) -> None:
    """Write a file as a whole: readers, after a crash too, see all of it or what was there before."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@cache
def code_digest() -> str:
    """Name the code that figures follow from, comments and layout left out: 16 hexadecimal digits."""
    root = Path(__file__).parents[2]
    whole = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not name.startswith(_SHOWN):
                whole.update(f"{name} {ast.dump(ast.parse(path.read_bytes()))}\n".encode())
    return whole.hexdigest()[:16]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
