"""The order in which components take a plan, and how far it gets when some do not."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from cli.plan_rollout import Rollout
from cli.plan_visits import Answer, Target
from kvcompass.plan.rollout import STEPS, Component, Phase

UNIT, AGENT, EDGE = Component.UNIT, Component.AGENT, Component.EDGE


class Fleet:
    """Components that run version 1 and take version 2; some are down at some visits."""

    def __init__(
        self, targets: Iterable[Target], down: Iterable[int] = (), added: Iterable[str] = ()
    ) -> None:
        self.versions = dict.fromkeys(targets, 1)
        self.settled = dict.fromkeys(self.versions, True)
        self.down = set(down)
        self.added = list(added)
        self.leaving: list[dict[str, str]] = []
        self.visits: list[tuple[Target, Phase]] = []

    def visit(self, target: Target, phase: Phase, *, patient: bool) -> Answer:
        self.visits.append((target, phase))
        if len(self.visits) in self.down or target not in self.versions:
            return Answer("no answer")
        outcome = "checked"
        changes = [{"field": field, "what": "added", "why": "", "roll": ""} for field in self.added]
        if self.versions[target] == 2 and (phase is not Phase.SETTLE or self.settled[target]):
            outcome = "already"
        elif phase is not Phase.CHECK:
            outcome, self.versions[target] = "applied", 2
            self.settled[target] = phase is Phase.SETTLE
        return Answer(
            facts={
                "outcome": outcome,
                "plan_version": self.versions[target],
                "settled": self.settled[target],
                "changes": changes,
                "leaving": self.leaving,
                "kind": target.kind.value,
                "ids": list(target.ids),
            }
        )


def targets(*kinds: Component) -> list[Target]:
    return [Target(kind, (f"{kind.value}-{i}",), f"h:{i}") for i, kind in enumerate(kinds)]


ALL = targets(UNIT, UNIT, AGENT, AGENT, EDGE, EDGE)


def test_agents_register_new_lengths_before_edges_ask_and_drop_old_ones_after():
    fleet, rollout = Fleet(ALL), Rollout(2, ALL)
    assert rollout.check(fleet.visit)
    fleet.visits.clear()
    assert rollout.apply(fleet.visit)
    kinds = list(dict.fromkeys((target.kind, phase) for target, phase in fleet.visits))
    assert kinds == list(STEPS)
    assert (
        kinds.index((AGENT, Phase.PREPARE))
        < kinds.index((EDGE, Phase.SETTLE))
        < kinds.index((AGENT, Phase.SETTLE))
    )
    assert kinds[0] == (UNIT, Phase.PREPARE)
    assert kinds[-1] == (UNIT, Phase.SETTLE)
    assert set(fleet.versions.values()) == {2}
    assert all(fleet.settled.values())


@given(st.lists(st.sets(st.integers(1, 30), max_size=8), max_size=4))
def test_a_step_is_taken_only_after_all_before_it_and_again_means_to_go_on(outages: list[set[int]]):
    fleet = Fleet(ALL)
    for down in (*outages, set()):
        fleet.down, fleet.visits = down, []
        rollout = Rollout(2, ALL)
        went = rollout.check(fleet.visit) and rollout.apply(fleet.visit)
        for target in ALL:
            if target.kind is EDGE and fleet.versions[target] == 2:
                assert {fleet.versions[each] for each in ALL if each.kind is not EDGE} == {2}
            if target.kind is AGENT and fleet.versions[target] == 2 and fleet.settled[target]:
                assert {fleet.versions[each] for each in ALL} == {2}
        if not went:
            assert rollout.missing
        assert went == (set(fleet.versions.values()) == {2} and all(fleet.settled.values()) and rollout.done)
    assert went


def test_of_two_contents_that_are_brought_at_a_time_one_goes_nowhere():
    """Both found everybody at version 1. The first component decides: the other has begun nowhere."""
    fleet, first, second = Fleet(ALL), Rollout(2, ALL), Rollout(2, ALL)

    def another_content(target: Target, phase: Phase, *, patient: bool) -> Answer:
        if fleet.versions[target] == 1:
            return fleet.visit(target, phase, patient=patient)
        refused = {"field": "fleet.plan_version", "what": "", "why": "another content", "roll": ""}
        return Answer(facts={"outcome": "refused", "plan_version": 2, "changes": [], "refused": refused})

    assert first.check(fleet.visit) and second.check(another_content)
    fleet.down = {len(fleet.visits) + 2}  # the first one ends after one component
    assert not first.apply(fleet.visit)
    before = dict(fleet.versions)
    assert list(before.values()).count(2) == 1
    assert not second.apply(another_content)
    assert (second.refusing, fleet.versions) == (ALL[:1], before)
    fleet.down = set()
    assert first.check(fleet.visit) and first.apply(fleet.visit)


def test_nothing_is_begun_while_somebody_is_missing():
    fleet, rollout = Fleet(ALL[1:]), Rollout(2, ALL)
    assert not rollout.check(fleet.visit)
    assert rollout.missing == ALL[:1]
    assert set(fleet.versions.values()) == {1}


def test_who_is_new_may_start_later():
    new = Target(AGENT, ("w-new",), "h:9")
    fleet, rollout = Fleet(ALL, added=["worker.w-new"]), Rollout(2, [*ALL, new])
    assert rollout.check(fleet.visit)
    assert rollout.new == {new}
    assert rollout.apply(fleet.visit)
    assert rollout.missing == []


def test_who_leaves_is_told_and_not_waited_for():
    fleet, rollout = Fleet(ALL), Rollout(2, ALL)
    fleet.leaving = [{"kind": "edge", "id": "edge-old", "ops_address": "h:99"}]
    assert rollout.check(fleet.visit)
    assert rollout.apply(fleet.visit)
    [gone] = rollout.leaving
    assert (gone, Phase.SETTLE) in fleet.visits
    assert rollout.answers[gone].problem


def test_a_refusal_stops_before_anything_is_changed():
    fleet, rollout = Fleet(ALL), Rollout(2, ALL)

    def refusing(target: Target, phase: Phase, *, patient: bool) -> Answer:
        answer = fleet.visit(target, phase, patient=patient)
        refused = {"field": "model.id", "what": "", "why": "because", "roll": ""}
        return Answer(facts={**answer.facts, "outcome": "refused", "refused": refused})

    assert not rollout.check(refusing)
    assert set(rollout.refusing) == set(ALL)


def test_who_does_not_answer_at_once_is_asked_again_unless_it_is_new():
    new = Target(AGENT, ("w-new",), "h:9")
    fleet, rollout = Fleet(ALL, down=[3], added=["worker.w-new"]), Rollout(2, [*ALL, new])
    asked: list[tuple[Target, bool]] = []

    def noting(target: Target, phase: Phase, *, patient: bool) -> Answer:
        asked.append((target, patient))
        return fleet.visit(target, phase, patient=patient)

    assert rollout.check(noting)
    assert [target for target, patient in asked if patient] != [new]
    assert len([target for target, patient in asked if patient]) == 1
    assert rollout.apply(noting)
    assert not any(patient for target, patient in asked if target == new)
