"""Profiles: every ordered pair has one link, faults name field and fix, the shipped ones have a source."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.wan import LINK_FIELDS, Link, WanError, WanProfile, changed_link, parse_profile, read_link
from lab.wan_profiles import load_profile, shipped_profiles

HEAD = 'name = "two"\nsource = "made up"\nregions = ["us", "eu"]\n'
BOTH = '[[link]]\nbetween = ["us", "eu"]\none_way_ms = 40\n'

links = st.builds(
    Link,
    one_way_ms=st.floats(1.0, 1_000.0),
    jitter_ms=st.floats(0.0, 100.0),
    loss=st.floats(0.0, 1.0),
    duplicate=st.floats(0.0, 1.0),
    reorder=st.floats(0.0, 1.0),
    rate=st.none() | st.floats(0.1, 10_000.0),
    partition=st.booleans(),
)


def toml_of(profile: WanProfile) -> str:
    """The naive way to write a profile: each direction for itself, each field."""
    lines = [f'name = "{profile.name}"', f'source = "{profile.source}"', f"regions = {list(profile.regions)}"]
    for (origin, destination), link in profile.links.items():
        lines += ["[[link]]", f'origin = "{origin}"', f'destination = "{destination}"']
        for name, value in dataclasses.asdict(link).items():
            if value is not None:
                lines.append(f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}")
    return "\n".join(lines)


@given(st.integers(2, 3).flatmap(lambda n: st.lists(links, min_size=n * (n - 1), max_size=n * (n - 1))))
def test_what_is_written_is_read(drawn: list[Link]) -> None:
    regions = ("us", "eu", "asia")[: {2: 2, 6: 3}[len(drawn)]]
    pairs = itertools.permutations(regions, 2)
    profile = WanProfile("any", "drawn", regions, dict(zip(pairs, drawn, strict=True)))
    assert parse_profile(toml_of(profile)) == profile


def test_between_gives_both_directions_and_origin_with_destination_one() -> None:
    assert parse_profile(HEAD + BOTH).links == {("us", "eu"): Link(40.0), ("eu", "us"): Link(40.0)}
    one_way = HEAD + "".join(
        f'[[link]]\norigin = "{a}"\ndestination = "{b}"\none_way_ms = {ms}\n'
        for a, b, ms in (("us", "eu", 10), ("eu", "us", 20))
    )
    profile = parse_profile(one_way)
    assert profile.link("us", "eu") == Link(10.0)
    assert profile.link("eu", "us") == Link(20.0)


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("", "regions", "2 to 16"),
        ("name = [", "profile", "not TOML"),
        (HEAD + "links = 3", "links", "did you mean link"),
        (HEAD + "link = 3", "link", r"\[\[link\]\]"),
        (HEAD, "link", "no link from us to eu"),
        (HEAD + BOTH.replace("one_way_ms", "oneway_ms"), "link[0].oneway_ms", "did you mean one_way_ms"),
        (HEAD + BOTH.replace("one_way_ms = 40", ""), "link[0].one_way_ms", "missing"),
        (HEAD + BOTH.replace("40", "-1"), "link[0].one_way_ms", "-1 is not in"),
        (HEAD + BOTH.replace("40", "nan"), "link[0].one_way_ms", "not a number"),
        (HEAD + BOTH + "loss = 5", "link[0].loss", "5 is not in 0..1"),
        (HEAD + BOTH + "loss = true", "link[0].loss", "not a number"),
        (HEAD + BOTH + "partition = 1", "link[0].partition", "neither true nor false"),
        (HEAD + BOTH + "rate = 0", "link[0].rate", "partition = true"),
        (HEAD + BOTH + "rate = 1e-7", "link[0].rate", r"1e-07 is not in 0\.001\.\.10000"),
        (HEAD + BOTH.replace("40", "1" + 400 * "0"), "link[0].one_way_ms", r"10000.* is not in 0\.\."),
        (HEAD + BOTH.replace("40", "inf"), "link[0].one_way_ms", "inf is not in"),
        (HEAD + BOTH.replace("40", "0") + "reorder = 0.1", "link[0].reorder", "overtaken"),
        (HEAD + BOTH + BOTH, "link[1]", "has a link already"),
        (HEAD + BOTH.replace('"eu"', '"mars"'), "link[0]", "'mars' is not among the regions"),
        (HEAD + BOTH.replace('"eu"', '"us"'), "link[0]", "two different regions"),
        (HEAD + BOTH + 'origin = "us"', "link[0]", "either between"),
        (HEAD + BOTH.replace('between = ["us", "eu"]\n', ""), "link[0]", "either between"),
        (HEAD.replace('"eu"', '"us"') + BOTH, "regions", "twice"),
        (HEAD.replace("made up", "") + BOTH, "source", "missing"),
        (HEAD.replace("two", "a b") + BOTH, "name", "letters"),
    ],
)
def test_a_fault_names_its_field_and_the_fix(text: str, field: str, says: str) -> None:
    with pytest.raises(WanError, match=says) as caught:
        parse_profile(text)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


@given(links, st.sampled_from(LINK_FIELDS), links)
def test_a_change_replaces_its_field_alone(link: Link, field: str, other: Link) -> None:
    value = getattr(other, field)
    assert changed_link(link, {field: value}, "eu") == dataclasses.replace(link, **{field: value})


def test_a_link_is_nothing_without_its_latency() -> None:
    with pytest.raises(WanError, match="missing") as caught:
        read_link({"loss": 0.1}, "wires[0]")
    assert caught.value.field == "wires[0].one_way_ms"


def test_the_shipped_profiles_have_three_regions_and_a_source() -> None:
    assert shipped_profiles() == ("cloudping-three", "paper-testbed")
    for name in shipped_profiles():
        profile = load_profile(name)
        assert profile.name == name
        assert set(profile.regions) == {"us", "eu", "asia"}
        assert "20" in profile.source, "figures have a date"
    paper = load_profile("paper-testbed")
    for (one, other), one_way_ms in {("us", "eu"): 160, ("us", "asia"): 126, ("eu", "asia"): 149}.items():
        assert paper.link(one, other) == paper.link(other, one) == Link(one_way_ms)


def test_a_profile_that_is_not_there_is_named() -> None:
    with pytest.raises(WanError, match="cloudping-three, paper-testbed"):
        load_profile("paper")
    with pytest.raises(WanError, match=r"cannot read 'nowhere\.toml'"):
        load_profile("nowhere.toml")
    for impossible in ("\0.toml", "\ud800.toml"):
        with pytest.raises(WanError, match="cannot read"):
            load_profile(impossible)
