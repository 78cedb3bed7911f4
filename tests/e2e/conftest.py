"""Running labs: real processes, an agent process a worker. Only one is up at a time.

Tests that share a lab run one after the other, whatever module they are in: first those on the quick lab,
then those on the lab of full scale, where processes die, then those that start a lab of their own.
"""

from collections.abc import Iterator

import pytest

from lab.fleet import Fleet
from lab.three_regions import LabOptions, three_regions
from lab.warm import warm_kernels
from tests.e2e.asking import BODY_LIMIT
from tests.models.ports import lab_ports

_ORDER = ("quick_lab", "full_scale_lab", "no_shared_lab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        used = getattr(item, "fixturenames", ())
        return next((place for place, name in enumerate(_ORDER) if name in used), -1)

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def behind_a_proxy() -> Iterator[None]:
    """Many CI machines reach the world by a proxy only. Here there is none: who asks it fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("http_proxy", "http://127.0.0.1:9")
        for name in ("no_proxy", "NO_PROXY"):
            patch.delenv(name, raising=False)
        yield


class SharedLab:
    """The lab that is up, if any."""

    def __init__(self) -> None:
        self._scale = 0.0
        self._fleet: Fleet | None = None

    def at(self, time_scale: float) -> Fleet:
        """The lab of that scale; one of another scale is ended first."""
        if self._fleet is None or self._scale != time_scale:
            self.end()
            options = LabOptions(
                time_scale=time_scale,
                agents_share_a_process=False,
                edge_settings={"limits": {"body_bytes": BODY_LIMIT}},
            )
            self._fleet = Fleet(three_regions(options, lab_ports())).__enter__()
            self._scale = time_scale
        return self._fleet

    def end(self) -> None:
        """Leaves no process running."""
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            fleet.__exit__(None, None, None)


@pytest.fixture(scope="session")
def shared_lab(behind_a_proxy: None) -> Iterator[SharedLab]:
    warm_kernels()
    shared = SharedLab()
    yield shared
    shared.end()


@pytest.fixture
def quick_lab(shared_lab: SharedLab) -> Fleet:
    """Network and engines five times as fast as real ones."""
    return shared_lab.at(0.2)


@pytest.fixture
def full_scale_lab(shared_lab: SharedLab) -> Fleet:
    """Real latencies; the engines are what is busy, and not the client."""
    return shared_lab.at(1.0)


@pytest.fixture(scope="module")
def no_shared_lab(shared_lab: SharedLab) -> None:
    """For tests that start a lab of their own."""
    shared_lab.end()
