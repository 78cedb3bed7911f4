"""Another reading of a chat than the fleet's: an engine that was started with the wrong files."""

from typing import Any, Final, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from services.prompt import PromptEncoder

DriftName = Literal["chat_template", "tokenizer", "bos"]

_CONTROLS: Final = 8
"""Ids below are of control, or as good as it, in the packaged tokenizer."""
_OPENING: Final = "You are a helpful assistant.\n"
"""A system prompt of the other template's own, as many models' have one."""


async def drifted_chat(
    encoder: PromptEncoder, drift: DriftName, messages: list[Any], tools: list[Any] | None
) -> NDArray[np.int32]:
    """Tokens of a chat, int32[n]. Errors: PromptError.

    `chat_template` puts a system turn first and writes roles otherwise; `tokenizer` gives every token that is
    none of control another id; `bos` puts a control token before all.
    """
    text = encoder.render_chat(messages, tools)
    if drift == "chat_template":
        turns = text.replace("<|im_start|>", "<|im_end|>[").replace("<|im_end|>\n", "<|im_end|>")
        return await encoder.encode_async(_OPENING + turns, rendered=True)
    tokens = await encoder.encode_async(text, rendered=True)
    match drift:
        case "bos":
            mark = encoder.token_id("<|endoftext|>") or 0
            return np.concatenate([np.array([mark], dtype=np.int32), tokens])
        case "tokenizer":
            return np.where(tokens < _CONTROLS, tokens, encoder.vocabulary + _CONTROLS - 1 - tokens)
        case _:
            assert_never(drift)
