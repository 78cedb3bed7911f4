"""With gpu.env the compose lab runs SGLang in the place of its doubles, and is the same otherwise."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kvcompass.levels import ladder
from kvcompass.plan.model import Plan
from services.runtime.plan_file import load_plan

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
TEXT = (FOLDER / "compose.yaml").read_text("utf-8")
GPU_ENV = dict(
    line.split("=", 1)
    for line in (FOLDER / "gpu.env").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)
PLAN: Plan = load_plan(FOLDER / "plan.toml")
GPU_PLAN: Plan = load_plan(FOLDER / "plan.gpu.toml")


def started(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What `docker compose --env-file ... up` starts: variables filled in, profiles and replicas counted."""

    def value(variable: re.Match[str]) -> str:
        return environment.get(variable[1], variable[2])

    file = yaml.safe_load(re.sub(r"\$\{(\w+):-([^}]*)\}", value, TEXT))
    profiles = set(environment.get("COMPOSE_PROFILES", "").split(","))
    return {
        name: service
        for name, service in file["services"].items()
        if (not service.get("profiles") or profiles & set(service["profiles"]))
        and int(service.get("deploy", {}).get("replicas", 1))
    }


USUAL = started({})
WITH_GPUS = started(GPU_ENV)
ENGINES = {name: service for name, service in WITH_GPUS.items() if name.startswith("gpu-")}


def option(service: dict[str, Any], name: str) -> str:
    """The value of `--name=value` in a command."""
    (value,) = [part.partition("=")[2] for part in service["command"] if part.startswith(f"--{name}=")]
    return str(value)


def test_without_it_nothing_of_it_is_started() -> None:
    assert not any(name.startswith("gpu-") for name in USUAL)
    assert {worker.id for worker in PLAN.workers} <= set(USUAL)


def test_an_engine_stands_where_each_double_stood_and_all_else_is_the_same() -> None:
    assert {name.replace("gpu-", "worker-") for name in ENGINES} == {worker.id for worker in PLAN.workers}
    assert set(WITH_GPUS) - set(ENGINES) == set(USUAL) - {worker.id for worker in PLAN.workers}
    for name, engine in ENGINES.items():
        double = name.replace("gpu-", "worker-")
        ((region, place),) = engine["networks"].items()
        assert USUAL[double]["networks"] == {region: {"ipv4_address": place["ipv4_address"]}}
        assert place["aliases"] == [double]
    for name, service in WITH_GPUS.items():
        if name not in ENGINES:
            told = yaml.safe_dump(service).replace("plan.gpu.toml:", "plan.toml:")
            assert told == yaml.safe_dump(USUAL[name])


def test_every_component_is_given_the_plan_of_the_gpus() -> None:
    for name, service in WITH_GPUS.items():
        if service["image"] == "kvcompass":
            assert f"{GPU_ENV['KVCOMPASS_PLAN']}:/etc/kvcompass/plan.toml:ro" in service["volumes"], name
            assert "./settings:/etc/kvcompass/settings:ro" in service["volumes"], "the plan's tokenizer"


def test_the_plans_differ_in_the_model_and_its_rates_alone() -> None:
    def like_the_other(worker: Any) -> Any:
        other = PLAN.workers[PLAN.worker_index(worker.id)]
        rates = ("prefill_ms_per_token", "reload_ms_per_token")
        return replace(worker, **{name: getattr(other, name) for name in rates})

    workers = tuple(like_the_other(worker) for worker in GPU_PLAN.workers)
    assert replace(GPU_PLAN, fleet=PLAN.fleet, model=PLAN.model, workers=workers) == PLAN
    assert ladder(GPU_PLAN.lengths, GPU_PLAN.model.context_length)[0] % GPU_PLAN.model.block_size == 0


def test_engines_are_started_as_the_plan_describes_them() -> None:
    for name, engine in ENGINES.items():
        worker = GPU_PLAN.workers[GPU_PLAN.worker_index(name.replace("gpu-", "worker-"))]
        assert option(engine, "served-model-name") == GPU_PLAN.model.id
        assert option(engine, "page-size") == str(GPU_PLAN.model.block_size)
        assert option(engine, "context-length") == str(GPU_PLAN.model.context_length)
        assert worker.url.endswith(f":{option(engine, 'port')}")
        events = yaml.safe_load(option(engine, "kv-events-config"))
        assert (events["publisher"], events["topic"]) == ("zmq", "kv-events")
        for told, planned in (
            (events["endpoint"], worker.events),
            (events["replay_endpoint"], worker.replay),
        ):
            assert told.startswith("tcp://*:")
            assert told.rpartition(":")[2] == planned.rpartition(":")[2]
        assert "--enable-cache-report" in engine["command"]


def test_each_engine_has_a_gpu_of_its_own_unless_told() -> None:
    devices = []
    for service in ENGINES.values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]
        devices += device["device_ids"]
    assert sorted(devices) == [str(i) for i in range(len(ENGINES))]
