"""From a chosen worker to the way there: directly in the own region, else through an edge of its region."""

from collections.abc import Mapping

from yarl import URL

from kvcompass.plan.model import Edge, Plan
from services.edge.exchange import Exchange
from services.edge.forward import Hop
from services.edge.headers import ORIGIN_HEADER
from services.edge.request_body import Endpoint
from services.edge.upstream import Upstream
from services.runtime.grpc_transport import Dialer

_FORWARDED = ("content-type", "accept", "traceparent", "tracestate")
"""Headers a worker gets from the client; credentials and cookies stay here."""


class PeerEdges:
    """The edges of the other regions, and which of them could not be reached lately."""

    def __init__(self, plan: Plan, own_region: str, suspect_us: int) -> None:
        self._suspect_us = suspect_us
        self._edges: dict[str, list[Edge]] = {}
        for edge in plan.edges:
            if edge.region != own_region:
                self._edges.setdefault(edge.region, []).append(edge)
        self._avoided_until_us: dict[str, int] = {}

    def choose(self, region: str, now_us: int, tried: set[str]) -> Edge | None:
        """The region's first untried edge in plan order; one that failed lately if there is no other."""
        untried = [edge for edge in self._edges.get(region, ()) if edge.id not in tried]
        well = [edge for edge in untried if self._avoided_until_us.get(edge.id, now_us) <= now_us]
        return next(iter(well or untried), None)

    def any_well(self, region: str, now_us: int) -> bool:
        """Whether some edge of the region has not failed lately."""
        return any(
            self._avoided_until_us.get(edge.id, now_us) <= now_us for edge in self._edges.get(region, ())
        )

    def failed(self, edge_id: str, now_us: int) -> None:
        """Avoid an edge for a while."""
        self._avoided_until_us[edge_id] = now_us + self._suspect_us


class Hops:
    """Builds hops. URLs are made once."""

    def __init__(
        self, plan: Plan, dialer: Dialer, workers: Upstream, peers: Upstream, origin: str, peer_key: str
    ) -> None:
        self._workers = workers
        self._peers = peers
        self._worker_urls = {
            (worker.id, endpoint): _dialled(worker.url, dialer) / endpoint.path.lstrip("/")
            for worker in plan.workers
            for endpoint in Endpoint
        }
        self._peer_urls = {
            (edge.id, endpoint): URL(dialer.http_base(edge.peer_address) + endpoint.path)
            for edge in plan.edges
            for endpoint in Endpoint
        }
        self._peer_headers = {"authorization": f"Bearer {peer_key}", ORIGIN_HEADER: origin}

    def to_worker(self, worker_id: str, endpoint: Endpoint, exchange: Exchange) -> Hop:
        """Straight to a worker of the own region."""
        return Hop(self._worker_urls[worker_id, endpoint], _headers(exchange), self._workers)

    def to_peer(self, edge_id: str, endpoint: Endpoint, exchange: Exchange, facts: Mapping[str, str]) -> Hop:
        """To a worker of another region through an edge there; `facts` are the headers of the hop."""
        headers = {**_headers(exchange), **self._peer_headers, **facts}
        return Hop(self._peer_urls[edge_id, endpoint], headers, self._peers, peer=edge_id)


def _headers(exchange: Exchange) -> dict[str, str]:
    headers = {"x-request-id": exchange.request_id.decode("latin-1"), "accept-encoding": "identity"}
    for name in _FORWARDED:
        value = exchange.headers.get(name.encode())
        if value is not None:
            headers[name] = value.decode("latin-1")
    headers.setdefault("content-type", "application/json")
    return headers


def _dialled(url: str, dialer: Dialer) -> URL:
    parsed = URL(url)
    host, _, port = dialer.resolve(f"{parsed.host}:{parsed.port}").rpartition(":")
    return parsed.with_host(host.strip("[]")).with_port(int(port))
