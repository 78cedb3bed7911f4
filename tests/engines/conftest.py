"""Which engines the suite is put to: those that KVCOMPASS_ENGINES names, else the double as two versions.

    KVCOMPASS_ENGINES="sglang-0.5.10" pytest tests/engines

`make test-engines` installs the real ones and does just that (docs/deploy-engines.md).
"""

import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from lab.warm import warm_kernels
from tests.engines.engine import Double, Engine, MakeEngine
from tests.engines.fleet import EngineFleet, running_fleet
from tests.engines.real.homes import RELEASES
from tests.engines.real.sglang import Sglang
from tests.engines.real.vllm import Vllm

_DOUBLES: dict[str, MakeEngine] = {
    f"double {version}": partial(Double, version=version) for version in ("0.5.10", "0.5.23")
}
"""Events as arrays and as maps."""
_REAL = os.environ.get("KVCOMPASS_ENGINES", "").split()
_SERVERS: dict[str, Callable[..., Engine]] = {"sglang": Sglang, "vllm": Vllm}
ENGINES: dict[str, MakeEngine] = {
    name: partial(_SERVERS[RELEASES[name].package], release=RELEASES[name]) for name in _REAL
} or _DOUBLES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One engine after the other, and last for each the test that puts another in its place."""
    order = ["", *ENGINES]

    def place(item: pytest.Item) -> tuple[int, bool]:
        course = getattr(item, "callspec", None)
        engine = str(course.params.get("engine_name", "")) if course is not None else ""
        return order.index(engine), "successor" in getattr(item, "fixturenames", ())

    items.sort(key=place)


@pytest.fixture(scope="session", params=list(ENGINES))
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def fleet(engine_name: str) -> Iterator[EngineFleet]:
    """The fleet around one engine, for all of its tests: they leave it up."""
    warm_kernels()
    with running_fleet(ENGINES[engine_name]) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def successor(engine_name: str) -> MakeEngine:
    """Another version of the engine, to be put in its place; the same where there is no other."""

    def family(name: str) -> str:
        return name.replace("-", " ").split()[0]

    alike = [make for name, make in ENGINES.items() if family(name) == family(engine_name)]
    return next((make for make in alike if make is not ENGINES[engine_name]), ENGINES[engine_name])
