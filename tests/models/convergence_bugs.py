"""Bugs planted in the roles, each in one place: the convergence simulation must notice.

python -m tests.models.convergence_bugs NAME [SEEDS]

Says which seed noticed first. `none` plants nothing, and no seed may notice.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from kvcompass.engine_events import EngineNews
from kvcompass.index import IndexView, ShardTables
from kvcompass.index.patches import ApplyResult
from kvcompass.plan.model import Plan
from kvcompass.plan.places import Place
from kvcompass.roles.agents_desk import AgentsDesk
from kvcompass.roles.free_places import FreePlaces
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    STREAM_FIELD,
    AgentHello,
    Edits,
    FullReport,
    PatchGroups,
    Refusal,
    SubscribeRequest,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.relay_desk import RelayDesk
from kvcompass.roles.renewal_times import RenewalTimes
from kvcompass.roles.restored_from import RestoredFrom
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.subscriber_desk import SubscriberDesk
from kvcompass.roles.unit_leases import UnitLeases
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.upstream_choice import SourceKind
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.roles.worker_agent import WorkerAgent
from kvcompass.roles.worker_source import AgentSession, WorkerSource
from simulator.convergence.place_law import PlaceLaw
from simulator.convergence.run import Outcome, run_seed

_FAR_US = 1 << 60


Wrong = Callable[..., Any]
"""Instead of a method: is called with the right one first, then as it would be."""


@dataclass(frozen=True)
class Bug:
    what: str
    parts: tuple[tuple[type, str, Wrong], ...]
    seeds: int
    """Within so many, from 0 on, one must notice."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, method, wrong in self.parts:
                replaced = _replaced(owner.__dict__[method], wrong)
                stack.enter_context(mock.patch.object(owner, method, replaced))
            yield


def _replaced(right: Any, wrong: Wrong) -> Any:
    if isinstance(right, property):
        return property(lambda self: wrong(right.fget, self))
    return lambda self, *args, **kwargs: wrong(right, self, *args, **kwargs)


def _skip_a_resync(
    right: Callable[..., Resubscribe | None], self: IndexFollower, message: UnitToEdge, now_us: int
) -> Resubscribe | None:
    ended = right(self, message, now_us)
    hole = ended is not None and ended.reason in (ResubscribeReason.GAP, ResubscribeReason.BEHIND)
    return None if hole else ended


def _pass_over_a_gap(
    right: Callable[..., ApplyResult], self: IndexView, shard: int, first: int, count: int, payload: bytes
) -> ApplyResult:
    if self.present[shard] and first > self._sequences[shard] + 1:
        self._sequences[shard] = first - 1
    return right(self, shard, first, count, payload)


def _apply_old_groups(
    right: Callable[..., ApplyResult], self: IndexView, shard: int, first: int, count: int, payload: bytes
) -> ApplyResult:
    applied = self._sequences[shard]
    self._sequences[shard] = min(applied, first - 1)
    result = right(self, shard, first, count, payload)
    self._sequences[shard] = max(applied, self._sequences[shard])
    return result


_RECORD = {1: 3, 2: 8}
"""Words of a VALUE and of a BUCKET."""


def _apply_half_a_group(
    right: Callable[..., ApplyResult], self: IndexView, shard: int, first: int, count: int, payload: bytes
) -> ApplyResult:
    """The first record alone of each group that has several."""
    words, kept, at = np.frombuffer(payload, "<u4"), [], 0
    while at < words.size:
        length, records, kind = int(words[at]), int(words[at + 1]), int(words[at + 2]) & 0xFF
        record = 2 + int(words[at + 3]) if kind == 3 else _RECORD.get(kind)
        if records > 1 and record is not None:
            kept += [2 + record, 1, *words[at + 2 : at + 2 + record].tolist()]
        else:
            kept += words[at : at + length].tolist()
        at += length
    return right(self, shard, first, count, np.array(kept, "<u4").tobytes())


def _forget_leases(right: Callable[..., bool], self: MaintenanceUnit, now_us: int) -> bool:
    for source in self._sources.values():
        if source.lease_until_us is not None:
            source.lease_until_us = _FAR_US
    return right(self, now_us)


def _end_leases_later(late_us: int) -> Wrong:
    def end_later(right: Callable[..., bool], self: MaintenanceUnit, now_us: int) -> bool:
        until_us = {
            worker: source.lease_until_us
            for worker, source in self._sources.items()
            if source.lease_until_us is not None and source.lease_until_us <= now_us
        }
        for worker, at_us in until_us.items():
            if now_us < at_us + late_us:
                self._sources[worker].lease_until_us = _FAR_US
        result: bool = right(self, now_us)
        for worker, at_us in until_us.items():
            if self._sources[worker].lease_until_us == _FAR_US:
                self._sources[worker].lease_until_us = at_us
        return result

    return end_later


_CLEAR_WORKER = 4


def _apply_no_clearing(
    right: Callable[..., ApplyResult], self: IndexView, shard: int, first: int, count: int, payload: bytes
) -> ApplyResult:
    """Groups with such a record are empty."""
    words, at = np.frombuffer(payload, "<u4"), 0
    kept: list[int] = []
    while at < words.size:
        length = int(words[at])
        clears = words[at + 1] and int(words[at + 2]) & 0xFF == _CLEAR_WORKER
        kept += [2, 0] if clears else words[at : at + length].tolist()
        at += length
    return right(self, shard, first, count, np.array(kept, "<u4").tobytes())


def _believe_any_digest(
    right: Callable[..., Resubscribe | None], self: IndexFollower, watermark: Watermark, now_us: int
) -> Resubscribe | None:
    return right(self, replace(watermark, digest=self.digest), now_us)


def _serve_while_following(right: Callable[..., Any], self: ViewRelay, now_us: int) -> Any:
    self._closed.clear()
    follows_edge, self._follows_edge = self._follows_edge, False
    unavailable = right(self, now_us)
    self._follows_edge = follows_edge
    return unavailable


def _close_nobody(right: Callable[..., None], self: ViewRelay, *, an_edge: bool) -> None:
    right(self, an_edge=an_edge)
    self._closed.clear()


def _stay_exact(right: Callable[..., None], self: IndexFollower, reason: ResubscribeReason) -> None:
    verified = self._verified
    right(self, reason)
    self._verified = verified


def _take_any_snapshot(right: Callable[..., Any], self: IndexFollower, partial: Any, now_us: int) -> Any:
    self._snapshot_wanted = True
    return right(self, partial, now_us)


def _begin_in_the_files_epoch(right: Callable[..., int], self: RestoredFrom, epoch: int) -> int:
    return self.epoch


def _renew_as_before(right: Callable[..., None], self: RenewalTimes, *lease_ms: int) -> None:
    pass


def _tell_nothing(right: Callable[..., Any], self: AgentsDesk, session: AgentSession) -> Any:
    return []


def _grant_what_was_not_told(
    right: Callable[..., None], self: UnitLeases, source: WorkerSource, told_us: int, now_us: int
) -> None:
    right(self, source, 0, now_us)


def _vouch_for_the_dead(right: Callable[..., bool], self: WorkerAgent) -> bool:
    return self._reachable is not None


def _renew_for_the_dead(right: Callable[..., bool], self: WorkerAgent, now_us: int) -> bool:
    return self._reachable is not None


def _take_edits_again(
    right: Callable[..., Any], self: AgentsDesk, source: WorkerSource, edits: Edits, now_us: int
) -> Any:
    if edits.sequence <= source.sequence and source.in_step:
        self._edits.add(source, edits.keys, edits.tiers)
    return right(self, source, edits, now_us)


def _send_no_withdrawal(right: Callable[..., Any], self: UnitReport) -> Any:
    self._pending = {key: tier for key, tier in self._pending.items() if tier}
    return right(self)


def _forgive_a_hole(right: Callable[..., Any], self: AgentsDesk, source: WorkerSource, now_us: int) -> Any:
    return []


def _take_the_first_chunk_for_all(
    right: Callable[..., Any], self: AgentsDesk, source: WorkerSource, chunk: FullReport, now_us: int
) -> Any:
    if not chunk.first:
        source.sequence = chunk.sequence
        return []
    whole = FullReport(chunk.sequence, chunk.keys, chunk.tiers, first=True, last=True)
    return right(self, source, whole, now_us)


def _keep_what_is_not_listed(right: Callable[..., None], self: ShardTables, table: int, slot: int) -> None:
    ShardTables.drop_report(self, table, slot)


def _clear_nothing(right: Callable[..., None], self: ShardTables, table: int, slot: int) -> None:
    return


def _agree(right: Callable[..., bool], *args: Any) -> bool:
    right(*args)
    return True


def _replay_any_epoch(
    right: Callable[..., Any], self: SubscriberDesk, request: SubscribeRequest, now_us: int
) -> Any:
    same = request.unit_epoch and SubscribeRequest(request.handshake, self._epoch, request.applied_sequence)
    return right(self, same or request, now_us)


def _follow_any_epoch(
    right: Callable[..., Any], self: IndexFollower, message: UnitToEdge, now_us: int
) -> Resubscribe | None:
    if isinstance(message, PatchGroups | Watermark) and self._unit_epoch:
        self._unit_epoch = message.unit_epoch
    result: Resubscribe | None = right(self, message, now_us)
    return result


def _serve_before_settling(
    right: Callable[..., Any], self: MaintenanceUnit, subscription: Any, now_us: int
) -> Any:
    return self._desk.take(subscription, now_us)


def _never_stale(right: Callable[..., FollowerState], self: IndexFollower, now_us: int) -> FollowerState:
    state = right(self, now_us)
    return FollowerState.EXACT if state is FollowerState.STALE else state


def _lose_events_silently(
    right: Callable[..., Any], self: WorkerAgent, sequence: int, events: Sequence[EngineNews]
) -> Any:
    self._feed.applied = max(self._feed.applied, sequence - 1)
    return right(self, sequence, events)


def _miss_a_restart(right: Callable[..., Any], self: WorkerAgent, epoch: int, *, same_process: bool) -> Any:
    return right(self, epoch, same_process=same_process or self._feed.applied >= 0)


def _believe_an_older_file(right: Callable[..., bool], self: RestoredFrom, request: SubscribeRequest) -> bool:
    return False


def _make_watermarks_up(right: Callable[..., Any], self: RelayDesk, subscription: Any, now_us: int) -> Any:
    self._told[subscription] = -1
    due = now_us >= subscription.watermark_due_us
    return right(self, subscription, now_us) if due else None


def _relay_what_was_not_applied(
    right: Callable[..., Any], self: RelayDesk, patches: PatchGroups, new: int
) -> Any:
    """Every fifth message is passed on without what it says."""
    empty = patches.first_sequence % 5 == 0 and np.array([[2, 0]] * patches.count, "<u4").tobytes()
    return right(self, replace(patches, payload=empty or patches.payload), new)


def _keep_who_has_left(right: Callable[..., None], self: MaintenanceUnit) -> None:
    return


def _give_any_place(right: Callable[..., None], self: MaintenanceUnit, plan: Plan) -> None:
    return


def _wait_for_nobody(
    right: Callable[..., Any], self: FreePlaces, version: int, acknowledged: Mapping[str, int]
) -> Any:
    return right(self, version, {})


def _take_places_for_new(right: Callable[..., None], self: ViewRelay, places: Collection[Place]) -> None:
    return


def _bear_silence(right: Callable[..., int], self: ShardFeed) -> int:
    return _FAR_US


def _fall_back_to_nobody(right: Callable[..., Any], self: ShardFeed, ended: Resubscribe, now_us: int) -> Any:
    """The pause after a stream of an edge never ends."""
    was_edge = self.choice.source.kind is SourceKind.EDGE
    result = right(self, ended, now_us)
    return replace(result, pause_us=_FAR_US) if was_edge and result.pause_us else result


def _hold_a_sequence_against(
    right: Callable[..., Any], self: AgentsDesk, hello: AgentHello, now_us: int
) -> Any:
    source = self._sources.get(hello.worker_id)
    same = source is not None and source.epoch == hello.handshake.epoch
    if same and source is not None and hello.holdings.sequence < source.sequence:
        return Refusal(STREAM_FIELD, "it went back")
    return right(self, hello, now_us)


def _keep_old_lengths(right: Callable[..., Any], self: WorkerAgent) -> Any:
    return ()


BUGS = {
    "silence_borne": Bug(
        "a stream that says nothing is waited for", ((ShardFeed, "silent_at_us", _bear_silence),), 5
    ),
    "no_way_back_to_the_unit": Bug(
        "an edge that fails is not left for the unit", ((ShardFeed, "ended", _fall_back_to_nobody),), 5
    ),
    "resync_skipped": Bug(
        "a view that misses patches waits for them", ((IndexFollower, "on_message", _skip_a_resync),), 5
    ),
    "gap_passed_over": Bug("missing patches count as applied", ((IndexView, "apply", _pass_over_a_gap),), 5),
    "old_patch_applied": Bug("the sequence guard is gone", ((IndexView, "apply", _apply_old_groups),), 40),
    "half_a_group": Bug("a group's first record alone", ((IndexView, "apply", _apply_half_a_group),), 5),
    "lease_forgotten": Bug("no lease ends", ((MaintenanceUnit, "tick", _forget_leases),), 20),
    "lease_ends_4_s_late": Bug(
        "a lease ends 4 s late", ((MaintenanceUnit, "tick", _end_leases_later(4_000_000)),), 20
    ),
    "lease_twice_as_long": Bug(
        "a lease ends twice as late", ((MaintenanceUnit, "tick", _end_leases_later(3_000_000)),), 20
    ),
    "dead_engine_vouched_for": Bug(
        "an agent renews whatever its engine does",
        ((WorkerAgent, "vouches", _vouch_for_the_dead), (WorkerAgent, "may_renew", _renew_for_the_dead)),
        40,
    ),
    "old_edit_applied": Bug(
        "edits that come again are made again", ((AgentsDesk, "_on_edits", _take_edits_again),), 120
    ),
    "views_keep_the_dead": Bug(
        "a view does not clear workers, and believes that it is right",
        (
            (IndexView, "apply", _apply_no_clearing),
            (IndexFollower, "_on_watermark", _believe_any_digest),
        ),
        10,
    ),
    "withdrawal_not_sent": Bug("keys only come", ((UnitReport, "_take_edits", _send_no_withdrawal),), 5),
    "hole_forgiven": Bug("edits are missing, and so what", ((AgentsDesk, "_on_hole", _forgive_a_hole),), 20),
    "sequence_held_against": Bug(
        "what was said in an agent's epoch stands", ((AgentsDesk, "connected", _hold_a_sequence_against),), 20
    ),
    "report_cut_short": Bug(
        "one chunk for a whole report",
        ((AgentsDesk, "_on_full_report", _take_the_first_chunk_for_all),),
        20,
    ),
    "report_forgets_to_remove": Bug(
        "what a report does not list stays", ((ShardTables, "end_report", _keep_what_is_not_listed),), 10
    ),
    "clear_forgotten": Bug(
        "a dead worker's fields stay", ((ShardTables, "clear_worker", _clear_nothing),), 40
    ),
    "digest_never_compared": Bug("a hello always agrees", ((AgentsDesk, "_agrees", _agree),), 10),
    "epoch_ignored": Bug(
        "a view goes on with another unit's log",
        ((SubscriberDesk, "subscribe", _replay_any_epoch), (IndexFollower, "on_message", _follow_any_epoch)),
        60,
    ),
    "unsettled_unit_serves": Bug(
        "an empty unit is believed", ((MaintenanceUnit, "take", _serve_before_settling),), 60
    ),
    "stale_not_marked": Bug("silence looks fresh", ((IndexFollower, "state", _never_stale),), 20),
    "older_file_believed": Bug(
        "a unit that began with its file serves those who know more",
        ((RestoredFrom, "may_know_less_than", _believe_an_older_file),),
        150,
    ),
    "watermarks_made_up": Bug(
        "an edge goes on vouching for a silent unit", ((RelayDesk, "_watermark", _make_watermarks_up),), 40
    ),
    "relay_passes_on_nothing": Bug(
        "an edge numbers what it does not pass on", ((RelayDesk, "relay", _relay_what_was_not_applied),), 40
    ),
    "follower_of_an_edge_serves": Bug(
        "who follows an edge goes on serving others",
        ((ViewRelay, "_unavailable", _serve_while_following), (ViewRelay, "follows", _close_nobody)),
        60,
    ),
    "exact_without_a_stream": Bug(
        "a view is EXACT until something proves it wrong",
        ((IndexFollower, "stream_ended", _stay_exact),),
        5,
    ),
    "older_snapshot_taken": Bug(
        "a snapshot replaces whatever the view has", ((IndexFollower, "_load", _take_any_snapshot),), 60
    ),
    "epoch_used_again": Bug(
        "a unit goes on in the epoch of its file",
        ((RestoredFrom, "epoch_after", _begin_in_the_files_epoch),),
        30,
    ),
    "left_worker_kept": Bug(
        "a worker that has left the plan stays in the tables",
        ((MaintenanceUnit, "settle_plan", _keep_who_has_left), (MaintenanceUnit, "tick", _forget_leases)),
        60,
    ),
    "place_given_at_once": Bug(
        "the place of a worker that left is given again before all have acknowledged that it is empty",
        ((MaintenanceUnit, "check_plan", _give_any_place),),
        15,
    ),
    "place_acknowledged_by_nobody": Bug(
        "a place is free when the unit's own table is rid of who left",
        ((FreePlaces, "standing", _wait_for_nobody),),
        80,
    ),
    "place_misread": Bug(
        "the same, and edges take what they have at a place for the new worker's",
        (
            (MaintenanceUnit, "check_plan", _give_any_place),
            (PlaceLaw, "at_taking", lambda right, self, node, plan: ()),
            (ViewRelay, "places_given_again", _take_places_for_new),
        ),
        20,
    ),
    "old_lengths_kept": Bug(
        "what only the last plan's lengths had is not withdrawn",
        ((WorkerAgent, "settle_plan", _keep_old_lengths),),
        120,
    ),
    "shorter_lease_missed": Bug(
        "an open stream is renewed by the lease of the plan before",
        (
            (RenewalTimes, "apply_plan", _renew_as_before),
            (RenewalTimes, "settle_plan", _renew_as_before),
            (AgentsDesk, "_tell_lease", _tell_nothing),
            (UnitLeases, "renew", _grant_what_was_not_told),
        ),
        110,
    ),
    "events_lost_silently": Bug(
        "missing batches are none", ((WorkerAgent, "on_batch", _lose_events_silently),), 30
    ),
    "restart_missed": Bug(
        "an engine's new process is its old one", ((WorkerAgent, "on_engine_up", _miss_a_restart),), 10
    ),
}


def first_to_notice(seeds: range) -> Outcome | None:
    return next((outcome for outcome in map(run_seed, seeds) if outcome.failures), None)


if __name__ == "__main__":
    wanted = list(BUGS) if sys.argv[1] == "all" else sys.argv[1:2]
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    for name in wanted:
        with nullcontext() if name == "none" else BUGS[name].planted():
            noticed = first_to_notice(range(most))
        who = "nobody" if noticed is None else f"seed {noticed.seed}: {noticed.failures[0][:150]}"
        print(f"{name}: {who}", flush=True)  # noqa: T201
