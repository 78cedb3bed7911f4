"""Each mistake in a plan gets one message, under its TOML path; several mistakes get several."""

import pytest

from kvcompass.errors import PlanError
from kvcompass.plan import parse_plan
from kvcompass.plan.parse import decode_plan
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
    ("lease of a moment", "lease_ms = 3_000", "lease_ms = 1", "routing.lease_ms", "not in 250.."),
    (
        "lease shorter than the longest way and back",
        "lease_ms = 3_000",
        "lease_ms = 300",
        "routing.lease_ms",
        "160 ms one way; more than 320",
    ),
    (
        "loads older than a lease",
        "broadcast_period_ms = 100",
        "broadcast_period_ms = 1_501",
        "routing.broadcast_period_ms",
        "at most half of routing.lease_ms, 1500",
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
    ("no time to live", "lease_ms = 3_000", "predicted_ttl_ms = 0", "routing.predicted_ttl_ms", "not in 1.."),
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
