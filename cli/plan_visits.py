"""Brings a plan to one component's operations listener over HTTP."""

import argparse
import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kvcompass.errors import PlanError
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component, Phase, components_of
from services.runtime.plan_signature import SIGNATURE_HEADER, sign

_AGAIN_S: Final = 0.25
"""Between two tries of a component that does not answer or is starting."""


@dataclass(frozen=True, slots=True)
class Target:
    """One process: what it is in the plan, and its operations listener."""

    kind: Component
    ids: tuple[str, ...]
    address: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind.value} {', '.join(self.ids)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a component said; `problem` is why nothing was heard, empty when something was."""

    problem: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """As `services.runtime.plan_desk.Outcome` has it; empty when nothing was heard."""
        return str(self.facts.get("outcome", ""))

    def acknowledges(self, plan_version: int) -> bool:
        """The component runs this version."""
        return self.outcome in ("applied", "already") and self.facts.get("plan_version") == plan_version

    @property
    def refusals(self) -> list[Mapping[str, str]]:
        """Why it cannot take the plan: field, what, why and roll each."""
        found = [change for change in self.facts.get("changes", ()) if change["why"]]
        if "refused" in self.facts:
            found.append(self.facts["refused"])
        for path, message in self.facts.get("faults", ()):
            found.append({"field": path, "what": "", "why": message, "roll": ""})
        return found


class Courier:
    """Carries one plan. Tries for `timeout_s` where nobody answers."""

    def __init__(self, plan: bytes, key: str, timeout_s: float, via: Mapping[str, str] | None = None) -> None:
        """`via`: addresses of the plan that are reached elsewhere, through a tunnel or a port-forward."""
        self._via = dict(via or {})
        self._plan = plan
        self._key = key
        self._timeout_s = timeout_s

    def visit(self, target: Target, phase: Phase, *, patient: bool) -> Answer:
        """What the component says to it; `patient`: whether to try again where nobody answers."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            answer = self._once(target, phase, max(0.1, deadline - time.monotonic()))
            final = not answer.problem and answer.facts.get("refused", {}).get("field") != "component"
            if final or not patient or time.monotonic() + _AGAIN_S >= deadline:
                return answer
            time.sleep(_AGAIN_S)

    def _once(self, target: Target, phase: Phase, timeout_s: float) -> Answer:
        address = self._via.get(target.address, target.address)
        connection = http.client.HTTPConnection(address, timeout=timeout_s)
        headers = {SIGNATURE_HEADER: sign(self._key, phase, self._plan), "content-type": "application/toml"}
        try:
            connection.request("PUT", f"/plan/{phase.value}", self._plan, headers)
            response = connection.getresponse()
            facts = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(problem=str(error) or type(error).__name__)
        finally:
            connection.close()
        if not isinstance(facts, dict) or "outcome" not in facts:
            said = facts.get("error", "") if isinstance(facts, dict) else ""
            return Answer(
                problem=said or f"status {response.status}: no component of KVCompass answers there"
            )
        if facts["kind"] != target.kind.value or not set(target.ids) & set(facts["ids"]):
            return Answer(problem=f"{facts['kind']} {', '.join(facts['ids'])} answers there")
        return Answer(facts=facts)


def targets_of(plan: Plan, without: Sequence[str]) -> list[Target]:
    """The processes of a plan, less those named. Errors: PlanError where one has no operations address."""
    by_address: dict[tuple[Component, str], list[str]] = {}
    nowhere = []
    for (kind, name), address in components_of(plan).items():
        if name in without:
            continue
        if address:
            by_address.setdefault((kind, address), []).append(name)
        else:
            nowhere.append(f"{kind.value} {name}")
    if nowhere:
        why = "ops_address is missing, so there is no way to it: give the one of its operations listener"
        raise PlanError(tuple((name, why) for name in nowhere))
    return [Target(kind, tuple(ids), address) for (kind, address), ids in by_address.items()]


def add_via(parser: argparse.ArgumentParser) -> None:
    """The option that says where components are really reached."""
    parser.add_argument(
        "--via",
        action="append",
        default=[],
        type=_pair,
        metavar="ADDRESS=HOST:PORT",
        help="an ops_address of the plan that is reached elsewhere: a tunnel, a port-forward",
    )


def _pair(text: str) -> tuple[str, str]:
    address, separator, elsewhere = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is no ADDRESS=HOST:PORT")
    return address, elsewhere
