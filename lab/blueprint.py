"""What a lab consists of: a plan, one settings file a process, and the relay between the regions."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvcompass.plan.model import Plan
from lab.process import ProcessSpec


@dataclass(frozen=True, slots=True)
class Stage:
    """Processes that start together; the next stage waits until they are ready."""

    name: str
    processes: tuple[ProcessSpec, ...]


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A fleet on paper."""

    plan: Plan
    plan_text: str
    policy: str
    stages: tuple[Stage, ...]
    time_scale: float
    """Real ms for each model ms, of network and engines alike."""
    relay_control: str
    """host:port of the relay's control."""
    ops_addresses: Mapping[str, str]
    """Process name -> host:port of its /ready and /metrics."""
    plan_key: str = ""
    """What signs the plans that its components take."""
