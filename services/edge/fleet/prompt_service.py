"""Tells worker agents of this region how this edge reads a conversation, for their self-test."""

import asyncio
from collections.abc import Mapping
from typing import Final

import numpy as np

from kvcompass.plan.model import Plan
from kvcompass.roles.handshake import check_handshake
from kvcompass.roles.messages import Refusal
from kvcompass.self_test.messages import Reading, ReadReply, ReadRequest, read_refusal
from kvcompass.self_test.probe import Rendering
from services.prompt import PromptEncoder, PromptError
from services.prompt.reading import read_conversation
from services.runtime.logs import get_logger
from services.wire.rpc import Context

_AT_ONCE: Final = 1
"""Conversations that are read at the same time: users' prompts go first, and agents can wait."""
_NOTHING: Final = Rendering(np.zeros(0, dtype=np.int32), ())


class PromptService:
    """`services.wire.rpc.Prompts`."""

    def __init__(self, plan: Plan, layout: Mapping[str, str], encoder: PromptEncoder) -> None:
        self._layout = layout
        self._encoder = encoder
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._log = get_logger("prompts")
        self.apply_plan(plan)

    def apply_plan(self, plan: Plan) -> None:
        """Handshakes may be one version away from this plan's."""
        self._plan_version = plan.plan_version

    async def read(self, request: ReadRequest, context: Context) -> ReadReply:
        """One conversation, or the texts of some tokens."""
        refusal = check_handshake(request.handshake, self._layout, self._plan_version) or read_refusal(
            request
        )
        if refusal is not None:
            self._log.error(
                "refused", peer=request.handshake.component_id, field=refusal.field, message=refusal.message
            )
            return refusal
        rendering = _NOTHING
        if request.messages:
            try:
                async with self._turns:
                    rendering = await asyncio.to_thread(read_conversation, self._encoder, request.messages)
            except PromptError as error:
                return Refusal(error.field, str(error))
        return Reading(rendering, tuple(map(self._encoder.spelled, request.spell)))
