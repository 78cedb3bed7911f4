"""A request through its attempts: decide, forward, settle; never a second byte from a second worker."""

import itertools
from dataclasses import dataclass, field

from kvcompass.errors import ProtocolError
from kvcompass.plan.model import Plan
from kvcompass.roles.edge import EdgeRole
from kvcompass.routing import Decision, NoWorker
from services.edge import errors
from services.edge.callers import Caller
from services.edge.exchange import Exchange, Header
from services.edge.forward import Forwarder, Hop
from services.edge.headers import CLAIM_HEADER, LOAD_HEADER, TOKENS_HEADER, WORKER_HEADER
from services.edge.hops import Hops, PeerEdges
from services.edge.metrics import EdgeMetrics, Outcome
from services.edge.piggyback import unpack_load
from services.edge.prompts import Prompt
from services.edge.readiness import Readiness
from services.edge.request_body import ModelRequest
from services.edge.results import Broke, Refused, Result, Served, cause, last_word
from services.edge.settings import EdgeSettings
from services.edge.upstream import Trouble, UpstreamAnswer
from services.edge.usage import ReuseReader
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger


@dataclass(slots=True)
class Journey:
    """One request on its way."""

    exchange: Exchange
    caller: Caller
    request: ModelRequest
    prompt: Prompt
    arrived_us: int
    excluded: set[int] = field(default_factory=set)
    """Workers that this request has failed at, or that cannot be reached now."""
    tried_peers: set[str] = field(default_factory=set)
    decision_us: int = 0


class Dispatcher:
    """Takes requests of the public listener to workers anywhere."""

    def __init__(
        self,
        settings: EdgeSettings,
        plan: Plan,
        region: str,
        role: EdgeRole,
        readiness: Readiness,
        hops: Hops,
        peers: PeerEdges,
        forwarder: Forwarder,
        reuse: ReuseReader,
        metrics: EdgeMetrics,
        flights: "itertools.count[int]",
    ) -> None:
        self._attempts = settings.limits.attempts
        self._suspect_us = plan.routing.lease_ms * 1_000
        self._region = region
        self._workers_of = {
            name: {i for i, worker in enumerate(plan.workers) if worker.region == name}
            for name in plan.regions
        }
        self._worker_ids = {
            name: {worker.id for worker in plan.workers if worker.region == name} for name in plan.regions
        }
        self._role = role
        self._readiness = readiness
        self._hops = hops
        self._peers = peers
        self._forwarder = forwarder
        self._reuse = reuse
        self._metrics = metrics
        self._flights = flights
        self._log = get_logger("dispatch")

    async def dispatch(self, journey: Journey) -> Outcome:
        """Answers the request. Errors: ApiError when no attempt could; nothing was sent then."""
        result: Result | None = None
        attempts = 0
        while attempts < self._attempts:
            decision = self._decide(journey)
            if isinstance(decision, NoWorker):
                if result is None:
                    raise errors.no_worker(decision.message)
                break
            hop = self._hop(journey, decision)
            if hop is None:
                journey.excluded |= self._workers_of[decision.region]
                continue
            attempts += 1
            if result is not None:
                self._metrics.retries.labels(cause(result)).inc()
            result = await self._attempt(journey, decision, hop)
            if isinstance(result, Served):
                return Outcome.of_status(result.status)
            if isinstance(result, Broke) and result.begun:
                await journey.exchange.cut(errors.upstream_failed("The worker failed while it answered."))
                return Outcome.CUT
            self._exclude(journey, decision, hop, result)
        assert result is not None
        raise last_word(result)

    def _decide(self, journey: Journey) -> Decision | NoWorker:
        prompt = journey.prompt
        began_us = now_us()
        decision = self._role.decide(
            prompt.tokens,
            prompt.keys,
            journey.caller.group,
            began_us,
            exclude=frozenset(journey.excluded),
            blind=self._readiness.blind,
        )
        journey.decision_us = now_us() - began_us
        self._metrics.decision.observe(journey.decision_us)
        if isinstance(decision, Decision):
            self._metrics.decisions.labels(decision.reason.value, decision.region).inc()
            if decision.blind:
                self._metrics.blind.inc()
        return decision

    def _hop(self, journey: Journey, decision: Decision) -> Hop | None:
        endpoint = journey.request.endpoint
        if decision.region == self._region:
            return self._hops.to_worker(decision.worker_id, endpoint, journey.exchange)
        peer = self._peers.choose(decision.region, now_us(), journey.tried_peers)
        if peer is None:
            return None
        facts = {
            WORKER_HEADER: decision.worker_id,
            CLAIM_HEADER: str(decision.match_tokens),
            TOKENS_HEADER: str(journey.prompt.tokens),
        }
        return self._hops.to_peer(peer.id, endpoint, journey.exchange, facts)

    async def _attempt(self, journey: Journey, decision: Decision, hop: Hop) -> Result:
        flight = next(self._flights)
        served_by = decision.worker_id
        result: Result | None = None

        def first_byte(answer: UpstreamAnswer) -> list[Header]:
            nonlocal served_by
            if hop.peer:
                served_by = self._known(answer.headers.get(WORKER_HEADER), decision)
            self._role.first_byte(flight, now_us())
            self._metrics.ttft.labels(journey.request.endpoint, decision.region).observe(
                (now_us() - journey.arrived_us) / 1e6
            )
            return self._shown(journey, decision, served_by) if journey.caller.admin else []

        self._role.started(flight, decision, now_us())
        try:
            result = await self._forwarder.attempt(
                journey.exchange,
                hop,
                journey.request.body,
                stream=journey.request.stream,
                strip_usage=journey.request.strip_usage,
                on_headers=self._take_load,
                first_byte=first_byte,
            )
        finally:
            if isinstance(result, Served):
                self._finished(journey, decision, flight, served_by, result)
            else:
                self._failed(decision, flight, hop, result)
        return result

    def _known(self, worker_id: str | None, decision: Decision) -> str:
        """Who served, as a peer says, provided that it is a worker of its region; else the one asked for."""
        if worker_id in self._worker_ids[decision.region]:
            return worker_id
        return decision.worker_id

    def _take_load(self, answer: UpstreamAnswer) -> None:
        packed = answer.headers.get(LOAD_HEADER)
        if packed is None:
            return
        try:
            verdict = self._role.on_region_load(unpack_load(packed), now_us()).value
        except ProtocolError as error:
            verdict = "malformed"
            self._log.warning("bad piggyback", error=str(error))
        self._metrics.loads.labels("piggyback", verdict).inc()

    def _shown(self, journey: Journey, decision: Decision, served_by: str) -> list[Header]:
        return [
            (b"x-kvcompass-worker", served_by.encode()),
            (b"x-kvcompass-region", decision.region.encode()),
            (b"x-kvcompass-match-tokens", b"%d" % decision.match_tokens),
            (b"x-kvcompass-decision-us", b"%d" % journey.decision_us),
        ]

    def _finished(
        self, journey: Journey, decision: Decision, flight: int, served_by: str, result: Served
    ) -> None:
        cached = None
        if result.status == 200:
            cached = self._reuse.cached_tokens(served_by, result.usage, journey.request.choices)
        # What a sibling reused says nothing about the worker that made the claim.
        judged = cached if served_by == decision.worker_id else None
        outcome = self._role.finished(flight, judged, now_us())
        if result.status != 200 or outcome is None:
            return
        metrics = self._metrics
        metrics.prompt.labels(served_by).inc(decision.prompt_tokens)
        metrics.claimed.labels(decision.worker_id).inc(decision.match_tokens)
        metrics.reused.labels(served_by).inc(cached or 0)
        if outcome.wrong_claim:
            metrics.wrong_claims.labels(decision.worker_id).inc()
        if outcome.cross_region_hit:
            metrics.cross_region_hits.labels(decision.region).inc()

    def _failed(self, decision: Decision, flight: int, hop: Hop, result: Result | None) -> None:
        """Settles an attempt that gave no whole answer; None: cancelled, nobody's fault."""
        now = now_us()
        broke = isinstance(result, Broke) and result.blames_upstream
        self._role.failed(flight, now, connect_failed=broke and not hop.peer)
        if isinstance(result, Refused) and not hop.peer:
            self._role.fleet.suspect(decision.worker, now + round(result.retry_after_s * 1e6))
        if broke and hop.peer:
            self._peers.failed(hop.peer, now)
            if not self._peers.any_well(decision.region, now):
                for worker in self._workers_of[decision.region]:
                    self._role.fleet.suspect(worker, now + self._suspect_us)

    def _exclude(self, journey: Journey, decision: Decision, hop: Hop, result: Result) -> None:
        """Never the same worker twice. A peer edge tries its region's workers itself."""
        if not hop.peer:
            journey.excluded.add(decision.worker)
            return
        journey.tried_peers.add(hop.peer)
        if not (isinstance(result, Broke) and result.trouble is Trouble.UNREACHABLE):
            journey.excluded |= self._workers_of[decision.region]
