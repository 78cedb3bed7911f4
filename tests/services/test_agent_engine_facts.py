"""What engines say of themselves: strict about what events are understood by, tolerant of the rest."""

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.engine_facts import EngineFacts, EventPublisher
from services.mock_sglang.profiles import PROFILES, ProfileName
from services.worker_agent.engine_client import EngineClient, EngineError, MalformedError, NotThereError
from services.worker_agent.engine_facts import ask_facts, sglang_facts, vllm_facts
from tests.services.mock_engine_rig import running

CONFIG = '{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657","topic":"kv-events"}'
SERVER_0_5_10 = {
    "model_path": "/m",
    "served_model_name": "m",
    "page_size": 16,
    "dp_size": 1,
    "tp_size": 1,
    "context_length": None,
    "kv_events_config": CONFIG,
    "enable_hierarchical_cache": False,
    "enable_cache_report": True,
    "disable_radix_cache": False,
    "disaggregation_mode": "null",
    "internal_states": [{"last_gen_throughput": 0.0}],
    "version": "0.5.10",
}
"""Of what a real SGLang 0.5.10 answers, the fields that are read here, and one that is not."""
METRICS_VLLM = (
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0"} 1.0\n'
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="1"} 1.0\n'
    'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
)


def said(**changes: Any) -> EngineFacts:
    return sglang_facts(orjson.dumps({**SERVER_0_5_10, **changes}))


def test_a_real_0_5_10() -> None:
    assert said() == EngineFacts(
        "sglang",
        "0.5.10",
        model="m",
        page_size=16,
        tp_size=1,
        tells_publisher=True,
        publisher=EventPublisher("tcp://*:5557", "tcp://*:5657"),
        host_tier=False,
        cache_report=True,
        prefix_cache=True,
    )


def test_what_is_in_force_goes_before_what_was_asked_for() -> None:
    """0.5.23 describes its publisher; the block size of its events need not be the page size."""
    described = {
        "publisher": "zmq",
        "endpoint_host": "0.0.0.0",
        "endpoint_port_base": 7000,
        "topic": "kv-events",
        "block_size": 32,
        "dp_size": 4,
        "replay_endpoint_port_base": 7100,
    }
    facts = said(version="0.5.23", kv_events=described)
    assert (facts.page_size, facts.dp_size) == (32, 4)
    assert facts.publisher == EventPublisher("tcp://0.0.0.0:7000", "tcp://0.0.0.0:7100")
    assert said(kv_events=None).publisher == EventPublisher("tcp://*:5557", "tcp://*:5657")


@pytest.mark.parametrize("config", [None, "", "{}", '{"publisher":"null","endpoint":"tcp://*:5557"}'])
def test_no_publisher_unless_one_is_named(config: str | None) -> None:
    facts = said(kv_events_config=config)
    assert (facts.tells_publisher, facts.publisher) == (True, None)


@pytest.mark.parametrize(
    ("config", "binds"),
    [
        ('{"publisher":"zmq"}', True),
        ('{"publisher":"zmq","endpoint":"tcp://[::]:5557"}', True),
        ('{"publisher":"zmq","endpoint":"ipc:///run/x"}', True),
        ('{"publisher":"zmq","endpoint":"tcp://10.0.0.7:5557"}', False),
        ('{"publisher":"zmq","endpoint":"tcp://10.0.0.7:5557","bind":true}', True),
    ],
)
def test_a_concrete_host_is_connected_to(config: str, binds: bool) -> None:
    publisher = said(kv_events_config=config).publisher
    assert publisher is not None and publisher.binds is binds


@pytest.mark.parametrize(
    "changes",
    [
        {"page_size": 0},
        {"page_size": -16},
        {"page_size": 2**40},
        {"page_size": "16"},
        {"page_size": True},
        {"dp_size": 0},
        {"dp_size": 2**20},
        {"kv_events_config": 7},
        {"kv_events_config": "{"},
        {"kv_events_config": '{"publisher":"zmq","endpoint":5557}'},
        {"kv_events": {"endpoint_host": "*", "endpoint_port_base": 70_000}},
    ],
)
def test_what_events_are_understood_by_must_be_right(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match="cannot be used"):
        said(**changes)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(
            (
                "version",
                "served_model_name",
                "tp_size",
                "context_length",
                "enable_hierarchical_cache",
                "enable_cache_report",
                "disable_radix_cache",
                "disaggregation_mode",
                "internal_states",
                "a_later_one",
            )
        ),
        ANYTHING,
    )
)
def test_the_rest_may_be_anything(changes: dict[str, Any]) -> None:
    facts = said(**changes)
    assert (facts.page_size, facts.publisher) == (16, EventPublisher("tcp://*:5557", "tcp://*:5657"))


def test_vllm_says_it_in_its_metrics() -> None:
    facts = vllm_facts("0.19.1", METRICS_VLLM.encode())
    assert (facts.engine, facts.version, facts.page_size, facts.dp_size) == ("vllm", "0.19.1", 16, 2)
    assert (facts.prefix_cache, facts.tells_publisher) == (True, False)
    assert vllm_facts("0.33.0", b"") == EngineFacts("vllm", "0.33.0")


@pytest.mark.parametrize("version", PROFILES)
async def test_the_double_says_what_it_is(version: ProfileName) -> None:
    changes = {"event_profile": version, "page_size": 32, "dp_size": 2, "host_cache_tokens": 640}
    async with running(**changes) as rig, client_of(str(rig.client.base_url)) as client:
        facts = await ask_facts(client, "sglang")
        assert (facts.version, facts.page_size, facts.dp_size) == (version, 32, 2)
        assert (facts.host_tier, facts.cache_report, facts.prefix_cache) == (True, True, True)
        assert facts.publisher is not None and facts.publisher.binds


async def test_an_engine_without_server_info_is_asked_about() -> None:
    routes_off = ("/server_info",)
    async with running(routes_off=routes_off) as rig, client_of(str(rig.client.base_url)) as client:
        with pytest.raises(NotThereError, match=r"engine\.kind"):
            await ask_facts(client, "sglang")


async def test_an_engine_that_hangs_is_no_fact() -> None:
    async with running(fault_switches=True) as rig, client_of(str(rig.client.base_url)) as client:
        await rig.faults(hang=True)
        with pytest.raises(EngineError, match="in time"):
            await asyncio.wait_for(ask_facts(client, "sglang"), 10)
        await rig.faults()


def client_of(url: str) -> EngineClient:
    return EngineClient(url, api_key="", timeout_ms=500)
