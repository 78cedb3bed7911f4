"""A user in asia reuses what a user in us has paid for, and a region that is cut off goes on alone."""

from dataclasses import dataclass

from lab.compose_test.engine import Compose
from lab.compose_test.front import (
    Front,
    StepFailedError,
    claim,
    holds,
    new_prompt,
    seen_in,
    wait_until,
)

_PROMPT_TOKENS = 8_000
"""Long enough to be worth every way of the lab."""
LEARNED_S = 20.0
NOTICED_S = 30.0
HEALED_S = 45.0


@dataclass(frozen=True, slots=True)
class Reuse:
    """A prompt served in one region and then in another."""

    holder: str
    prompt_tokens: int
    claimed_tokens: int
    reused_tokens: int
    learned_s: float
    """From the first answer until the other region's edge knew the whole prefix."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Seconds until the region that was cut off noticed, and until all was as before after healing."""

    noticed_s: float
    healed_s: float


def reuse_across(front: Front, first: str, second: str) -> Reuse:
    """The second region's user is answered from the first region's cache. Errors: StepFailedError."""
    prompt = new_prompt(_PROMPT_TOKENS)
    holder = front.ask(first, prompt).headers["x-kvcompass-worker"]
    learned_s = wait_until(
        lambda: (
            front.explain(second, prompt)["chosen"] == holder and seen_in(front, [second], holder, prompt)
        ),
        LEARNED_S,
        f"{second} chooses {holder} for what it holds",
    )
    answer = front.ask(second, prompt)
    served = answer.headers["x-kvcompass-worker"]
    reused = _cached_tokens(answer.json())
    claimed = int(answer.headers["x-kvcompass-match-tokens"])
    if served != holder or not 0 < claimed <= reused:
        raise StepFailedError(
            f"{second} was answered by {served}, claim {claimed}, reused {reused}; expected {holder}"
        )
    return Reuse(holder, _PROMPT_TOKENS, claimed, reused, round(learned_s, 2))


def cut_off(compose: Compose, front: Front, region: str, other: str) -> Partition:
    """Cuts `region` off the world and heals it. Both sides answer all the while. Errors: StepFailedError."""
    before, during = new_prompt(_PROMPT_TOKENS), new_prompt(_PROMPT_TOKENS)
    holder = front.ask(other, before).headers["x-kvcompass-worker"]
    wait_until(lambda: seen_in(front, [region], holder, before), LEARNED_S, f"{region} knows of {holder}")
    far = [each for each in front.edges if each != region]
    _netem(compose, region, "cut", far)
    try:
        noticed_s = wait_until(
            lambda: len(front.explain(region, before)["shards_not_exact"]) >= len(far),
            NOTICED_S,
            f"{region} notices that it is cut off",
        )
        wait_until(
            lambda: front.explain(region, before)["region"] == region, NOTICED_S, f"{region} helps itself"
        )
        if (served := front.ask(region, before).headers["x-kvcompass-region"]) != region:
            raise StepFailedError(f"{region}, cut off, was answered by {served}")
        worker = front.ask(other, during).headers["x-kvcompass-worker"]
        if claim(front.explain(region, during), worker):
            raise StepFailedError(f"{region}, cut off, knows what {worker} holds: nothing was cut")
    finally:
        _netem(compose, region, "heal", far)
    healed_s = wait_until(
        lambda: front.whole() and holds(front.explain(region, during), worker),
        HEALED_S,
        f"{region} is whole again and knows what {worker} holds",
    )
    return Partition(round(noticed_s, 1), round(healed_s, 1))


def _netem(compose: Compose, region: str, command: str, others: list[str]) -> None:
    for other in others:
        compose.execute(f"wan-{region}", "netem", command, other)


def _cached_tokens(answer: dict[str, dict[str, dict[str, int]]]) -> int:
    details = answer["usage"]["prompt_tokens_details"]
    return details["cached_tokens"] if details else 0
