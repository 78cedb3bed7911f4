"""What can be wrong with a prompt or with the files that turn it into tokens."""

from kvcompass.errors import KVCompassError


class PromptError(KVCompassError):
    """The client's messages cannot be rendered. `field` is the JSON path, like `messages[2].content`."""


class PromptAssetError(KVCompassError):
    """A tokenizer or chat template cannot be loaded. `field` is the plan's setting that names it."""
