"""A probe through the engine: read as edges read, told in events, and reused the second time."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from kvcompass.engine_facts import EngineFacts
from kvcompass.roles.engine_fit import events_flag
from kvcompass.self_test.explanation import FIXES, parting
from kvcompass.self_test.probe import ProbeMessage, Rendering, probe_messages
from kvcompass.self_test.verdict import Agreement, Cause, Difference, Unheard
from services.worker_agent.chat_probe import ChatUsage, chat
from services.worker_agent.doctor.check import Check, fail, ok, warn
from services.worker_agent.doctor.patient import Patient
from services.worker_agent.doctor.socket_checks import Heard
from services.worker_agent.engine_client import DeniedError, EngineClient, EngineError, NotThereError
from services.worker_agent.probing import other_models, put_through
from services.worker_agent.settings import SelfTestSettings

_SETTINGS: Final = SelfTestSettings()
_NONCE_BYTES: Final = 12
_REPORT_FLAGS: Final = {"sglang": "--enable-cache-report", "vllm": "--enable-prompt-tokens-details"}


class Reads(Protocol):
    """Reads conversations as the plan's edges do."""

    def read(self, messages: Sequence[ProbeMessage]) -> Rendering:
        """Tokens, and where the texts lie in them."""

    def spelled(self, tokens: Sequence[int]) -> Mapping[int, str]:
        """Texts of tokens."""


async def probe_checks(
    client: EngineClient,
    heard: Heard | None,
    facts: EngineFacts,
    patient: Patient,
    reader: Reads | None,
) -> AsyncIterator[Check]:
    """Ask the same twice. `heard` is None where no events come; without a reader they are not compared."""
    if facts.part != "both":
        yield warn("probe", "not tested: half of a prefill-decode pair", "see that the pair answers chats")
        return
    if patient.worker.dp_rank is None and facts.dp_size > 1:
        patient = replace(patient, worker=replace(patient.worker, dp_rank=0))
    page = facts.page_size or patient.plan.model.block_size
    messages = probe_messages(secrets.token_hex(_NONCE_BYTES), page)
    try:
        if heard is None:
            await _ask(client, patient, messages)
        elif reader is None:
            yield await _told(client, heard, messages, facts, patient)
        else:
            yield await _compared(client, heard, messages, facts, patient, reader)
    except NotThereError as error:
        if others := await other_models(client, patient.plan.model.id):
            yield fail("probe", others, FIXES[Cause.MODEL])
        else:
            yield warn("probe", f"not tested: {error}", "--chat-template FILE, for a model without one")
    except DeniedError as error:
        yield fail("probe", str(error), "what the engine says")
    except EngineError as error:
        yield fail("probe", str(error), "see the engine's log")
    else:
        with suppress(EngineError):
            yield _reused(await _ask(client, patient, messages), page, facts)
    if heard is not None and heard.unread:
        said = f"{heard.unread} events in {heard.batches} batches are not understood"
        yield warn("decoder", said, "report it, with the engine's version")


async def _ask(client: EngineClient, patient: Patient, messages: Sequence[ProbeMessage]) -> ChatUsage:
    timeout_s = _SETTINGS.answer_timeout_ms / 1_000
    rank = patient.worker.dp_rank
    return await chat(client, patient.plan.model.id, messages, rank=rank, timeout_s=timeout_s)


async def _told(
    client: EngineClient,
    heard: Heard,
    messages: Sequence[ProbeMessage],
    facts: EngineFacts,
    patient: Patient,
) -> Check:
    """Whether anything is told of a probe that nobody else reads."""
    await _ask(client, patient, messages)
    if await heard.any_stored(_SETTINGS.hearing_ms / 1_000):
        return ok("probe", "its blocks are told; with --plan they are compared with what edges read")
    return untold(heard, facts, patient, "nothing")


async def _compared(
    client: EngineClient,
    heard: Heard,
    messages: Sequence[ProbeMessage],
    facts: EngineFacts,
    patient: Patient,
    reader: Reads,
) -> Check:
    rendering = reader.read(messages)
    verdict = await put_through(
        client,
        heard.chains,
        messages,
        rendering,
        plan=patient.plan,
        worker=patient.worker,
        settings=_SETTINGS,
    )
    match verdict:
        case Agreement(tokens, tail):
            said = f"{tokens} of {len(rendering.tokens)} tokens are read as edges read them"
            return ok("probe", f"{said}; at its end the engine counts {tail:+d} tokens" if tail else said)
        case Difference():
            spelled = reader.spelled((*verdict.expected, *verdict.observed))
            return fail("probe", parting(verdict, spelled), FIXES[verdict.cause])
        case Unheard():
            return untold(heard, facts, patient, verdict.value)


def untold(heard: Heard, facts: EngineFacts, patient: Patient, what: str) -> Check:
    """What to change where an engine answered and nothing came of it."""
    said = f"the engine answered, and its events do not tell of it: {what} was heard"
    if what == Unheard.AMBIGUOUS:
        return warn("probe", "other requests of the same length came between", "run it again")
    if what == Unheard.INCOMPLETE:
        return fail("probe", said, "run it again, and look for lost batches if it stays")
    if heard.chains.blocks:
        return fail("probe", said, "the event port of this engine: others' blocks are told there")
    if facts.publisher is not None:
        return fail("probe", said, "restart it, if the port is its own: it is started to tell")
    return fail("probe", said, events_flag(facts.engine, patient.worker))


def _reused(usage: ChatUsage, page: int, facts: EngineFacts) -> Check:
    """Of the second time. An engine reuses whole pages of all tokens but the last."""
    flag = _REPORT_FLAGS[facts.engine]
    if usage.cached_tokens is None:
        said = "it does not say how much of a repeated prompt it reused: claims are never corrected"
        return warn("reuse", said, flag)
    whole = (usage.prompt_tokens - 1) // page * page if usage.prompt_tokens else usage.cached_tokens
    said = f"{usage.cached_tokens} of {usage.prompt_tokens} tokens of a repeated prompt"
    if usage.cached_tokens < whole:
        return warn(
            "reuse", f"{said}, {whole} were expected", "a larger cache, or run it again when it is idle"
        )
    return ok("reuse", said)
