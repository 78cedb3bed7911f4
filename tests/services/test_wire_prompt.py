"""What agents ask edges about conversations survives the wire; what is malformed is named."""

import numpy as np
import pytest

from kvcompass.errors import ProtocolError
from kvcompass.roles.messages import Handshake, Refusal
from kvcompass.self_test.messages import Reading, ReadRequest
from kvcompass.self_test.probe import ProbeMessage, Rendering
from services.wire import prompt
from services.wire.pb import prompt_pb2 as pb

HANDSHAKE = Handshake("us-0", 5, 1, 1, {"shards": "2"})


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(HANDSHAKE),
        ReadRequest(HANDSHAKE, (ProbeMessage("user", "Größe 🙂\n"), ProbeMessage("assistant", ""))),
        ReadRequest(HANDSHAKE, spell=(0, 7, 2**32 - 1)),
    ],
)
def test_a_request_survives_the_wire(request_: ReadRequest) -> None:
    assert prompt.decode_read_request(prompt.encode_read_request(request_)) == request_


def test_a_reading_survives_the_wire() -> None:
    reading = Reading(
        Rendering(np.array([1, 2**31 - 1, 0], np.int32), (range(2), range(3, 3))), ("", "<|im_end|>")
    )
    found = prompt.decode_read_reply(prompt.encode_read_reply(reading))
    assert isinstance(found, Reading)
    assert found.rendering.tokens.dtype == np.int32
    assert found.rendering.tokens.tolist() == reading.rendering.tokens.tolist()
    assert (found.rendering.contents, found.spelled) == (reading.rendering.contents, reading.spelled)


def test_a_refusal_survives_the_wire() -> None:
    refusal = Refusal("layout", "two plans")
    assert prompt.decode_read_reply(prompt.encode_read_reply(refusal)) == refusal


@pytest.mark.parametrize(
    ("reading", "field"),
    [
        (pb.Reading(tokens=[2**31]), "reading.tokens"),
        (pb.Reading(tokens=[1], content_starts=[0]), "reading.content_ends"),
        (pb.Reading(tokens=[1], content_starts=[0], content_ends=[2]), "reading.content_ends"),
        (pb.Reading(tokens=[1, 2], content_starts=[1], content_ends=[0]), "reading.content_ends"),
        (None, "ReadReply"),
    ],
)
def test_a_malformed_reply_is_named(reading: pb.Reading | None, field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        prompt.decode_read_reply(pb.ReadReply(reading=reading).SerializeToString())
    assert caught.value.field == field
