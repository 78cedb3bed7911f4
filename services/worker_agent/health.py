"""What a worker agent process says of itself."""

from collections.abc import Sequence
from typing import Any

from kvcompass.roles.agent_state import AgentState
from services.runtime.epoch import now_us
from services.runtime.ops import Health
from services.worker_agent.served_worker import ServedWorker
from services.worker_agent.surprises import seen

_KNOWN = (AgentState.EXACT, AgentState.PARTIAL, AgentState.APPROXIMATE)


def agent_health(workers: Sequence[ServedWorker]) -> Health:
    """Ready when every worker is known and every unit and edge has its stream."""
    if not workers:
        return Health(ready=False, state="left", reasons=["no worker of this process is in the plan: end it"])
    reasons = [reason for worker in workers for reason in _reasons(worker)]
    known = all(
        worker.agent.state in _KNOWN and not any(problem for _, problem in _streams(worker))
        for worker in workers
    )
    state = "serving" if known else "waiting"
    details = {worker.agent.worker.id: _details(worker) for worker in workers}
    return Health(ready=known, state=state, reasons=reasons, details=details)


def _reasons(worker: ServedWorker) -> list[str]:
    """What is wrong with a worker; that it is known in part, or predicted, is said and no reason to wait."""
    agent, name = worker.agent, worker.agent.worker.id
    reasons = []
    match agent.state:
        case AgentState.UNREACHABLE:
            reasons.append(f"{name}: the engine does not answer: {worker.load_problem}")
        case AgentState.REFUSED:
            assert agent.refusal is not None
            reasons.append(f"{name}: refused: {agent.refusal.field}: {agent.refusal.message}")
        case AgentState.ATTACHING:
            reasons.append(f"{name}: not attached: {_waiting_for(worker)}")
        case AgentState.SILENT:
            reasons.append(f"{name}: silent: {agent.engine.silence}")
        case AgentState.APPROXIMATE:
            reasons.append(f"{name}: approximate: edges predict what it holds from what they have sent there")
        case AgentState.PARTIAL:
            reasons.append(
                f"{name}: known in part: {agent.lost_batches} batches were lost, "
                f"{worker.left_out} events or blocks were left out"
            )
    reasons += [f"{name}: {other}: {problem}" for other, problem in _streams(worker) if problem]
    return reasons


def _waiting_for(worker: ServedWorker) -> str:
    """Why what its engine holds is not known, or not yet."""
    problem = worker.follower.problem or worker.load_problem
    if problem:
        return problem
    if worker.agent.lag.is_late:
        return f"its events have waited for {worker.agent.lag.us(now_us()) / 1e6:.1f} s to be taken in"
    return "replaying"


def _streams(worker: ServedWorker) -> list[tuple[str, str]]:
    """Units and edges by id, each with what is wrong with its stream."""
    units = [(stream.unit_id, stream.problem) for stream in worker.reports.values()]
    return units + [(stream.edge_id, stream.problem) for stream in worker.load_streams]


def _details(worker: ServedWorker) -> dict[str, Any]:
    agent = worker.agent
    return {
        "state": agent.state.value,
        "engine": _engine(worker),
        "notes": list(agent.engine.notes),
        "epoch": agent.epoch,
        "applied_batch": agent.applied,
        "blocks": agent.holdings.blocks,
        "event_lag_ms": agent.lag.us(now_us()) / 1_000,
        "detached_blocks": agent.holdings.detached,
        "held_keys": sum(agent.told.count(shard) for shard in worker.reports),
        "holdings": {
            str(shard): {
                "keys": agent.told.count(shard),
                "digest": f"{agent.told.digest(shard):016x}",
            }
            for shard in worker.reports
        },
        "units": {report.unit_id: report.report.acknowledged for report in worker.reports.values()},
        "pending_keys": {report.unit_id: report.report.queued for report in worker.reports.values()},
        "overflows": sum(report.report.overflows for report in worker.reports.values()),
        "lost_batches": agent.lost_batches,
        "left_out": worker.left_out,
        "self_test": worker.self_test.shown(),
        "replicas": _replicas(worker),
        "surprises": seen(worker),
        "load_source": worker.loads.kind,
        "load_lacks": worker.loads.lacks,
        "problems": {name: problem for name, problem in _streams(worker) if problem},
    }


def _engine(worker: ServedWorker) -> dict[str, Any]:
    """What the engine says of itself, and where its events are taken from."""
    facts, endpoints = worker.agent.engine.facts, worker.follower.endpoints
    taken = {"events": endpoints.events, "replay": endpoints.replay}
    if facts is None:
        return {"problem": worker.follower.inquiry.problem, **taken}
    return {
        "kind": facts.engine,
        "version": facts.version,
        "page_size": worker.agent.holdings.block_size,
        "dp_size": facts.dp_size,
        "tp_size": facts.tp_size,
        "dp_rank": worker.agent.worker.dp_rank,
        "host_tier": facts.host_tier,
        "cache_report": facts.cache_report,
        "tells_tiers": facts.tells_tiers,
        "tells_salts": facts.tells_salts,
        **taken,
    }


def _replicas(worker: ServedWorker) -> dict[str, Any] | None:
    """Prefills of replicas; None where they are not taken."""
    if worker.replicas is None:
        return None
    role = worker.replicas.role
    ended = {outcome.value: count for outcome, count in role.outcomes.items()}
    return {"under_way": role.under_way, "queued": role.queued, "tokens": role.tokens, "ended": ended}
