"""A unit takes no more of one worker than the plan allows a shard."""

import dataclasses

import numpy as np
import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    MESSAGE_KEYS_MOST,
    Acknowledgement,
    AgentHello,
    Edits,
    FullReport,
    Handshake,
    Refusal,
    Renewal,
)
from tests.models.replication_agent import edits_of
from tests.models.replication_fleet import replication_plan
from tests.models.replication_table import DictTables

PLAN = replication_plan()
PLAN = dataclasses.replace(PLAN, index=dataclasses.replace(PLAN.index, worker_entries_max=2))
MOST = PLAN.worker_shard_entries_max


def unit() -> MaintenanceUnit:
    return MaintenanceUnit(PLAN, "unit-0", epoch=3, layout=layout_fields(PLAN), tables=DictTables(), now_us=0)


def hello(holdings: int) -> AgentHello:
    handshake = Handshake("a-0", 7, 1, PLAN.plan_version, layout_fields(PLAN))
    return AgentHello(handshake, "a-0", Renewal(0, 0, holdings))


def test_the_share_of_a_shard_leaves_room_for_chance() -> None:
    assert PLAN.worker_entries_max == 2
    assert MOST == 2 * 2 + 1_024
    derived = dataclasses.replace(PLAN, index=dataclasses.replace(PLAN.index, worker_entries_max=0))
    assert derived.worker_entries_max == 4 * PLAN.index.expected_entries * PLAN.shards


@pytest.mark.parametrize("holdings", [MOST, MOST + 1])
def test_an_agent_that_says_it_holds_more_is_refused(holdings: int) -> None:
    maintenance = unit()
    opened = maintenance.agent_connected(hello(holdings), 0)
    assert isinstance(opened, Refusal) == (holdings > MOST)
    assert maintenance.counters.over_bound == (holdings > MOST)
    if isinstance(opened, Refusal):
        assert opened.field == "index.worker_entries_max"
        return
    session, _ = opened
    answers = maintenance.on_agent_message(session, Renewal(0, 0, MOST + 1), 1)
    assert [answer.field for answer in answers if isinstance(answer, Refusal)] == ["index.worker_entries_max"]


@pytest.mark.parametrize("kind", [Edits, FullReport])
def test_a_message_with_too_many_keys_is_refused(kind: type[Edits] | type[FullReport]) -> None:
    maintenance = unit()
    session, _ = maintenance.agent_connected(hello(0), 0)
    assert not isinstance(session, Refusal)
    keys = np.arange(MESSAGE_KEYS_MOST + 1, dtype=np.uint64)
    tiers = np.zeros(keys.size, np.uint8)
    assert maintenance.on_agent_message(session, Edits(1, keys[1:], tiers[1:]), 1) == [Acknowledgement(1)]
    message = Edits(2, keys, tiers) if kind is Edits else FullReport(2, keys, tiers, first=True, last=True)
    (answer,) = maintenance.on_agent_message(session, message, 1)
    assert isinstance(answer, Refusal)
    assert answer.field == ("edits.keys" if kind is Edits else "full_report.keys")
    assert maintenance.counters.refusals == 1


def test_edits_past_the_bound_are_refused() -> None:
    maintenance = unit()
    session, _ = maintenance.agent_connected(hello(0), 0)
    assert not isinstance(session, Refusal)
    for start in range(0, MOST + 1, 40):
        keys = dict.fromkeys(range(start, start + 40), 1)
        (answer,) = maintenance.on_agent_message(session, edits_of(1 + start // 40, keys), 1)
        assert not isinstance(answer, Refusal)
        while maintenance.work(session, 1):
            pass
    (answer,) = maintenance.on_agent_message(session, edits_of(999, {5_000: 1}), 1)
    assert isinstance(answer, Refusal)
    assert maintenance.counters.over_bound == 1
