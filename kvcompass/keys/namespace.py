"""The namespace of a key: what has to be equal before two equal token sequences are one cache."""

from typing import Final

from kvcompass.plan.model import ModelIdentity

KEY_VERSION: Final = 1
"""Raised by any change to how a key is made; part of the layout digest, so mixed fleets are refused."""


def namespace(model: ModelIdentity, salt: str) -> bytes:
    """Return the bytes hashed before the tokens.

    Every field is preceded by its byte length (uint32, little endian), so that no two lists of fields give
    the same bytes. The chat template is not part of it: equal tokens are the same cache however they were
    rendered.

    Args:
        model: Its id and tokenizer enter the namespace.
        salt: The sharing group's; assigned by the operator, never by a client.
    """
    fields = ("kvcompass", str(KEY_VERSION), model.id, model.tokenizer, salt)
    return b"".join(_prefixed(field) for field in fields)


def _prefixed(field: str) -> bytes:
    data = field.encode()
    return len(data).to_bytes(4, "little") + data
