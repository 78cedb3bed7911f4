"""From a chosen worker to the way there: directly in the own region, else through an edge of its region."""

from collections.abc import Mapping

from yarl import URL

from kvcompass.plan.model import Plan
from kvcompass.roles.attempts import Attempt
from services.edge.forwarding.forward import Hop
from services.edge.forwarding.upstream import Upstream
from services.edge.requests.exchange import Exchange
from services.edge.requests.headers import ORIGIN_HEADER
from services.edge.requests.request_body import Endpoint
from services.runtime.grpc_transport import Dialer
from services.runtime.rank_header import RANK_HEADER

_FORWARDED = ("content-type", "accept", "traceparent", "tracestate")
"""Headers a worker gets from the client; credentials and cookies stay here."""


class Hops:
    """Builds hops. URLs are made once."""

    def __init__(
        self,
        plan: Plan,
        dialer: Dialer,
        workers: Upstream,
        peers: Upstream,
        origin: str,
        *,
        peer_key: str,
        engine_key: str,
    ) -> None:
        self._dialer = dialer
        self._workers = workers
        self._peers = peers
        self._worker_urls: dict[tuple[str, Endpoint], URL] = {}
        self._peer_urls: dict[tuple[str, Endpoint], URL] = {}
        self._ranks: dict[str, str] = {}
        self.apply_plan(plan)
        self._worker_headers = {"authorization": f"Bearer {engine_key}"} if engine_key else {}
        self._peer_headers = {"authorization": f"Bearer {peer_key}", ORIGIN_HEADER: origin}

    def apply_plan(self, plan: Plan) -> None:
        """Knows the way to the workers and edges of this plan."""
        self._worker_urls = {
            (worker.id, endpoint): URL(self._dialer.url(worker.url) + endpoint.path)
            for worker in plan.workers
            for endpoint in Endpoint
        }
        self._ranks = {
            worker.id: str(worker.dp_rank) for worker in plan.workers if worker.dp_rank is not None
        }
        self._peer_urls = {
            (edge.id, endpoint): URL(self._dialer.http_base(edge.peer_address) + endpoint.path)
            for edge in plan.edges
            for endpoint in Endpoint
        }

    def of(self, attempt: Attempt, endpoint: Endpoint, exchange: Exchange, facts: Mapping[str, str]) -> Hop:
        """The hop of an attempt; `facts` are headers for a peer edge."""
        if not attempt.peer:
            headers = {**_headers(exchange), **self._worker_headers}
            if attempt.worker_id in self._ranks:
                headers[RANK_HEADER] = self._ranks[attempt.worker_id]
            return Hop(self._worker_urls[attempt.worker_id, endpoint], headers, self._workers)
        headers = {**_headers(exchange), **self._peer_headers, **facts}
        url = self._peer_urls[attempt.peer, endpoint]
        return Hop(url, headers, self._peers, attempt.peer, attempt.allowance)


def _headers(exchange: Exchange) -> dict[str, str]:
    headers = {"x-request-id": exchange.request_id.decode("latin-1"), "accept-encoding": "identity"}
    for name in _FORWARDED:
        value = exchange.headers.get(name.encode())
        if value is not None:
            headers[name] = value.decode("latin-1")
    headers.setdefault("content-type", "application/json")
    return headers
