"""A unit's own snapshot: what it costs to write and to restore, beside being refilled by its agents.

python -m bench.unit_snapshot --json out/bench/unit_snapshot.json

Times are of the processor (a thread's own), but for `file_ms`, which waits for the disk. One in four keys is
held by two workers. Bytes are what is taken beyond the unit, at the peak.
"""

import argparse
import json
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.tables import plain
from kvcompass.index import ShardTables, index_shape
from kvcompass.keys.digest import holdings_digest
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import PROTOCOL_VERSION, AgentHello, FullReport, Handshake, Refusal, Renewal
from kvcompass.roles.unit_capture import UnitCapture
from kvcompass.roles.unit_snapshot import restore_tables
from kvcompass.warm import warm
from services.runtime.disk import LocalDisk
from services.runtime.plan_file import load_plan
from services.runtime.whole_file import read_whole, write_whole

PLAN = Path(__file__).parents[1] / "deploy" / "plans" / "three-regions.toml"
ENTRIES = (100_000, 1_000_000)
CHUNK = 32_768
ROUNDS = 5

Held = dict[str, tuple[NDArray[np.uint64], NDArray[np.uint8]]]


def fleet(entries: int) -> tuple[Plan, Held]:
    """The example plan's first region with one shard, and what its workers hold of so many keys."""
    plan = load_plan(PLAN)
    table = plan.workers[0].table
    workers = tuple(worker for worker in plan.workers if worker.table == table)
    plan = replace(plan, units=plan.units[:1], workers=workers)
    plan = replace(plan, index=replace(plan.index, worker_entries_max=2 * entries, expected_entries=entries))
    rng = np.random.default_rng(1)
    keys = np.unique(rng.integers(0, 1 << 63, entries + entries // 8, np.uint64))
    rng.shuffle(keys)
    keys = keys[:entries]
    owner = rng.integers(0, len(workers), entries)
    also = np.where(rng.random(entries) < 1 / 4, (owner + 1) % len(workers), owner)
    held = {}
    for number, worker in enumerate(workers):
        mine = keys[(owner == number) | (also == number)]
        held[worker.id] = mine, rng.integers(1, 3, mine.size).astype(np.uint8)
    return plan, held


def empty_unit(plan: Plan) -> MaintenanceUnit:
    """A unit that has just started."""
    return MaintenanceUnit(
        plan,
        plan.units[0].id,
        epoch=1,
        layout=layout_fields(plan),
        tables=ShardTables(index_shape(plan), plan.units[0].shard, random_seed=1),
        now_us=0,
    )


def refill(unit: MaintenanceUnit, plan: Plan, held: Held) -> None:
    """Every agent reports in full, as after a start with nothing."""
    for worker, (keys, tiers) in held.items():
        told = Renewal(0, holdings_digest(keys, tiers), keys.size)
        handshake = Handshake(worker, 1, PROTOCOL_VERSION, plan.plan_version, layout_fields(plan))
        opened = unit.agent_connected(AgentHello(handshake, worker, told), 0)
        assert not isinstance(opened, Refusal), opened
        starts = range(0, keys.size, CHUNK)
        for number, start in enumerate(starts, 1):
            part = slice(start, start + CHUNK)
            last = number == len(starts)
            message = FullReport(number, keys[part], tiers[part], first=number == 1, last=last)
            answers = unit.on_agent_message(opened[0], message, 0)
            assert not any(isinstance(answer, Refusal) for answer in answers), answers
            while unit.work(opened[0], 0):
                pass
    assert unit.settled


def cpu_ms(call: Callable[[], object]) -> float:
    """Milliseconds of this thread's processor time."""
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1e6


def peak_bytes(call: Callable[[], object]) -> int:
    """Most bytes that a call has at once."""
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def copied(unit: MaintenanceUnit, parts_ms: list[float] | None = None) -> UnitCapture:
    """A capture, and what each of its parts took."""
    while unit.tick(0):
        pass
    capture = unit.capture()
    assert capture is not None
    while not capture.is_whole:
        took = cpu_ms(capture.step)
        if parts_ms is not None:
            parts_ms.append(took)
    return capture


def measure(entries: int, folder: Path) -> dict[str, Any]:
    """All figures at one size."""
    plan, held = fleet(entries)
    unit = empty_unit(plan)
    refill_ms = cpu_ms(lambda: refill(unit, plan, held))
    assert unit.entries == entries
    path = folder / "unit.snapshot"
    samples: dict[str, list[float]] = {}
    parts_ms: list[float] = []

    def restore() -> MaintenanceUnit:
        data = read_whole(path, 1 << 40)
        assert data is not None
        tables = ShardTables(index_shape(plan), plan.units[0].shard, random_seed=1)
        layout = layout_fields(plan)
        unit_id = plan.units[0].id
        restored = restore_tables(data, plan, unit_id, layout=layout, tables=tables)
        epoch = restored.epoch_after(2)
        return MaintenanceUnit(
            plan, unit_id, epoch=epoch, layout=layout, tables=tables, now_us=0, restored=restored
        )

    for _ in range(ROUNDS):
        before = sum(parts_ms)
        capture = copied(unit, parts_ms)
        samples.setdefault("copy_ms", []).append(sum(parts_ms) - before)
        samples.setdefault("encode_ms", []).append(cpu_ms(lambda c=capture: sum(map(len, c.parts()))))
        began = time.perf_counter()
        size = write_whole(LocalDisk(), path, capture.parts())
        samples.setdefault("file_ms", []).append(1e3 * (time.perf_counter() - began))
        samples.setdefault("restore_ms", []).append(cpu_ms(restore))
    again = restore()
    assert again.held() == unit.held()
    figures: dict[str, Any] = {name: statistics.median(each) for name, each in samples.items()}
    figures |= {
        "entries": entries,
        "file_bytes": size,
        "bytes_an_entry": size / entries,
        "copy_part_p50_ms": statistics.median(parts_ms),
        "copy_part_p99_ms": float(np.percentile(parts_ms, 99)),
        "refill_ms": refill_ms,
        "refill_over_restore": refill_ms / figures["restore_ms"],
        "write_peak_bytes": peak_bytes(lambda: sum(map(len, copied(unit).parts()))),
        "restore_peak_bytes": peak_bytes(restore),
    }
    return figures


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=lambda text: int(float(text)), nargs="+", default=list(ENTRIES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warm()
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(entries, Path(folder)) for entries in options.entries]
    rows = [[name, *(f"{each[name]:,.2f}" for each in results)] for name in results[0] if name != "entries"]
    print(plain(["", *(f"{entries:,}" for entries in options.entries)], rows))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
