"""What is worse than planned: ways of the WAN that vary, and patches that come late or not at all."""

from dataclasses import dataclass
from math import sqrt
from typing import Final

from kvcompass.wan import Link
from simulator.errors import SimulationError


@dataclass(frozen=True, slots=True)
class Impairment:
    """Of a whole run (paper, Table 4). By default there is none.

    Raises:
        SimulationError: A share is not from 0 to 1, or a time is negative.
    """

    wan_jitter: float = 0.0
    """Ways between regions vary evenly by up to this share of the plan's, which scores go on using."""
    patch_loss: float = 0.0
    """Share of the messages with patches that never get to an edge."""
    patch_delay_ms: float = 0.0
    """Time that a unit's messages to edges take besides their way."""

    def __post_init__(self) -> None:
        for name in ("wan_jitter", "patch_loss"):
            share = getattr(self, name)
            if not 0.0 <= share <= 1.0:
                raise SimulationError(f"{share:g} is no share: give a number from 0 to 1", field=name)
        if self.patch_delay_ms < 0.0:
            raise SimulationError(f"{self.patch_delay_ms:g} is negative", field="patch_delay_ms")

    @property
    def of_patches(self) -> bool:
        """Whether edges' views get their patches otherwise than they should."""
        return self.patch_loss > 0.0 or self.patch_delay_ms > 0.0

    def link(self, one_way_ms: float) -> Link:
        """Return a link between regions: normal, with the deviation of the even jitter."""
        return Link(one_way_ms, jitter_ms=self.wan_jitter * one_way_ms / sqrt(3.0))


SOUND: Final = Impairment()
"""Everything as planned."""
