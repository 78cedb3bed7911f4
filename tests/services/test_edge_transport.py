"""An edge does not talk to other components in plain text beyond its machine, unless it is told to."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvcompass.plan.model import Edge, MaintenanceUnit, Plan
from services.edge.composition import EdgeService
from services.edge.settings import EdgeSettings
from services.runtime.lifecycle import Lifecycle
from services.runtime.settings import SettingsError
from tests.models.ports import free_address
from tests.services.edge_fleet import PEER_KEY, make_plan

AWAY = "192.0.2.1:7000"


def plan_with(unit: str = "127.0.0.1:1", peer_of_eu: str = "127.0.0.1:1") -> Plan:
    plan = make_plan(1)
    edges = tuple(
        Edge(region, region, free_address(), free_address(), free_address()) for region in plan.regions
    )
    edges = tuple(replace(edge, peer_address=peer_of_eu) if edge.region == "eu" else edge for edge in edges)
    return replace(plan, edges=edges, units=(MaintenanceUnit("unit-0", 0, "us", unit),))


def edge(plan: Plan, **settings: Any) -> EdgeService:
    return EdgeService(
        EdgeSettings(id="us", plan="", lab_mode=True, peer_key=PEER_KEY, **settings), plan, Path()
    )


@pytest.mark.parametrize(
    ("plan", "settings"),
    [({"unit": AWAY}, {}), ({"peer_of_eu": AWAY}, {}), ({}, {"peer_listen": "0.0.0.0:0"})],
    ids=["a unit", "a peer edge", "its own peer listener"],
)
async def test_plain_text_beyond_loopback_is_refused_before_anything_is_bound(
    plan: dict[str, str], settings: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match="insecure = true") as caught:
        edge(plan_with(**plan), **settings)
    assert caught.value.field == "tls"
    service = edge(plan_with(**plan), insecure=True, **settings)
    assert service.peer_server.port == 0


async def test_the_load_listener_is_refused_too() -> None:
    with pytest.raises(SettingsError, match="not on loopback"):
        await edge(plan_with(), grpc_listen="0.0.0.0:0").run(Lifecycle())
