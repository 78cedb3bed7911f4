"""What differs between two versions of a plan, and whether a running fleet can take it.

What names a key or a bit must stay: a component of the old version would read the new one's bits as its own.
All else may change, one version at a time (docs/decisions/0206, 0208).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from kvcompass.plan.model import Edge, MaintenanceUnit, Plan, Worker


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `why` and `roll` are empty for what may change while the fleet runs."""

    field: str
    """TOML path by id, such as `worker.worker-us-1.drain`."""
    what: str
    """What becomes of it."""
    why: str = ""
    """Why a running fleet cannot take it."""
    roll: str = ""
    """How to get there all the same."""

    @property
    def is_refused(self) -> bool:
        """A running fleet cannot take it."""
        return bool(self.why)


_KEYS_WHY: Final = "every key in the fleet is made of it: nothing registered before would be found again"
_KEYS_ROLL: Final = (
    "start a second fleet under a plan with another fleet name beside this one, move the clients over, stop "
    "the old one"
)
_VALUE_WHY: Final = "it says what the bits of every table mean"
_VALUE_ROLL: Final = "stop all units and edges and start them with the new plan; agents refill the units"
_SHARDS_WHY: Final = "the number of units says which keys belong to which"
_PLACE_WHY: Final = "views one version behind would read its keys as another worker's"
_PLACE_ROLL: Final = "keep table and slot; `kvcompass plan assign` gives new workers theirs"
_REBORN: Final = (
    "give the {kind} with the new value another id, and remove this one in the same plan or a later one"
)

_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "fleet.name": ("it is another fleet's plan", "apply the plan of this fleet"),
    "model.id": (_KEYS_WHY, _KEYS_ROLL),
    "model.tokenizer": (_KEYS_WHY, _KEYS_ROLL),
    "model.chat_template": (_KEYS_WHY, _KEYS_ROLL),
    "model.block_size": (_KEYS_WHY, _KEYS_ROLL),
    "lengths.quantum": ("it is part of the layout that all components compare", _KEYS_ROLL),
    "index.value_bits": (_VALUE_WHY, _VALUE_ROLL),
    "index.layout": (_VALUE_WHY, _VALUE_ROLL),
}
"""Fields of the plan's tables that name keys or bits."""

_TABLES: Final = ("model", "lengths", "index", "routing")
_OWN_OPS: Final = frozenset({"ops_address"})
"""Where an operator finds a component: nobody else dials it."""
_WORKER_TUNED: Final = frozenset(
    {"prefill_ms_per_token", "reload_ms_per_token", "decode_ms_per_context_token", "drain"}
)


def plan_changes(old: Plan, new: Plan) -> tuple[Change, ...]:
    """Return every difference between a running plan and the one that is to follow it; refused ones too."""
    return tuple(_changes(old, new))


def check_successor(old: Plan, new: Plan) -> str:
    """Return why `new` cannot follow `old` by its version alone; empty when it can."""
    if new.plan_version == old.plan_version + 1:
        return ""
    if new.plan_version > old.plan_version:
        return (
            f"plan_version {new.plan_version} cannot follow {old.plan_version}: components further apart "
            f"refuse each other; apply {old.plan_version + 1} first"
        )
    return (
        f"plan_version {new.plan_version} is not after {old.plan_version}: raise it to {old.plan_version + 1}"
    )


def _changes(old: Plan, new: Plan) -> Iterator[Change]:
    if old.fleet != new.fleet:
        yield _field("fleet.name", old.fleet, new.fleet)
    for table in _TABLES:
        before, after = getattr(old, table), getattr(new, table)
        for each in fields(before):
            was, becomes = getattr(before, each.name), getattr(after, each.name)
            if was != becomes and each.name != "slots_given":
                yield _field(f"{table}.{each.name}", was, becomes)
    yield from _slots_given(old, new)
    yield from _sharing_groups(old, new)
    yield from _regions(old, new)
    yield from _wan(old, new)
    yield from _units(old, new)
    yield from _entries("edge", old.edges, new.edges, _edge_field)
    yield from _entries("worker", old.workers, new.workers, _worker_field)
    yield from _new_places(old, new)


def _field(name: str, was: object, becomes: object) -> Change:
    return Change(name, f"{was!r} -> {becomes!r}", *_REFUSED.get(name, ("", "")))


def _slots_given(old: Plan, new: Plan) -> Iterator[Change]:
    before, after = old.index.slots_given, new.index.slots_given
    if len(after) < len(before) or any(b > a for b, a in zip(before, after, strict=False)):
        yield Change(
            "index.slots_given",
            f"{list(before)} -> {list(after)}",
            "it counts places ever given, and units keep those apart that were somebody's",
            "keep the counts of the running plan; `kvcompass plan assign` raises them",
        )


def _sharing_groups(old: Plan, new: Plan) -> Iterator[Change]:
    before = {group.id: group.salt for group in old.sharing_groups}
    after = {group.id: group.salt for group in new.sharing_groups}
    for name in (*before, *(name for name in after if name not in before)):
        if before.get(name) != after.get(name):
            what = "added" if name not in before else "removed" if name not in after else "another salt"
            yield Change(
                f"sharing_group.{name}",
                what,
                "the groups and their salts are part of the layout that all components compare",
                "restart all components with the new plan",
            )


def _regions(old: Plan, new: Plan) -> Iterator[Change]:
    for name in new.regions:
        if name not in old.regions:
            yield Change(f"region.{name}", "added")
    for name in old.regions:
        if name not in new.regions:
            yield Change(
                f"region.{name}",
                "removed",
                "edges go on knowing its workers until their last requests have ended",
                "remove its workers, edges and units and keep the [[region]], which costs nothing; take it "
                "out when all components are restarted next",
            )


def _wan(old: Plan, new: Plan) -> Iterator[Change]:
    known = [name for name in new.regions if name in old.regions]
    for origin in known:
        for region in known:
            was = old.wan_ms[old.region_index(origin)][old.region_index(region)]
            becomes = new.wan_ms[new.region_index(origin)][new.region_index(region)]
            if was != becomes:
                yield Change(f"wan_ms.{origin}.{region}", f"{was:g} -> {becomes:g}")


def _units(old: Plan, new: Plan) -> Iterator[Change]:
    if old.shards != new.shards:
        yield Change("unit", f"{old.shards} -> {new.shards} shards", _SHARDS_WHY, _VALUE_ROLL)
        return
    yield from _entries("unit", old.units, new.units, _unit_field)


_FieldChange = Callable[[str, Any, Any], tuple[str, str]]
"""Of a field of an entry, before and after: why it is refused and how to roll, or two empty strings."""


def _entries(
    kind: str,
    before: Iterable[Edge | MaintenanceUnit | Worker],
    after: Iterable[Edge | MaintenanceUnit | Worker],
    judge: _FieldChange,
) -> Iterator[Change]:
    old, new = {entry.id: entry for entry in before}, {entry.id: entry for entry in after}
    for name, entry in new.items():
        if name not in old:
            yield Change(f"{kind}.{name}", "added", *judge("", None, entry))
            continue
        for each in fields(entry):
            was, becomes = getattr(old[name], each.name), getattr(entry, each.name)
            if was != becomes:
                yield Change(
                    f"{kind}.{name}.{each.name}", f"{was!r} -> {becomes!r}", *judge(each.name, was, becomes)
                )
    for name, entry in old.items():
        if name not in new:
            yield Change(f"{kind}.{name}", "removed", *judge("", entry, None))


def _unit_field(name: str, _was: Any, _becomes: Any) -> tuple[str, str]:
    if name in _OWN_OPS:
        return "", ""
    return (
        "agents and edges have its streams open, and a shard has one writer",
        "keep the unit's id, shard and address; start it elsewhere behind the same name",
    )


def _edge_field(name: str, was: Any, becomes: Any) -> tuple[str, str]:
    if name in _OWN_OPS or was is None or becomes is None:
        return "", ""
    return "peers and agents have it under the old value", _REBORN.format(kind="edge")


def _worker_field(name: str, was: Any, becomes: Any) -> tuple[str, str]:
    if name in _OWN_OPS or name in _WORKER_TUNED or not name:
        return "", ""
    if name in ("table", "slot"):
        return _PLACE_WHY, _PLACE_ROLL
    return "what is indexed of it belongs to the engine under the old value", _REBORN.format(kind="worker")


def _new_places(old: Plan, new: Plan) -> Iterator[Change]:
    """New workers at places that the running plan gives to others, and tables that change their region."""
    known = {worker.id for worker in old.workers}
    holder = {(worker.table, worker.slot): worker.id for worker in old.workers}
    region = {worker.table: worker.region for worker in old.workers}
    for worker in new.workers:
        if worker.id in known:
            continue
        if (worker.table, worker.slot) in holder:
            left = holder[worker.table, worker.slot]
            yield Change(f"worker.{worker.id}.slot", f"the place of {left}", _PLACE_WHY, _PLACE_ROLL)
        elif region.get(worker.table, worker.region) != worker.region:
            yield Change(
                f"worker.{worker.id}.table",
                f"table {worker.table} was {region[worker.table]}'s",
                _PLACE_WHY,
                _PLACE_ROLL,
            )
