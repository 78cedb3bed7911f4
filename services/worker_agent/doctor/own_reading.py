"""Reads conversations with the plan's own files, as its edges do. A doctor ends; agents have no tokenizer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvcompass.plan.model import Plan
from kvcompass.self_test.probe import ProbeMessage, Rendering
from services.prompt import PromptEncoder
from services.prompt.reading import read_conversation


class OwnReading:
    """`Reads`, by the template and tokenizer that a plan names. Errors: PromptAssetError."""

    def __init__(self, plan: Plan, plan_path: Path) -> None:
        self._encoder = PromptEncoder.load(plan.model.tokenizer, plan.model.chat_template, plan_path.parent)

    def read(self, messages: Sequence[ProbeMessage]) -> Rendering:
        """Errors: PromptError."""
        return read_conversation(self._encoder, messages)

    def spelled(self, tokens: Sequence[int]) -> Mapping[int, str]:
        """Of those that have a text."""
        return {token: text for token in tokens if (text := self._encoder.spelled(token))}
