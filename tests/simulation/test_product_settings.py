"""What the simulator repeats of the services is what they have."""

import numpy as np
import pytest

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.roles import messages as core
from kvcompass.roles.event_watch import SILENT_US
from services.edge.fleet.piggyback import pack_load
from services.edge.forwarding import forward
from services.edge.settings import Limits, Timeouts
from services.maintenance import service
from services.maintenance.settings import Bounds
from services.runtime import grpc_transport
from services.wire import index, load
from services.worker_agent.settings import EngineSettings, StreamSettings
from simulator.product import periods, sizes
from tests.models.routing_fleets import region_load

KEYS = np.arange(1 << 40, (1 << 40) + 40, dtype=np.uint64)
TIERS = np.ones(40, np.uint8)


def test_periods_are_the_services_defaults() -> None:
    assert 1_000 * EngineSettings().load_period_ms == periods.LOAD_PERIOD_US
    assert 1_000 * EngineSettings().load_timeout_ms == periods.LOAD_TIMEOUT_US
    assert EngineSettings().failures_before_unreachable == periods.LOAD_FAILURES
    assert 1_000 * EngineSettings().event_timeout_ms == periods.EVENT_TIMEOUT_US
    assert 1_000 * EngineSettings().quiet_ms == periods.QUIET_US
    assert 1_000 * EngineSettings().silent_ms == SILENT_US
    assert StreamSettings().pending_keys == periods.PENDING_KEYS
    assert 1e3 * Bounds().flush_ms == periods.FLUSH_US
    assert periods.TICK_US == 1e6 * service._TICK_S
    assert periods.BUSY_TICK_US == 1e6 * service._BUSY_TICK_S
    assert periods.STALL_US == service._STALL_US
    assert 1_000 * StreamSettings().answer_timeout_ms == periods.ANSWER_US
    assert Limits().attempts == periods.ATTEMPTS
    assert 1e6 * Timeouts().suspect_s == periods.AVOID_US
    assert 1e6 * Timeouts().connect_s == periods.CONNECT_US
    keepalive = dict(grpc_transport._KEEPALIVE)
    idle_ms, unconfirmed_ms = keepalive["grpc.keepalive_time_ms"], keepalive["grpc.keepalive_timeout_ms"]
    assert 1_000 * (idle_ms + unconfirmed_ms) == periods.KEEPALIVE_US, "where nothing passes"
    assert 1_000 * (idle_ms + grpc_transport.PROMPT_ANSWER_MS) == periods.KEEPALIVE_US, (
        "a process that stands"
    )
    assert periods.RETRY_AFTER_US == 1e6 * forward._DEFAULT_RETRY_AFTER_S


@pytest.mark.parametrize(
    "message",
    [
        core.Edits(1_000, KEYS, TIERS),
        core.FullReport(1_000, KEYS, TIERS, True, False),
        core.Renewal(1_000, 1 << 62, 5_000),
    ],
    ids=lambda message: type(message).__name__,
)
def test_sizes_of_reports(message: core.AgentToUnit) -> None:
    assert sizes.agent_to_unit(message) == pytest.approx(len(index.encode_agent_to_unit(message)), abs=12)


@pytest.mark.parametrize(
    "message",
    [
        core.PatchGroups(1, 100_000, 50, bytes(1_234)),
        core.SnapshotChunk(1, 100_000, 1 << 62, 0, 3, bytes(5_000)),
        core.Watermark(1, 100_000, 1 << 62),
    ],
    ids=lambda message: type(message).__name__,
)
def test_sizes_of_patches(message: core.UnitToEdge) -> None:
    assert sizes.unit_to_edge(message) == pytest.approx(len(index.encode_unit_to_edge(message)), abs=16)


def test_sizes_of_loads() -> None:
    worker = WorkerLoad("us-east-1-12", WorkerState.READY, 312.5, 17, 4, 93_000, 244_096, 0.071, 43)
    message = core.AgentLoad(None, 1, 5_000, worker)
    assert sizes.agent_load(worker) == pytest.approx(len(load.encode_agent_load(message)), abs=12)
    region = region_load("edge-us-east-1", "us-east-1", 1, 5_000, (worker,) * 8)
    assert sizes.region_load(region) == pytest.approx(len(load.encode_region_load(region)), rel=0.15)
    assert sizes.piggyback(region) == pytest.approx(len(pack_load(region)), rel=0.15)
