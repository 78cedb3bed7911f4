"""Each mistake in a plan gets one message, under its TOML path; several mistakes get several."""

from dataclasses import replace

import pytest

from kvcompass.errors import KVCompassError, PlanError
from kvcompass.index import index_shape
from kvcompass.plan import assign_text, dump_plan, parse_plan
from kvcompass.plan.model import IndexRule
from kvcompass.plan.parse import decode_plan
from kvcompass.plan.sections import TABLE_ENTRIES_MAX
from tests.models.example_plan import EXAMPLE_TEXT, THREE_REGIONS

US_0 = 'url = "http://worker-us-0.us.example.net:30000"'
US_0_PLACE = "table = 0\nslot = 0\n"
US_1_PLACE = "table = 0\nslot = 1\n"
EU_0_PLACE = "table = 1\nslot = 0\n"
US_EDGE = 'id = "edge-us"\nregion = "us"'
US_ROW = "us = { us = 0.5, eu = 160.0, asia = 126.0 }"
UNIT_1 = 'id = "unit-1"\nshard = 1\nregion = "eu"'
WORKER_US_1 = 'id = "worker-us-1"\nregion = "us"'
GROUP = 'id = "default"\nsalt = ""'

FAULTS = [
    # Regions and the matrix.
    ("unit in an unknown region", UNIT_1, UNIT_1.replace("eu", "mars"), "unit[1].region", "'mars'"),
    (
        "worker in an unknown region",
        WORKER_US_1,
        WORKER_US_1.replace('"us"', '"mars"'),
        "worker[1].region",
        "'mars'",
    ),
    ("row of an unknown region", US_ROW, f"{US_ROW}\nmars = {{}}", "wan_ms.mars", "unknown region 'mars'"),
    ("cell of an unknown region", US_ROW, US_ROW.replace(" }", ", mars = 1 }"), "wan_ms.us.mars", "unknown"),
    ("missing row", f"{US_ROW}\n", "", "wan_ms.us", "missing"),
    ("hole in the matrix", "eu = 160.0, ", "", "wan_ms.us.eu", "missing"),
    ("hole on the diagonal", "us = 0.5, ", "", "wan_ms.us.us", "missing"),
    ("negative latency", "eu = 160.0", "eu = -160.0", "wan_ms.us.eu", "greater than 0"),
    ("zero latency", "eu = 160.0", "eu = 0", "wan_ms.us.eu", "greater than 0"),
    ("latency not a number", "eu = 160.0", "eu = nan", "wan_ms.us.eu", "finite"),
    ("infinite latency", "eu = 160.0", "eu = inf", "wan_ms.us.eu", "finite"),
    ("latency as text", "eu = 160.0", 'eu = "160"', "wan_ms.us.eu", "expected a number"),
    ("row that is no table", US_ROW, "us = 1.0", "wan_ms.us", "expected a table"),
    # Rates.
    ("zero rate", "prefill_ms_per_token = 0.073", "prefill_ms_per_token = 0.0", None, "greater than 0"),
    ("negative rate", "prefill_ms_per_token = 0.073", "prefill_ms_per_token = -1", None, "greater than 0"),
    ("rate not a number", "reload_ms_per_token = 0.00524", "reload_ms_per_token = nan", None, "finite"),
    (
        "rate out of bounds",
        "reload_ms_per_token = 0.00524",
        f"reload_ms_per_token = {'9' * 400}",
        None,
        "at most",
    ),
    (
        "negative rate that may be zero",
        "reload_ms_per_token = 0.00524",
        "reload_ms_per_token = 0.00524\ndecode_ms_per_context_token = -0.1",
        None,
        "0, or more",
    ),
    (
        "rate in nanoseconds",
        "prefill_ms_per_token = 0.073",
        "prefill_ms_per_token = 73000",
        None,
        "at most 1000",
    ),
    ("lease of a moment", "lease_ms = 3_000", "lease_ms = 1", "routing.lease_ms", "not in 600.."),
    (
        "lease shorter than the longest way and back",
        "eu = 160.0",
        "eu = 1600.0",
        "routing.lease_ms",
        "1600 ms one way; more than 3200",
    ),
    (
        "loads older than a lease",
        "broadcast_period_ms = 100",
        "broadcast_period_ms = 1_501",
        "routing.broadcast_period_ms",
        "at most half of routing.lease_ms, 1500",
    ),
    (
        "loads told without a pause",
        "broadcast_period_ms = 100",
        "broadcast_period_ms = 19",
        "routing.broadcast_period_ms",
        "not in 20..",
    ),
    (
        "disbelief that fades at once",
        "lease_ms = 3_000",
        "belief_recovery_ms = 999",
        "routing.belief_recovery_ms",
        "not in 1000..",
    ),
    (
        "belief that never moves",
        "lease_ms = 3_000",
        "belief_weight = 0.009",
        "routing.belief_weight",
        "at least 0.01 and at most 1",
    ),
    (
        "loads that never move",
        "lease_ms = 3_000",
        "ewma_weight = 0.009",
        "routing.ewma_weight",
        "at least 0.01 and at most 1",
    ),
    (
        "queue scale in seconds",
        "queue_scale_ms = 200.0",
        "queue_scale_ms = 0.2",
        "routing.queue_scale_ms",
        "at least 1 and at most 60000",
    ),
    (
        "queue scale in microseconds",
        "queue_scale_ms = 200.0",
        "queue_scale_ms = 200_000",
        "routing.queue_scale_ms",
        "at least 1 and at most 60000",
    ),
    (
        "price without bounds",
        "capacity_price_max = 8.0",
        "capacity_price_max = 1_001",
        "routing.capacity_price_max",
        "at most 1000",
    ),
    ("negative tokens", "lease_ms = 3_000", "decode_tokens = -1", "routing.decode_tokens", "not in 0"),
    # Identities and places.
    ("duplicate region", 'id = "asia"', 'id = "asia"\n[[region]]\nid = "asia"', "region[3].id", "region[2]"),
    ("duplicate edge", 'id = "edge-eu"', 'id = "edge-us"', "edge[1].id", "edge[0]"),
    ("duplicate unit", 'id = "unit-1"', 'id = "unit-0"', "unit[1].id", "unit[0]"),
    ("duplicate worker", 'id = "worker-us-1"', 'id = "worker-us-0"', "worker[1].id", "worker[0]"),
    ("bad id", 'id = "worker-us-1"', 'id = "worker us 1"', "worker[1].id", "letters"),
    ("empty id", 'id = "worker-us-1"', 'id = ""', "worker[1].id", "empty"),
    (
        "two workers on one URL",
        "http://worker-us-1.us",
        "http://worker-us-0.us",
        "worker[1].url",
        "worker[0].url",
    ),
    (
        "a rank of an engine twice",
        'url = "http://worker-us-1.us',
        'dp_rank = 1\nurl = "http://worker-us-0.us',
        "worker[1].url",
        "each name another dp_rank",
    ),
    ("no such rank", US_0, f"dp_rank = 1024\n{US_0}", "worker[0].dp_rank", "not in 0..1023"),
    (
        "guessed holdings",
        US_0,
        f'holdings = "guessed"\n{US_0}',
        "worker[0].holdings",
        "'events', 'predicted'",
    ),
    (
        "no time to live",
        "lease_ms = 3_000",
        "predicted_ttl_ms = 999",
        "routing.predicted_ttl_ms",
        "not in 1000..",
    ),
    (
        "one URL spelt twice",
        "http://worker-us-1.us",
        "http://WORKER-us-0.us",
        "worker[1].url",
        "worker[0].url",
    ),
    (
        "two workers on one endpoint",
        "worker-us-1.us.example.net:5557",
        "worker-us-0.us.example.net:5557",
        "worker[1].events",
        "worker[0].events",
    ),
    (
        "events on the replay endpoint",
        "worker-us-0.us.example.net:5557",
        "worker-us-0.us.example.net:5657",
        "worker[0].replay",
        "worker[0].events",
    ),
    (
        "two listeners at one address",
        "edge.us.example.net:8001",
        "edge.us.example.net:8000",
        "edge[0].peer_address",
        "edge[0].address",
    ),
    (
        "a unit at an edge's address",
        "unit-1.eu.example.net:8100",
        "edge.us.example.net:8002",
        "unit[1].address",
        "edge[0].grpc_address",
    ),
    *(
        (
            f"{name} that binds",
            f"{name} = {rest}",
            f'{name} = "{host}:77"',
            path,
            "others dial it: write a name",
        )
        for name, rest, host, path in (
            ("address", '"edge.us.example.net:8000"', "0.0.0.0", "edge[0].address"),
            ("peer_address", '"edge.us.example.net:8001"', "[::]", "edge[0].peer_address"),
            ("grpc_address", '"edge.us.example.net:8002"', "[0:0::0]", "edge[0].grpc_address"),
            ("ops_address", '"edge.us.example.net:9000"', "0.0.0.0", "edge[0].ops_address"),
            ("address", '"unit-0.us.example.net:8100"', "0.0.0.0", "unit[0].address"),
            ("ops_address", '"unit-0.us.example.net:9100"', "[::]", "unit[0].ops_address"),
            ("ops_address", '"worker-us-0.us.example.net:9200"', "0.0.0.0", "worker[0].ops_address"),
        )
    ),
    *(
        (
            f"an agent at {taken}",
            "worker-us-0.us.example.net:9200",
            there,
            "worker[0].ops_address",
            f"is already {taken}; give the operations listener of its agent",
        )
        for there, taken in (
            ("EDGE.us.example.net:9000", "edge[0].ops_address"),
            ("edge.us.example.net:8001", "edge[0].peer_address"),
            ("unit-1.eu.example.net:9100", "unit[1].ops_address"),
            ("unit-1.eu.example.net:8100", "unit[1].address"),
        )
    ),
    ("workers without an edge", US_EDGE, US_EDGE.replace('"us"', '"eu"'), "region[0].id", "no edge"),
    # Shards, tables and slots.
    ("a shard twice", "shard = 1", "shard = 0", "unit[1].shard", "unit[0]"),
    ("a hole in the shards", "shard = 1", "shard = 2", "unit[1].shard", "0..1"),
    ("a place twice", US_1_PLACE, US_0_PLACE, "worker[1].slot", "worker[0]"),
    (
        "a table of two regions",
        EU_0_PLACE,
        "table = 0\nslot = 5\n",
        "worker[2].table",
        "belongs to region 'us'",
    ),
    (
        "a slot beyond the value",
        'slot = 1\n\n[[worker]]\nid = "worker-eu-0"',
        'slot = 16\n\n[[worker]]\nid = "worker-eu-0"',
        "worker[1].slot",
        "0..15",
    ),
    ("a table id out of bounds", US_0_PLACE, "table = 1000000000\nslot = 0\n", "worker[0].table", "4095"),
    (
        "a place that was never given",
        US_1_PLACE,
        "table = 0\nslot = 2\n",
        "worker[1].slot",
        "missing in index.slots_given; `kvcompass plan assign",
    ),
    (
        "a place beyond those given",
        "slots_given = [2, 2, 2]",
        "slots_given = [2, 2, 1]",
        "worker[5].slot",
        "missing in index.slots_given",
    ),
    (
        "slots that are no array",
        "slots_given = [2, 2, 2]",
        "slots_given = 2",
        "index.slots_given",
        "an array",
    ),
    (
        "more than a table has",
        "slots_given = [2, 2, 2]",
        "slots_given = [2, 2, 17]",
        "index.slots_given",
        "a 32-bit value has 16 slots",
    ),
    (
        "more entries than a table can have",
        "expected_entries = 1_000_000",
        "expected_entries = 400_000_000",
        "index.expected_entries",
        "not in 1..390000000",
    ),
    (
        "fewer entries than a prompt has",
        "slots_given = [2, 2, 2]",
        "worker_entries_max = 41",
        "index.worker_entries_max",
        "less than the 42 rungs of one long prompt",
    ),
    ("half a place", US_0_PLACE, "table = 0\n", "worker[0].slot", "both"),
    ("no place", US_0_PLACE, "", "worker[0].table", "plan assign"),
    # Lengths.
    (
        "quantum across blocks",
        "quantum = 128",
        "quantum = 100",
        "lengths.quantum",
        "multiple of model.block_size 16",
    ),
    (
        "context below the quantum",
        "context_length = 32_768",
        "context_length = 100",
        "model.context_length",
        "128",
    ),
    (
        "more rungs than a prompt should have keys",
        "context_length = 32_768",
        "context_length = 67_000_000",
        "lengths.quantum",
        "128 with lengths.stretch 0.75 makes more than 1024 rungs",
    ),
    ("stretch beyond two quanta", "stretch = 0.75", "stretch = 1.5", "lengths.stretch", "at most 1.4"),
    ("unknown policy", 'policy = "ladder"', 'policy = "stairs"', "lengths.policy", "'ladder', 'paper'"),
    # Sharing groups.
    (
        "unknown sharing group",
        'sharing_group = "default"\n' + US_0_PLACE,
        'sharing_group = "x"\n' + US_0_PLACE,
        "worker[0].sharing_group",
        "known: default",
    ),
    (
        "two groups of one salt",
        GROUP,
        f'{GROUP}\n[[sharing_group]]\nid = "other"\nsalt = ""',
        "sharing_group[1].salt",
        "sharing_group[0]",
    ),
    # Syntax of addresses.
    (
        "address without port",
        "edge.us.example.net:8000",
        "edge.us.example.net",
        "edge[0].address",
        "host:port",
    ),
    ("port zero", "edge.us.example.net:8000", "edge.us.example.net:0", "edge[0].address", "port"),
    ("port too high", "edge.us.example.net:8000", "edge.us.example.net:65536", "edge[0].address", "port"),
    ("port of other digits", "edge.us.example.net:8000", "edge.us.example.net:८०", "edge[0].address", "port"),
    (
        "address with scheme",
        "edge.us.example.net:8000",
        "http://edge.us.example.net:8000",
        "edge[0].address",
        "host",
    ),
    ("bare IPv6", "edge.us.example.net:8000", "::1:8000", "edge[0].address", "brackets"),
    ("URL without scheme", US_0, 'url = "worker:30000"', "worker[0].url", "http://"),
    ("URL with a path", US_0, 'url = "http://worker:30000/"', "worker[0].url", "without a path"),
    (
        "endpoint of another transport",
        "tcp://worker-us-0.us.example.net:5557",
        "udp://h:1",
        "worker[0].events",
        "tcp://",
    ),
    (
        "endpoint to bind",
        "tcp://worker-us-0.us.example.net:5557",
        "tcp://*:5557",
        "worker[0].events",
        "host:port",
    ),
    # Types, unknown keys, missing parts.
    (
        "wrong type",
        "plan_version = 1",
        'plan_version = "1"',
        "fleet.plan_version",
        "an integer, found a string",
    ),
    ("a boolean is no integer", "plan_version = 1", "plan_version = true", "fleet.plan_version", "a boolean"),
    (
        "a float is no choice of bits",
        "value_bits = 32",
        "value_bits = 32.0",
        "index.value_bits",
        "one of 32, 64",
    ),
    (
        "the paper's layout is narrow",
        "value_bits = 32",
        'value_bits = 64\nlayout = "paper"',
        "index.layout",
        "set index.value_bits = 32",
    ),
    (
        "no such layout",
        "value_bits = 32",
        'layout = "lines"',
        "index.layout",
        "one of 'fingerprints', 'paper'",
    ),
    (
        "unknown key",
        "plan_version = 1",
        "plan_version = 1\nplam = 2",
        "fleet.plam",
        "unknown key; known here: name, plan_",
    ),
    (
        "misspelt key",
        "stretch = 0.75",
        "strech = 0.75",
        "lengths.strech",
        "unknown key, did you mean stretch? known here: policy",
    ),
    ("unknown key of a worker", US_0, f"{US_0}\nweight = 1", "worker[0].weight", "unknown key"),
    (
        "unknown section",
        "[fleet]",
        "[flete]\n[fleet]",
        "flete",
        "did you mean fleet? a plan has fleet, model",
    ),
    ("a section of nothing", "[fleet]", "[weather]\n[fleet]", "weather", "unknown section; a plan has fleet"),
    ("missing key", 'id = "meta-llama/Llama-3.1-8B-Instruct"', "", "model.id", "missing"),
    ("no worker", EXAMPLE_TEXT[EXAMPLE_TEXT.index("[[worker]]") :], "", "worker", "at least one"),
]


def test_a_misspelling_all_over_lists_the_known_keys_once() -> None:
    misspelt = EXAMPLE_TEXT.replace("prefill_ms_per_token", "prefil_ms_per_token")
    lines = [f"{path}: {message}" for path, message in faults_of(misspelt)]
    assert all("unknown key, did you mean prefill_ms_per_token?" in line for line in lines)
    assert [line.count("known here: id, region") for line in lines] == [1, 0, 0, 0, 0, 0], "nor is it missing"


def test_an_entry_is_named_by_its_id_too() -> None:
    with pytest.raises(PlanError) as refused:
        parse_plan(EXAMPLE_TEXT.replace(WORKER_US_1, WORKER_US_1.replace('"us"', '"mars"')))
    assert refused.value.faults[0][0] == "worker[1].region"
    assert str(refused.value).startswith("worker[1].region (worker-us-1): unknown region 'mars'")


def test_the_id_of_the_model_names_no_entry() -> None:
    with pytest.raises(PlanError, match=r"^model\.block_size: -1 is not"):
        parse_plan(EXAMPLE_TEXT.replace("block_size = 16", "block_size = -1"))


def test_an_entry_without_a_good_id_is_named_by_its_number() -> None:
    bad = EXAMPLE_TEXT.replace('id = "worker-us-1"', 'id = "worker us 1"', 1)
    with pytest.raises(PlanError, match=r"^worker\[1\]\.id: 'worker us 1': use up to"):
        parse_plan(bad)


def faults_of(text: str) -> tuple[tuple[str, str], ...]:
    with pytest.raises(PlanError) as refused:
        parse_plan(text)
    return refused.value.faults


@pytest.mark.parametrize(("old", "new", "path", "says"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_one_mistake_gets_one_message(old: str, new: str, path: str | None, says: str | None) -> None:
    assert old in EXAMPLE_TEXT
    faults = faults_of(EXAMPLE_TEXT.replace(old, new, 1))
    assert len(faults) == 1, faults
    assert path is None or faults[0][0] == path
    assert says is None or says in faults[0][1]


@pytest.mark.parametrize("section", ["fleet", "model", "wan_ms"])
def test_a_missing_section_is_one_fault(section: str) -> None:
    start = EXAMPLE_TEXT.index(f"[{section}]")
    end = EXAMPLE_TEXT.index("\n[", start)
    faults = faults_of(EXAMPLE_TEXT[:start] + EXAMPLE_TEXT[end:])
    assert [path for path, _ in faults] == [section]


def test_a_table_that_was_never_given_is_a_fault_of_its_workers() -> None:
    faults = faults_of(EXAMPLE_TEXT.replace("slots_given = [2, 2, 2]", "slots_given = [2, 2]"))
    assert [path for path, _ in faults] == ["worker[4].slot", "worker[5].slot"]


def example_with(*changes: tuple[str, str]) -> str:
    text = EXAMPLE_TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


ASIA_1_PLACE = "table = 2\nslot = 1\n"


@pytest.mark.parametrize("slots_given", ["[]", "[2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"])
@pytest.mark.parametrize("table", [32, 4_095])
def test_a_slip_of_a_table_number_must_not_cost_thousands_of_tables(table: int, slots_given: str) -> None:
    text = example_with(("[2, 2, 2]", slots_given), (ASIA_1_PLACE, f"table = {table}\nslot = 0\n"))
    ((path, message),) = faults_of(text)
    assert path == "worker[5].table"
    assert message.startswith(f"{table}: every shard and lookup has all tables up to it")
    assert "lower than 32, or leave out table and slot" in message
    with pytest.raises(PlanError, match="lower than 32"):
        assign_text(text)


def test_tables_that_were_given_one_after_the_other_are_no_slip() -> None:
    """A fleet of one worker that was replaced 1,000 times, and none of its places given again."""
    given = f"[2, 2, 1, {', '.join(['16'] * 60)}, 1]"
    text = example_with(("[2, 2, 2]", given), (ASIA_1_PLACE, "table = 63\nslot = 0\n"))
    assert parse_plan(text).tables == 64
    near = example_with(("[2, 2, 2]", "[]"), (ASIA_1_PLACE, "table = 31\nslot = 0\n"))
    assert parse_plan(near).tables == 32


def test_a_stretch_of_almost_nothing_is_a_fault() -> None:
    lengths = (("stretch = 0.75", "stretch = 0.01"), ("32_768", "1_048_576"))
    ((path, message),) = faults_of(example_with(*lengths))
    assert path == "lengths.stretch"
    assert "0.01 with lengths.quantum 128 makes more than 1024 rungs" in message
    assert parse_plan(example_with(*lengths, ('policy = "ladder"', 'policy = "paper"'))).regions


def test_rungs_are_not_counted_without_end() -> None:
    text = example_with(("block_size = 16", "block_size = 1"), ("quantum = 128", "quantum = 1"))
    assert len(faults_of(text.replace("32_768", "67_000_000").replace("0.75", "1.4"))) == 1


def test_a_worker_may_register_no_fewer_entries_than_a_pair_of_regions_has_lengths() -> None:
    paper = (('policy = "ladder"', 'policy = "paper"\nlevels = 6'),)
    few = example_with(*paper, ("slots_given = [2, 2, 2]", "worker_entries_max = 5"))
    assert [path for path, _ in faults_of(few)] == ["index.worker_entries_max"]
    assert parse_plan(few.replace("worker_entries_max = 5", "worker_entries_max = 6")).regions


@pytest.mark.parametrize(("bits", "layout"), [(32, "fingerprints"), (64, "fingerprints"), (32, "paper")])
def test_the_largest_table_of_a_plan_is_one_that_an_edge_can_make(bits: int, layout: str) -> None:
    rule = IndexRule(bits, layout, TABLE_ENTRIES_MAX)
    shape = index_shape(parse_plan(dump_plan(replace(THREE_REGIONS, index=rule))))
    with pytest.raises(KVCompassError, match="do not fit one table"):
        replace(shape, expected_entries=TABLE_ENTRIES_MAX + 2_000_000)


def test_an_empty_matrix_names_every_row() -> None:
    start = EXAMPLE_TEXT.index(US_ROW)
    end = EXAMPLE_TEXT.index("\n[", start)
    faults = faults_of(EXAMPLE_TEXT[:start] + EXAMPLE_TEXT[end:])
    assert [path for path, _ in faults] == ["wan_ms.us", "wan_ms.eu", "wan_ms.asia"]


def test_sections_with_defaults_may_be_left_out() -> None:
    text = EXAMPLE_TEXT
    for section in ("lengths", "index", "routing"):
        start = text.index(f"[{section}]")
        text = text[:start] + text[text.index("\n[", start) :]
    start = text.index("[[sharing_group]]")
    text = text[:start] + text[text.index("\n[[edge", start) :]
    plan = parse_plan(text)
    assert plan.lengths == THREE_REGIONS.lengths
    assert plan.sharing_groups == THREE_REGIONS.sharing_groups


def test_all_mistakes_are_reported_at_once() -> None:
    text = EXAMPLE_TEXT
    for old, new in (
        ("plan_version = 1", "plan_version = 0"),
        ("eu = 160.0, ", ""),
        ('id = "edge-eu"', 'id = "edge-us"'),
        ("shard = 1", "shard = 7"),
        ("prefill_ms_per_token = 0.073", "prefill_ms_per_token = 0"),
        (US_1_PLACE, US_0_PLACE),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    paths = {path for path, _ in faults_of(text)}
    assert paths == {
        "fleet.plan_version",
        "wan_ms.us.eu",
        "edge[1].id",
        "unit[1].shard",
        "worker[0].prefill_ms_per_token",
        "worker[1].slot",
    }


def test_the_error_shows_every_fault_on_its_own_line() -> None:
    with pytest.raises(PlanError) as refused:
        parse_plan(EXAMPLE_TEXT.replace("eu = 160.0", "eu = -1").replace("shard = 1", "shard = 0"))
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["wan_ms.us.eu", "unit[1].shard (unit-1)"]
    assert refused.value.field == "wan_ms.us.eu"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[fleet]\nname =\n", "line 2"),
        ("[fleet\n", "line 1"),
        ("a = 1\na = 2\n", "line 2"),
        (f"a = {'9' * 5_000}", "not valid TOML"),
        ("a = " + "[" * 100_000, "not valid TOML"),
    ],
)
def test_text_that_is_no_toml_is_one_fault(text: str, says: str) -> None:
    ((path, message),) = faults_of(text)
    assert path == "toml"
    assert says in message


def test_an_empty_plan_names_every_missing_part() -> None:
    paths = {path for path, _ in faults_of("")}
    assert paths == {"fleet", "model", "wan_ms", "region", "edge", "unit", "worker"}


def test_bytes_that_are_no_utf8_name_the_line() -> None:
    with pytest.raises(PlanError, match="0xff at line 2"):
        decode_plan(b"a = 1\nb = \xff\n")
    assert decode_plan("é".encode()) == "é"


@pytest.mark.parametrize("value", ["3", '"x"', "[1]", "[[]]", "{ a = 1 }", "1979-05-27"])
@pytest.mark.parametrize("section", ["fleet", "lengths", "region", "worker", "wan_ms", "sharing_group"])
def test_a_section_of_any_other_shape_is_refused(section: str, value: str) -> None:
    assert section in {path.split(".")[0].split("[")[0] for path, _ in faults_of(f"{section} = {value}")}


def test_ranks_of_one_engine_share_its_url_within_a_region() -> None:
    us_1, eu_0 = US_0.replace("us-0", "us-1"), US_0.replace("us-0.us", "eu-0.eu")
    text = EXAMPLE_TEXT.replace(us_1, f"dp_rank = 1\n{US_0}").replace(US_0, f"dp_rank = 0\n{US_0}", 1)
    ranks = parse_plan(text).workers[:2]
    assert [worker.dp_rank for worker in ranks] == [0, 1]
    assert ranks[0].url == ranks[1].url
    assert [path for path, _ in faults_of(text.replace(eu_0, f"dp_rank = 2\n{US_0}"))] == ["worker[2].url"]
