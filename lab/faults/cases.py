"""The ways in which the fleet is broken. Each case leaves everything as it found it."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final

from lab.faults.drill import Drill
from lab.faults.fault_fleet import FILLER, SECOND_EDGE_REGION
from lab.faults.findings import Bound, Findings
from lab.faults.truth import Roster

STOP_S: Final = 10.0
"""How long a process is stopped."""
LOSS_S: Final = 20.0
LOSS_SHARE: Final = 0.3
CUT_S: Final = 20.0

GONE_S: Final = 5.0
"""A worker that died is known nowhere: its lease of 3 s, a unit's clock, and the way."""
HEALED_S: Final = 5.0
REFILLED_S: Final = 10.0
WARM_S: Final = 5.0
FOLLOWED_S: Final = 10.0
"""An edge that is back is followed again: it is asked every 5 s."""
RECOVERED_S: Final = 5.0
"""From when a fault ends, or a restarted process answers, where there is no bound of its own."""

_LIMIT_S: Final = 60.0
"""What is not true by then has not recovered."""
_AGENT, _UNIT, _EDGE = "agent-us", "unit-0", "edge-eu"
_FROM_UNITS: Final = 2
"""A lease ends at the units, and edges follow."""
_UPSTREAM: Final = f"edge-{SECOND_EDGE_REGION}"
_DOWNSTREAM: Final = f"edge-{SECOND_EDGE_REGION}-2"
"""It learns from the other one."""
_CUT_REGION: Final = "us"
"""It has a unit: its shard is cut off from the workers and the edges of the others."""
WARM_EDGE: Final = "edge-us"

Case = Callable[[Drill, Findings], None]
"""Breaks and mends, and writes down what it measured. Errors: NotRecoveredError, LabError."""


def worker_killed(drill: Drill, found: Findings) -> None:
    """An engine dies; later another process takes its place."""
    _killed_and_gone(drill, found, drill.until_busy(*drill.roster.engines))


def agent_killed(drill: Drill, found: Findings) -> None:
    """What its workers hold is known to nobody; started again, it learns it from the engines' replay."""
    _killed_and_gone(drill, found, _AGENT)


def unit_killed(drill: Drill, found: Findings) -> None:
    """It starts empty, is refilled by agents, and edges serve what they had until it is."""
    found.victims = [_UNIT]
    drill.kill(_UNIT)
    time.sleep(1.0)
    began = time.monotonic()
    found.boot_s = drill.start(_UNIT)
    found.recovered_in_s = drill.until_true(began, _LIMIT_S)
    refilled_s = found.recovered_in_s - found.boot_s
    found.bounds.append(Bound("an empty unit is refilled, from when it listens", REFILLED_S, refilled_s))


def edge_killed(drill: Drill, found: Findings) -> None:
    """Its users go to another endpoint of theirs."""
    drill.until_busy(_EDGE)
    drill.kill(_EDGE)
    time.sleep(3.0)
    _started_again(drill, found, _EDGE)


def region_edges_killed(drill: Drill, found: Findings) -> None:
    """All edges of a region die: its users are served by another region's edge."""
    names = [edge.id for edge in drill.plan.edges if edge.region == SECOND_EDGE_REGION]
    drill.until_busy(names[0])
    drill.kill(*names)
    time.sleep(5.0)
    _started_again(drill, found, *names)


def upstream_killed(drill: Drill, found: Findings) -> None:
    """An edge that feeds another one of its region dies: that one goes on with the units, then comes back."""
    _until_downstream(drill)
    drill.kill(_UPSTREAM)
    killed = drill.kills[_UPSTREAM][-1]
    left_s = drill.until_true(killed, _LIMIT_S, down=frozenset({_UPSTREAM}), hops=1)
    found.bounds.append(Bound("the other edge is true by way of the units", RECOVERED_S, left_s))
    _started_again(drill, found, _UPSTREAM)
    _until_followed_again(drill, found)


def upstream_stopped(drill: Drill, found: Findings) -> None:
    """It hangs with its sockets open: the other one notices the silence."""
    _until_downstream(drill)
    found.victims = [_UPSTREAM]
    with drill.stopped(_UPSTREAM):
        began = time.monotonic()
        left_s = drill.until_true(began, STOP_S, down=frozenset({_UPSTREAM}), hops=2)
        found.bounds.append(Bound("the other edge is true by way of the units", RECOVERED_S, left_s))
        time.sleep(max(0.0, began + STOP_S - time.monotonic()))
    goes_on = time.monotonic()
    found.recovered_in_s = drill.until_true(goes_on, _LIMIT_S)
    found.bounds.append(Bound("true again", RECOVERED_S, found.recovered_in_s))
    _until_followed_again(drill, found)


def worker_stopped(drill: Drill, found: Findings) -> None:
    """An engine hangs with its sockets open."""
    _stopped(drill, found, drill.until_busy(*drill.roster.engines), gone=True)


def agent_stopped(drill: Drill, found: Findings) -> None:
    """Its workers' leases end although they are well."""
    _stopped(drill, found, _AGENT, gone=True)


def unit_stopped(drill: Drill, found: Findings) -> None:
    """Nothing of its shard is renewed or told; its own clock stands still too."""
    _stopped(drill, found, _UNIT, gone=False)


def edge_stopped(drill: Drill, found: Findings) -> None:
    """What it had taken is answered afterwards; new requests go elsewhere."""
    drill.until_busy(_EDGE)
    _stopped(drill, found, _EDGE, gone=False)


def engine_restarted(drill: Drill, found: Findings) -> None:
    """An engine dies and is back at its address, with an empty cache, before its lease ends."""
    worker = drill.until_busy(*drill.roster.engines)
    drill.kill(worker)
    _started_again(drill, found, worker)


def cache_flushed(drill: Drill, found: Findings) -> None:
    """`/flush_cache`: an engine drops all it holds. It refuses while it has requests."""
    worker = next(worker for worker in drill.plan.workers if worker.id == drill.roster.engines[0])
    drill.until(lambda: _flush(worker.url.removeprefix("http://")), _LIMIT_S, f"{worker.id} is idle")
    found.victims = [worker.id]
    began = time.monotonic()
    found.recovered_in_s = drill.until_true(began, _LIMIT_S)
    found.bounds.append(Bound("true again", RECOVERED_S, found.recovered_in_s))


def patches_lost(drill: Drill, found: Findings) -> None:
    """Units lose 30 % of their patch messages for 20 s."""
    before = _patches_lost(drill)
    with drill.patch_loss(LOSS_SHARE):
        time.sleep(LOSS_S)
    began = time.monotonic()
    found.recovered_in_s = drill.until_true(began, _LIMIT_S)
    found.patches_lost = _patches_lost(drill) - before
    found.bounds.append(Bound("true again", RECOVERED_S, found.recovered_in_s))


def region_cut_off(drill: Drill, found: Findings) -> None:
    """Nothing passes between a region and the others for 20 s."""
    with drill.cut_off(_CUT_REGION):
        time.sleep(CUT_S)
        began = time.monotonic()
    found.recovered_in_s = drill.until_true(began, _LIMIT_S)
    found.bounds.append(Bound("a healed partition", HEALED_S, found.recovered_in_s))


def rolling_restart(drill: Drill, found: Findings) -> None:
    """Every process of the product and every engine is restarted, one after the other."""
    for name in rolling_order(drill.roster):
        drill.restart_in_order(name)
    began = time.monotonic()
    found.recovered_in_s = drill.until_true(began, _LIMIT_S)
    found.bounds.append(Bound("true again", RECOVERED_S, found.recovered_in_s))


def edge_warms(drill: Drill, found: Findings) -> None:
    """An edge starts while the tables have a million entries, and has its snapshots of the units."""
    _warms(drill, found, WARM_EDGE)


def edge_warms_beside_another(drill: Drill, found: Findings) -> None:
    """The same for one that has its snapshots of its neighbour."""
    _until_downstream(drill)
    _warms(drill, found, _DOWNSTREAM)
    _until_followed_again(drill, found)


def _warms(drill: Drill, found: Findings, edge: str) -> None:
    drill.switch(FILLER, f"keys/{WARM_ENTRIES}")
    drill.until_true(time.monotonic() + 0.5, 2 * _LIMIT_S)
    found.entries = entries(drill)
    found.victims = [edge]
    drill.kill(edge)
    began = time.monotonic()
    found.boot_s = drill.start(edge)
    drill.until(lambda: drill.fleet.process(edge).ready(), _LIMIT_S, f"{edge} is ready")
    warm_s = time.monotonic() - began - found.boot_s
    found.recovered_in_s = drill.until_true(began, _LIMIT_S)
    found.bounds.append(Bound("an edge is warm, from its first answer to ready", WARM_S, warm_s))
    drill.switch(FILLER, f"keys/{ENTRIES}")
    drill.until_true(time.monotonic() + 0.5, 2 * _LIMIT_S)


ENTRIES: Final = 200_000
"""Keys that the filler holds, in both shards together: 1e5 in each unit."""
WARM_ENTRIES: Final = 1_000_000

CASES: Final[Mapping[str, Case]] = {
    "worker-kill": worker_killed,
    "worker-stop": worker_stopped,
    "agent-kill": agent_killed,
    "agent-stop": agent_stopped,
    "unit-kill": unit_killed,
    "unit-stop": unit_stopped,
    "edge-kill": edge_killed,
    "edge-stop": edge_stopped,
    "engine-restart": engine_restarted,
    "flush-cache": cache_flushed,
    "patch-loss": patches_lost,
    "region-cut": region_cut_off,
    "region-edges-kill": region_edges_killed,
    "upstream-kill": upstream_killed,
    "upstream-stop": upstream_stopped,
    "rolling-restart": rolling_restart,
    "edge-warm": edge_warms,
    "edge-warm-peer": edge_warms_beside_another,
}


def entries(drill: Drill) -> int:
    """Keys in all tables, as the units told last."""
    return sum(int(str(details["entries"])) for details in drill.unit_details())


def _until_downstream(drill: Drill) -> None:
    drill.until(lambda: drill.fed_by(_DOWNSTREAM) == {_UPSTREAM}, _LIMIT_S, f"{_DOWNSTREAM} follows an edge")


def _until_followed_again(drill: Drill, found: Findings) -> None:
    began = time.monotonic()
    _until_downstream(drill)
    found.bounds.append(Bound("the edge is followed again", FOLLOWED_S, time.monotonic() - began))


def _killed_and_gone(drill: Drill, found: Findings, name: str) -> None:
    drill.kill(name)
    killed = drill.kills[name][-1]
    gone_s = drill.until_true(killed, _LIMIT_S, down=frozenset({name}), hops=_FROM_UNITS)
    found.bounds.append(Bound("nothing is known of it anywhere", GONE_S, gone_s))
    _started_again(drill, found, name)


def _started_again(drill: Drill, found: Findings, *names: str) -> None:
    found.victims = list(names)
    began = time.monotonic()
    found.boot_s = drill.start(*names)
    found.recovered_in_s = drill.until_true(began, _LIMIT_S)
    after_boot_s = found.recovered_in_s - found.boot_s
    found.bounds.append(Bound("true again, from its first answer", RECOVERED_S, after_boot_s))


def _stopped(drill: Drill, found: Findings, name: str, *, gone: bool) -> None:
    found.victims = [name]
    with drill.stopped(name):
        began = time.monotonic()
        if gone:
            gone_s = drill.until_true(began, STOP_S, down=frozenset({name}), hops=_FROM_UNITS)
            found.bounds.append(Bound("nothing is known of it anywhere", GONE_S, gone_s))
        time.sleep(max(0.0, began + STOP_S - time.monotonic()))
    goes_on = time.monotonic()
    found.recovered_in_s = drill.until_true(goes_on, _LIMIT_S)
    found.bounds.append(Bound("true again", RECOVERED_S, found.recovered_in_s))


def rolling_order(roster: Roster) -> list[str]:
    """Everybody but the filler, edges last: what they serve from is restarted first."""
    agents = sorted(set(roster.agents.values()) - {FILLER})
    return [*roster.units, *agents, *roster.engines, *roster.edges]


def _patches_lost(drill: Drill) -> int:
    return sum(int(str(details["lost_on_purpose"])) for details in drill.unit_details())


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _flush(address: str) -> bool:
    request = urllib.request.Request(f"http://{address}/flush_cache", method="POST")
    try:
        with _DIRECT.open(request, timeout=5.0) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False
