"""`kvcompass lab faults`: one fleet, every case, one table."""

import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from lab.faults.cases import CASES, ENTRIES, WARM_ENTRIES, entries
from lab.faults.drill import Drill, NotRecoveredError
from lab.faults.fault_fleet import fault_fleet
from lab.faults.findings import Bound, Findings
from lab.faults.probe import LEARN_LIMIT_S, probe
from lab.faults.table import print_findings
from lab.faults.users import Asked, Endpoint, Fate, Users
from lab.faults.watch import Watch
from lab.fleet import Fleet
from lab.ports import LoopbackPorts
from lab.process import LabError
from lab.run import write_json
from lab.three_regions import MODEL
from lab.warm import warm_kernels

_START_LIMIT_S: Final = 120.0
_WIDTH: Final = 150
_QUIET_S: Final = 2.0
_END_LIMIT_S: Final = 30.0
"""For requests that were under way at the recovery."""
_TOLD: Final = 3
"""Failures of a case that are told in full."""


@dataclass(frozen=True, slots=True)
class FaultOptions:
    """What `kvcompass lab faults` was told."""

    cases: Sequence[str]
    requests_per_s: float
    json_path: Path
    keep: bool


def run_faults(options: FaultOptions, ports: LoopbackPorts) -> int:
    """Runs the cases one after the other; returns how many were not as promised. Errors: LabError."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    console.print("loading kernels ...")
    warm_kernels()
    blueprint = fault_fleet(ports, keys=ENTRIES, keys_max=WARM_ENTRIES)
    rows: list[Findings] = []
    began = time.monotonic()
    with (
        Fleet(
            blueprint, on_step=lambda step: console.print(f"starting {step} ..."), keep=options.keep
        ) as fleet,
        Watch(blueprint) as watch,
        Users(
            _endpoints(fleet), MODEL, requests_per_s=options.requests_per_s, says_ready=watch.says_ready
        ) as users,
    ):
        drill = Drill(fleet, watch)
        try:
            with watch.closely():
                drill.until_true(time.monotonic(), _START_LIMIT_S)
            for name in options.cases:
                time.sleep(_QUIET_S)
                console.print(f"{name} ...")
                rows.append(_run_case(drill, users, name))
                write_json(options.json_path, [row.as_json() for row in rows])
        except NotRecoveredError as error:
            raise LabError(f"the fleet is not whole before a case: {error}", field="start") from error
    print_findings(console, rows)
    console.print(f"{time.monotonic() - began:.0f} s. Figures: {options.json_path}.")
    return sum(not row.ok for row in rows)


def _run_case(drill: Drill, users: Users, name: str) -> Findings:
    found = Findings(name)
    before = drill.watch.totals
    with drill.watch.closely():
        drill.until_true(time.monotonic(), _START_LIMIT_S)
        began = time.monotonic()
        try:
            CASES[name](drill, found)
            ended = time.monotonic()
            found.learned_in_s = probe(drill, random.Random())
            found.bounds.append(Bound("a new prefix is known everywhere", LEARN_LIMIT_S, found.learned_in_s))
        except (NotRecoveredError, LabError) as error:
            ended = time.monotonic()
            found.problems.append(str(error))
        found.problems += [f"{name} was not running afterwards" for name in drill.mend()]
        _count_requests(found, _ended(users, began, ended), drill)
        risen = drill.watch.totals - before
    found.wrong_claims, found.blind_decisions = risen.wrong_claims, risen.blind_decisions
    found.entries = found.entries or entries(drill)
    found.busy = round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)
    return found


def _ended(users: Users, began: float, ended: float) -> list[Asked]:
    """The requests of a case, once they have all ended, or those that have within the limit."""
    deadline = time.monotonic() + _END_LIMIT_S
    while True:
        asked = users.overlapping(began, ended)
        if all(each.ended_at is not None for each in asked) or time.monotonic() > deadline:
            return asked
        time.sleep(0.1)


def _count_requests(found: Findings, asked: list[Asked], drill: Drill) -> None:
    open_still = [each for each in asked if each.ended_at is None]
    if open_still:
        found.problems.append(f"{len(open_still)} requests do not end")
    over = [each for each in asked if each.ended_at is not None]
    fates = [each.fate(drill.kills) for each in over]
    found.requests = len(asked)
    found.failed_requests = fates.count(Fate.FAILED)
    found.cut_answers = fates.count(Fate.CUT)
    found.lost_at_killed_edges = fates.count(Fate.AT_A_KILLED_EDGE)
    first = {region: endpoints[0].edge for region, endpoints in _endpoints(drill.fleet).items()}
    found.at_another_endpoint = sum(each.edge != first[each.region] for each in over)
    found.longest_request_s = round(
        max(((each.ended_at or 0.0) - each.sent_at for each in over), default=0.0), 2
    )
    failed = [each for each, fate in zip(over, fates, strict=True) if fate is Fate.FAILED]
    found.problems += [f"failed at {each.edge}: {each.failure}" for each in failed[:_TOLD]]


def _endpoints(fleet: Fleet) -> dict[str, list[Endpoint]]:
    """By region: its own edges, then those of the next region."""
    plan = fleet.blueprint.plan
    by_region = {
        region: [
            Endpoint(edge.id, f"http://{edge.address}/v1") for edge in plan.edges if edge.region == region
        ]
        for region in plan.regions
    }
    nexts = dict(zip(plan.regions, (*plan.regions[1:], plan.regions[0]), strict=True))
    return {region: own + by_region[nexts[region]] for region, own in by_region.items()}
