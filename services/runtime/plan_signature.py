"""Who may bring a component a plan: whoever signs it with the fleet's plan key, as webhooks are signed.

The key itself never travels, so that an operations listener needs no TLS for it; what is signed names the
phase, the fleet and the version, so that what is sent again can do nothing new.
"""

import hashlib
import hmac
from typing import Final

from kvcompass.plan.rollout import Phase
from services.runtime.settings import SettingsError

SIGNATURE_HEADER: Final = "x-kvcompass-signature"
_KEY_LETTERS: Final = 16


def sign(key: str, phase: Phase, plan: bytes) -> str:
    """The header's value for a plan's bytes."""
    message = f"{phase.value}\n".encode() + plan
    return f"sha256={hmac.new(key.encode(), message, hashlib.sha256).hexdigest()}"


def is_signed(key: str, phase: Phase, plan: bytes, signature: str) -> bool:
    """Whether a signature is that of these bytes. Takes the same time whatever is presented."""
    return hmac.compare_digest(sign(key, phase, plan).encode(), signature.encode())


def check_plan_key(key: str) -> None:
    """Errors: SettingsError for a key that could be guessed; an empty one means that no plans are taken."""
    if key and len(key) < _KEY_LETTERS:
        raise SettingsError(f"needs at least {_KEY_LETTERS} characters", field="plan_key")
