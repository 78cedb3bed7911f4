"""What must be equal everywhere before two components may exchange keys or patches."""

import hashlib
from collections.abc import Mapping
from typing import Final

from kvcompass.errors import LayoutMismatchError, excerpt
from kvcompass.keys import KEY_VERSION
from kvcompass.plan.model import Plan
from kvcompass.plan.values import is_identifier

HASH_VERSION: Final = 3
"""Raised by any change to how the index hashes keys or lays out a bucket."""

_DIGEST_SUFFIX: Final = "_digest"


def layout_fields(plan: Plan, digests: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the fields compared at every handshake, by name.

    Regions, workers, tables, rates and rungs are absent: they may change while a fleet runs (`plan_version`).

    Args:
        plan: The component's own plan.
        digests: Digests of contents the component has loaded, such as `{"tokenizer": "9f..."}`; they become
            `tokenizer_digest` and are compared where both sides have them.
    """
    fields = {
        "key_version": str(KEY_VERSION),
        "hash_version": str(HASH_VERSION),
        "model": plan.model.id,
        "tokenizer": plan.model.tokenizer,
        "chat_template": plan.model.chat_template,
        "block_size": str(plan.model.block_size),
        "quantum": str(plan.lengths.quantum),
        "shards": str(plan.shards),
        "value_bits": str(plan.index.value_bits),
        "index_layout": plan.index.layout,
        "sharing_groups": _salts_hash(plan),
    }
    return fields | {f"{name}{_DIGEST_SUFFIX}": value for name, value in (digests or {}).items()}


def layout_digest(fields: Mapping[str, str]) -> bytes:
    """Return 32 bytes that name the layout; the order of the fields does not matter."""
    return _digest(tuple(part for name in sorted(fields) for part in (name, fields[name])))


def check_layout(own: Mapping[str, str], other: Mapping[str, str]) -> None:
    """Compare a peer's layout fields with our own.

    Raises:
        LayoutMismatchError: `field` names the first that differs; the message shows both values.
    """
    for name in (*own, *(name for name in other if name not in own)):
        mine, theirs = own.get(name), other.get(name)
        if name.endswith(_DIGEST_SUFFIX) and (mine is None or theirs is None):
            continue
        if mine != theirs:
            field = name if is_identifier(name) else excerpt(name)
            there = None if theirs is None else excerpt(theirs)
            raise LayoutMismatchError(
                f"layout differs in {field}: {mine!r} here, {there} there; both must run the same plan",
                field=field,
            )


def check_plan_version(own: int, other: int) -> None:
    """Compare a peer's plan version with our own. They may differ by one while a change is being applied.

    Raises:
        LayoutMismatchError: With `field` "plan_version".
    """
    if abs(own - other) > 1:
        raise LayoutMismatchError(
            f"plan_version is {own} here and {other} there; apply plans one version at a time",
            field="plan_version",
        )


def _salts_hash(plan: Plan) -> str:
    groups = sorted((group.id, group.salt) for group in plan.sharing_groups)
    return _digest(tuple(part for group in groups for part in group)).hex()


def _digest(parts: tuple[str, ...]) -> bytes:
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode()
        sha.update(len(data).to_bytes(4, "little") + data)
    return sha.digest()
