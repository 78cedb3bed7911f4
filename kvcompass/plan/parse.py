"""TOML text -> Plan, or every fault of it."""

from kvcompass.errors import PlanError
from kvcompass.plan.check import check_draft
from kvcompass.plan.draft import Draft, read_draft
from kvcompass.plan.faults import Faults
from kvcompass.plan.model import (
    Edge,
    IndexRule,
    LengthRule,
    MaintenanceUnit,
    ModelIdentity,
    Plan,
    RoutingRule,
    SharingGroup,
    Worker,
)
from kvcompass.plan.sections import DEFAULT_SHARING_GROUP


def parse_plan(text: str, *, allow_unassigned: bool = False) -> Plan:
    """Return the plan that a file describes.

    Args:
        text: TOML.
        allow_unassigned: Accept workers without table and slot; both are then -1. A running fleet never does.

    Raises:
        PlanError: With one fault per mistake, each under its TOML path such as `worker[3].region`.
    """
    faults = Faults()
    draft = read_draft(text, faults)
    check_draft(draft, faults, allow_unassigned=allow_unassigned)
    faults.raise_any()
    return _build(draft)


def decode_plan(data: bytes) -> str:
    """Return the text of a plan file.

    Raises:
        PlanError: The bytes are not UTF-8; the message names the line.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PlanError((("toml", f"not UTF-8: byte {data[error.start]:#04x} at line {line}"),)) from error


def _build(draft: Draft) -> Plan:
    regions = tuple(entry["id"] for entry in draft.arrays["region"])
    return Plan(
        fleet=draft.tables["fleet"]["name"],
        plan_version=draft.tables["fleet"]["plan_version"],
        model=ModelIdentity(**draft.tables["model"]),
        lengths=LengthRule(**draft.tables["lengths"]),
        index=IndexRule(**draft.tables["index"]),
        routing=RoutingRule(**draft.tables["routing"]),
        regions=regions,
        wan_ms=tuple(tuple(_latency_ms(draft, origin, region) for region in regions) for origin in regions),
        edges=tuple(Edge(**entry) for entry in draft.arrays["edge"]),
        units=tuple(MaintenanceUnit(**entry) for entry in draft.arrays["unit"]),
        workers=tuple(Worker(**entry) for entry in draft.arrays["worker"]),
        sharing_groups=tuple(SharingGroup(**entry) for entry in draft.arrays["sharing_group"])
        or (DEFAULT_SHARING_GROUP,),
    )


def _latency_ms(draft: Draft, origin: str, region: str) -> float:
    row = (draft.wan_ms or {})[origin]
    latency_ms = (row or {})[region]
    assert latency_ms is not None, "a bad latency is a fault"
    return latency_ms
