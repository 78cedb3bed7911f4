"""What a plan may say and rarely means: no fault, and worth a look before the fleet starts."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kvcompass.levels import clipped_lengths, first_length
from kvcompass.plan.model import Plan, Worker

_MS_PER_TOKEN: Final = (0.005, 3.0)
"""Least and most of an engine that serves: 200,000 tokens a second, and 333."""
_SPREAD: Final = 20.0
"""Between the fastest and the slowest GPU that would serve one model."""
_PROMPT: Final = 8_000
_WAN_MS: Final = 1.0
"""One way between two regions, at least: 200 km of fibre."""
_LEASE_MS: Final = 60_000
_ROUND_TRIPS: Final = 3
"""Of a lease: one renewal may be lost, and the next be late."""
_LISTED: Final = 8
_EACH: Final = 3
"""Workers or directions that get a note each; of more, the first speaks for all."""


def plan_notes(plan: Plan) -> Iterator[str]:
    """Each begins with the field."""
    yield from _rates(plan)
    yield from _between_regions(plan)
    yield from _lease(plan)
    yield from _left_idle(plan)


def _rates(plan: Plan) -> Iterator[str]:
    least, most = _MS_PER_TOKEN
    field = "prefill_ms_per_token"
    odd = [
        *_of_workers(plan, field, _in_minutes, lambda worker: worker.prefill_ms_per_token > most),
        *_of_workers(plan, field, _in_ms, lambda worker: worker.prefill_ms_per_token < least),
    ]
    yield from odd
    if not odd:
        yield from _spread(plan)
    yield from _of_workers(
        plan,
        "reload_ms_per_token",
        lambda _: "what is in DRAM is never worth reloading: computing it is as fast",
        lambda worker: worker.reload_ms_per_token >= worker.prefill_ms_per_token,
    )
    yield from _of_workers(
        plan,
        "decode_ms_per_context_token",
        lambda worker: (
            f"{worker.context_ms_per_token:g} is more than a tenth of computing a token; it is what one "
            "token of the batch's contexts adds to a decode step"
        ),
        lambda worker: (
            worker.decode_ms_per_context_token is not None
            and worker.decode_ms_per_context_token > worker.prefill_ms_per_token / 10
        ),
    )


def _in_minutes(worker: Worker) -> str:
    minutes = worker.prefill_ms_per_token * _PROMPT / 60_000
    return f"{_PROMPT:,} tokens would take {minutes:,.1f} minutes; is it in milliseconds?"


def _in_ms(worker: Worker) -> str:
    took_ms = worker.prefill_ms_per_token * _PROMPT
    return f"{_PROMPT:,} tokens would take {took_ms:.2g} ms; is it in milliseconds?"


def _spread(plan: Plan) -> Iterator[str]:
    ranked = sorted(enumerate(plan.workers), key=lambda each: each[1].prefill_ms_per_token)
    (fast, fastest), (slow, slowest) = ranked[0], ranked[-1]
    times = slowest.prefill_ms_per_token / fastest.prefill_ms_per_token
    if times > _SPREAD:
        yield (
            f"worker[{slow}].prefill_ms_per_token: {times:.0f} times that of worker[{fast}], which serves "
            "the same model; are both in milliseconds?"
        )


def _between_regions(plan: Plan) -> Iterator[str]:
    context = plan.model.context_length
    pairs = [(o, r) for o in range(len(plan.regions)) for r in range(len(plan.regions)) if o != r]
    index = {region: i for i, region in enumerate(plan.regions)}
    unreachable = [
        (index[clipped.origin], index[clipped.region])
        for clipped in clipped_lengths(plan)
        if clipped.unreachable
    ]
    yield from _of_pairs(
        plan,
        unreachable,
        lambda o, r: (
            f"nothing is left to query toward it: a prompt is worth sending there from "
            f"{first_length(plan, o, r):,} tokens on, and model.context_length is {context:,}; are both "
            "that way and prefill_ms_per_token in milliseconds?"
        ),
    )
    yield from _of_pairs(
        plan,
        [(o, r) for o, r in pairs if plan.wan_ms[o][r] < _WAN_MS],
        lambda o, r: f"{plan.wan_ms[o][r]:g} ms one way to another region; is it in milliseconds?",
    )
    yield from _of_pairs(
        plan,
        [(o, r) for o, r in pairs if plan.wan_ms[o][r] < plan.wan_ms[o][o]],
        lambda o, r: (
            f"{plan.wan_ms[o][r]:g} ms: nearer than the own region, {plan.wan_ms[o][o]:g} ms; are two "
            "columns exchanged?"
        ),
    )


def _lease(plan: Plan) -> Iterator[str]:
    lease_ms, regions = plan.routing.lease_ms, range(len(plan.regions))
    longest_ms = max(plan.wan_ms[o][r] + plan.wan_ms[r][o] for o in regions for r in regions)
    if lease_ms < _ROUND_TRIPS * longest_ms:
        yield (
            f"routing.lease_ms: {lease_ms} is less than {_ROUND_TRIPS} of the longest round trip, "
            f"{longest_ms:g} ms: one renewal that is lost clears a worker that is well"
        )
    if lease_ms > _LEASE_MS:
        yield (
            f"routing.lease_ms: {lease_ms}: for {lease_ms / 1_000:g} s a worker that has died is credited "
            "with all that it held"
        )


def _left_idle(plan: Plan) -> Iterator[str]:
    if all(worker.drain for worker in plan.workers):
        yield "worker.drain: every worker is drained: no request finds one"
    served = {worker.sharing_group for worker in plan.workers}
    for i, group in enumerate(plan.sharing_groups):
        if group.id not in served:
            yield f"sharing_group[{i}].id: no worker serves {group.id!r}: its requests find none"
    vacant = sorted(set(range(plan.tables)) - {worker.table for worker in plan.workers})
    if vacant:
        more = f" and {len(vacant) - _LISTED} more" if len(vacant) > _LISTED else ""
        yield (
            f"worker.table: no worker has table {', '.join(map(str, vacant[:_LISTED]))}{more}; each costs "
            "every shard and lookup a table (`kvcompass plan assign --reuse` fills the places of workers "
            "that have left)"
        )


def _of_workers(
    plan: Plan, field: str, says: Callable[[Worker], str], is_odd: Callable[[Worker], bool]
) -> Iterator[str]:
    odd = [(i, worker) for i, worker in enumerate(plan.workers) if is_odd(worker)]
    told = [f"worker[{i}].{field}: {says(worker)}" for i, worker in odd]
    yield from _each_or_first(told, "workers")


def _of_pairs(plan: Plan, odd: Iterable[tuple[int, int]], says: Callable[[int, int], str]) -> Iterator[str]:
    told = [f"wan_ms.{plan.regions[o]}.{plan.regions[r]}: {says(o, r)}" for o, r in odd]
    yield from _each_or_first(told, "directions")


def _each_or_first(told: list[str], what: str) -> Iterator[str]:
    if len(told) <= _EACH:
        yield from told
    else:
        yield f"{told[0]} (and so of {len(told) - 1} more {what})"
