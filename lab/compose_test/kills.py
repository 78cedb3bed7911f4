"""Kills the process of a service without warning, and waits until the lab is as it was."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from kvcompass.plan.model import Plan
from lab.compose_test.engine import Compose, EngineError
from lab.compose_test.front import Front, new_prompt, seen_in, wait_until
from lab.compose_test.users import Users

RECOVERY_S = 60.0
"""A service that is not back by then has not recovered. Containers restart at once, the first few times."""

_PROMPT_TOKENS = 4_000
"""Longer than any first length: every region looks for it."""

_KILL = "kill -9 $(cat /proc/1/task/1/children)"
"""The child of the container's init: what the restart policy sees is a crash."""


def kill_each(
    compose: Compose, front: Front, plan: Plan, users: Users, services: list[str]
) -> Iterator[tuple[str, float]]:
    """Kills one service after another; yields its name and the seconds until all was well again.

    All is well when every edge is ready, sees every shard exactly and every worker's load, and believes a
    worker to hold what it has just been asked. Errors: StepFailedError.
    """
    for service in services:
        with _excuse(users, service, plan):
            yield service, _kill(compose, front, plan, service)


def _kill(compose: Compose, front: Front, plan: Plan, service: str) -> float:
    before = compose.started_at(service)
    began = time.monotonic()
    # The command may be killed with what it kills: what counts is that the container starts again.
    with contextlib.suppress(EngineError):
        compose.execute(service, "sh", "-c", _KILL)
    wait_until(lambda: compose.started_at(service) != before, RECOVERY_S, f"{service} starts again")
    wait_until(front.whole, RECOVERY_S, f"every edge sees all, after {service} was killed")
    prompt = new_prompt(_PROMPT_TOKENS)
    worker = front.ask(plan.regions[0], prompt).headers["x-kvcompass-worker"]
    wait_until(
        lambda: seen_in(front, plan.regions, worker, prompt),
        RECOVERY_S,
        f"every edge learns what {worker} holds, after {service} was killed",
    )
    return round(time.monotonic() - began, 1)


def _excuse(users: Users, service: str, plan: Plan) -> AbstractContextManager[None]:
    region = next((edge.region for edge in plan.edges if edge.id == service), None)
    return users.excusing(region) if region is not None else contextlib.nullcontext()
