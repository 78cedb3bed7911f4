"""A simulated fleet: the product's plan, and the engines that stand behind it."""

from dataclasses import dataclass

from kvcompass.engine_model import EngineConfig
from kvcompass.plan.model import Plan


@dataclass(frozen=True, slots=True)
class DecodeEngine:
    """An engine that only decodes, beside prefill workers (PD)."""

    region: int
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a run is simulated on. Regions and workers are those of the plan, in its order."""

    name: str
    plan: Plan
    engines: tuple[EngineConfig, ...]
    """One a worker of the plan."""
    origin_weights: tuple[float, ...]
    """Share of the requests that start in each region."""
    decoders: tuple[DecodeEngine, ...] = ()
    """PD: the workers of the plan prefill, and each answer is decoded by one of these in the same region."""

    @property
    def regions(self) -> int:
        """How many."""
        return len(self.plan.regions)

    @property
    def workers(self) -> int:
        """How many, decoders left out."""
        return len(self.plan.workers)

    def region_of(self, worker: int) -> int:
        """Region index of a worker."""
        return self.plan.region_index(self.plan.workers[worker].region)
