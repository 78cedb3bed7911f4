"""One running lab a module: real processes, an agent process a worker, network and engines sped up."""

import os
import random
from collections.abc import Iterator

import pytest

from lab.fleet import Fleet
from lab.ports import LoopbackPorts
from lab.three_regions import LabOptions, three_regions
from lab.warm import warm_kernels
from tests.e2e.asking import BODY_LIMIT


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A module may set TIME_SCALE for its own lab."""
    warm_kernels()
    options = LabOptions(
        time_scale=getattr(request.module, "TIME_SCALE", 0.2),
        agents_share_a_process=False,
        edge_settings={"limits": {"body_bytes": BODY_LIMIT}},
    )
    with Fleet(three_regions(options, LoopbackPorts(random.Random(os.urandom(8))))) as fleet:
        yield fleet
