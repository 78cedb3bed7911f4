"""Load messages survive the wire; what is not understood is never read as an idle worker."""

from dataclasses import replace

import pytest

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import RegionLoad, WorkerLoad, WorkerState
from kvcompass.roles.messages import Acknowledgement, AgentLoad, Handshake, Refusal, RegionBroadcast
from services.wire import load
from services.wire.pb import load_pb2 as pb
from tests.models.routing_fleets import loads_of, region_load

WORKER = WorkerLoad(
    worker_id="us-0",
    state=WorkerState.READY,
    queue_ms=12.5,
    running=3,
    waiting=4,
    used_tokens=1_000,
    max_tokens=2_000,
    prefill_ms_per_token=0.25,
    age_ms=7,
)
REGION = region_load(
    edge_id="edge-us",
    region="us",
    epoch=5,
    sequence=6,
    loads=(WORKER, WORKER._replace(worker_id="us-1", state=WorkerState.DRAINING)),
)
HANDSHAKE = Handshake("edge-us", 5, 1, 1, {"shards": "2"})


def fields(region: RegionLoad) -> tuple[object, ...]:
    return region.edge_id, region.region, region.epoch, region.sequence, loads_of(region)


@pytest.mark.parametrize("handshake", [HANDSHAKE, None])
def test_a_workers_load_survives_the_wire(handshake):
    message = AgentLoad(handshake, 5, 6, WORKER)
    assert load.decode_agent_load(load.encode_agent_load(message)) == message


@pytest.mark.parametrize("handshake", [HANDSHAKE, None])
def test_a_regions_load_survives_the_wire(handshake):
    message = RegionBroadcast(handshake, REGION)
    decoded = load.decode_region_broadcast(load.encode_region_broadcast(message))
    assert (decoded.handshake, fields(decoded.load)) == (handshake, fields(REGION))


def test_a_piggyback_is_the_broadcast_without_its_handshake():
    assert fields(load.decode_region_load(load.encode_region_load(REGION))) == fields(REGION)
    assert load.encode_region_load(REGION) == load.encode_region_broadcast(RegionBroadcast(None, REGION))


def test_a_vector_is_encoded_once_and_the_next_anew():
    first = load.encode_region_broadcast(RegionBroadcast(None, REGION))
    assert load.encode_region_broadcast(RegionBroadcast(None, REGION)) is first
    assert load.encode_region_load(replace(REGION, sequence=7)) != first
    assert load.encode_region_load(REGION) == first


@pytest.mark.parametrize("reply", [Acknowledgement(3), Refusal("shards", "2 is not 3")])
def test_a_reply_survives_the_wire(reply):
    assert load.decode_load_reply(load.encode_load_reply(reply)) == reply


def test_a_state_of_a_later_version_reads_as_unreachable():
    envelope = pb.AgentLoad(load=pb.WorkerLoad(worker_id="us-0", state=9))  # type: ignore[arg-type]
    assert load.decode_agent_load(envelope.SerializeToString()).load.state is WorkerState.UNREACHABLE


@pytest.mark.parametrize("queue_ms", [float("nan"), float("inf"), -1.0])
def test_a_queue_that_is_no_delay_is_refused(queue_ms):
    envelope = pb.RegionLoad(loads=[pb.WorkerLoad(worker_id="us-0", queue_ms=queue_ms)])
    with pytest.raises(ProtocolError) as caught:
        load.decode_region_load(envelope.SerializeToString())
    assert caught.value.field == "load.queue_ms"
