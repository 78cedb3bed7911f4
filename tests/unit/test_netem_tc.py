"""The tc commands: a destination has one class, one queue and one filter; figures are those of the link."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.wan import Link
from lab.netem import tc_commands
from lab.netem.delay_line import MAX_HELD

links = st.builds(
    Link,
    one_way_ms=st.floats(0.0, 1_000.0),
    jitter_ms=st.just(0.0) | st.floats(0.0, 100.0),
    loss=st.floats(0.0, 1.0),
    reorder=st.just(0.0) | st.floats(0.0, 1.0),
    rate=st.none() | st.floats(0.1, 10_000.0),
)
fleets = st.lists(links, min_size=1, max_size=15)


def commands(fleet: list[Link]) -> list[tuple[str, ...]]:
    subnets = {f"r{index}": IPv4Network((0x0A000000 + (index << 8), 24)) for index in range(len(fleet))}
    by_region = {f"r{index}": link for index, link in enumerate(fleet)}
    return list(tc_commands.setup("wan0", subnets, by_region))


def after(command: tuple[str, ...], word: str) -> str:
    return command[command.index(word) + 1]


@given(fleets)
def test_each_destination_has_one_class_one_queue_and_one_filter(fleet: list[Link]) -> None:
    said = commands(fleet)
    classes = [after(each, "classid") for each in said if each[1] == "class"]
    queues = [after(each, "parent") for each in said if "netem" in each]
    filters = [after(each, "flowid") for each in said if each[1] == "filter"]
    subnets = [after(each, "dst") for each in said if each[1] == "filter"]
    assert len(set(classes)) == len(classes) == len(fleet) + 1
    assert queues == filters == [name for name in classes if name != "1:1"]
    assert len(set(subnets)) == len(fleet)
    assert said[0][1:6] == ("qdisc", "add", "dev", "wan0", "root")


@given(links)
def test_figures_are_the_links(link: Link) -> None:
    said = tc_commands.change("wan0", 3, link)
    assert said[:11] == (
        "tc",
        "qdisc",
        "change",
        "dev",
        "wan0",
        "parent",
        "1:13",
        "handle",
        "13:",
        "netem",
        "limit",
    )
    assert ("distribution" in said) == (link.jitter_ms > 0.0)
    assert ("reorder" in said) == (link.reorder > 0.0)
    delay_ms = float(after(said, "delay").removesuffix("ms"))
    assert delay_ms == pytest.approx(link.one_way_ms, rel=1e-5, abs=0.001)
    if "distribution" in said:
        jitter_ms = float(after(said, after(said, "delay")).removesuffix("ms"))
        assert jitter_ms == pytest.approx(link.jitter_ms, rel=1e-5, abs=0.001)
        assert min(delay_ms, jitter_ms) >= 0.001, "tc refuses a distribution of nothing"
    if "reorder" in said:
        assert delay_ms >= 0.001, "tc refuses to reorder what takes no time"
    assert after(said, "random") == f"{100 * link.loss:.6g}%"
    assert after(said, "rate") == ("10gbit" if link.rate is None else f"{link.rate:.6g}mbit")
    assert 100 <= int(after(said, "limit")) <= MAX_HELD


def test_the_whole_command_of_a_link_that_does_everything() -> None:
    link = Link(149.0, jitter_ms=2.5, loss=0.01, reorder=0.002, rate=100.0)
    assert " ".join(tc_commands.change("eth1", 0, link)) == (
        "tc qdisc change dev eth1 parent 1:10 handle 10: netem limit 2992 delay 149ms 2.5ms "
        "distribution normal loss random 1% reorder 0.2% rate 100mbit"
    )
