"""Patches that are lost or late cost time, and no view stays wrong."""

import pytest

from kvcompass.roles.messages import PatchGroups, UnitToEdge
from simulator.errors import SimulationError
from simulator.experiments.policies import policy_named
from simulator.fleets import FleetOptions, load_fleet
from simulator.impairment import SOUND, Impairment
from simulator.product.impaired_stream import ImpairedStream
from simulator.product.router import ProductRouter
from simulator.world import World
from tests.simulation.runs import FewFamilies
from tests.simulation.test_product_rest import assert_views_tell_the_truth

S = 1_000_000
FLEET = load_fleet("testbed-14", FleetOptions(shards=2))


def _world(impairment: Impairment) -> World:
    source = FewFamilies(FLEET, count=300, rate_per_s=60, seed=2, families=40, shared=1_500)
    return World(FLEET, source, policy_named("kvcompass", False, impairment), seed=2)


def _streams(world: World) -> list[ImpairedStream]:
    assert isinstance(world.router, ProductRouter)
    feeds = [feed for edge in world.router.edges for feed in edge.feeds]
    assert all(isinstance(feed, ImpairedStream) for feed in feeds)
    return [feed for feed in feeds if isinstance(feed, ImpairedStream)]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_every_view_is_true_again_though_patches_are_lost(share: float) -> None:
    world = _world(Impairment(patch_loss=share))
    world.run()
    streams = _streams(world)
    assert sum(stream.lost for stream in streams) > 20
    # News ends here, so that nothing is lost any more: what is asked for again gets through.
    for stream in streams:
        stream._loss = 0.0
    world.drain(world.now_us + 10 * S)
    assert_views_tell_the_truth(world)


def test_patches_come_so_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    delay_us = 300_000
    sent: dict[int, int] = {}
    late_us: list[int] = []
    deliver, heard = ImpairedStream.deliver, ImpairedStream._heard

    def note_sent(self: ImpairedStream, message: UnitToEdge) -> bool:
        sent[id(message)] = self._site.now_us
        return deliver(self, message)

    def note_heard(self: ImpairedStream, attempt: int, message: UnitToEdge) -> None:
        if isinstance(message, PatchGroups) and not self._beginning:
            way_us = round(1000 * FLEET.plan.wan_ms[self.unit.region][self._region])
            late_us.append(self._site.now_us - sent[id(message)] - way_us)
        heard(self, attempt, message)

    monkeypatch.setattr(ImpairedStream, "deliver", note_sent)
    monkeypatch.setattr(ImpairedStream, "_heard", note_heard)
    world = _world(Impairment(patch_delay_ms=delay_us / 1000))
    world.run()
    assert len(late_us) > 100
    assert set(late_us) == {delay_us}
    world.drain(world.now_us + 2 * S)
    assert_views_tell_the_truth(world)


def test_jitter_is_even_about_the_planned_way() -> None:
    link = Impairment(wan_jitter=0.5).link(80.0)
    assert link.one_way_ms == 80.0
    # The variance of an even distribution of width w is w * w / 12.
    assert link.jitter_ms**2 == pytest.approx(80.0**2 / 12)
    assert SOUND.link(80.0).jitter_ms == 0.0


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"wan_jitter": 1.5}, "wan_jitter"),
        ({"patch_loss": -0.1}, "patch_loss"),
        ({"patch_delay_ms": -1.0}, "patch_delay_ms"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, float], field: str) -> None:
    with pytest.raises(SimulationError) as refused:
        Impairment(**values)
    assert refused.value.field == field


def test_who_has_no_patches_cannot_lose_them() -> None:
    with pytest.raises(SimulationError, match="has no patches"):
        policy_named("random", False, Impairment(patch_loss=0.1))
