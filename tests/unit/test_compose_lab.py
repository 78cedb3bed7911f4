"""The compose lab agrees with itself: plan, networks, settings, secrets, routers and the double's rates."""

import re
import subprocess
import sys
import tomllib
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvcompass.engine_model import EngineTiming
from kvcompass.plan.model import Plan
from lab.netem.settings import load_settings as load_router
from services.edge.requests.callers import Callers
from services.edge.settings import EdgeSettings
from services.edge.settings import check_settings as check_edge
from services.maintenance.settings import MaintenanceSettings, unit_bounds
from services.mock_sglang.settings import MockSettings
from services.runtime.auth import hash_api_key
from services.runtime.plan_file import load_plan
from services.runtime.settings import load_settings
from services.worker_agent.settings import WorkerAgentSettings
from services.worker_agent.settings import check_settings as check_agent

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "compose"
FILE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
PLAN: Plan = load_plan(FOLDER / "plan.toml")
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "kvcompass"}


def address_of(service: str, region: str) -> str:
    address: str = SERVICES[service]["networks"][region]["ipv4_address"]
    return address


def settings_of(name: str) -> Path:
    return FOLDER / "settings" / name


def option(service: str, flag: str) -> str:
    command: list[str] = SERVICES[service]["command"]
    return command[command.index(flag) + 1]


def test_the_top_level_file_is_the_same_project() -> None:
    top = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    assert top == {"name": FILE["name"], "include": ["deploy/compose/compose.yaml"]}


def test_every_process_of_the_plan_has_its_container_at_its_address() -> None:
    for edge in PLAN.edges:
        host = address_of(edge.id, edge.region)
        assert (edge.address, edge.peer_address, edge.grpc_address) == (
            f"{host}:8000",
            f"{host}:8001",
            f"{host}:8002",
        )
        assert option(edge.id, "--id") == edge.id
    for unit in PLAN.units:
        assert unit.address == f"{address_of(unit.id, unit.region)}:8100"
        assert option(unit.id, "--id") == unit.id
    for worker in PLAN.workers:
        host = address_of(worker.id, worker.region)
        assert (worker.url, worker.events, worker.replay) == (
            f"http://{host}:30000",
            f"tcp://{host}:5557",
            f"tcp://{host}:5657",
        )
        agent = worker.id.replace("worker", "agent")
        assert option(agent, "--workers") == worker.id
        assert list(SERVICES[agent]["networks"]) == [worker.region]


def test_every_address_is_in_its_network_and_taken_once() -> None:
    taken: set[str] = set()
    for service in SERVICES.values():
        for network, place in service.get("networks", {}).items():
            if not place:
                continue
            (config,) = FILE["networks"][network]["ipam"]["config"]
            assert ip_address(place["ipv4_address"]) in ip_network(config["subnet"])
            assert place["ipv4_address"] not in taken | set(config.get("aux_addresses", {}).values())
            taken.add(place["ipv4_address"])


def test_routers_add_the_plans_latencies_and_stand_where_the_networks_say() -> None:
    for i, region in enumerate(PLAN.regions):
        router = load_router(ROOT / "deploy" / "tc-netem" / "wan.toml", region)
        (config,) = FILE["networks"][region]["ipam"]["config"]
        assert str(router.own.subnet) == config["subnet"]
        assert str(router.own.gateway) == config["aux_addresses"]["DefaultGatewayIPv4"]
        assert str(router.own.router) == address_of(f"wan-{region}", "wan")
        assert SERVICES[f"wan-{region}"]["command"] == ["run", "--region", region]
        added = {other: link.one_way_ms for other, link in router.profile.leaving(region).items()}
        assert added == {other: PLAN.wan_ms[i][j] for j, other in enumerate(PLAN.regions) if other != region}


def test_services_would_take_their_settings() -> None:
    edge = load_settings(
        EdgeSettings,
        settings_of("edge.toml"),
        {"id": "edge-us", "peer_key_file": str(FOLDER / "secrets" / "peer_key")},
    )
    check_edge(edge)
    Callers(edge, PLAN)
    unit_bounds(load_settings(MaintenanceSettings, settings_of("unit.toml"), {"id": "unit-us"}))
    check_agent(load_settings(WorkerAgentSettings, settings_of("agent.toml"), {"workers": ["worker-us-1"]}))
    mounted = {"/etc/kvcompass/plan.toml", "/run/secrets/peer_key"}
    assert {edge.plan, tomllib.loads(settings_of("edge.toml").read_text())["peer_key_file"]} == mounted


def test_the_demo_keys_are_those_of_the_settings() -> None:
    raw = tomllib.loads(settings_of("edge.toml").read_text("utf-8"))
    keys = {name: (FOLDER / "secrets" / name).read_text("utf-8").strip() for name in ("api_key", "admin_key")}
    assert raw["api_keys"] == {hash_api_key(keys["api_key"]): "default"}
    assert raw["admin_keys"] == [hash_api_key(keys["admin_key"])]
    assert {name: FOLDER / value["file"] for name, value in FILE["secrets"].items()} == {
        name: FOLDER / "secrets" / name for name in ("peer_key", "api_key", "admin_key")
    }
    assert len((FOLDER / "secrets" / "peer_key").read_text("utf-8").strip()) >= 16


def test_the_doubles_are_those_of_the_lab_without_containers() -> None:
    double = load_settings(MockSettings, settings_of("worker.toml"))
    assert (double.model, double.page_size, double.context_length) == (
        PLAN.model.id,
        PLAN.model.block_size,
        PLAN.model.context_length,
    )
    calibrated = EngineTiming()
    assert double.timing.prefill_ms_per_token == pytest.approx(4 * calibrated.prefill_ms_per_token)
    assert double.timing.decode_ms == pytest.approx(4 * calibrated.decode_ms)


@pytest.mark.parametrize("name", SERVICES)
def test_containers_may_little(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service.get("cap_add", [])) <= {"NET_ADMIN", "NET_RAW"}
    assert bool(service.get("cap_add")) == name.startswith("wan-")
    assert service["cpus"] and service["mem_limit"]
    assert service.get("read_only") or name == "grafana"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", sorted(set(SERVICES) - set(OURS)))
def test_what_is_not_built_here_has_a_version(name: str) -> None:
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert service["image"] == "kvcompass-netem" or tag[0].isdigit() or tag[0] == "v"


def test_each_image_is_built_once() -> None:
    built = [service["image"] for service in SERVICES.values() if "build" in service]
    assert sorted(built) == ["kvcompass", "kvcompass-netem"]


def test_the_stage_that_compiles_the_kernels_has_all_that_they_need() -> None:
    listed = "import sys, kvcompass.warm; print(*sys.modules)"
    ended = subprocess.run((sys.executable, "-c", listed), capture_output=True, text=True, check=True)
    names = {name.split(".")[1] for name in ended.stdout.split() if name.startswith("kvcompass.")}
    imported = {name for name in names if (ROOT / "kvcompass" / name).is_dir()}
    copied = set(
        re.findall(r"^COPY kvcompass/(\w+) ", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    )
    assert imported <= copied
    assert "kernels" in imported
