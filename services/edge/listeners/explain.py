"""A decision in words and numbers, without forwarding anything."""

from typing import Any

from kvcompass.levels import QueryPlan
from kvcompass.roles.edge import EdgeRole
from kvcompass.routing import Candidate, NoWorker
from services.edge.readiness import Readiness
from services.edge.requests import errors
from services.edge.requests.callers import Caller
from services.edge.requests.exchange import Exchange
from services.edge.requests.prompts import Prompt, PromptReader
from services.edge.requests.request_body import guess_endpoint, parse_request
from services.edge.settings import Limits
from services.runtime.epoch import now_us


class Explainer:
    """Answers `POST /v1/kvcompass/route`. Leaves no trace in the role."""

    def __init__(
        self,
        limits: Limits,
        body_s: float,
        model: str,
        queries: QueryPlan,
        role: EdgeRole,
        reader: PromptReader,
        readiness: Readiness,
    ) -> None:
        self._limits = limits
        self._body_s = body_s
        self._model = model
        self._query_plan = queries
        self._role = role
        self._reader = reader
        self._readiness = readiness

    def apply_plan(self, queries: QueryPlan) -> None:
        """Explains by this query plan from now on."""
        self._query_plan = queries

    async def explain(self, exchange: Exchange, caller: Caller) -> dict[str, Any]:
        """The decision that this body would get now, as JSON-ready values. Errors: ApiError."""
        body = await exchange.body(self._limits.body_bytes, self._body_s)
        request = parse_request(guess_endpoint(body), body, self._model)
        if not self._readiness.can_route:
            raise errors.starting(self._readiness.reasons())
        prompt = await self._reader.read(request, caller.group)
        began_us = now_us()
        decision = self._role.decide(
            prompt.tokens,
            prompt.keys,
            caller.group,
            began_us,
            blind=self._readiness.blind,
            answer_tokens=request.answer_tokens,
            explain=True,
        )
        decision_us = now_us() - began_us
        facts = self._facts(prompt, caller, decision_us)
        if isinstance(decision, NoWorker):
            return {
                "chosen": None,
                "reason": decision.reason.value,
                "message": decision.message,
                "policy": self._role.policy.name,
                **facts,
                "workers": self._role.workers(began_us),
            }
        return {
            "chosen": decision.worker_id,
            "region": decision.region,
            "reason": decision.reason.value,
            "policy": decision.policy,
            "claim": decision.match_tokens,
            "tier": decision.tier.name,
            "score_ms": decision.score_ms,
            "capacity_price": decision.capacity_price,
            "local_best_match": decision.local_best_match,
            "expected_tokens": decision.expected_tokens,
            "blind": decision.blind,
            **facts,
            "runners_up": [candidate.worker_id for candidate in decision.runners_up],
            "workers": [_terms(candidate) for candidate in decision.candidates],
        }

    def _facts(self, prompt: Prompt, caller: Caller, decision_us: int) -> dict[str, Any]:
        return {
            "prompt_tokens": prompt.tokens,
            "sharing_group": caller.group,
            "unkeyed": prompt.unkeyed,
            "lengths": self._query_plan.rungs[: len(prompt.keys)].tolist(),
            "shards_not_exact": self._readiness.not_exact(),
            "decision_us": decision_us,
        }


def _terms(candidate: Candidate) -> dict[str, Any]:
    return {
        "worker": candidate.worker_id,
        "region": candidate.region,
        "candidate": candidate.is_candidate,
        "standing": candidate.standing.name.lower(),
        "score_ms": candidate.score_ms,
        "wan_charge_ms": candidate.wan_charge_ms,
        "queue_ms": candidate.queue_ms,
        "queue_age_ms": candidate.queue_age_ms,
        "recompute_ms": candidate.recompute_ms,
        "reload_ms": candidate.reload_ms,
        "decode_ms": candidate.decode_ms,
        "match_tokens": candidate.match_tokens,
        "expected_tokens": candidate.expected_tokens,
        "tier": candidate.tier.name,
        "belief": candidate.belief,
        "requests_in_flight": candidate.requests_in_flight,
        "approximate": candidate.approximate,
    }
