"""Asks every component of a plan what it is: all at once, each within a time."""

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from cli.plan_visits import Target

AT_ONCE: Final = 32
"""Components asked at the same time."""
_ANSWER_BYTES: Final = 32 << 20
"""Of one answer: a state of some thousand workers is a tenth of it."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a component said. `problem` is why nothing was heard, empty when something was."""

    problem: str = ""
    timed_out: bool = False
    """It was waited for in vain, and is not asked again in the same look."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """`/plan`: which component it is, and the plan it runs."""
    health: Mapping[str, Any] = field(default_factory=dict)
    """`/health`: ready, state, reasons and details."""

    @property
    def details(self) -> Mapping[str, Any]:
        """All that it knows of itself."""
        found: Mapping[str, Any] = self.health.get("details", {})
        return found


Round = Mapping[Target, Told]
"""What all components said when they were asked once."""


def ask_all(targets: Sequence[Target], timeout_s: float, via: Mapping[str, str]) -> Round:
    """One round. A component that does not answer within the time is one that does not answer.

    `via`: addresses of the plan that are reached elsewhere.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = pool.map(lambda each: ask(each, via.get(each.address, each.address), timeout_s), targets)
        return dict(zip(targets, told, strict=True))


def ask(target: Target, address: str, timeout_s: float) -> Told:
    """One component, at an address."""
    deadline = time.monotonic() + timeout_s
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        plan = _get(connection, "/plan", deadline)
        health = _get(connection, "/health", deadline)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Told(str(error) or type(error).__name__, isinstance(error, TimeoutError))
    finally:
        connection.close()
    if "kind" not in plan or "state" not in health:
        return Told("no component of KVCompass answers there")
    if plan["kind"] != target.kind.value or not set(target.ids) & set(plan["ids"]):
        return Told(f"{plan['kind']} {', '.join(plan['ids'])} answers there")
    return Told(plan=plan, health=health)


def _get(connection: http.client.HTTPConnection, path: str, deadline: float) -> Mapping[str, Any]:
    """Errors: OSError, HTTPException; ValueError for what is no answer of a component."""
    connection.request("GET", path, headers={"accept": "application/json"})
    response = connection.getresponse()
    body = bytearray()
    while part := response.read(1 << 16):
        body += part
        if time.monotonic() > deadline:
            raise TimeoutError("its answer takes too long")
        if len(body) > _ANSWER_BYTES:
            raise ValueError("its answer does not end")
    told = json.loads(body)
    if not isinstance(told, dict):
        raise ValueError("no component of KVCompass answers there")
    return told
