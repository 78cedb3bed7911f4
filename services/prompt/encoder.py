"""One object that turns messages or text into token ids, the same in every component of a fleet."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np
from jinja2 import Template
from numpy.typing import NDArray
from tokenizers import Tokenizer

from services.prompt.errors import PromptAssetError
from services.prompt.messages import checked_tools, normalised
from services.prompt.template import compile_template, render

BUILTIN = "builtin:"
BUILTIN_TOKENIZER = f"{BUILTIN}kvcompass-bpe"
BUILTIN_CHAT_TEMPLATE = f"{BUILTIN}kvcompass-chat"
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

INLINE_CHARACTERS = 1_024
"""Longer texts (about 256 tokens, 0.4 ms) are encoded off the event loop."""
POOL_THREADS = 2

_ASSETS = Path(__file__).parent / "assets"


class PromptEncoder:
    """Tokenizer and chat template of a model. Stateless after loading, safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, template: Template, digests: Mapping[str, str]) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="tokenize")
        self.digest = digests
        """SHA-256 in hex of the content of `tokenizer` and `chat_template`: what the layout digest covers."""
        self.vocabulary = tokenizer.get_vocab_size()
        self.longest_token = max(map(len, tokenizer.get_vocab()))
        """Characters of the longest vocabulary entry: n characters are at least n / longest_token tokens."""

    @classmethod
    def load(
        cls,
        tokenizer: str = BUILTIN_TOKENIZER,
        chat_template: str = BUILTIN_CHAT_TEMPLATE,
        base_dir: Path | str = ".",
    ) -> Self:
        """Load what a plan's `[model]` names: a builtin, or a path relative to `base_dir`, the plan's folder.

        Costs about 30 ms. Raises PromptAssetError when a file is missing or does not parse.
        """
        base = Path(base_dir)
        tokenizer_text = _read(tokenizer, BUILTIN_TOKENIZER, "tokenizer.json", base, "model.tokenizer")
        template_text = _read(chat_template, BUILTIN_CHAT_TEMPLATE, "chat.jinja", base, "model.chat_template")
        try:
            loaded = Tokenizer.from_str(tokenizer_text)
        except Exception as error:  # the library raises bare Exception
            raise PromptAssetError(f"is not a tokenizer.json: {error}", field="model.tokenizer") from error
        loaded.no_truncation()
        loaded.no_padding()
        controls = tuple(
            token.content for _, token in sorted(loaded.get_added_tokens_decoder().items()) if token.special
        )
        return cls(
            loaded,
            compile_template(template_text, controls, _begin(loaded)),
            {"tokenizer": _sha256(tokenizer_text), "chat_template": _sha256(template_text)},
        )

    def render_chat(self, messages: object, tools: object = None) -> str:
        """The prompt text of OpenAI-shaped messages, up to the start of the assistant's turn.

        `content` may be a string or a list of text parts. Raises PromptError with the JSON path of the
        first fault. Control tokens inside a client's text are defused by the packaged template.
        """
        return render(self._template, normalised(messages), checked_tools(tools))

    def encode(self, text: str, *, rendered: bool = False) -> NDArray[np.int32]:
        """Token ids, int32[n]. 1.6 ms per 1K tokens, holding the calling thread.

        `rendered` says that the text comes from `render_chat`, which already begins as the model wants;
        otherwise the tokenizer adds its begin-of-text token if it has one. A raw text is the whole prompt,
        so control tokens written in it are parsed as such, as engines do.
        """
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=not rendered)[0]
        return np.array(encoding.ids, dtype=np.int32)

    async def encode_async(self, text: str, *, rendered: bool = False) -> NDArray[np.int32]:
        """`encode`, in a pool of two threads when the text is long enough to stall the loop."""
        if len(text) <= INLINE_CHARACTERS:
            return self.encode(text, rendered=rendered)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: self.encode(text, rendered=rendered))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Of each token of a rendered text, from which character to before which it stands for."""
        spans: list[tuple[int, int]] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return spans

    def spelled(self, token: int) -> str:
        """Text of one token id, control tokens too. Empty where it has none; part of a letter is a mark."""
        if self._tokenizer.id_to_token(token) is None:
            return ""
        return self._tokenizer.decode([token], skip_special_tokens=False)

    def decode(self, tokens: Sequence[int] | NDArray[np.int32]) -> str:
        """Text of token ids, without control tokens. Unknown ids decode to nothing."""
        return self._tokenizer.decode([int(token) for token in tokens], skip_special_tokens=True)

    def token_id(self, token: str) -> int | None:
        """Id of a control token or vocabulary entry, None when there is none."""
        return self._tokenizer.token_to_id(token)


def _begin(tokenizer: Tokenizer) -> str:
    """The control token that a tokenizer puts before a text; empty when it puts none."""
    try:
        first = tokenizer.encode("a", add_special_tokens=True)
    except Exception as error:  # the library raises bare Exception
        why = f"cannot encode a letter ({error}); name the model's own file"
        raise PromptAssetError(why, field="model.tokenizer") from error
    if not first.tokens:
        why = "gives no tokens for a letter; name the model's own file"
        raise PromptAssetError(why, field="model.tokenizer")
    return first.tokens[0] if first.special_tokens_mask[0] else ""


def _read(name: str, builtin: str, asset: str, base: Path, field: str) -> str:
    if name.startswith(BUILTIN) and name != builtin:
        raise PromptAssetError(f"{name} is unknown; the packaged one is {builtin}", field=field)
    path = _ASSETS / asset if name == builtin else base / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PromptAssetError(f"{path} cannot be read: {error.strerror or error}", field=field) from error
    except UnicodeDecodeError as error:
        raise PromptAssetError(f"{path} is not UTF-8", field=field) from error


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
