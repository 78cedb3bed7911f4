"""Puts a probe through an engine and compares what it stores with an edge's reading."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvcompass.plan.model import Plan, Worker
from kvcompass.roles.engine_fit import pages_fit
from kvcompass.self_test.comparison import compare
from kvcompass.self_test.probe import ProbeMessage, Rendering
from kvcompass.self_test.stored_chains import StoredChains
from kvcompass.self_test.verdict import Cause, Difference, Unheard, Verdict
from services.worker_agent.chat_probe import chat, served_models
from services.worker_agent.engine_client import EngineClient, NotThereError
from services.worker_agent.settings import SelfTestSettings

_LOOK_S: Final = 0.25
"""Between two looks at what was heard."""
_LONGER_MOST: Final = 2_048
"""Tokens by which the engine's prompt may be longer than the edge's: a template with a long opening."""
_NAMES_SHOWN: Final = 5


async def put_through(
    client: EngineClient,
    heard: StoredChains,
    messages: Sequence[ProbeMessage],
    rendering: Rendering,
    *,
    plan: Plan,
    worker: Worker,
    settings: SelfTestSettings,
) -> Verdict:
    """Ask the engine, and listen for what it stores.

    Args:
        client: Of the engine.
        heard: Is given the engine's events meanwhile.
        messages: The probe.
        rendering: What an edge reads in it.
        plan: The one that runs.
        worker: What the engine is in it.
        settings: How long the engine and its events are waited for.

    Errors: EngineError; NotThereError where the engine serves no chats, DeniedError where not this one.
    """
    try:
        usage = await chat(
            client,
            plan.model.id,
            messages,
            rank=worker.dp_rank,
            timeout_s=settings.answer_timeout_ms / 1_000,
        )
    except NotThereError:
        if detail := await other_models(client, plan.model.id):
            return Difference(Cause.MODEL, detail=detail)
        raise
    salt = plan.salt_of(worker.sharing_group)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.hearing_ms / 1_000
    while True:
        verdict = compare(
            rendering,
            heard.chains(len(rendering.tokens) + _LONGER_MOST),
            page_fits=lambda page: pages_fit(page, plan) is None,
            salt=salt,
            prompt_tokens=usage.prompt_tokens,
        )
        if not isinstance(verdict, Unheard) or loop.time() >= deadline:
            break
        await asyncio.sleep(_LOOK_S)
    if not isinstance(verdict, Difference) or verdict.cause not in (Cause.TOKENIZER, Cause.CHAT_TEMPLATE):
        return verdict
    detail = await other_models(client, plan.model.id)
    return replace(verdict, cause=Cause.MODEL, detail=detail) if detail else verdict


async def other_models(client: EngineClient, model: str) -> str:
    """What an engine serves instead of the plan's model, in words; empty when it serves that."""
    names = await served_models(client)
    if not names or model in names:
        return ""
    return f"the engine serves {', '.join(names[:_NAMES_SHOWN])}, not {model}"
