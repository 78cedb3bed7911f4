"""What the components of a fleet said, as tables for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from cli.plan_visits import Target
from cli.status_asking import Round, Told
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component

_NOBODY = "does not answer"


def tables(plan: Plan, told: Round) -> Iterator[Table]:
    """Views, units and workers."""
    by_kind = {kind: [each for each in told.items() if each[0].kind is kind] for kind in Component}
    units = {
        name: answer.details
        for target, answer in by_kind[Component.UNIT]
        for name in target.ids
        if "digest" in answer.details
    }
    yield _edges(by_kind[Component.EDGE], {details["shard"]: details for details in units.values()})
    yield _units(by_kind[Component.UNIT])
    yield _workers(plan, by_kind[Component.AGENT], units)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    return table


def _row(table: Table, *cells: object) -> None:
    table.add_row(*(Text("" if cell is None else str(cell)) for cell in cells))


def _edges(edges: list[tuple[Target, Told]], units: Mapping[int, Mapping[str, Any]]) -> Table:
    table = _table(
        "Edges",
        *("edge", "plan", "state", "shard", "view", "age ms", "fed by", "sequence", "behind"),
        *("snapshots", "resyncs", "gaps", "differed", "old", "fed", "blind", "oldest load ms"),
    )
    for target, told in edges:
        if told.problem:
            _row(table, target.ids[0], "", _NOBODY)
            continue
        first = True
        for view in told.details["shards"]:
            again = view["resubscriptions"]
            _row(
                table,
                *(
                    (target.ids[0], told.plan["plan_version"], told.health["state"])
                    if first
                    else ("", "", "")
                ),
                view["shard"],
                view["state"],
                _whole(view["age_ms"]),
                view.get("fed_by"),
                view["applied_sequence"],
                _behind(view, units.get(view["shard"])),
                view["snapshots"],
                sum(count for reason, count in again.items() if reason != "moved"),
                again.get("gap", 0) + again.get("behind", 0),
                view["digest_mismatches"],
                view["old_groups"],
                view.get("relay_subscribers"),
                *((told.details["blind_decisions"], _whole(_oldest(told))) if first else ("", "")),
            )
            first = False
    return table


def _behind(view: Mapping[str, Any], unit: Mapping[str, Any] | None) -> object:
    if unit is None:
        return "?"
    if unit["epoch"] != view["unit_epoch"]:
        return "other life"
    return max(0, unit["sequence"] - view["applied_sequence"])


def _oldest(told: Told) -> float | None:
    """Age of the oldest load that the edge goes by, ms."""
    ages = [worker["load_age_ms"] for worker in told.details["workers"]]
    return max((age for age in ages if age is not None), default=None)


def _units(units: list[tuple[Target, Told]]) -> Table:
    table = _table(
        "Maintenance units",
        *("unit", "plan", "state", "shard", "sequence", "entries", "live", "followed by (groups behind)"),
        *("overflows", "holes", "differed", "refused", "leases ended", "own snapshot"),
    )
    for target, told in units:
        details = told.details
        if told.problem or "digest" not in details:
            _row(table, target.ids[0], told.plan.get("plan_version"), told.health.get("state", _NOBODY))
            continue
        counters = details["counters"]
        _row(
            table,
            target.ids[0],
            told.plan["plan_version"],
            told.health["state"],
            details["shard"],
            details["sequence"],
            details["entries"],
            f"{len(details['live_workers'])}/{len(details['workers'])}",
            ", ".join(f"{edge} ({lag})" for edge, lag in details["subscriber_lag_groups"].items()),
            counters["overflows"],
            counters["holes"],
            counters["digest_mismatches"],
            counters["refusals"],
            counters["leases_ended"],
            _snapshot(details.get("snapshot")),
        )
    return table


def _snapshot(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "none kept"
    return (
        f"{facts['start']}, {facts['age_s']:.0f} s old, {facts['bytes']:,} bytes, {facts['failures']} failed"
    )


def _workers(plan: Plan, agents: list[tuple[Target, Told]], units: Mapping[str, Mapping[str, Any]]) -> Table:
    table = _table(
        "Workers",
        *("worker", "plan", "engine", "self-test", "blocks", "keys", "waiting", "lost", "left out"),
        "overflows",
        *(f"at {unit.id}" for unit in plan.units),
    )
    for target, told in agents:
        for name in target.ids:
            at_units = [_registration(units.get(unit.id), name) for unit in plan.units]
            worker = told.details.get(name)
            if worker is None:
                state = _NOBODY if told.problem else "not served"
                _row(table, name, "", state, *[""] * 7, *at_units)
                continue
            _row(
                table,
                name,
                told.plan["plan_version"],
                worker["state"],
                worker.get("self_test", {}).get("result"),
                worker["blocks"],
                worker["held_keys"],
                sum(worker["pending_keys"].values()),
                worker["lost_batches"],
                worker["left_out"],
                worker["overflows"],
                *at_units,
            )
    return table


def _registration(unit: Mapping[str, Any] | None, worker: str) -> str:
    if unit is None or worker not in unit["workers"]:
        return "?"
    told, keys = unit["workers"][worker], unit["holdings"][worker]["keys"]
    left_ms = told["lease_left_ms"]
    lease = "no lease" if left_ms is None else f"lease {left_ms / 1e3:.1f} s"
    return f"{told['registration']}, {lease}, {keys:,} keys"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
