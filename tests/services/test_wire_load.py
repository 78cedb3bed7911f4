"""Load messages survive the wire; what is not understood is never read as an idle worker."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import RegionLoad, WorkerLoad, WorkerState
from kvcompass.roles.messages import (
    PREFILL_ANSWERS_MOST,
    PREFILL_DEADLINE_MS_MOST,
    PREFILL_TOKENS_MOST,
    Acknowledgement,
    AgentLoad,
    Handshake,
    PrefillAnswer,
    PrefillOutcome,
    Refusal,
    RegionBroadcast,
    ReplicaPrefill,
)
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


@given(
    st.integers(0, 2**64 - 1),
    st.text(max_size=20),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50),
    st.integers(1, PREFILL_DEADLINE_MS_MOST),
)
def test_what_is_to_be_prefilled_survives_the_wire(number, group, tokens, deadline_ms):
    message = ReplicaPrefill(number, group, np.array(tokens, np.int32), deadline_ms)
    decoded = load.decode_load_reply(load.encode_load_reply(message))
    assert isinstance(decoded, ReplicaPrefill)
    assert decoded.tokens.dtype == np.int32
    assert (decoded.id, decoded.sharing_group, decoded.tokens.tolist(), decoded.deadline_ms) == (
        number,
        group,
        tokens,
        deadline_ms,
    )


def test_what_becomes_of_prefills_survives_the_wire():
    answers = tuple(PrefillAnswer(i, outcome, 10 * i) for i, outcome in enumerate(PrefillOutcome))
    message = AgentLoad(HANDSHAKE, 5, 6, WORKER, True, answers)
    assert load.decode_agent_load(load.encode_agent_load(message)) == message


def test_an_outcome_of_a_later_version_is_one_that_is_not_known():
    answer = pb.PrefillAnswer(id=3, outcome=99, tokens=4)  # type: ignore[arg-type]
    envelope = pb.AgentLoad(load=pb.WorkerLoad(worker_id="us-0"), prefill_answers=[answer])
    assert load.decode_agent_load(envelope.SerializeToString()).prefill_answers == (
        PrefillAnswer(3, None, 4),
    )


def ids(*tokens: int) -> bytes:
    return np.array(tokens, "<u4").tobytes()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"token_ids": b""}, "replica_prefill.token_ids"),
        ({"token_ids": ids(1, 2)[:-1]}, "replica_prefill.token_ids"),
        ({"token_ids": ids(1, 2**31)}, "replica_prefill.token_ids"),
        ({"token_ids": bytes(4 * PREFILL_TOKENS_MOST + 4)}, "replica_prefill.token_ids"),
        ({"deadline_ms": 0}, "replica_prefill.deadline_ms"),
        ({"deadline_ms": PREFILL_DEADLINE_MS_MOST + 1}, "replica_prefill.deadline_ms"),
    ],
)
def test_a_prefill_that_cannot_be_names_its_field(fields, field):
    prefill = pb.ReplicaPrefill(**{"id": 1, "token_ids": ids(1), "deadline_ms": 5, **fields})
    with pytest.raises(ProtocolError) as caught:
        load.decode_load_reply(pb.LoadReply(replica_prefill=prefill).SerializeToString())
    assert caught.value.field == field


def test_more_answers_than_an_agent_keeps_are_refused():
    answers = [pb.PrefillAnswer(id=i) for i in range(PREFILL_ANSWERS_MOST + 1)]
    with pytest.raises(ProtocolError) as caught:
        load.decode_agent_load(pb.AgentLoad(prefill_answers=answers).SerializeToString())
    assert caught.value.field == "prefill_answers"
