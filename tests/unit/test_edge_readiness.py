"""Whether balancers may send an edge requests, and what it says is wrong when they may all the same."""

from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from kvcompass.roles.index_follower import FollowerState
from services.edge.readiness import Readiness
from services.edge.state_log import StateLog


@dataclass
class Shard:
    """As much of a follower as what anybody may know needs."""

    shard: int
    now: FollowerState
    refusal: None = None
    was_loaded: bool = False

    def state(self, now_us: int) -> FollowerState:
        return self.now


class WithoutDetails(Readiness):
    def shards(self) -> list[dict[str, object]]:
        return []


def ready(*states: FollowerState) -> Readiness:
    shards = [Shard(number, state) for number, state in enumerate(states)]
    readiness = WithoutDetails(shards, lambda: 0)  # type: ignore[arg-type]
    readiness.warm = True
    return readiness


def test_all_is_well() -> None:
    told = ready(FollowerState.EXACT, FollowerState.EXACT).public()
    assert told == {"ready": True, "state": "ready", "reasons": []}


@pytest.mark.parametrize("state", [FollowerState.STALE, FollowerState.CATCHING_UP])
def test_degraded_says_by_which_shard(state: FollowerState) -> None:
    readiness = ready(FollowerState.EXACT, state)
    assert readiness.ready
    assert readiness.public() == {
        "ready": True,
        "state": "degraded",
        "reasons": [f"shard 1 is {state.value}"],
    }
    assert readiness.health().ready


def test_what_keeps_it_from_starting_comes_before_what_only_degrades_it() -> None:
    readiness = ready(FollowerState.ABSENT, FollowerState.STALE)
    told = {"ready": False, "state": "starting", "reasons": ["shard 0 is not loaded"]}
    assert readiness.public() == told


@pytest.mark.parametrize("state", list(FollowerState))
def test_one_blind_shard_makes_the_edge_blind(state: FollowerState) -> None:
    assert ready(FollowerState.EXACT, state).blind == state.is_blind


def test_draining_is_no_degradation() -> None:
    readiness = ready(FollowerState.STALE)
    readiness.draining = True
    assert readiness.public() == {"ready": False, "state": "draining", "reasons": ["draining"]}


def test_each_change_of_state_is_logged_once() -> None:
    shard = Shard(0, FollowerState.ABSENT)
    readiness = WithoutDetails([shard], lambda: 0)  # type: ignore[list-item]
    readiness.warm = True
    log = StateLog(readiness)
    with capture_logs() as lines:
        for state in (FollowerState.ABSENT, FollowerState.EXACT, FollowerState.STALE, FollowerState.EXACT):
            shard.now = state
            log.look()
            log.look()
    assert [(line["log_level"], line["state"], line["reasons"]) for line in lines] == [
        ("info", "starting", ["shard 0 is not loaded"]),
        ("info", "ready", []),
        ("warning", "degraded", ["shard 0 is stale"]),
        ("info", "ready", []),
    ]
