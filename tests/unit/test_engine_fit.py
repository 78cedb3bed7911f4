"""What an engine says of itself, weighed against the plan: refused, silent, or served with notes."""

import json
from dataclasses import replace

import pytest

from kvcompass.engine_facts import EngineFacts, EventPublisher
from kvcompass.plan.model import Plan
from kvcompass.roles.engine_fit import engine_fit, events_flag, pages_fit, rank_endpoint
from services.mock_sglang.profiles import PROFILES
from tests.models.agent_fleets import agent_plan

PUBLISHER = EventPublisher("tcp://*:5557", "tcp://*:5657")
FACTS = EngineFacts(
    "sglang", "0.5.23", page_size=16, tells_publisher=True, publisher=PUBLISHER, cache_report=True
)
PLAN = agent_plan(block_size=16, quantum=64, context_length=1_024, events="")


def planned(**changes: object) -> Plan:
    return replace(PLAN, workers=(replace(PLAN.workers[0], **changes),))  # type: ignore[arg-type]


def test_an_engine_as_it_should_be_is_served_without_a_word() -> None:
    fit = engine_fit(FACTS, PLAN, PLAN.workers[0])
    assert (fit.refusal, fit.silence, fit.notes) == (None, "", ())


@pytest.mark.parametrize("page_size", [1, 4, 16, 32, 64])
def test_pages_that_divide_the_quantum_fit(page_size: int) -> None:
    assert pages_fit(page_size, PLAN) is None


@pytest.mark.parametrize("page_size", [3, 48, 128])
def test_other_pages_are_refused_with_the_flag(page_size: int) -> None:
    refusal = engine_fit(replace(FACTS, page_size=page_size), PLAN, PLAN.workers[0]).refusal
    assert refusal is not None and refusal.field == "block_size"
    assert f"{page_size} tokens" in refusal.message and "--page-size 16" in refusal.message


@pytest.mark.parametrize(
    ("rank", "ranks", "refused"), [(None, 1, 0), (0, 1, 0), (1, 2, 0), (None, 2, 1), (2, 2, 1)]
)
def test_each_rank_is_a_worker_of_its_own(rank: int | None, ranks: int, refused: int) -> None:
    plan = planned(dp_rank=rank)
    refusal = engine_fit(replace(FACTS, dp_size=ranks), plan, plan.workers[0]).refusal
    assert (refusal is not None) == refused
    assert refusal is None or refusal.field == "dp_rank"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"publisher": None}, "start it with --kv-events-config '{"),
        (
            {"publisher": EventPublisher("tcp://10.0.0.1:5557", binds=False)},
            "connects to tcp://10.0.0.1:5557",
        ),
        ({"publisher": EventPublisher("inproc://events")}, "set the worker's events"),
        ({"prefix_cache": False}, "--disable-radix-cache"),
        ({"part": "decode"}, "prefill half"),
    ],
)
def test_why_no_events_can_come(changes: dict[str, object], said: str) -> None:
    assert said in engine_fit(replace(FACTS, **changes), PLAN, PLAN.workers[0]).silence  # type: ignore[arg-type]


def test_endpoints_of_the_plan_go_before_what_the_engine_says() -> None:
    plan = planned(events="tcp://relay:7000")
    assert engine_fit(replace(FACTS, publisher=None), plan, plan.workers[0]).silence == ""


def test_an_engine_that_does_not_say_how_it_publishes_is_tried() -> None:
    facts = EngineFacts("vllm", "0.19.1", page_size=16)
    assert engine_fit(facts, PLAN, PLAN.workers[0]).silence == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"page_size": 1}, "--page-size 16"),
        ({"publisher": replace(PUBLISHER, replay_endpoint="")}, "replay_endpoint"),
        ({"version": "0.5.10", "host_tier": True}, "counts as DRAM"),
        ({"cache_report": False}, "--enable-cache-report"),
    ],
)
def test_what_would_make_it_better(changes: dict[str, object], said: str) -> None:
    (note,) = engine_fit(replace(FACTS, **changes), PLAN, PLAN.workers[0]).notes  # type: ignore[arg-type]
    assert said in note


def test_holdings_need_not_be_predicted_of_who_tells_them() -> None:
    plan = planned(holdings="predicted")
    (note,) = engine_fit(FACTS, plan, plan.workers[0]).notes
    assert 'holdings = "events"' in note
    assert engine_fit(replace(FACTS, publisher=None), plan, plan.workers[0]).notes == ()


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_flag_can_be_pasted(engine: str) -> None:
    """It says what SGLang's and vLLM's own settings are called, and the ports that the plan expects."""
    plan = planned(events="tcp://h:7002", replay="tcp://h:7102", dp_rank=2)
    name, _, argument = events_flag(engine, plan.workers[0]).partition(" ")
    assert name == "--kv-events-config" and (argument[0], argument[-1]) == ("'", "'")
    said = json.loads(argument[1:-1])
    assert said.pop("enable_kv_cache_events", None) is (True if engine == "vllm" else None)
    assert said == {
        "publisher": "zmq",
        "endpoint": "tcp://*:7000",
        "replay_endpoint": "tcp://*:7100",
        "topic": "kv-events",
    }


@pytest.mark.parametrize(
    ("endpoint", "rank", "reached"),
    [
        ("tcp://*:5557", 0, "tcp://h:5557"),
        ("tcp://*:5557", 3, "tcp://h:5560"),
        ("tcp://[::]:5557", 1, "tcp://h:5558"),
        ("ipc:///run/events", 0, "ipc:///run/events"),
        ("ipc:///run/events", 1, ""),
        ("tcp://*:65535", 1, ""),
        ("tcp://*:*", 0, ""),
        ("tcp://*:5557x", 0, ""),
        ("tcp://5557", 0, ""),
        ("inproc://x", 0, ""),
        ("", 0, ""),
    ],
)
def test_where_a_rank_is_reached(endpoint: str, rank: int, reached: str) -> None:
    assert rank_endpoint(PUBLISHER, endpoint, "h", rank) == reached


@pytest.mark.parametrize(
    ("engine", "version", "tiers", "salts"),
    [
        ("sglang", "0.5.10", False, False),
        ("sglang", "0.5.10.post1", False, False),
        ("sglang", "0.5.11", True, False),
        ("sglang", "0.5.23", True, True),
        ("sglang", "0.6", True, True),
        ("sglang", "", False, False),
        ("sglang", "main", False, False),
        ("vllm", "0.19.1", True, False),
        ("vllm", "0.33.0", True, True),
    ],
)
def test_what_a_version_tells(engine: str, version: str, tiers: bool, salts: bool) -> None:
    facts = EngineFacts(engine, version)  # type: ignore[arg-type]
    assert (facts.tells_tiers, facts.tells_salts) == (tiers, salts)


def test_the_double_agrees_on_who_tells_tiers() -> None:
    for profile in PROFILES.values():
        told = profile.tier_events.name != "UNTOLD"
        assert EngineFacts("sglang", profile.version).tells_tiers == told
