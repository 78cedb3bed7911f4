"""An engine that works and says nothing is found out; one that lives, or rests, never is."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.roles.event_watch import EventWatch
from kvcompass.roles.queue_estimate import EngineLoad

SECOND = 1_000_000
SILENT_US = 10 * SECOND


def load(running: int = 0, used: int = 0, **counted: int) -> EngineLoad:
    return EngineLoad(running, 0, used, 1_000, **counted)


def watch_of(*loads: EngineLoad) -> EventWatch:
    """One load a second."""
    watch = EventWatch(SILENT_US)
    for second, each in enumerate(loads):
        watch.on_load(each, second * SECOND)
    return watch


def test_a_wedged_publisher_is_silent_once_a_replay_was_asked_for_in_vain() -> None:
    watch = watch_of(load())
    watch.on_replay()
    for second in range(1, 12):
        watch.on_load(load(running=1), second * SECOND)
    assert not watch.is_silent and watch.wants_proof, "nobody has asked yet"
    watch.on_unanswered()
    watch.on_load(load(), 12 * SECOND)
    assert (watch.is_silent, watch.never_heard, watch.silences) == (True, False, 1)
    watch.on_batch()
    assert not watch.is_silent, "the first word ends it"
    watch.on_load(load(), 13 * SECOND)
    assert not watch.is_silent and not watch.wants_proof


def test_a_replay_that_answers_is_a_sign_of_life_whatever_is_in_it() -> None:
    watch = EventWatch(SILENT_US)
    for second in range(60):
        watch.on_load(load(running=1), second * SECOND)
        if second % 5 == 0:
            watch.on_replay()
        watch.on_unanswered()
        assert not watch.is_silent


def test_a_replay_that_failed_before_the_work_proves_nothing() -> None:
    watch = watch_of(load())
    watch.on_replay()
    watch.on_load(load(), 0)
    watch.on_unanswered()
    for second in range(1, 30):
        watch.on_load(load(running=1), second * SECOND)
    assert not watch.is_silent and watch.wants_proof


def test_who_rests_is_not_silent() -> None:
    watch = watch_of(*[load(used=500)] * 60)
    watch.on_unanswered()
    watch.on_load(load(used=500), 100 * SECOND)
    assert not watch.is_silent and not watch.wants_proof


def test_where_no_replay_ever_answered_only_a_stranger_is_silent_for_working() -> None:
    """Who was heard before may be asked again for what it holds: that stores nothing, and is not told."""
    for heard in (False, True):
        watch = watch_of(load())
        if heard:
            watch.on_batch()
        for second in range(1, 30):
            watch.on_load(load(running=1), second * SECOND)
            watch.on_unanswered()
        assert watch.is_silent is not heard


@pytest.mark.parametrize("counter", ["prefill_uncached_tokens", "finished_requests"])
def test_requests_between_two_loads_show_in_what_is_counted(counter: str) -> None:
    watch = watch_of(load(**{counter: 1_000}))
    watch.on_load(load(**{counter: 0}), SECOND)
    assert not watch.wants_proof, "a counter that begins anew counts nothing"
    watch.on_load(load(**{counter: 1}), 2 * SECOND)
    assert watch.wants_proof


@dataclass
class Naive:
    """Remembers the whole past, and looks at all of it each time."""

    replayed: bool
    heard_us: list[int]
    asked_us: list[int]
    worked_us: list[int]

    def must_not_be_silent(self, now_us: int) -> bool:
        since = max(self.heard_us, default=-1)
        work = [at for at in self.worked_us if at > since]
        asked = [at for at in self.asked_us if work and at > work[0]]
        strange = self.replayed or not self.heard_us
        return not work or now_us - work[0] < SILENT_US or not asked or not strange


steps = st.lists(
    st.tuples(st.sampled_from(("rest", "work", "batch", "replay", "vain")), st.integers(1, 12)), max_size=12
)
"""What happens each second, and for how many."""


@settings(max_examples=200, deadline=None)
@given(steps.map(lambda runs: [step for step, seconds in runs for _ in range(seconds)]))
def test_it_is_silent_exactly_when_work_went_untold_for_so_long(log: list[str]) -> None:
    """One step a second: work, a sign of life, or a replay in vain; a load is told each second."""
    watch, naive = EventWatch(SILENT_US), Naive(False, [], [], [])
    for second, step in enumerate(log):
        at = second * SECOND
        if step in ("batch", "replay"):
            (watch.on_batch if step == "batch" else watch.on_replay)()
            naive.replayed |= step == "replay"
            naive.heard_us.append(at)
        elif step == "vain":
            watch.on_unanswered()
            naive.asked_us.append(at)
        watch.on_load(load(running=int(step == "work")), at)
        if step == "work":
            naive.worked_us.append(at)
        assert watch.is_silent is not naive.must_not_be_silent(at)
