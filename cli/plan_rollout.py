"""The next version of a plan, brought to all components of a running fleet in order, as far as it gets."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol

from cli.plan_visits import Answer, Target
from kvcompass.plan.rollout import STEPS, Component, Phase


class Visit(Protocol):
    """Brings the plan to one component; `patient`: tries for a while where nobody answers."""

    def __call__(self, target: Target, phase: Phase, *, patient: bool) -> Answer:
        """What it says."""


_AT_ONCE: Final = 32
"""Components asked at the same time."""
_SILENT: Final = Answer("not asked")


@dataclass(slots=True)
class Rollout:
    """What has become of it. Run again, it goes on where it ended: every step may be taken twice."""

    plan_version: int
    targets: list[Target]
    before: dict[Target, int] = field(default_factory=dict)
    """Version that ran when it began, of those that answered."""
    answers: dict[Target, Answer] = field(default_factory=dict)
    """The last one of each."""
    new: set[Target] = field(default_factory=set)
    """Components that only the new version has: they need not run yet."""
    leaving: set[Target] = field(default_factory=set)
    """Components that only the old one has: told, and not waited for."""
    stopped_at: tuple[Component, Phase] | None = None
    """The step that not all acknowledged; later ones were not begun."""

    @property
    def refusing(self) -> list[Target]:
        """Who cannot take the plan."""
        return [target for target, answer in self.answers.items() if answer.refusals]

    @property
    def failed(self) -> list[Target]:
        """Who took the plan and could not do it, by a fault of its own."""
        return [target for target in self.targets if self.answers.get(target, _SILENT).outcome == "failed"]

    @property
    def missing(self) -> list[Target]:
        """Who ought to answer and did not, or did not acknowledge."""
        return [
            target
            for target in self.targets
            if target not in self.new and not self._heard(self.answers.get(target, _SILENT))
        ]

    @property
    def done(self) -> bool:
        """Everybody who runs acknowledges the version and has settled it."""
        return not self.missing and all(
            answer.acknowledges(self.plan_version) and answer.facts["settled"]
            for target, answer in self.answers.items()
            if target in self.targets and not answer.problem
        )

    def check(self, visit: Visit) -> bool:
        """Asks everybody what the plan would change; whether it may be applied. Changes nothing."""
        self._ask(self.targets, Phase.CHECK, visit, patient=False)
        self._learn_who_comes_and_goes()
        if self.missing:
            self._ask(self.missing, Phase.CHECK, visit, patient=True)
            self._learn_who_comes_and_goes()
        for target, answer in self.answers.items():
            if answer.facts:
                self.before[target] = answer.facts["plan_version"]
        return not self.refusing and not self.missing

    def apply(self, visit: Visit, on_step: Callable[[Component, Phase], None] = lambda *_: None) -> bool:
        """Takes all steps, each only when all that take it have acknowledged; whether it got to the end.

        The very first component takes its first step alone: of two that bring a version with two contents at
        a time it refuses one, before that one has gone anywhere else.
        """
        for kind, phase in STEPS:
            on_step(kind, phase)
            asked = [target for target in self.targets if target.kind is kind and target not in self.new]
            others = [target for target in (*self.new, *self.leaving) if target.kind is kind]
            for some in (asked[:1], asked[1:]) if (kind, phase) == STEPS[0] else (asked,):
                self._ask(some, phase, visit, patient=True)
                if not all(self.answers[target].acknowledges(self.plan_version) for target in some):
                    self.stopped_at = (kind, phase)
                    return False
            self._ask(others, phase, visit, patient=False)
        return self.done

    def _learn_who_comes_and_goes(self) -> None:
        added = {
            change["field"]
            for answer in self.answers.values()
            for change in answer.facts.get("changes", ())
            if change["what"] == "added"
        }
        self.new = {
            target
            for target in self.targets
            if all(f"{_SECTION[target.kind]}.{name}" in added for name in target.ids)
        }
        self.leaving = self._leaving()

    def changes(self) -> list[tuple[str, str]]:
        """Every change that some component told, once: field and what."""
        return list(
            dict.fromkeys(
                (change["field"], change["what"])
                for answer in self.answers.values()
                for change in answer.facts.get("changes", ())
            )
        )

    def _ask(self, targets: Iterable[Target], phase: Phase, visit: Visit, *, patient: bool) -> None:
        targets = list(targets)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(lambda target: visit(target, phase, patient=patient), targets))
        self.answers.update(zip(targets, answers, strict=True))

    def _leaving(self) -> set[Target]:
        found: dict[tuple[Component, str], list[str]] = {}
        for answer in self.answers.values():
            for each in answer.facts.get("leaving", ()):
                ids = found.setdefault((Component(each["kind"]), each["ops_address"]), [])
                if each["id"] not in ids:
                    ids.append(each["id"])
        known = {(target.kind, target.address) for target in self.targets}
        return {
            Target(kind, tuple(ids), address)
            for (kind, address), ids in found.items()
            if address and (kind, address) not in known
        }

    def _heard(self, answer: Answer) -> bool:
        return answer.outcome == "checked" or answer.acknowledges(self.plan_version)


_SECTION: Final = {Component.UNIT: "unit", Component.AGENT: "worker", Component.EDGE: "edge"}
