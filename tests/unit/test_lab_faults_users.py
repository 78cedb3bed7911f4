"""Whose fault it is when a request fails, and where a client goes on."""

import httpx
import pytest

from lab.faults import users
from lab.faults.users import Asked, Endpoint, Fate, in_order

ENDPOINTS = [
    Endpoint("edge-a", "http://a/v1"),
    Endpoint("edge-a-2", "http://a2/v1"),
    Endpoint("edge-b", "http://b/v1"),
]
DONE = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'


def asked(*, failure: str = "broke", begun: bool = False, edge: str = "edge-a") -> Asked:
    return Asked(
        "a", 10.0, streamed=True, edge=edge, begun_at=11.0 if begun else None, ended_at=12.0, failure=failure
    )


@pytest.mark.parametrize(
    ("request_", "fate"),
    [
        (asked(failure=""), Fate.ANSWERED),
        (asked(failure="", begun=True), Fate.ANSWERED),
        (asked(), Fate.FAILED),
        (asked(begun=True), Fate.CUT),
    ],
)
def test_a_request_has_one_fate(request_: Asked, fate: Fate) -> None:
    assert request_.fate({}) is fate
    assert request_.fate({"edge-b": [11.0]}) is fate, "another edge was killed"


@pytest.mark.parametrize(("killed", "excused"), [(9.9, False), (10.0, True), (11.5, True), (12.1, False)])
@pytest.mark.parametrize("begun", [False, True])
def test_only_a_kill_while_it_was_under_way_excuses(killed: float, excused: bool, begun: bool) -> None:
    fate = asked(begun=begun).fate({"edge-a": [1.0, killed]})
    assert (fate is Fate.AT_A_KILLED_EDGE) == excused


@pytest.mark.parametrize(
    ("ready", "order"),
    [
        ({"edge-a", "edge-a-2", "edge-b"}, ["edge-a", "edge-a-2", "edge-b"]),
        ({"edge-b"}, ["edge-b", "edge-a", "edge-a-2"]),
        (set(), ["edge-a", "edge-a-2", "edge-b"]),
    ],
)
def test_ready_endpoints_come_first(ready: set[str], order: list[str]) -> None:
    assert [endpoint.edge for endpoint in in_order(ENDPOINTS, ready.__contains__)] == order


async def asks(answers: dict[str, httpx.Response | Exception], *, streamed: bool = True) -> Asked:
    """One request; by host, what becomes of it there."""

    def handle(request: httpx.Request) -> httpx.Response:
        answer = answers[request.url.host]
        if isinstance(answer, Exception):
            raise answer
        return answer

    crowd = users.Users({"a": ENDPOINTS}, "m", requests_per_s=1.0, says_ready=lambda _: True)
    one = Asked("a", 10.0, streamed=streamed)
    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
        await crowd._ask(client, one, [1, 2, 3])
    assert one.ended_at is not None
    return one


@pytest.mark.parametrize(
    "refusal",
    [
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("stopped"),
        httpx.Response(503, json={"error": {"code": "not_ready"}}),
    ],
)
async def test_who_is_not_taken_goes_to_the_next_endpoint(refusal: httpx.Response | Exception) -> None:
    one = await asks({"a": refusal, "a2": httpx.Response(200, content=DONE)})
    assert (one.failure, one.edge, one.passed_over, one.fate({})) == ("", "edge-a-2", 1, Fate.ANSWERED)


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("closed"),
        httpx.Response(503, json={"error": {"code": "no_worker"}}),
        httpx.Response(502, json={"error": {"code": "upstream_failed"}}),
    ],
)
async def test_who_was_taken_and_fails_has_failed(failure: httpx.Response | Exception) -> None:
    one = await asks({"a": failure})
    assert (one.edge, one.passed_over, one.fate({})) == ("edge-a", 0, Fate.FAILED)


async def test_nobody_left_to_ask_is_a_failure() -> None:
    one = await asks(dict.fromkeys(("a", "a2", "b"), httpx.ConnectError("refused")))
    assert (one.passed_over, one.fate({})) == (3, Fate.FAILED)


async def test_a_stream_without_its_end_was_cut() -> None:
    one = await asks({"a": httpx.Response(200, content=DONE.removesuffix(b"data: [DONE]\n\n"))})
    assert one.fate({}) is Fate.CUT
    assert (await asks({"a": httpx.Response(200, content=DONE)})).fate({}) is Fate.ANSWERED
    whole = await asks({"a": httpx.Response(200, content=b"{}")}, streamed=False)
    assert whole.fate({}) is Fate.ANSWERED
