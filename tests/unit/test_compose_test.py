"""What judges a run of the compose lab: promises, tolerances, excuses."""

import dataclasses

import httpx
import pytest

from lab.compose_test.figures import Figures, broken_promises
from lab.compose_test.front import Front, StepFailedError, claim, holds, wait_until
from lab.compose_test.round_trips import RoundTrip
from lab.compose_test.users import Users
from lab.netem.tolerance import allowed_error_ms

KEPT = Figures(up_s=60.0, cross_region_hits=3, panels_total=54, panels_with_data=54)
TRIPS = {"us-eu": RoundTrip(320.0, 321.0)}


def test_a_run_that_kept_its_promises_broke_none() -> None:
    assert broken_promises(KEPT, TRIPS) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"up_s": 120.0}, "up after 120 s"),
        ({"cross_region_hits": 0}, "another region's cache"),
        ({"errors": 2, "error_messages": {"us: 503": 2}}, "2 requests failed: {'us: 503': 2}"),
        ({"panels_with_data": 53, "panels_empty": ["TTFT"]}, "53 of 54 panels have data; empty: TTFT"),
        ({"panels_total": 0, "panels_with_data": 0}, "0 of 0 panels"),
    ],
)
def test_each_broken_promise_is_one_sentence(change: dict[str, object], says: str) -> None:
    [sentence] = broken_promises(dataclasses.replace(KEPT, **change), TRIPS)
    assert says in sentence


def test_a_round_trip_may_be_off_by_3_ms_or_5_percent() -> None:
    assert (allowed_error_ms(10.0), allowed_error_ms(320.0)) == (3.0, 16.0)
    for planned_ms, off_ms in ((10.0, 3.0), (320.0, 16.0)):
        for sign in (1.0, -1.0):
            assert RoundTrip(planned_ms, planned_ms + sign * off_ms).within_tolerance
            late = {"us-eu": RoundTrip(planned_ms, planned_ms + sign * (off_ms + 0.1))}
            assert len(broken_promises(KEPT, late)) == 1


def test_what_never_comes_true_is_named() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), 30.0, "it comes") > 0.0
    with pytest.raises(StepFailedError, match="the moon: not within 0 s"):
        wait_until(lambda: False, 0.0, "the moon")


def test_a_claim_is_the_workers_and_is_whole_at_the_longest_length() -> None:
    told = {
        "lengths": [128, 512],
        "workers": [{"worker": "a", "match_tokens": 512}, {"worker": "b", "match_tokens": 128}],
    }
    assert claim(told, "b") == 128
    assert holds(told, "a")
    assert not holds(told, "b")


class Failing:
    """A front whose eu edge is down."""

    edges = ("us", "eu")

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, region: str, _prompt: list[int], *, admin: bool) -> None:
        assert not admin
        self.asked.append(region)
        if region == "eu":
            raise httpx.ConnectError("down")

    def all_asked(self) -> bool:
        return min(self.asked.count(region) for region in self.edges) > 2


@pytest.mark.parametrize("excused", [False, True])
def test_failures_are_counted_unless_the_region_is_excused(
    excused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.compose_test.users._PAUSE_S", 0.001)
    front = Failing()
    users = Users(front)
    with users.excusing("eu" if excused else "us"), users:
        wait_until(front.all_asked, 10.0, "both regions ask")
    assert users.asked == len(front.asked)
    assert users.errors.total() == (0 if excused else front.asked.count("eu"))
    assert set(users.errors) <= {"eu: ConnectError down"}


def test_an_edge_that_is_down_makes_the_fleet_not_whole(unused_tcp_port: int) -> None:
    front = Front({"us": f"http://127.0.0.1:{unused_tcp_port}"}, "m", "key", "admin")
    assert not front.ready("us")
    assert not front.whole()
