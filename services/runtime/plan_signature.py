"""Who may bring a component a plan: whoever signs it with the fleet's plan key, as webhooks are signed.

The key itself never travels, so that an operations listener needs no TLS for it. What is signed names the
phase, the fleet and the version, and no component: who hears it on the way can bring it to another, or again,
and so hasten a step of a change that was begun. Versions only go forward, one at a time, and those one apart
work together, so that undoes nothing and breaks nothing.
"""

import hashlib
import hmac
from typing import Final

from kvcompass.plan.rollout import Phase
from services.runtime.settings import SettingsError

SIGNATURE_HEADER: Final = "x-kvcompass-signature"
_KEY_LETTERS: Final = 16


def sign(key: str, phase: Phase, plan: bytes) -> str:
    """The header's value for a plan's bytes: their digest, and the signature of the phase and that."""
    digest = hashlib.sha256(plan).hexdigest()
    return f"{digest} {_mac(key, phase, digest)}"


def may_be_signed(key: str, phase: Phase, signature: str) -> bool:
    """Whether somebody with the key signed some plan: seen by the head alone, before a body is read."""
    digest, _, mac = signature.partition(" ")
    return hmac.compare_digest(_mac(key, phase, digest).encode(), mac.encode())


def is_signed(key: str, phase: Phase, plan: bytes, signature: str) -> bool:
    """Whether a signature is that of these bytes. Takes the same time whatever is presented."""
    return hmac.compare_digest(sign(key, phase, plan).encode(), signature.encode())


def _mac(key: str, phase: Phase, digest: str) -> str:
    return hmac.new(key.encode(), f"{phase.value}\n{digest}".encode(), hashlib.sha256).hexdigest()


def check_plan_key(key: str) -> None:
    """Errors: SettingsError for a key that could be guessed; an empty one means that no plans are taken."""
    if key and len(key) < _KEY_LETTERS:
        raise SettingsError(f"needs at least {_KEY_LETTERS} characters", field="plan_key")
