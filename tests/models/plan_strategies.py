"""Hypothesis strategies of whole plans without a fault."""

from hypothesis import strategies as st

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

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
TEXTS = st.text(min_size=1, max_size=12)
RATES = st.floats(min_value=1e-4, max_value=10.0)
LATENCIES = st.floats(min_value=0.01, max_value=500.0)
SHORTEST_LEASE_MS = 1_001


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to 4 regions, 3 units and 8 workers; every region with workers has an edge.

    Workers of a region may be ranks of one engine.
    """
    ports = iter(range(1_000, 60_000))
    regions = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    groups = draw(
        st.lists(st.tuples(IDS, st.text(max_size=8)), min_size=1, max_size=3, unique_by=(_id, _salt))
    )
    block_size = draw(st.sampled_from((1, 16, 64)))
    quantum = block_size * draw(st.integers(1, 4))
    unit_ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    shards = draw(st.permutations(range(len(unit_ids))))
    worker_ids = draw(st.lists(IDS, min_size=1, max_size=8, unique=True))
    slots = draw(st.permutations(range(16)))
    workers = []
    for i, name in enumerate(worker_ids):
        region = draw(st.integers(0, len(regions) - 1))
        dp_rank = draw(st.sampled_from((None, i)))
        workers.append(
            Worker(
                id=name,
                region=regions[region],
                url=f"http://127.0.0.1:{next(ports) if dp_rank is None else region + 1}",
                events=draw(st.sampled_from(("", f"tcp://127.0.0.1:{next(ports)}"))),
                table=region,
                slot=slots[i],
                prefill_ms_per_token=draw(RATES),
                reload_ms_per_token=draw(RATES),
                replay=draw(st.sampled_from(("", f"ipc:///run/replay {i}"))),
                sharing_group=draw(st.sampled_from(groups))[0],
                drain=draw(st.booleans()),
                ops_address=draw(st.sampled_from(("", "agents.example.net:900"))),
                dp_rank=dp_rank,
                decode_ms_per_context_token=draw(st.none() | st.floats(0.0, 1.0, exclude_max=True)),
                holdings=draw(st.sampled_from(("events", "predicted"))),
            )
        )
    return Plan(
        fleet=draw(IDS),
        plan_version=draw(st.integers(1, 1 << 40)),
        model=ModelIdentity(
            draw(TEXTS), draw(TEXTS), draw(TEXTS), block_size, 2 * quantum + draw(st.integers(1, 9_000))
        ),
        lengths=LengthRule(
            policy=draw(st.sampled_from(("ladder", "paper"))),
            quantum=quantum,
            stretch=draw(st.floats(min_value=0.3, max_value=1.4)),
            levels=draw(st.integers(1, 8)),
        ),
        index=IndexRule(expected_entries=draw(st.integers(1, 1 << 20))),
        routing=RoutingRule(
            queue_scale_ms=draw(st.floats(1.0, 60_000.0)),
            lease_ms=draw(st.integers(SHORTEST_LEASE_MS, 10_000)),
            decode_tokens=draw(st.integers(0, 1_000)),
        ),
        regions=tuple(regions),
        wan_ms=tuple(tuple(draw(LATENCIES) for _ in regions) for _ in regions),
        edges=tuple(
            Edge(f"edge-{i}", region, *(f"[::1]:{next(ports)}" for _ in range(3)))
            for i, region in enumerate(regions)
        ),
        units=tuple(
            MaintenanceUnit(name, shard, draw(st.sampled_from(regions)), f"unit.example.net:{next(ports)}")
            for name, shard in zip(unit_ids, shards, strict=True)
        ),
        workers=tuple(workers),
        sharing_groups=tuple(SharingGroup(*group) for group in groups),
    )


def _id(group: tuple[str, str]) -> str:
    return group[0]


def _salt(group: tuple[str, str]) -> str:
    return group[1]
