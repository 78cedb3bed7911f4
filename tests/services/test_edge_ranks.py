"""A worker that is a dp rank of an engine: whoever asks for it is pinned to that rank, and nobody else is."""

from dataclasses import replace

from kvcompass.roles.attempts import Attempt
from services.edge.forwarding.hops import Hops
from services.edge.forwarding.upstream import Upstream
from services.edge.requests.exchange import Exchange
from services.edge.requests.request_body import Endpoint
from services.edge.settings import Timeouts
from services.runtime.grpc_transport import Dialer
from services.runtime.rank_header import RANK_HEADER
from tests.models.routing_fleets import make_plan


async def test_the_rank_of_the_plan_goes_before_what_a_client_says() -> None:
    plan = make_plan()
    first, second, *others = plan.workers
    ranks = (replace(first, dp_rank=0), replace(second, url=first.url, dp_rank=1))
    pool = Upstream.to_workers(Timeouts(), 1)
    hops = Hops(
        replace(plan, workers=(*ranks, *others)),
        Dialer({}, insecure=True),
        pool,
        pool,
        "us",
        peer_key="peers",
        engine_key="",
    )

    async def unused(*_: object) -> None:
        raise AssertionError

    scope = {"method": "POST", "path": "/v1/completions", "headers": [(RANK_HEADER.encode(), b"9")]}
    exchange = Exchange(scope, unused, unused)

    def headers(worker: int, peer: str = "") -> dict[str, str]:
        asked = Attempt(1, worker, plan.workers[worker].id, plan.workers[worker].region, peer)
        return dict(hops.of(asked, Endpoint.COMPLETIONS, exchange, {}).headers)

    try:
        assert [headers(worker).get(RANK_HEADER) for worker in (0, 1, 2)] == ["0", "1", None]
        assert RANK_HEADER not in headers(1, "edge-us-0"), "the far edge pins"
    finally:
        await pool.close()
