"""Documents of one comparison that was run in parts: read, put together, and kept beside its page."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import SimulationError
from simulator.experiments.document import rows_as_json, runs_from
from simulator.results.rows import rows


def read(path: Path) -> dict[str, Any]:
    """Read what `--json` wrote, or `kept` (`.gz`).

    Raises:
        SimulationError: It cannot be read, or is no document of a comparison.
    """
    try:
        whole = path.read_bytes()
        found = json.loads(gzip.decompress(whole) if path.suffix == ".gz" else whole)
    except (OSError, EOFError, ValueError) as error:
        raise SimulationError(f"{path}: cannot be read: {error}", field="write-docs") from error
    if not isinstance(found, dict) or not {"code", "no_reuse_capacity", "rows", "runs"} <= found.keys():
        message = f"{path}: no document of a comparison; give what --json wrote"
        raise SimulationError(message, field="write-docs")
    return found


def joined(documents: Sequence[Mapping[str, Any]], *, any_code: bool = False) -> dict[str, Any]:
    """Put documents together whose runs differ in workload, policy, load or seed.

    Args:
        documents: One or more.
        any_code: Also where different code made them; each run is then kept with its own's digest.

    Raises:
        SimulationError: Different code or other settings made them, or one run is in two of them.
    """
    codes = sorted({code for document in documents for code in document["code"].split(", ")})
    if len(codes) > 1 and not any_code:
        message = f"different code made them ({', '.join(codes)}); run one again, or say --any-code"
        raise SimulationError(message, field="write-docs")
    runs = [
        {"code": document["code"], **_without_paths(run)}
        for document in documents
        for run in document["runs"]
    ]
    _check(runs)
    whole: dict[str, Any] = {
        **documents[0],
        "code": ", ".join(codes),
        "no_reuse_capacity": _capacities(documents),
        "rows": [row for document in documents for row in document["rows"]],
        "failures": [failure for document in documents for failure in document["failures"]],
        "runs": runs,
    }
    return whole | {"rows": rows_as_json(rows(runs_from(whole)))}


def kept(document: Mapping[str, Any]) -> bytes:
    """Return a document as a small file, the same bytes whenever it is written."""
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def _without_paths(run: Mapping[str, Any]) -> dict[str, Any]:
    """The data's folder lies elsewhere on each machine; what was read of it, `files` has by digest."""
    inputs = run["inputs"]
    folder = inputs["setting"].get("data")
    setting = {**inputs["setting"], "data": folder and Path(folder).name}
    return {**run, "inputs": {**inputs, "setting": setting}}


def _check(runs: Sequence[Mapping[str, Any]]) -> None:
    settings: dict[str, Any] = {}
    seen = set()
    for inputs in (run["inputs"] for run in runs):
        setting = inputs["setting"]
        workload = setting["workload"]
        name = f"{workload}, {inputs['policy']}, load {inputs['load']}, seed {inputs['seed']}"
        for field, value in settings.setdefault(workload, setting).items():
            if setting.get(field) != value:
                message = f"{name}: {field} is {setting.get(field)}, of other runs {value}; give runs alike"
                raise SimulationError(message, field="write-docs")
        if name in seen:
            raise SimulationError(f"{name}: is there twice; give each run once", field="write-docs")
        seen.add(name)


def _capacities(documents: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        for workload, by_seed in document["no_reuse_capacity"].items():
            found.setdefault(workload, {}).update(by_seed)
    return found
