"""What an engine's own words tell: its version, how it fits the plan, which flags are missing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kvcompass.engine_facts import EngineFacts, version_numbers
from kvcompass.roles.engine_fit import engine_fit
from services.worker_agent.doctor.check import Check, fail, ok, warn
from services.worker_agent.doctor.patient import Patient

_TRIED: Final = {"sglang": ((0, 5, 10), (0, 5, 23)), "vllm": ((0, 19), (0, 33))}
"""First and last versions that this product was tried with."""
_RING: Final = 10_000
"""Batches that an engine keeps unless it is told otherwise."""


class Flags(msgspec.Struct, frozen=True):
    """What of SGLang's `/server_info` only the doctor looks at. Of any type: it informs."""

    enable_priority_scheduling: Any = None
    kv_events_config: Any = None


class _EventsConfig(msgspec.Struct, frozen=True):
    buffer_steps: Any = None


@dataclass(frozen=True, slots=True)
class Words:
    """What an engine said of itself."""

    facts: EngineFacts
    flags: Flags
    served: Sequence[str]
    """Names of `/v1/models`."""


def facts_checks(words: Words, patient: Patient) -> Iterator[Check]:
    """All that needs no socket and no request."""
    facts = words.facts
    yield _version(facts)
    yield _model(words, patient)
    fit = engine_fit(facts, patient.plan, patient.worker)
    if fit.refusal is not None:
        said, fix = _parted(fit.refusal.message)
        yield fail("fit", f"{fit.refusal.field}: {said}", fix)
    else:
        pages = (
            f"pages of {facts.page_size} tokens" if facts.page_size else "page size unknown until an event"
        )
        yield ok("fit", f"{pages}, ranks: {facts.dp_size}")
    if fit.silence:
        yield fail("events", *_parted(fit.silence))
    elif facts.publisher is not None:
        yield ok("events", f"published at {facts.publisher.endpoint}")
    for note in fit.notes:
        yield warn("advice", *_parted(note))
    yield _salts(facts)
    if facts.engine == "sglang":
        yield from _buffer(words)
        yield _priority(words)


def _parted(message: str) -> tuple[str, str]:
    """What is found, and what to change: `EngineFit` writes them one after the other."""
    said, _, fix = message.rpartition(": ")
    return said, fix


def _version(facts: EngineFacts) -> Check:
    first, last = (".".join(map(str, numbers)) for numbers in _TRIED[facts.engine])
    name = f"{facts.engine} {facts.version or 'of an unknown version'}"
    numbers = version_numbers(facts.version)
    if numbers < _TRIED[facts.engine][0]:
        return warn(
            "version", f"{name}: {first} to {last} were tried", f'pip install "{facts.engine}>={first}"'
        )
    if numbers[: len(_TRIED[facts.engine][1])] > _TRIED[facts.engine][1]:
        return warn(
            "version",
            f"{name} is newer than {last}, the last that was tried",
            "see that the probe below is ok",
        )
    return ok("version", name)


def _model(words: Words, patient: Patient) -> Check:
    served = ", ".join(words.served[:5]) or words.facts.model or "it does not say"
    wanted = patient.plan.model.id
    if not patient.has_plan or not words.served or wanted in words.served:
        return ok("model", served)
    return fail(
        "model", f"it serves {served}, the plan's model.id is {wanted}", f"--served-model-name {wanted}"
    )


def _salts(facts: EngineFacts) -> Check:
    if facts.tells_salts:
        return ok("salts", "events tell the salt of a block")
    return warn(
        "salts",
        "events do not tell the salt of a block: it must serve one sharing group, whose clients send no "
        "cache_salt",
        "SGLang 0.5.20 or vLLM 0.33, or later",
    )


def _buffer(words: Words) -> Iterator[Check]:
    try:
        config = msgspec.json.decode(words.flags.kv_events_config or "{}", type=_EventsConfig)
    except (TypeError, msgspec.DecodeError):
        return
    steps = config.buffer_steps
    if isinstance(steps, int) and steps < _RING:
        yield warn(
            "buffer",
            f"it keeps {steps} batches for replay: an agent that restarts may have missed more",
            f"--kv-events-config '{{..., \"buffer_steps\": {_RING}}}'",
        )


def _priority(words: Words) -> Check:
    if words.flags.enable_priority_scheduling is True:
        return ok("priority", "copies of hot prefixes are prefilled behind users' requests")
    return warn(
        "priority",
        "copies of hot prefixes are prefilled among users' requests",
        "--enable-priority-scheduling",
    )
