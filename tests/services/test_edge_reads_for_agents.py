"""An edge tells an agent how it reads a conversation: as it reads its users' requests, and not too much."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio
import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.messages import Handshake, Refusal
from kvcompass.self_test.messages import (
    LETTERS_MOST,
    MESSAGES_MOST,
    SPELL_MOST,
    Reading,
    ReadReply,
    ReadRequest,
)
from kvcompass.self_test.probe import ProbeMessage, probe_messages
from services.edge.fleet.prompt_service import PromptService
from services.prompt import PromptEncoder
from services.runtime.grpc_transport import Dialer
from services.wire.rpc import read_prompt
from tests.models.routing_fleets import make_plan
from tests.services.edge_fleet import fleet

ENCODER = PromptEncoder.load()
PLAN = make_plan(1)
LAYOUT = layout_fields(PLAN)
HANDSHAKE = Handshake("us-0", 1, 1, PLAN.plan_version, LAYOUT)


@dataclass
class Asked:
    channel: grpc.aio.Channel
    handshake: Handshake

    async def read(self, **fields: Any) -> ReadReply:
        return await read_prompt(self.channel, ReadRequest(**{"handshake": self.handshake, **fields}), 20.0)


@asynccontextmanager
async def running_edge(monkeypatch: Any) -> AsyncIterator[Asked]:
    async with fleet(monkeypatch) as running:
        address = next(edge.grpc_address for edge in running.plan.edges if edge.id == "us")
        channel = Dialer({}).channel(address)
        try:
            yield Asked(
                channel, Handshake("us-0", 1, 1, running.plan.plan_version, layout_fields(running.plan))
            )
        finally:
            await channel.close(None)


async def test_a_running_edge_reads_as_it_reads_its_users(monkeypatch: Any) -> None:
    messages = probe_messages("0123456789abcdef", 16)
    asked = [{"role": each.role, "content": each.content} for each in messages]
    wanted = ENCODER.encode(ENCODER.render_chat(asked), rendered=True)
    async with running_edge(monkeypatch) as edge:
        reading = await edge.read(messages=messages)
        assert isinstance(reading, Reading)
        rendering = reading.rendering
        assert rendering.tokens.tolist() == wanted.tolist()
        for message, content in zip(messages, rendering.contents, strict=True):
            assert ENCODER.decode(rendering.tokens[content.start : content.stop]) == message.content
        spelled = await edge.read(spell=(*wanted[:4].tolist(), 2**31))
        assert isinstance(spelled, Reading)
        assert spelled.spelled == ("<|im_start|>", "user", "\n", ENCODER.decode(wanted[3:4]), "")
        assert spelled.rendering.tokens.size == 0


async def test_an_agent_of_another_layout_or_plan_is_refused_by_name() -> None:
    service = PromptService(PLAN, layout_fields(PLAN, ENCODER.digest), ENCODER)
    messages = (ProbeMessage("user", "hello"),)
    other = replace(HANDSHAKE, layout={**LAYOUT, "tokenizer": "mine.json"})
    for handshake, field in ((other, "tokenizer"), (replace(HANDSHAKE, plan_version=99), "plan_version")):
        refusal = await service.read(ReadRequest(handshake, messages), None)  # type: ignore[arg-type]
        assert isinstance(refusal, Refusal)
        assert refusal.field == field
    service.apply_plan(replace(PLAN, plan_version=98))
    served = await service.read(ReadRequest(replace(HANDSHAKE, plan_version=99), messages), None)  # type: ignore[arg-type]
    assert isinstance(served, Reading)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ReadRequest(HANDSHAKE, (ProbeMessage("user", "x"),) * (MESSAGES_MOST + 1)), "messages"),
        (ReadRequest(HANDSHAKE, (ProbeMessage("user", "x" * (LETTERS_MOST + 1)),)), "messages"),
        (ReadRequest(HANDSHAKE, spell=(1,) * (SPELL_MOST + 1)), "spell"),
        (ReadRequest(HANDSHAKE, (ProbeMessage("nobody", "x"),)), "messages[0].role"),
    ],
)
async def test_too_much_or_no_conversation_is_refused_by_name(request_: ReadRequest, field: str) -> None:
    service = PromptService(PLAN, LAYOUT, ENCODER)
    refusal = await service.read(request_, None)  # type: ignore[arg-type]
    assert isinstance(refusal, Refusal)
    assert refusal.field == field
