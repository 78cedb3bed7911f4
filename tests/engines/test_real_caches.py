"""The caches of real engines, without their servers: what is held by their events is what they find.

The code of the cache and the publisher is the engine's; random requests drive it (`real/caches`). With what
it publishes, our decoder and holdings must come to the engine's own answers, after every step, at every
registered length.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kvcompass.keys import prefix_keys
from kvcompass.roles.block_tree import TreeLimits
from kvcompass.roles.holdings import Holdings, RepeatedStores
from kvcompass.tier import Tier
from services.worker_agent.event_decoder import EventDecoder
from tests.engines.real.caches import drive
from tests.engines.real.homes import RELEASES, Release
from tests.engines.real.server import environment

pytestmark = [pytest.mark.timeout(600)]

NAMESPACE = b"a test's own"
LENGTHS = np.arange(2, drive.PROMPT_PAGES + 1, 2, dtype=np.int32) * drive.PAGE_TOKENS
STEPS = 300
SEEDS = (1, 2, 3)
KINDS = {
    "0.5.10": ("plain", "write_through", "write_back"),
    "0.5.23": tuple(
        f"{kind}{core}" for kind in ("plain", "write_through", "write_back") for core in ("", "-python")
    ),
}
"""Caches of each version: alone, or with a host tier by its policy of writing; by the tree's language."""
TOLD_SINCE = (0, 5, 11)
"""Earlier, no event says that a block went to the host or came back."""
CACHES = [
    pytest.param(RELEASES[name], kind, id=f"{name}-{kind}")
    for name in os.environ.get("KVCOMPASS_ENGINES", "").split()
    for kind in KINDS.get(RELEASES[name].version, ())
]


@dataclass(frozen=True, slots=True)
class Found:
    """What a cache finds of a prompt itself: tokens on the GPU, and on the host after those."""

    tokens: list[int]
    device: int
    host: int


@dataclass(frozen=True, slots=True)
class Step:
    """What the cache had published by then, and what it found."""

    payloads: list[bytes]
    found: list[Found]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Release], Path]:
    """Drives all caches of a release, once, in its own Python; returns the folder of what was recorded."""

    @cache
    def record(release: Release) -> Path:
        folder = tmp_path_factory.mktemp(release.name)
        seeds = map(str, SEEDS)
        arguments: tuple[str | Path, ...] = (
            release.python,
            drive.__file__,
            release.version,
            str(STEPS),
            folder,
            *seeds,
        )
        ended = subprocess.run(
            arguments, env=environment(release), capture_output=True, text=True, timeout=500
        )
        assert ended.returncode == 0, ended.stderr[-4_000:]
        return folder

    return record


def steps_of(recording: Path) -> Iterator[Step]:
    """Reads one file of `drive`."""
    recorded = msgspec.msgpack.decode(recording.read_bytes())
    taken = 0
    for published, found in recorded["steps"]:
        yield Step(recorded["payloads"][taken:published], [Found(*each) for each in found])
        taken = published
    assert taken == len(recorded["payloads"]) > STEPS // 4


def held(holdings: Holdings) -> dict[int, int]:
    """Tier by key."""
    keys, tiers = holdings.report(0)
    return dict(zip(keys.tolist(), tiers.tolist(), strict=True))


@pytest.mark.skipif(not CACHES, reason="make test-engines")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("release", "kind"), CACHES)
def test_what_a_cache_publishes_is_what_it_finds(
    release: Release, kind: str, seed: int, recordings: Callable[[Release], Path]
) -> None:
    decoder = EventDecoder()
    holdings = Holdings(
        NAMESPACE,
        block_size=drive.PAGE_TOKENS,
        lengths=LENGTHS,
        shards=1,
        repeated_stores=RepeatedStores.COUNTED,
        limits=TreeLimits(),
    )
    tiers_told = release.version_numbers >= TOLD_SINCE
    tiers = set()
    for number, step in enumerate(steps_of(recordings(release) / f"{kind}-{seed}")):
        for payload in step.payloads:
            assert isinstance(holdings.apply(decoder.decode(payload)), tuple), "another block size"
        tier_of = held(holdings)
        for found in step.found:
            keys = prefix_keys(NAMESPACE, np.array(found.tokens, dtype=np.int32), LENGTHS).tolist()
            for key, length in zip(keys, LENGTHS.tolist(), strict=False):
                tier = tier_of.get(key, 0)
                assert bool(tier) == (length <= found.device + found.host), (number, length, found)
                if tier and tiers_told:
                    assert (tier == Tier.VRAM) == (length <= found.device), (number, length, found)
                tiers.add((tier, length <= found.device))
    assert decoder.counters.malformed_events == decoder.counters.unknown_events == 0
    assert holdings.left_out == holdings.detached == 0
    assert (Tier.VRAM, True) in tiers and (0, False) in tiers, "nothing was found, or nothing was missing"
    if not kind.startswith("plain"):
        assert (Tier.DRAM if tiers_told else Tier.VRAM, False) in tiers, "nothing was on the host alone"
