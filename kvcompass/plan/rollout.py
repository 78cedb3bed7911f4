"""In which order the components of a fleet take the next version of its plan.

First everybody who is asked takes both versions, then who asks takes the new one, then what only the old
one had is dropped: agents register new lengths before edges query them and withdraw old ones after, and units
know workers of both versions in between. Versions may differ by one, so every state on the way is sound, and
all that another order would cost is matches that are missed for a while.
"""

from enum import StrEnum
from typing import Final

from kvcompass.plan.model import Plan


class Component(StrEnum):
    """What takes plans."""

    UNIT = "unit"
    AGENT = "agent"
    EDGE = "edge"


class Phase(StrEnum):
    """What is asked of a component with a plan. Each may be asked again, and the later ones alone."""

    CHECK = "check"
    """Say what would change, and change nothing."""
    PREPARE = "prepare"
    """Run the new version, and go on knowing what only the old one has."""
    SETTLE = "settle"
    """Run the new version alone."""


STEPS: Final = (
    (Component.UNIT, Phase.PREPARE),
    (Component.AGENT, Phase.PREPARE),
    (Component.EDGE, Phase.SETTLE),
    (Component.AGENT, Phase.SETTLE),
    (Component.UNIT, Phase.SETTLE),
)
"""An edge has one step: nobody asks it for what only one version has."""


def components_of(plan: Plan) -> dict[tuple[Component, str], str]:
    """Return the operations address of every unit, worker (its agent's) and edge, by kind and id."""
    return {
        **{(Component.UNIT, unit.id): unit.ops_address for unit in plan.units},
        **{(Component.AGENT, worker.id): worker.ops_address for worker in plan.workers},
        **{(Component.EDGE, edge.id): edge.ops_address for edge in plan.edges},
    }
