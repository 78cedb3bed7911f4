"""What stands at the places of a fleet, besides units: whoever runs there now."""

from collections.abc import Sequence
from typing import Final

from kvcompass.index import IndexView
from simulator.convergence.agent import FollowedEngine
from simulator.convergence.engine import Engine
from simulator.convergence.process import Process
from simulator.convergence.view_feed import ViewFeed
from simulator.convergence.view_server import ViewServer


class WorkerNode:
    """An engine and its agent's process. They fail apart from one another."""

    def __init__(self, process: Process, engine: Engine, planned: str) -> None:
        """`planned`: its id in the plan."""
        self.planned: Final = planned
        self.process: Final = process
        self.engine: Final = engine
        self.followed: FollowedEngine | None = None
        """Of the incarnation that runs."""
        self.plan_version = 0
        """That it goes by."""
        self.has_left = False
        """It is not in the plan any more, and its agent has ended."""


class EdgeProcess:
    """An edge, as far as it follows the index and is followed."""

    def __init__(self, process: Process, served: Sequence[ViewServer]) -> None:
        """`served`: where others follow it, by shard."""
        self.process: Final = process
        self.served: Final = served
        self.view: IndexView | None = None
        self.feeds: list[ViewFeed] = []
        """By shard, of the incarnation that runs."""
