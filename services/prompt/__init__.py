"""From what a client sends to token ids: the chat template and tokenizer that edge and engine share."""

from services.prompt.encoder import PromptEncoder
from services.prompt.errors import PromptError

__all__ = ["PromptEncoder", "PromptError"]
