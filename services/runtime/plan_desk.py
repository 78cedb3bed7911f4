"""Where a running component takes the next version of its plan: checked, switched to at once, kept in a file.

`GET /plan` of the operations listener says which version runs; `PUT /plan/PHASE` with a signed plan brings
another (`kvcompass.plan.rollout`). A component is one loop, so no request sees half a plan.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from kvcompass.errors import KVCompassError, PlanError
from kvcompass.plan import dump_plan, parse_plan
from kvcompass.plan.change import Change, check_successor, plan_changes
from kvcompass.plan.model import Plan
from kvcompass.plan.parse import decode_plan
from kvcompass.plan.rollout import Component, Phase, components_of
from services.runtime.disk import Disk, LocalDisk
from services.runtime.logs import get_logger
from services.runtime.plan_signature import is_signed, may_be_signed
from services.runtime.whole_file import remove_leftovers, replace_file

PLAN_BYTES: Final = 16 << 20
"""Of a plan: room for tens of thousands of workers."""


class PlannedComponent(Protocol):
    """What runs under a plan."""

    def check_plan(self, plan: Plan) -> None:
        """Errors: KVCompassError when this very component cannot take it. Changes nothing."""

    async def apply_plan(self, plan: Plan) -> None:
        """Runs the plan from now on, and goes on knowing what only the one before has."""

    async def settle_plan(self) -> None:
        """Forgets what only the version before had."""


class Outcome(StrEnum):
    """What became of a plan that was brought. A closed set: it is a metric's label."""

    CHECKED = "checked"
    APPLIED = "applied"
    ALREADY = "already"
    """It runs already, and there was nothing left to settle."""
    REFUSED = "refused"
    """A running fleet cannot take it, or not after this version."""
    FAULTY = "faulty"
    """It is no plan."""
    UNSIGNED = "unsigned"
    BUSY = "busy"
    """Others are being read: it was not."""
    FAILED = "failed"
    """A fault of this component; its log has it."""


_STATUS: Final = {
    Outcome.CHECKED: 200,
    Outcome.APPLIED: 200,
    Outcome.ALREADY: 200,
    Outcome.REFUSED: 409,
    Outcome.FAULTY: 400,
    Outcome.UNSIGNED: 401,
    Outcome.BUSY: 503,
    Outcome.FAILED: 500,
}

_UNSIGNED: Final = {"error": "not signed with this component's plan_key"}


class PlanDesk:
    """Holds the running plan of one process. `key` empty: the process takes no plans."""

    def __init__(
        self,
        kind: Component,
        ids: Sequence[str],
        plan: Plan,
        path: Path,
        *,
        key: str,
        component: PlannedComponent | None = None,
        disk: Disk | None = None,
    ) -> None:
        """`ids`: of the plan's entries that this process is. `path`: the plan file it started from."""
        self.plan = plan
        self.settled = True
        """Nothing is kept of the version before."""
        self.outcomes: Counter[Outcome] = Counter()
        self.component = component
        """None as long as it is being made: plans are not taken yet."""
        self._kind = kind
        self._ids = list(ids)
        self._path = path
        self._disk = disk or LocalDisk()
        self._key = key
        self.digest = plan_digest(plan)
        """Names the content of the plan that runs."""
        self._changed: dict[str, Any] = {}
        """What the last plan changed, to be told again to whoever brings it again."""
        self._one_by_one = asyncio.Lock()
        self._log = get_logger("plan")

    def state(self) -> dict[str, Any]:
        """Which plan runs; for anybody who may see the operations listener."""
        return {
            "kind": self._kind.value,
            "ids": self._ids,
            "fleet": self.plan.fleet,
            "plan_version": self.plan.plan_version,
            "plan_digest": self.digest,
            "settled": self.settled,
            "takes_plans": bool(self._key),
        }

    async def bring(self, phase_name: str, signature: str, body: bytes) -> tuple[int, bytes]:
        """Takes a plan for a phase; returns HTTP status and JSON body. Never raises for what is brought."""
        refused = self.refused_unread(phase_name, signature)
        if refused is not None:
            return refused
        phase = Phase(phase_name)
        async with self._one_by_one:
            try:
                outcome, facts = await self._judge(phase, signature, body)
            except Exception:
                self._log.exception("a plan could not be applied", phase=phase.value)
                outcome, facts = Outcome.FAILED, {"error": "the component failed; its log says how"}
            if outcome in (Outcome.APPLIED, Outcome.ALREADY) and phase is not Phase.CHECK:
                facts = facts | await asyncio.to_thread(self._keep, body)
        if outcome is not Outcome.CHECKED:
            self._log.info("plan", phase=phase.value, outcome=outcome.value, version=self.plan.plan_version)
        return self._answer(outcome, facts)

    def refused_unread(self, phase_name: str, signature: str) -> tuple[int, bytes] | None:
        """The answer to a plan that need not be read to be refused: no phase, no key, not signed by it."""
        if phase_name not in tuple(Phase):
            return 404, orjson.dumps({"error": f"no such phase; one of {', '.join(Phase)}"})
        if not self._key:
            return 404, orjson.dumps({"error": "this component takes no plans: give its settings a plan_key"})
        if not may_be_signed(self._key, Phase(phase_name), signature):
            return self._answer(Outcome.UNSIGNED, _UNSIGNED)
        return None

    def busy(self) -> tuple[int, bytes]:
        """The answer while others are read. It names no outcome, so that who brought it tries again."""
        self.outcomes[Outcome.BUSY] += 1
        return _STATUS[Outcome.BUSY], orjson.dumps({"error": "other plans are being read; try again"})

    def _answer(self, outcome: Outcome, facts: dict[str, Any]) -> tuple[int, bytes]:
        self.outcomes[outcome] += 1
        return _STATUS[outcome], orjson.dumps({"outcome": outcome.value, **facts, **self.state()})

    async def _judge(self, phase: Phase, signature: str, body: bytes) -> tuple[Outcome, dict[str, Any]]:
        if not is_signed(self._key, phase, body, signature):
            return Outcome.UNSIGNED, _UNSIGNED
        if self.component is None:
            return Outcome.REFUSED, _refusal("component", "it is starting", "try again in a moment")
        try:
            plan = parse_plan(decode_plan(body))
        except PlanError as error:
            return Outcome.FAULTY, {"faults": [list(fault) for fault in error.faults]}
        if plan.plan_version == self.plan.plan_version:
            return await self._same_version(phase, plan)
        return await self._next_version(phase, plan, self.component)

    async def _same_version(self, phase: Phase, plan: Plan) -> tuple[Outcome, dict[str, Any]]:
        if plan_digest(plan) != self.digest:
            kept = f"apply the one that this component keeps in {self._path} to its end"
            return Outcome.REFUSED, _refusal(
                "fleet.plan_version",
                f"version {plan.plan_version} runs here with another content"
                + ("" if self.settled else ", and is not settled"),
                f"raise it to {plan.plan_version + 1}" if self.settled else f"{kept}, and then raise yours",
            )
        if phase is Phase.SETTLE and not self.settled:
            await self._settle()
            return Outcome.APPLIED, self._changed
        return Outcome.ALREADY, self._changed

    async def _next_version(
        self, phase: Phase, plan: Plan, component: PlannedComponent
    ) -> tuple[Outcome, dict[str, Any]]:
        reason = check_successor(self.plan, plan)
        if reason:
            return Outcome.REFUSED, _refusal("fleet.plan_version", reason, "")
        if not self.settled:
            return Outcome.REFUSED, _refusal(
                "fleet.plan_version",
                f"version {self.plan.plan_version} is not settled here",
                f"run `kvcompass plan apply` of that version to its end first; {self._path} has it here",
            )
        changes = plan_changes(self.plan, plan)
        facts: dict[str, Any] = {
            "changes": [_told(change) for change in changes],
            "leaving": _leaving(self.plan, plan),
        }
        if any(change.is_refused for change in changes):
            return Outcome.REFUSED, facts
        try:
            component.check_plan(plan)
        except KVCompassError as error:
            return Outcome.REFUSED, {**facts, **_refusal(error.field, str(error), "")}
        if phase is Phase.CHECK:
            return Outcome.CHECKED, facts
        await component.apply_plan(plan)
        self.plan, self.digest, self.settled, self._changed = plan, plan_digest(plan), False, facts
        if phase is Phase.SETTLE:
            await self._settle()
        return Outcome.APPLIED, facts

    async def _settle(self) -> None:
        assert self.component is not None
        await self.component.settle_plan()
        self.settled = True

    @property
    def _writer(self) -> str:
        """Components may share a plan file; none removes what another is writing."""
        return f"{self._kind.value}-{self._ids[0]}"

    def remove_leftovers(self) -> None:
        """Removes what this component left beside its plan file when it was killed: plans with salts."""
        with suppress(OSError):
            remove_leftovers(self._disk, self._disk.followed(self._path), writer=self._writer)

    def _keep(self, body: bytes) -> dict[str, Any]:
        """Writes the plan file, unless it says the same already; where that cannot be, it is told."""
        try:
            if self._path.read_bytes() != body:
                replace_file(self._disk, self._path, body, writer=self._writer)
        except OSError as error:
            return {"kept": False, "kept_why": f"{self._path}: {error.strerror or error}"}
        return {"kept": True}


def plan_digest(plan: Plan) -> str:
    """Names a plan's content, however it is written."""
    return hashlib.sha256(dump_plan(plan).encode()).hexdigest()[:16]


def _refusal(field: str, why: str, roll: str) -> dict[str, Any]:
    return {"refused": {"field": field, "what": "", "why": why, "roll": roll}}


def _told(change: Change) -> dict[str, str]:
    return {"field": change.field, "what": change.what, "why": change.why, "roll": change.roll}


def _leaving(old: Plan, new: Plan) -> list[dict[str, str]]:
    """Components of the old plan that the new one does not have, with their operations addresses."""
    stay = components_of(new)
    return [
        {"kind": kind.value, "id": name, "ops_address": address}
        for (kind, name), address in components_of(old).items()
        if (kind, name) not in stay
    ]
