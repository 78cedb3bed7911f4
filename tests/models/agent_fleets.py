"""A small fleet for the agent's tests: blocks of 4 tokens, rungs at every block."""

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

SALT = "pepper"


def agent_plan(
    *,
    block_size: int = 4,
    quantum: int = 4,
    context_length: int = 64,
    stretch: float = 0.3,
    shards: int = 2,
    engine_url: str = "http://127.0.0.1:30000",
    events: str = "tcp://127.0.0.1:5557",
    replay: str = "",
    edge_grpc: str = "127.0.0.1:7003",
    unit_addresses: tuple[str, ...] = ("127.0.0.1:7100", "127.0.0.1:7101"),
    lease_ms: int = 3_000,
) -> Plan:
    """One region, one edge, one worker `us-0` of a salted sharing group."""
    return Plan(
        fleet="agents",
        plan_version=1,
        model=ModelIdentity(
            "m", "builtin:kvcompass-bpe", "builtin:kvcompass-chat", block_size, context_length
        ),
        lengths=LengthRule(quantum=quantum, stretch=stretch),
        index=IndexRule(),
        routing=RoutingRule(lease_ms=lease_ms),
        regions=("us",),
        wan_ms=((0.5,),),
        edges=(Edge("edge-us", "us", "127.0.0.1:7001", "127.0.0.1:7002", edge_grpc),),
        units=tuple(MaintenanceUnit(f"unit-{i}", i, "us", unit_addresses[i]) for i in range(shards)),
        workers=(
            Worker(
                id="us-0",
                region="us",
                url=engine_url,
                events=events,
                table=0,
                slot=0,
                prefill_ms_per_token=0.1,
                reload_ms_per_token=0.01,
                replay=replay,
                sharing_group="tenants",
            ),
        ),
        sharing_groups=(SharingGroup("tenants", SALT),),
    )
