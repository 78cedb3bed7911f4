"""The second half of parsing: rules that span sections. Values already found bad (None) are passed over."""

from collections.abc import Sequence
from typing import Any, Final

from kvcompass.levels.ladder import ladder
from kvcompass.plan.draft import Draft, Entry
from kvcompass.plan.faults import Faults
from kvcompass.plan.model import LengthRule, worker_slots
from kvcompass.plan.sections import DEFAULT_SHARING_GROUP, UNASSIGNED
from kvcompass.plan.values import listener

_PLACED: Final = ("edge", "unit", "worker")
_LISTENERS: Final = {
    "edge": ("address", "peer_address", "grpc_address", "ops_address"),
    "unit": ("address", "ops_address"),
    "worker": ("url", "events", "replay"),
}
_RUNGS_MAX: Final = 1_024
"""Each is a key of every longer prompt; the default ladder has 966 of them below 16 million tokens."""
_TABLES_SPARE: Final = 16
_RANKS_MEET: Final = (
    "; workers of one engine each name another dp_rank of it, in one region: one cache serves one sharing "
    "group"
)


def check_draft(draft: Draft, faults: Faults, *, allow_unassigned: bool) -> None:
    """Add a fault for every rule that the draft breaks."""
    _check_lengths(draft, faults)
    _check_ids(draft, faults)
    _check_regions(draft, faults)
    _check_wan(draft, faults)
    _check_listeners(draft, faults)
    _check_shards(draft.arrays["unit"], faults)
    _check_sharing_groups(draft, faults)
    _check_index(draft.tables["index"], faults)
    _check_lease(draft, faults)
    _check_slots(draft, faults, allow_unassigned=allow_unassigned)


def _check_lengths(draft: Draft, faults: Faults) -> None:
    quantum = draft.tables["lengths"]["quantum"]
    block_size = draft.tables["model"]["block_size"]
    context = draft.tables["model"]["context_length"]
    if quantum is None:
        return
    if block_size is not None and quantum % block_size:
        faults.add("lengths.quantum", f"{quantum} is not a multiple of model.block_size {block_size}")
    if context is not None and context <= 2 * quantum:
        faults.add(
            "model.context_length",
            f"{context} leaves no room for two rungs of {quantum} tokens; lower lengths.quantum",
        )
    elif context is not None:
        _check_rungs(draft, quantum, context, faults)


def _check_rungs(draft: Draft, quantum: int, context: int, faults: Faults) -> None:
    """The ladder has not too many rungs, and a worker may register all that one prompt reaches."""
    lengths, entries_max = draft.tables["lengths"], draft.tables["index"]["worker_entries_max"]
    if None in lengths.values():
        return
    rungs = lengths["levels"]
    if lengths["policy"] == "ladder":
        # A million quanta have too many rungs whatever the stretch, so that more need not be counted.
        rungs = len(ladder(LengthRule(**lengths), min(context, quantum << 20)))
    if rungs > _RUNGS_MAX:
        names = ("quantum", "stretch")
        small, other = names if lengths["stretch"] >= LengthRule().stretch else reversed(names)
        faults.add(
            f"lengths.{small}",
            f"{lengths[small]} with lengths.{other} {lengths[other]} makes more than {_RUNGS_MAX} rungs "
            f"below model.context_length {context}, each a key of every longer prompt; raise it",
        )
    elif entries_max and entries_max < rungs:
        faults.add(
            "index.worker_entries_max",
            f"{entries_max} is less than the {rungs} rungs of one long prompt; at least that, or 0 for four "
            "times the expected entries of its tables",
        )


def _check_ids(draft: Draft, faults: Faults) -> None:
    for kind, entries in draft.arrays.items():
        first: dict[str, int] = {}
        for i, entry in enumerate(entries):
            name = entry["id"]
            if name is None:
                continue
            if name in first:
                faults.add(f"{kind}[{i}].id", f"{name!r} is already the id of {kind}[{first[name]}]")
            first.setdefault(name, i)


def _check_regions(draft: Draft, faults: Faults) -> None:
    regions = _ids(draft, "region")
    if not regions:
        return
    for kind in _PLACED:
        for i, entry in enumerate(draft.arrays[kind]):
            _check_known(f"{kind}[{i}].region", "region", entry["region"], regions, faults)
    with_edge = {entry["region"] for entry in draft.arrays["edge"]}
    for i, region in enumerate(regions):
        workers = sum(entry["region"] == region for entry in draft.arrays["worker"])
        if workers and region not in with_edge:
            faults.add(
                f"region[{i}].id",
                f"{region!r} has {workers} worker(s) and no edge to reach them; add an [[edge]]",
            )


def _check_wan(draft: Draft, faults: Faults) -> None:
    regions = _ids(draft, "region")
    if not regions or draft.wan_ms is None:
        return
    for origin, row in draft.wan_ms.items():
        _check_known(f"wan_ms.{origin}", "region", origin, regions, faults)
        for region in row or ():
            _check_known(f"wan_ms.{origin}.{region}", "region", region, regions, faults)
    for origin in dict.fromkeys(regions):
        if origin not in draft.wan_ms:
            faults.add(f"wan_ms.{origin}", "missing: the one-way latencies from there, { TO = 80.0 } in ms")
            continue
        row = draft.wan_ms[origin]
        for region in dict.fromkeys(regions):
            if row is not None and region not in row:
                faults.add(f"wan_ms.{origin}.{region}", "missing: the one-way latency in ms")


def _check_listeners(draft: Draft, faults: Faults) -> None:
    """A listener belongs to one entry; an engine's URL to one worker for each of its dp ranks.

    Workers share the operations listener of their agent with one another, and with nothing else.
    """
    first: dict[str, str] = {}
    engines: dict[str, list[Entry]] = {}
    for kind, names in _LISTENERS.items():
        for i, entry in enumerate(draft.arrays[kind]):
            for name in names:
                given = entry[name]
                if not given:
                    continue
                place = listener(given)
                others = engines.setdefault(place, []) if name == "url" else []
                if place in first and not (others and all(_are_ranks(entry, other) for other in others)):
                    hint = _RANKS_MEET if others else ""
                    faults.add(f"{kind}[{i}].{name}", f"{given!r} is already {first[place]}{hint}")
                first.setdefault(place, f"{kind}[{i}].{name}")
                others.append(entry)
    for i, entry in enumerate(draft.arrays["worker"]):
        given = entry["ops_address"]
        if given and listener(given) in first:
            faults.add(
                f"worker[{i}].ops_address",
                f"{given!r} is already {first[listener(given)]}; give the operations listener of its agent, "
                "which only workers share",
            )


def _are_ranks(one: Entry, other: Entry) -> bool:
    """Whether two workers may be ranks of one engine."""
    ranks = (one["dp_rank"], other["dp_rank"])
    return None not in ranks and ranks[0] != ranks[1] and one["region"] == other["region"]


def _check_shards(units: list[Entry], faults: Faults) -> None:
    owner: dict[int, int] = {}
    for i, entry in enumerate(units):
        shard = entry["shard"]
        if shard is None:
            continue
        if shard >= len(units):
            faults.add(
                f"unit[{i}].shard", f"{shard}: {len(units)} unit(s) own the shards 0..{len(units) - 1}"
            )
        elif shard in owner:
            faults.add(f"unit[{i}].shard", f"shard {shard} already belongs to unit[{owner[shard]}]")
        owner.setdefault(shard, i)


def _check_sharing_groups(draft: Draft, faults: Faults) -> None:
    first: dict[str, int] = {}
    for i, entry in enumerate(draft.arrays["sharing_group"]):
        salt = entry["salt"]
        if salt in first:
            faults.add(
                f"sharing_group[{i}].salt",
                f"the salt of sharing_group[{first[salt]}]; they would share caches",
            )
        elif salt is not None:
            first[salt] = i
    groups = _ids(draft, "sharing_group") or [DEFAULT_SHARING_GROUP.id]
    for i, entry in enumerate(draft.arrays["worker"]):
        _check_known(f"worker[{i}].sharing_group", "sharing group", entry["sharing_group"], groups, faults)


def _check_index(index: Entry, faults: Faults) -> None:
    value_bits, given = index["value_bits"], index["slots_given"]
    if index["layout"] == "paper" and value_bits == 64:
        faults.add("index.layout", "'paper' has 32-bit values only; set index.value_bits = 32")
    if value_bits is not None and given and max(given) > worker_slots(value_bits):
        faults.add("index.slots_given", f"a {value_bits}-bit value has {worker_slots(value_bits)} slots")


def _check_lease(draft: Draft, faults: Faults) -> None:
    lease_ms, period_ms = (draft.tables["routing"][name] for name in ("lease_ms", "broadcast_period_ms"))
    if lease_ms is None:
        return
    if period_ms is not None and 2 * period_ms > lease_ms:
        faults.add(
            "routing.broadcast_period_ms",
            f"{period_ms}: what regions tell one another would outlive a lease before more comes; at most "
            f"half of routing.lease_ms, {lease_ms // 2}",
        )
    ways = [way for row in (draft.wan_ms or {}).values() for way in (row or {}).values() if way is not None]
    if ways and 2 * max(ways) >= lease_ms:
        faults.add(
            "routing.lease_ms",
            f"{lease_ms}: no renewal comes back in time over the longest way of wan_ms, {max(ways):g} ms one "
            f"way; more than {2 * max(ways):g}",
        )


def _check_slots(draft: Draft, faults: Faults, *, allow_unassigned: bool) -> None:
    value_bits = draft.tables["index"]["value_bits"]
    given = draft.tables["index"]["slots_given"]
    regions = _ids(draft, "region")
    tables_most = _tables_most(draft)
    region_of: dict[int, tuple[str, int]] = {}
    holder: dict[tuple[int, int], int] = {}
    for i, entry in enumerate(draft.arrays["worker"]):
        table, slot, region = entry["table"], entry["slot"], entry["region"]
        _check_assigned(i, entry, faults, allow_unassigned=allow_unassigned)
        beyond = slot is not None and value_bits is not None and slot >= worker_slots(value_bits)
        if beyond:
            faults.add(
                f"worker[{i}].slot",
                f"{slot}: a {value_bits}-bit value has the slots 0..{worker_slots(value_bits) - 1}",
            )
        if table in (None, UNASSIGNED) or slot in (None, UNASSIGNED):
            continue
        if (table, slot) in holder:
            faults.add(
                f"worker[{i}].slot", f"table {table} slot {slot} is already worker[{holder[table, slot]}]"
            )
        holder.setdefault((table, slot), i)
        if table >= tables_most:
            faults.add(
                f"worker[{i}].table",
                f"{table}: every shard and lookup has all tables up to it, and few are in use; lower than "
                f"{tables_most}, or leave out table and slot: `kvcompass plan assign` gives both",
            )
            continue
        if region not in regions:
            continue
        owner, first = region_of.setdefault(table, (region, i))
        if owner != region:
            faults.add(
                f"worker[{i}].table",
                f"table {table} belongs to region {owner!r} (worker[{first}]), not {region!r}",
            )
        elif given and not (beyond or allow_unassigned or slot < dict(enumerate(given)).get(table, 0)):
            faults.add(
                f"worker[{i}].slot",
                f"table {table} slot {slot} is missing in index.slots_given; `kvcompass plan assign` adds it",
            )


def _tables_most(draft: Draft) -> int:
    """How many tables a plan may have: a table id costs all below it.

    One that was ever given counts as in use: a fleet grows old, and no place is renumbered.
    """
    in_use = {entry["table"] for entry in draft.arrays["worker"]} - {None, UNASSIGNED}
    in_use.update(table for table, slots in enumerate(draft.tables["index"]["slots_given"] or ()) if slots)
    return 4 * len(in_use) + _TABLES_SPARE


def _check_assigned(i: int, entry: Entry, faults: Faults, *, allow_unassigned: bool) -> None:
    missing = [name for name in ("table", "slot") if entry[name] == UNASSIGNED]
    if len(missing) == 1:
        faults.add(f"worker[{i}].{missing[0]}", "missing; give both table and slot, or neither")
    elif missing and not allow_unassigned:
        faults.add(f"worker[{i}].table", "missing, and slot too; `kvcompass plan assign FILE` gives both")


def _check_known(path: str, kind: str, name: Any, known: Sequence[str], faults: Faults) -> None:
    if name is not None and name not in known:
        faults.add(path, f"unknown {kind} {name!r}; known: {', '.join(known) or 'none'}")


def _ids(draft: Draft, kind: str) -> list[str]:
    return [entry["id"] for entry in draft.arrays[kind] if entry["id"] is not None]
