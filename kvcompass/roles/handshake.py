"""What two components compare before they exchange anything else."""

from collections.abc import Mapping
from typing import Final

from kvcompass.errors import LayoutMismatchError, excerpt
from kvcompass.plan.layout import check_layout, check_plan_version
from kvcompass.plan.values import is_identifier
from kvcompass.roles.messages import PROTOCOL_VERSION, STREAM_FIELD, Handshake, Refusal

PLAN_FIELD: Final = "plan_version"
"""Field of the refusal of another version; on a stream that was accepted it asks for a new handshake."""


def check_handshake(handshake: Handshake, layout: Mapping[str, str], plan_version: int) -> Refusal | None:
    """The refusal that a dialling component gets, naming the first differing field; None when it may go on.

    Its id must be one that a plan can have: it is kept and shown. The layout must be equal field by field;
    plan and protocol versions may differ by one: a change rolls out.
    """
    if not is_identifier(handshake.component_id):
        return Refusal(
            "component_id",
            f"{excerpt(handshake.component_id)} is no id of a plan; use the one that the plan has",
        )
    if handshake.protocol_version < 1 or abs(handshake.protocol_version - PROTOCOL_VERSION) > 1:
        return Refusal(
            "protocol_version",
            f"{handshake.component_id} speaks version {handshake.protocol_version}, this side "
            f"{PROTOCOL_VERSION}; upgrade one version at a time",
        )
    if handshake.epoch < 1:
        return Refusal("epoch", f"{handshake.component_id} sent no epoch; it must be new at each start")
    try:
        check_layout(layout, handshake.layout)
        check_plan_version(plan_version, handshake.plan_version)
    except LayoutMismatchError as error:
        return Refusal(error.field, f"{handshake.component_id}: {error}")
    return None


def superseded(sender: str) -> Refusal:
    """What a stream is told when a newer one of the same sender has taken its place: the newest is believed.

    A sender that is alive opens another one and is believed again. So whoever speaks in another's name, by
    mistake or not, silences it for a moment only, and both sides see it.
    """
    return Refusal(STREAM_FIELD, f"a newer stream of {sender} has taken this one's place")
