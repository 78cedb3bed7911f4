"""Recorded workloads: what each form's reader makes of its fixture, and what it says of a faulty file."""

from pathlib import Path

import numpy as np
import pytest

from simulator.errors import SimulationError
from simulator.fleets import load_fleet
from simulator.request import Request
from simulator.source import RequestSource
from simulator.workloads import (
    Arrivals,
    WorkloadOptions,
    build_source,
    capacity_of,
    recorded_rate_per_s,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"
FLEET = load_fleet("testbed-14")
US, EU, ASIA = range(3)


def source(name: str | Path, arrivals: Arrivals = "poisson", rate_per_s: float = 10.0) -> RequestSource:
    path = FIXTURES / name if isinstance(name, str) else name
    return build_source(path, fleet=FLEET, rate_per_s=rate_per_s, seed=1, arrivals=arrivals)


def requests(made: RequestSource) -> list[Request]:
    found = []
    while (request := made.next()) is not None:
        found.append(request)
    return found


def common(a: Request, b: Request) -> int:
    """Tokens that two prompts begin with alike."""
    shorter = min(a.prompt.size, b.prompt.size)
    differ = np.flatnonzero(a.prompt[:shorter] != b.prompt[:shorter])
    return int(differ[0]) if differ.size else shorter


def test_blocks_of_mooncake_are_equal_where_their_ids_are() -> None:
    first, other, later = requests(source("mooncake.jsonl"))
    assert [one.prompt.size for one in (first, other, later)] == [1_100, 1_030, 1_600]
    assert [one.answer.size for one in (first, other, later)] == [40, 10, 1]
    assert common(first, other) == 512
    assert common(first, later) == 1_024
    assert first.family == later.family != other.family
    assert first.region == later.region


def test_a_bailian_chat_keeps_its_first_requests_region_and_name() -> None:
    first, other, later = requests(source("bailian.jsonl"))
    assert common(first, other) == 32
    assert first.family == later.family != other.family
    assert first.region == later.region
    assert [one.category for one in (first, other, later)] == ["text 1", "search 1", "text 2"]


def test_prompts_of_azure_share_nothing() -> None:
    found = requests(source("azure.csv"))
    assert [(one.prompt.size, one.answer.size) for one in found] == [(374, 44), (396, 109), (91, 16)]
    assert all(common(a, b) == 0 for a in found for b in found if a is not b)


def test_a_later_turn_of_an_export_contains_the_turn_before_and_its_answer() -> None:
    found = requests(source("wildchat.jsonl"))
    assert len(found) == 3, "the third conversation has no answer"
    first = next(one for one in found if one.region == ASIA)
    later = [one for one in found if one.region == ASIA][1]
    before = np.concatenate((first.prompt, first.answer))
    assert np.array_equal(later.prompt[: before.size], before)
    assert later.prompt.size > before.size
    assert [one.region for one in found if one is not first and one is not later] == [EU]
    assert later.arrives_us > first.arrives_us


def test_texts_that_begin_alike_have_tokens_that_begin_alike() -> None:
    prime, factor = requests(source("lmsys.jsonl"))
    assert 0 < common(prime, factor) < prime.prompt.size


def test_sharegpt_is_read_from_a_json_array_whatever_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [one.prompt.tobytes() for one in requests(source("sharegpt.json"))]
    assert len(whole) == 3, "two turns, one turn, and a question that nobody answered"
    for piece in (1, 7, 100):
        monkeypatch.setattr("simulator.workloads.traces.json_array._PIECE", piece)
        assert [one.prompt.tobytes() for one in requests(source("sharegpt.json"))] == whole


def test_parts_of_a_plain_file_are_what_they_say() -> None:
    first, later, text = requests(source("plain.jsonl"))
    assert (first.region, first.tenant, first.category, first.family) == (EU, 3, "tools", "first")
    assert first.prompt.size == 120
    assert np.array_equal(later.prompt[:128], np.concatenate((first.prompt, first.answer)))
    assert (later.prompt.size, later.answer.size) == (140, 5)
    assert text.prompt.size > text.answer.size > 0


@pytest.mark.parametrize(
    ("name", "gaps_us"),
    [
        ("mooncake.jsonl", [1_000_000, 3_000_000]),
        ("bailian.jsonl", [500_000, 1_250_000]),
        ("azure.csv", [4_314_579, 227_298]),
        ("plain.jsonl", [250_000, 650_000]),
    ],
)
def test_recorded_gaps_are_kept_in_proportion(name: str, gaps_us: list[int]) -> None:
    own_rate = 3e6 / sum(gaps_us)
    for times in (1, 4):
        arrivals = [one.arrives_us for one in requests(source(name, "recorded", times * own_rate))]
        assert arrivals[0] == 0
        assert np.diff(arrivals) == pytest.approx([gap / times for gap in gaps_us], abs=1.5)


def test_conversations_of_a_recording_begin_when_they_did_and_go_on_afterwards() -> None:
    found = requests(source("wildchat.jsonl", "recorded", 3 / 2.0))
    opened = {one.region: one.arrives_us for one in reversed(found)}
    assert opened == {ASIA: 0, EU: 2_000_000}
    assert sorted(one.arrives_us for one in found) == [one.arrives_us for one in found]


@pytest.mark.parametrize("name", ["lmsys.jsonl", "sharegpt.json"])
def test_what_has_no_times_cannot_be_replayed_at_them(name: str) -> None:
    with pytest.raises(SimulationError, match="has no times"):
        source(name, "recorded")


def lines(name: str) -> list[str]:
    return (FIXTURES / name).read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("name", "line", "old", "new", "field", "says"),
    [
        ("mooncake.jsonl", 2, '"input_length": 1030, ', "", "input_length", "missing"),
        ("mooncake.jsonl", 2, "1030", '"many"', "input_length", "not an integer"),
        ("mooncake.jsonl", 3, "[0, 1, 5, 6]", "[0, 1]", "hash_ids", "expected 4"),
        ("mooncake.jsonl", 3, "4000", "500", "timestamp", "earlier"),
        ("mooncake.jsonl", 2, "1000", "-1", "timestamp", "from 0 on"),
        ("mooncake.jsonl", 2, "{", "", "", ", column 12: not valid JSON: Extra data"),
        ("mooncake.jsonl", 1, "{", "[{", "", "one object {...} a line"),
        ("plain.jsonl", 2, "{", "[", "", "one object {...} a line"),
        ("bailian.jsonl", 2, '"search"', "3", "type", "not a string"),
        ("bailian.jsonl", 3, '"parent_chat_id": 7', '"parent_chat_id": -2', "parent_chat_id", "below -1"),
        ("azure.csv", 3, "396", "few", "ContextTokens", "not an integer"),
        ("azure.csv", 3, "396", "0", "ContextTokens", "below 1"),
        ("azure.csv", 2, "2023-11-16", "yesterday", "TIMESTAMP", "not a time"),
        ("azure.csv", 1, "ContextTokens", "Context", "ContextTokens", "no such column"),
        ("wildchat.jsonl", 2, '"role": "user"', '"role": "robot"', "role", "not one of"),
        ("wildchat.jsonl", 2, '"content": "A goat', '"contents": "A goat', "content", "missing"),
        ("wildchat.jsonl", 1, "2023-04-09T00:00:10+00:00", "noon", "timestamp", "no ISO time"),
        ("sharegpt.json", 10, '"from": "human"', '"from": "bot"', "from", "not one of"),
        ("plain.jsonl", 1, '"eu"', '"mars"', "region", "no region of the fleet"),
        ("plain.jsonl", 2, "12]", "-12]", "prompt", "no part"),
        ("plain.jsonl", 2, '"answer": 5', '"answers": 5', "answers", "unknown"),
        ("plain.jsonl", 4, '"Paris."', "[]", "answer", "neither a text"),
        ("plain.jsonl", 2, "12]", "2000000]", "prompt", "no part"),
        ("plain.jsonl", 2, '"answer": 5', '"answer": ' + "9" * 5_000, "", "too many digits"),
        ("plain.jsonl", 2, '"answer": 5', '"answer": ' + "[" * 100_000, "", "nested too deeply"),
        ("sharegpt.json", 10, '"from": "human"', '"from": ' + "9" * 5_000, "", "too many digits"),
        ("azure.csv", 3, "396", "2000000", "ContextTokens", "more than a text may have"),
        ("azure.csv", 3, "396", "9" * 200_000, "", "field larger"),
        ("mooncake.jsonl", 3, "[0, 1, 5, 6]", "[0, 1, 5, 2147483648]", "hash_ids", "number the blocks"),
        ("mooncake.jsonl", 2, "1030", "2000000", "input_length", "more than a text may have"),
    ],
)
def test_a_fault_is_named_by_file_line_and_field(
    name: str, line: int, old: str, new: str, field: str, says: str, tmp_path: Path
) -> None:
    given = lines(name)
    assert old in given[line - 1]
    given[line - 1] = given[line - 1].replace(old, new, 1)
    path = tmp_path / name
    path.write_text("\n".join(given), "utf-8")
    with pytest.raises(SimulationError) as raised:
        requests(source(path))
    at = line - 1 if name == "sharegpt.json" else line  # where the conversation begins
    assert f"{path}, line {at}" in str(raised.value)
    assert says in str(raised.value)
    assert raised.value.field == field


@pytest.mark.parametrize("text", ["", "[]"])
def test_a_file_without_a_request_has_no_capacity(text: str, tmp_path: Path) -> None:
    path = tmp_path / ("empty.json" if text else "empty.jsonl")
    path.write_text(text, "utf-8")
    with pytest.raises(SimulationError, match=r"no request in it|: empty"):
        capacity_of(path, fleet=FLEET)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=r"none\.jsonl: cannot be read"):
        source(tmp_path / "none.jsonl")


def test_parquet_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="JSON lines"):
        source(tmp_path / "train.parquet")


def test_requests_in_an_array_are_told_where_they_belong(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text("[" + ", ".join(lines("plain.jsonl")) + "]", "utf-8")
    with pytest.raises(SimulationError, match=r"line 1, conversations: missing; .*one a line, in a \.jsonl"):
        requests(source(path))
    path.write_text("\n".join(lines("plain.jsonl")), "utf-8")
    with pytest.raises(SimulationError, match=r"one request a line belongs into a \.jsonl"):
        requests(source(path))


@pytest.mark.parametrize("name", ["mooncake.jsonl", "bailian.jsonl", "azure.csv"])
def test_a_tokenizer_without_texts_is_refused(name: str) -> None:
    options = WorkloadOptions(tokenizer=Path("tokenizer.json"))
    with pytest.raises(SimulationError) as raised:
        build_source(FIXTURES / name, fleet=FLEET, rate_per_s=1.0, seed=1, options=options)
    assert raised.value.field == "tokenizer"


@pytest.mark.parametrize(("name", "gaps_us"), [("plain.jsonl", [250_000, 650_000]), ("wildchat.jsonl", None)])
def test_at_its_own_rate_a_trace_keeps_its_own_instants(name: str, gaps_us: list[int] | None) -> None:
    own = recorded_rate_per_s(FIXTURES / name, fleet=FLEET)
    made = source(name, "recorded", own)
    assert made.label.endswith("recorded times")
    found = [one.arrives_us for one in requests(made)]
    assert found[0] == 0
    if gaps_us is not None:
        assert np.diff(found).tolist() == gaps_us


def test_a_tokenizer_of_ones_own_is_used(tmp_path: Path) -> None:
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}", "utf-8")
    with pytest.raises(SimulationError, match=r"no tokenizer\.json"):
        build_source(
            FIXTURES / "lmsys.jsonl",
            fleet=FLEET,
            rate_per_s=1.0,
            seed=1,
            options=WorkloadOptions(tokenizer=broken),
        )
