"""The lab's wires are those of a WAN profile, in real time; its plan says the same latencies."""

import random
import tomllib
from dataclasses import replace

import msgspec
import pytest

from kvcompass.plan.parse import parse_plan
from kvcompass.wan import Link, WanError
from lab.ports import LoopbackPorts
from lab.relay.settings import RelaySettings
from lab.three_regions import REGIONS, LabOptions, three_regions
from lab.wan_profiles import load_profile


def relay_settings(options: LabOptions) -> tuple[RelaySettings, tuple[tuple[float, ...], ...]]:
    blueprint = three_regions(options, LoopbackPorts(random.Random(7)))
    (relay,) = (spec for stage in blueprint.stages for spec in stage.processes if spec.name == "relay")
    return msgspec.convert(tomllib.loads(relay.settings), RelaySettings), parse_plan(
        blueprint.plan_text
    ).wan_ms


@pytest.mark.parametrize("name", ["paper-testbed", "cloudping-three"])
@pytest.mark.parametrize("time_scale", [1.0, 0.25])
def test_wires_and_plan_have_the_profiles_latencies(name: str, time_scale: float) -> None:
    profile = load_profile(name)
    settings, wan_ms = relay_settings(LabOptions(time_scale=time_scale, wan=profile))
    wires = {(wire.origin, wire.destination): wire.link() for wire in settings.wires}
    assert wires == {pair: Link(time_scale * link.one_way_ms) for pair, link in profile.links.items()}
    for (origin, destination), link in profile.links.items():
        row = wan_ms[REGIONS.index(origin)]
        assert row[REGIONS.index(destination)] == pytest.approx(time_scale * link.one_way_ms)


def test_the_lab_is_the_papers_testbed_unless_told() -> None:
    assert LabOptions().wan == load_profile("paper-testbed")


def test_other_figures_of_a_link_reach_the_relay() -> None:
    profile = load_profile("paper-testbed")
    links = {**profile.links, ("us", "eu"): Link(100.0, jitter_ms=3.0, rate=50.0, partition=True)}
    options = LabOptions(time_scale=0.5, jitter_ms=8.0, wan=replace(profile, links=links))
    settings, _ = relay_settings(options)
    wires = {(wire.origin, wire.destination): wire.link() for wire in settings.wires}
    assert wires["us", "eu"] == Link(50.0, jitter_ms=1.5, rate=100.0, partition=True)
    assert wires["eu", "us"] == Link(80.0, jitter_ms=4.0)


def test_a_profile_of_other_regions_is_refused() -> None:
    profile = replace(load_profile("paper-testbed"), regions=("us", "eu"))
    with pytest.raises(WanError, match="us, eu, asia"):
        three_regions(LabOptions(wan=profile), LoopbackPorts(random.Random(7)))
