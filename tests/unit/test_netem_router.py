"""What a router decides without a kernel: state, rules, round trips, settings, metrics."""

import itertools
import re
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.errors import KVCompassError
from kvcompass.wan import Link, WanError, WanProfile
from lab.netem import names
from lab.netem.addressing import gratuitous_arp
from lab.netem.commands import read_values, table
from lab.netem.idle_path import SYSCTLS
from lab.netem.metrics import exposition
from lab.netem.netfilter import CHAIN, packet_counts, restore_input, rules
from lab.netem.orders import order
from lab.netem.report import Direction, Report
from lab.netem.round_trips import RoundTrips
from lab.netem.settings import load_settings
from lab.netem.wan_state import WanState
from lab.wan_profiles import load_profile

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "deploy/tc-netem/wan.toml"
US, EU, ASIA = "us", "eu", "asia"
S = 1_000_000_000


def begin() -> WanState:
    return WanState.begin(US, load_profile("paper-testbed"))


def cut_pairs(state: WanState) -> set[tuple[str, str]]:
    return {pair for pair, cut in state.partitioned().items() if cut}


def test_a_cut_is_both_ways_unless_told_and_heals() -> None:
    state = begin().cut(ASIA, one_way=False)
    assert cut_pairs(state) == {(US, ASIA), (ASIA, US)}
    assert cut_pairs(state.heal(ASIA, one_way=True)) == {(ASIA, US)}
    assert cut_pairs(state.heal(ASIA, one_way=False)) == set()
    assert cut_pairs(begin().cut(EU, one_way=True)) == {(US, EU)}


def test_a_partition_of_the_link_is_a_cut_that_heals_too() -> None:
    state = begin().change(EU, {"partition": True})
    assert cut_pairs(state) == {(US, EU)}
    assert cut_pairs(state.heal(EU, one_way=True)) == set()


def test_another_profile_heals_nothing() -> None:
    state = begin().cut(ASIA, one_way=False).use(load_profile("cloudping-three"))
    assert cut_pairs(state) == {(US, ASIA), (ASIA, US)}
    assert state.links[EU] == Link(46.4)


def test_a_router_that_starts_lets_nothing_pass_before_it_shapes() -> None:
    state = begin().closed()
    found = rules(state, load_settings(SETTINGS, US).regions, {EU: None, ASIA: None})
    assert {pair for pair, _ in found} == {(US, EU), (EU, US), (US, ASIA), (ASIA, US)}
    assert state.links == begin().links


class Obedient:
    """A router that only writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def cut(self, region: str, *, one_way: bool) -> None:
        self.told.append(("cut", region, one_way))

    def heal(self, region: str, *, one_way: bool) -> None:
        self.told.append(("heal", region, one_way))

    def change(self, region: str, values: dict[str, object]) -> None:
        self.told.append(("change", region, values))

    def use_profile(self, name: str) -> None:
        self.told.append(("profile", name))


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/cut", b'{"region": "eu", "one_way": true}', ("cut", "eu", True)),
        ("/heal", b'{"region": "eu", "one_way": false}', ("heal", "eu", False)),
        ("/set", b'{"region": "eu", "values": {"loss": 0.1}}', ("change", "eu", {"loss": 0.1})),
        ("/profile", b'{"name": "mine.toml"}', ("profile", "mine.toml")),
    ],
)
def test_an_order_is_obeyed(path: str, body: bytes, told: tuple[object, ...]) -> None:
    router = Obedient()
    order(path, body)(router)
    assert router.told == [told]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/halt", b"{}", "no command /halt; there are /cut, /heal, /set, /profile"),
        ("/cut", b"", "/cut: the arguments are not JSON"),
        ("/cut", 60_000 * b"[", "/cut: the arguments are not JSON"),
        ("/cut", b'"eu"', "/cut takes region"),
        ("/cut", b'{"region": "eu"}', "one_way"),
        ("/cut", b'{"region": "eu", "one_way": 1}', "one_way"),
        ("/heal", b'{"region": ["eu"], "one_way": true}', "region"),
        ("/set", b'{"region": "eu", "values": 5}', "values"),
        ("/set", b'{"region": "eu", "values": {}, "both_ways": true}', "nothing else"),
        ("/profile", b'{"name": 7}', "name"),
    ],
)
def test_what_is_no_order_is_refused_with_what_it_should_be(path: str, body: bytes, says: str) -> None:
    with pytest.raises(KVCompassError, match=says):
        order(path, body)


def test_an_unknown_region_is_refused_by_every_change() -> None:
    for change in (
        lambda: begin().cut("mars", one_way=False),
        lambda: begin().heal(US, one_way=False),
        lambda: begin().change("mars", {"loss": 0.1}),
    ):
        with pytest.raises(WanError, match="eu, asia"):
            change()


@given(st.sets(st.sampled_from([EU, ASIA])), st.sampled_from([0.0, 0.25]), st.booleans())
def test_rules_cut_then_double_then_queue(cut: set[str], duplicate: float, queued: bool) -> None:
    settings = load_settings(SETTINGS, US)
    state = begin().change(EU, {"duplicate": duplicate})
    for region in cut:
        state = state.cut(region, one_way=False)
    queue_rules = {
        region: f"NFQUEUE --queue-num {n}" if queued else None for n, region in enumerate((EU, ASIA))
    }
    found = list(rules(state, settings.regions, queue_rules))
    targets = [body.split(" -j ")[1].split()[0] for _, body in found]
    assert targets.count("DROP") == 2 * len(cut)
    assert "DROP" not in targets[2 * len(cut) :]
    assert targets.count("NFQUEUE") == 2 * queued
    assert targets.count("TEE") == (duplicate > 0)
    assert {pair for pair, _ in found if pair} == {pair for r in cut for pair in ((US, r), (r, US))}
    if duplicate and queued:
        assert targets.index("TEE") < targets.index("NFQUEUE"), "the copy would skip the queue"


def test_rules_are_restored_as_one_chain_and_counted_by_line() -> None:
    text = restore_input(["-d 10.0.0.0/8 -j DROP"])
    assert text == f"*mangle\n:{CHAIN} - [0:0]\n-A {CHAIN} -d 10.0.0.0/8 -j DROP\nCOMMIT\n"
    listing = (
        f"-N {CHAIN} -c 0 0\n-A {CHAIN} -d 10.0.0.0/8 -c 7 700 -j DROP\n"
        f"-A {CHAIN} -d 10.1.0.0/16 -c 3 300 -j NFQUEUE --queue-num 100\n"
    )
    assert packet_counts(listing) == [7, 3]


def test_the_median_of_the_last_answers_is_told_and_silence_is_not() -> None:
    trips = RoundTrips()
    assert trips.rtt_ms(0) is None
    for second, rtt_ms in enumerate((100, 100, 900, 100, 100)):
        number = trips.send(second * S)
        trips.answered(number, second * S + rtt_ms * 1_000_000)
    assert trips.rtt_ms(5 * S) == 100.0
    assert trips.rtt_ms(10 * S) is None
    number = trips.send(20 * S)
    trips.answered(number, 20 * S + 7_000_000)
    trips.answered(number, 20 * S + 9_000_000)
    assert trips.rtt_ms(21 * S) == 7.0, "what was before the silence, and second copies, do not count"


def test_echoes_that_nobody_answers_are_forgotten() -> None:
    trips = RoundTrips()
    first = trips.send(0)
    for _ in range(100):
        trips.send(S)
    trips.answered(first, 2 * S)
    assert trips.rtt_ms(2 * S) is None
    late = trips.send(3 * S)
    trips.forget()
    trips.answered(late, 4 * S)
    assert trips.rtt_ms(4 * S) is None, "it was sent over another link"


def test_the_shipped_settings_are_the_labs_addresses() -> None:
    settings = load_settings(SETTINGS, ASIA)
    assert str(settings.own.gateway) == "10.214.3.2"
    assert {str(each.router) for each in settings.others.values()} == {"10.214.100.11", "10.214.100.12"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('shaper = "auto"', 'shaper = "magic"', "shaper: 'magic' is none of auto, tc, nfqueue"),
        ('shaper = "auto"', 'shapers = "tc"', "shapers: unknown key, did you mean shaper"),
        ('profile = "paper-testbed"', "", "profile: missing"),
        ('profile = "paper-testbed"', 'profile = "none"', "profile: 'none' is not shipped"),
        ('gateway = "10.214.1.2"', "", "regions.us.gateway: missing"),
        (
            'gateway = "10.214.1.2"',
            'gateway = "10.214.2.2"',
            "regions.us.gateway: .* is not in 10.214.1.0/24",
        ),
        ("10.214.1.0/24", "10.214.1.9/24", "regions.us: .*has host bits set"),
        ("10.214.1.0/24", "10.214.0.0/16", "regions.eu.subnet: 10.214.2.0/24 overlaps 10.214.0.0/16 of us"),
        ("10.214.100.12", "10.214.100.11", "regions.eu.router: 10.214.100.11 is the router of us already"),
        ('gateway = "10.214.1.2"', 'gateway = "10.214.1.255"', "regions.us.gateway: .* no address of a host"),
        (
            "10.214.100.11",
            "10.214.1.2",
            "regions.us.router: 10.214.1.2 is in 10.214.1.0/24.* network of us",
        ),
        (
            "10.214.100.11",
            "10.214.2.9",
            "regions.us.router: 10.214.2.9 is in 10.214.2.0/24.* network of eu",
        ),
        ("random_seed = 1", "random_seed = true", "random_seed: True is not an integer"),
        ("[regions.eu]", "[regions.mars]", "the regions us, eu, asia, the settings us, mars, asia"),
        ("[regions.us]", "[regions.", "not|cannot"),
    ],
)
def test_a_faulty_setting_names_itself(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "wan.toml"
    path.write_text(SETTINGS.read_text("utf-8").replace(old, new, 1), "utf-8")
    with pytest.raises(KVCompassError, match=says):
        load_settings(path, US)


def test_a_region_that_is_not_in_the_settings_is_refused() -> None:
    with pytest.raises(KVCompassError, match="'mars' is not among them: us, eu, asia"):
        load_settings(SETTINGS, "mars")


def test_values_on_the_command_line() -> None:
    assert read_values(["one_way_ms=200", "partition=true", "rate=none"]) == {
        "one_way_ms": 200.0,
        "partition": True,
        "rate": None,
    }
    for word in ("loss", "=3", "loss=much"):
        with pytest.raises(KVCompassError, match=re.escape(repr(word))):
            read_values([word])


def report() -> Report:
    link = Link(126.0, jitter_ms=1.5)
    return Report(
        US,
        "tc",
        "paper-testbed",
        "the paper",
        {
            (US, ASIA): Direction(True, 5, link, None, 10, 2),
            (US, EU): Direction(False, 0, Link(160.0), 320.5, 7, 0),
            (ASIA, US): Direction(True, 3),
        },
    )


def test_metrics_are_the_named_ones_with_closed_labels() -> None:
    text = exposition(report())
    declared = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    constants = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    assert set(declared) == constants
    assert len(declared) == len(set(declared))
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples[f'{names.ONE_WAY_MS}{{origin="us",destination="asia"}}'] == "126"
    assert samples[f'{names.RTT_MS}{{origin="us",destination="eu"}}'] == "320.5"
    assert f'{names.RTT_MS}{{origin="us",destination="asia"}}' not in samples, "silence is not a number"
    assert samples[f'{names.DROPPED_PACKETS}{{origin="asia",destination="us",reason="partition"}}'] == "3"
    reasons = {sample.split('reason="')[1].rstrip('"}') for sample in samples if "reason" in sample}
    assert reasons == {"shaped", "partition"}


def test_the_table_tells_what_the_report_does() -> None:
    lines = table(report().as_json()).splitlines()
    assert lines[0] == "us: paper-testbed, shaped by tc"
    assert lines[2].split() == ["us", ">", "asia", "126", "1.5", "0", "-", "-", "10", "7", "cut"]
    assert lines[4].split() == ["asia", ">", "us", "3", "cut"]


def test_a_gratuitous_arp_says_who_is_where() -> None:
    frame = gratuitous_arp(bytes.fromhex("0242ac110002"), IPv4Address("10.214.1.2"))
    assert frame.hex() == (
        "ffffffffffff0242ac11000208060001080006040001" + "0242ac1100020ad60102" + "0000000000000ad60102"
    )


def test_the_documented_sysctls_are_those_that_are_tried() -> None:
    text = (ROOT / "docs/wan.md").read_text("utf-8")
    block = text.split("sysctls:\n")[1].split("```")[0]
    documented = {}
    for line in block.splitlines():
        name, _, value = line.split("#")[0].strip().partition(": ")
        documented[name] = value.strip().strip('"')
    assert documented == SYSCTLS


def test_the_router_needs_the_standard_library_and_the_vocabulary_alone() -> None:
    """Its image copies no more of the product than these files."""
    program = """
import sys
foreign = ["numpy", "msgspec", "orjson", "grpc", "aiohttp", "prometheus_client", "asyncio"]
sys.modules.update(dict.fromkeys(foreign))
import lab.netem.__main__, lab.netem.idle_path
ours = ("kvcompass", "services", "lab", "cli")
print(*sorted(name for name in sys.modules if name.partition(".")[0] in ours))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    dockerfile = (ROOT / "deploy/tc-netem/Dockerfile").read_text("utf-8")
    copied = {
        word for line in dockerfile.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]
    }
    for module in done.stdout.split():
        path = Path(*module.split("."))
        file = path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")
        assert any(str(each) in copied for each in (file, *file.parents)), f"{file} is not in the image"


def test_every_profile_fits_every_router() -> None:
    settings = load_settings(SETTINGS, US)
    for name, region in itertools.product(("paper-testbed", "cloudping-three"), settings.regions):
        profile: WanProfile = load_profile(name)
        assert set(WanState.begin(region, profile).links) == set(settings.regions) - {region}
