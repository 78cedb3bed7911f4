"""The compose lab agrees with itself: plan, networks, settings, secrets, routers and the double's rates."""

import argparse
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import plan_apply, status
from cli.__main__ import main
from cli.plan_visits import targets_of
from kvcompass.engine_model import EngineTiming
from kvcompass.plan.change import plan_changes
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Component, Phase
from lab.netem.settings import load_settings as load_router
from services.edge.requests.callers import Callers
from services.edge.settings import EdgeSettings
from services.edge.settings import check_settings as check_edge
from services.maintenance.settings import MaintenanceSettings, unit_bounds
from services.mock_sglang.settings import MockSettings
from services.runtime.auth import hash_api_key
from services.runtime.plan_file import load_plan
from services.runtime.plan_signature import check_plan_key, is_signed, sign
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


def all_settings() -> tuple[EdgeSettings, MaintenanceSettings, WorkerAgentSettings]:
    """As the containers have them, but for where secrets are mounted."""
    secrets = {f"{name}_file": str(FOLDER / "secrets" / name) for name in ("peer_key", "plan_key")}
    plan_key = {"plan_key_file": secrets["plan_key_file"]}
    return (
        load_settings(EdgeSettings, settings_of("edge.toml"), {"id": "edge-us", **secrets}),
        load_settings(MaintenanceSettings, settings_of("unit.toml"), {"id": "unit-us", **plan_key}),
        load_settings(
            WorkerAgentSettings, settings_of("agent.toml"), {"workers": ["worker-us-1"], **plan_key}
        ),
    )


EDGE, UNIT, AGENT = all_settings()


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
    for name, service in SERVICES.items():
        if name.startswith("gpu-"):
            continue  # in the place of a double: test_compose_gpu
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
    check_edge(EDGE)
    Callers(EDGE, PLAN)
    unit_bounds(UNIT)
    check_agent(AGENT)
    assert {each.plan for each in (EDGE, UNIT, AGENT)} == {"/etc/kvcompass/plan.toml"}


def test_containers_have_the_secrets_that_their_settings_name() -> None:
    """Under the name that the settings look for, and no other."""
    for name, service in OURS.items():
        command = [str(word) for word in service.get("command", [])]
        if "--settings" not in command:
            continue
        settings = tomllib.loads(settings_of(Path(option(name, "--settings")).name).read_text("utf-8"))
        named = {value for field, value in settings.items() if field.endswith("_file")}
        assert named == {f"/run/secrets/{secret}" for secret in service.get("secrets", [])}, name


def test_the_operator_reaches_the_operations_listener_of_every_process() -> None:
    """Each binds all of its container's addresses, and none is published."""
    ports = dict(zip(Component, (each.ops_address for each in (UNIT, AGENT, EDGE)), strict=True))
    places = {worker.id: worker.id.replace("worker", "agent") for worker in PLAN.workers}
    targets = targets_of(PLAN, ())
    assert len(targets) == len(PLAN.edges) + len(PLAN.units) + len(PLAN.workers)
    for target in targets:
        (component,) = target.ids
        container = places.get(component, component)
        ((region, place),) = SERVICES[container]["networks"].items()
        assert ports[target.kind] == f"0.0.0.0:{target.address.rpartition(':')[2]}"
        assert target.address.rpartition(":")[0] == place["ipv4_address"]
        assert region in SERVICES["operator"]["networks"]
        published = [port.rpartition(":")[2] for port in SERVICES[container].get("ports", [])]
        assert target.address.rpartition(":")[2] not in published


def test_the_operator_signs_what_every_process_takes() -> None:
    assert SERVICES["operator"]["secrets"] == ["plan_key"]
    key = (FOLDER / "secrets" / "plan_key").read_text("utf-8").strip()
    body = (FOLDER / "plan.toml").read_bytes()
    for settings in (EDGE, UNIT, AGENT):
        check_plan_key(settings.plan_key)
        assert is_signed(settings.plan_key, Phase.CHECK, body, sign(key, Phase.CHECK, body))


def test_what_the_walk_through_has_the_operator_do_is_what_the_command_understands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The three lines of docs/lab.md, as they arrive in the container."""
    said: list[tuple[str, dict[str, Any]]] = []

    def noting(name: str) -> Callable[[argparse.Namespace], int]:
        def note(options: argparse.Namespace) -> int:
            said.append((name, vars(options)))
            return 0

        return note

    monkeypatch.setattr(plan_apply, "run", noting("apply"))
    monkeypatch.setattr(status, "run", noting("status"))
    operator = SERVICES["operator"]
    text = (ROOT / "docs" / "lab.md").read_text("utf-8")
    lines = re.findall(r"^docker compose run --rm operator (.*)$", text, re.MULTILINE)
    for line in (*lines, shlex.join(operator["command"])):
        assert main(shlex.split(line)) == 0
    assert [(name, options.get("dry_run")) for name, options in said] == [
        ("apply", True),
        ("apply", False),
        ("status", None),
        ("status", None),
    ]
    mounted = {str(Path(each.split(":")[-2])) for each in operator["volumes"]}
    for name, options in said:
        assert str(Path(operator["working_dir"]) / options["file"]) in mounted
        assert name == "status" or str(options["key_file"]) == "/run/secrets/plan_key"


def test_the_change_of_the_walk_through_is_one_that_a_running_fleet_takes() -> None:
    workers = (replace(PLAN.workers[0], drain=True), *PLAN.workers[1:])
    (change,) = plan_changes(PLAN, replace(PLAN, plan_version=2, workers=workers))
    assert change.field.endswith(".drain") and not change.is_refused


def test_the_demo_keys_are_those_of_the_settings() -> None:
    raw = tomllib.loads(settings_of("edge.toml").read_text("utf-8"))
    keys = {name: (FOLDER / "secrets" / name).read_text("utf-8").strip() for name in ("api_key", "admin_key")}
    assert raw["api_keys"] == {hash_api_key(keys["api_key"]): "default"}
    assert raw["admin_keys"] == [hash_api_key(keys["admin_key"])]
    assert {name: FOLDER / value["file"] for name, value in FILE["secrets"].items()} == {
        name: FOLDER / "secrets" / name for name in ("peer_key", "plan_key", "api_key", "admin_key")
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
    context_ms = double.timing.decode_ms_per_context_token
    assert context_ms == pytest.approx(2 * calibrated.decode_ms_per_context_token)


@pytest.mark.parametrize("name", SERVICES)
def test_containers_may_little(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service.get("cap_add", [])) <= {"NET_ADMIN", "NET_RAW"}
    assert bool(service.get("cap_add")) == name.startswith("wan-")
    assert service["cpus"] and service["mem_limit"]
    assert service.get("read_only") or name == "grafana" or name.startswith("gpu-")
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", sorted(set(SERVICES) - set(OURS)))
def test_what_is_not_built_here_has_a_version(name: str) -> None:
    service = SERVICES[name]
    tag = service["image"].removesuffix("}").rpartition(":")[2]
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
