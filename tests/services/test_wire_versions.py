"""N and N-1 of the protocol interoperate: today's build and the oldest peer that it must understand.

What is held: every message, field, number, type and enum value of the oldest release (`v1.binpb`); what its
bytes mean today (`messages.json`) and what today's bytes mean to it; what a unit's table is on the wire
(`stream.json`). A later version may add fields, kinds of messages and services: the other side ignores them,
or answers UNIMPLEMENTED (`test_edge_relay.py`: such an edge is left for the unit). The files are made by
`tests/fixtures/wire/make.py`.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc.aio
import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.json_format import MessageToDict

from kvcompass.fleet.load import LOAD_ROW, RegionLoad, WorkerLoad, WorkerState
from kvcompass.index import IndexView, index_shape
from kvcompass.plan.layout import HASH_VERSION, layout_fields
from kvcompass.roles import handshake as judge
from kvcompass.roles import messages as m
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from services.runtime.grpc_transport import Dialer
from services.wire import index, load
from services.wire.pb import index_pb2, load_pb2
from tests.fixtures.wire.make import HELD_LATER, MESSAGES
from tests.fixtures.wire.oldest import HERE, PACKAGE, classes, descriptors
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import connected, served, until

TODAY: Final = {"index.proto": index_pb2, "load.proto": load_pb2}
HANDSHAKE = m.Handshake("us-0", 2**63 + 5, 1, 3, {"quantum": "128", "shards": "2"})
RENEWAL = m.Renewal(5, 2**64 - 1, 12)
LOAD = WorkerLoad("us-0", WorkerState.READY, 12.5, 3, 4, 2**33, 2**34, 0.25, 7)
KEYS = np.frombuffer(bytes(range(16)), np.uint64)
GOLDEN: list[dict[str, str]] = json.loads((HERE / "messages.json").read_text("utf-8"))


def vector(sequence: int, *loads: WorkerLoad) -> RegionLoad:
    rows = np.array([tuple(each)[1:] for each in loads], LOAD_ROW)
    return RegionLoad("e", "us", 9, sequence, tuple(each.worker_id for each in loads), rows)


Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]
CODECS: dict[str, Codec] = {
    "AgentToUnit": (index.encode_agent_to_unit, index.decode_agent_to_unit),
    "UnitToAgent": (index.encode_unit_to_agent, index.decode_unit_to_agent),
    "EdgeToUnit": (index.encode_edge_to_unit, index.decode_edge_to_unit),
    "UnitToEdge": (index.encode_unit_to_edge, index.decode_unit_to_edge),
    "AgentLoad": (load.encode_agent_load, load.decode_agent_load),
    "RegionLoad": (load.encode_region_broadcast, load.decode_region_broadcast),
    "LoadReply": (load.encode_load_reply, load.decode_load_reply),
}
MEANINGS: list[Any] = [
    m.AgentHello(HANDSHAKE, "us-0", RENEWAL),
    m.Edits(6, KEYS[:1], np.array([2], np.uint8)),
    m.FullReport(7, KEYS, np.array([1, 2], np.uint8), first=True, last=False),
    m.FullReport(8, KEYS[:0], np.zeros(0, np.uint8), first=False, last=True),
    RENEWAL,
    m.Welcome(9, 3_000, True),
    m.ReportRequest("gap"),
    m.Acknowledgement(2**40),
    m.Refusal("quantum", "128 is not 256"),
    m.SubscribeRequest(HANDSHAKE, 4, 99, shard=0),
    m.Acknowledgement(1),
    m.SnapshotChunk(1, 2, 2**64 - 2, 3, 5, b"ab"),
    m.PatchGroups(1, 2, 3, b"\x00\xff"),
    m.Watermark(1, 2, 2**64 - 1),
    m.Refusal("plan_version", "too old"),
    m.AgentLoad(HANDSHAKE, 9, 1, LOAD),
    m.AgentLoad(None, 9, 2, LOAD._replace(state=WorkerState.UNREACHABLE)),
    m.RegionBroadcast(HANDSHAKE, vector(1)),
    m.RegionBroadcast(None, vector(2, LOAD, LOAD._replace(worker_id="us-1", state=WorkerState.DRAINING))),
    m.Acknowledgement(1),
    m.Refusal("load", "whose?"),
]
"""Of each of `MESSAGES`, to this build."""
CASES = list(zip(GOLDEN, MEANINGS, strict=True))
IDS = [f"{i}-{golden['message']}-{type(meaning).__name__}" for i, (golden, meaning) in enumerate(CASES)]


def plain(value: Any) -> Any:
    """Comparable: arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None:
        return value
    return type(value), {name: plain(getattr(value, name)) for name in fields}


@pytest.mark.parametrize(("golden", "meaning"), CASES, ids=IDS)
def test_what_the_oldest_peer_writes_means_today_what_it_meant(golden: dict[str, str], meaning: Any) -> None:
    decode = CODECS[golden["message"]][1]
    assert plain(decode(bytes.fromhex(golden["bytes"]))) == plain(meaning)


@pytest.mark.parametrize(("golden", "meaning"), CASES, ids=IDS)
def test_what_is_written_today_means_the_same_to_the_oldest_peer(
    golden: dict[str, str], meaning: Any
) -> None:
    oldest, encode = classes()[golden["message"]], CODECS[golden["message"]][0]
    assert oldest.FromString(encode(meaning)) == oldest.FromString(bytes.fromhex(golden["bytes"]))


def test_what_agents_and_edges_say_of_replicas_is_nothing_to_the_oldest_peer() -> None:
    """An edge of the oldest release skips the fields; an agent of it is never sent the kind."""
    answer = m.PrefillAnswer(1, m.PrefillOutcome.DONE, 5)
    told = classes()["AgentLoad"].FromString(
        load.encode_agent_load(m.AgentLoad(HANDSHAKE, 9, 1, LOAD, True, (answer,)))
    )
    told.DiscardUnknownFields()
    (golden, *_) = [bytes.fromhex(each["bytes"]) for each in GOLDEN if each["message"] == "AgentLoad"]
    assert told == classes()["AgentLoad"].FromString(golden)
    assert load.decode_agent_load(golden).takes_prefills is False


def test_the_bytes_are_the_oldest_peers_and_of_every_kind_it_knows() -> None:
    for (name, fields), golden in zip(MESSAGES, GOLDEN, strict=True):
        told = classes()[name].FromString(bytes.fromhex(golden["bytes"]))
        assert told == classes()[name](**fields)
    kinds = {
        (message.name, message.field[i].name)
        for file in descriptors().file
        for message in file.message_type
        for i in range(len(message.field))
        if message.field[i].HasField("oneof_index")
    }
    shown = {(name, kind) for name, fields in MESSAGES for kind in fields}
    assert kinds <= shown
    told = [MessageToDict(classes()[name](**fields)) for name, fields in MESSAGES]
    assert all(told)


def _messages(files: Iterator[FileDescriptorProto]) -> dict[str, DescriptorProto]:
    found: dict[str, DescriptorProto] = {}
    for file in files:
        for message in file.message_type:
            found[message.name] = message
            found |= {f"{message.name}.{nested.name}": nested for nested in message.nested_type}
    return found


def _today() -> Iterator[FileDescriptorProto]:
    for module in TODAY.values():
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        yield file


def test_no_field_of_the_oldest_release_has_changed_its_number_its_type_or_its_name() -> None:
    today = _messages(_today())
    for name, message in _messages(iter(descriptors().file)).items():
        fields = {field.number: field for field in today[name].field}
        for field in message.field:
            now = fields[field.number]
            same = ("name", "type", "type_name", "label", "proto3_optional")
            assert [getattr(now, each) for each in same] == [getattr(field, each) for each in same], name
            assert _oneof(today[name], now) == _oneof(message, field), (name, field.name)


def _oneof(message: DescriptorProto, field: Any) -> str:
    return message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""


def test_enum_values_and_methods_of_the_oldest_release_are_there() -> None:
    for module, file in zip(
        TODAY.values(), sorted(descriptors().file, key=lambda file: file.name), strict=True
    ):
        now = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(now)
        enums = {enum.name: {value.name: value.number for value in enum.value} for enum in now.enum_type}
        for enum in file.enum_type:
            for value in enum.value:
                assert enums[enum.name][value.name] == value.number
        services = {
            (service.name, method.name): method for service in now.service for method in service.method
        }
        for service in file.service:
            for method in service.method:
                assert services[service.name, method.name] == method


def test_a_unit_of_the_oldest_release_fills_a_view_of_today() -> None:
    golden = json.loads((HERE / "stream.json").read_text("utf-8"))
    assert golden["hash_version"] == HASH_VERSION, "other tables: run tests/fixtures/wire/make.py"
    plan = replication_plan()
    view = IndexView(index_shape(plan))
    follower = IndexFollower(0, view, m.Handshake("edge-a", 3, 1, 1, layout_fields(plan)))
    follower.subscribe_request()
    for sent in golden["messages"]:
        assert follower.on_message(index.decode_unit_to_edge(bytes.fromhex(sent)), 0) is None
    assert follower.state(0) is FollowerState.EXACT
    assert f"{follower.digest:016x}" == golden["digest"]
    words = view.lookup(np.array(list(HELD_LATER), np.uint64))[:, 0]
    assert [int(word) & 3 for word in words] == list(HELD_LATER.values())


@pytest.mark.parametrize("spoken", [1, 2, 3])
@pytest.mark.parametrize("other", [0, 1, 2, 3, 4, 5])
def test_neighbouring_versions_are_accepted_by_both_sides_and_others_by_none(
    monkeypatch: pytest.MonkeyPatch, spoken: int, other: int
) -> None:
    def accepts(own: int, dialling: int) -> bool:
        monkeypatch.setattr(judge, "PROTOCOL_VERSION", own)
        refusal = judge.check_handshake(
            m.Handshake("e", 7, dialling, 3, HANDSHAKE.layout), HANDSHAKE.layout, plan_version=3
        )
        assert refusal is None or (refusal.field, str(dialling) in refusal.message) == (
            "protocol_version",
            True,
        )
        return refusal is None

    assert accepts(spoken, other) == (other >= 1 and abs(spoken - other) <= 1)
    if other >= 1:
        assert accepts(other, spoken) == accepts(spoken, other)


# --- over real streams: the oldest peer's bytes, and nothing else ------------------------------------


def handshake(component: str, version: int = 1) -> dict[str, Any]:
    layout = layout_fields(replication_plan())
    told = {"component_id": component, "epoch": 3, "plan_version": 1, "layout": layout}
    return told if not version else {**told, "protocol_version": version}


def opened(channel: grpc.aio.Channel, method: str, sent: str, received: str) -> Any:
    """A stream of the oldest peer's: its messages in, its messages out."""
    return channel.stream_stream(
        f"/{PACKAGE}.IndexMaintenance/{method}",
        request_serializer=classes()[sent].SerializeToString,
        response_deserializer=classes()[received].FromString,
    )()


async def test_an_agent_and_an_edge_of_the_oldest_release_are_served_by_todays_unit() -> None:
    plan = replication_plan()
    said, told = classes()["AgentToUnit"], classes()["EdgeToUnit"]
    async with served(plan) as unit, Dialer({}).channel(unit.address) as channel:
        for worker in WORKERS[1:]:
            async with connected(TwinAgent(worker, layout_fields(plan)), unit.address):
                pass
        agent = opened(channel, "Report", "AgentToUnit", "UnitToAgent")
        hello = {"handshake": handshake("a-0"), "worker_id": "a-0", "holdings": {}}
        await agent.write(said(hello=hello))
        assert (await asyncio.wait_for(agent.read(), 5)).WhichOneof("message") == "welcome"
        edits = {"sequence": 1, "keys": np.array([5], "<u8").tobytes(), "tiers": b"\x02"}
        await agent.write(said(edits=edits))
        assert (await asyncio.wait_for(agent.read(), 5)).acknowledgement.sequence == 1
        await until(lambda: unit.unit.entries == 1)

        edge = opened(channel, "Subscribe", "EdgeToUnit", "UnitToEdge")
        await edge.write(told(subscribe={"handshake": handshake("edge-a")}))
        kinds = [(await asyncio.wait_for(edge.read(), 5)).WhichOneof("message") for _ in range(2)]
        assert kinds == ["snapshot", "watermark"]
        await agent.write(said(edits={**edits, "sequence": 2, "tiers": b"\x01"}))
        message = await asyncio.wait_for(edge.read(), 5)
        while message.WhichOneof("message") != "patches":
            message = await asyncio.wait_for(edge.read(), 5)
        await edge.write(told(acknowledgement={"sequence": message.patches.first_sequence}))
        await until(lambda: unit.unit.subscriber_lags() == {"edge-a": 0})
        agent.cancel()
        edge.cancel()


@pytest.mark.parametrize("version", [0, 3])
async def test_a_peer_that_is_too_far_is_told_so_in_words_it_reads(version: int) -> None:
    async with served(replication_plan()) as unit, Dialer({}).channel(unit.address) as channel:
        for method, sent, received, kind in (
            ("Report", "AgentToUnit", "UnitToAgent", "hello"),
            ("Subscribe", "EdgeToUnit", "UnitToEdge", "subscribe"),
        ):
            call = opened(channel, method, sent, received)
            hello: dict[str, Any] = {"handshake": handshake("a-0", version)}
            await call.write(classes()[sent](**{kind: hello}))
            answer = await asyncio.wait_for(call.read(), 5)
            assert answer.refusal.field == "protocol_version"
            assert await asyncio.wait_for(call.read(), 5) is grpc.aio.EOF
