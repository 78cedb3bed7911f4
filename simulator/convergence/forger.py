"""Somebody who speaks in a worker's name, as anybody can who reaches a unit that has no TLS."""

from collections.abc import Mapping
from typing import Final

from kvcompass.roles.messages import PROTOCOL_VERSION, AgentHello, Handshake, Renewal, UnitToAgent
from simulator.product.unit_node import UnitNode

_FARTHEST: Final = 1 << 63
"""A sequence that no agent reaches."""


class Forger:
    """One who stands beside a unit. An `AgentStream` to it."""

    def __init__(self, node: UnitNode, worker_id: str, layout: Mapping[str, str]) -> None:
        """`worker_id`: whom it says to be. `layout`: the fleet's."""
        self.region: Final = node.region
        self._node = node
        self._worker_id = worker_id
        self._layout = layout

    def speak(self, now_us: int) -> None:
        """Open a Report stream in the epoch of the worker's own agent, say to hold nothing, and hang up.

        The epoch is what the unit's `/health` says of it; where it knows none, there is nobody to forge.
        """
        unit = self._node.unit
        known = unit.registered(now_us).get(self._worker_id)
        if known is None or not known.agent_epoch:
            return
        handshake = Handshake(
            self._worker_id, known.agent_epoch, PROTOCOL_VERSION, unit.plan_version, self._layout
        )
        hello = AgentHello(handshake, self._worker_id, Renewal(_FARTHEST, 0, 0))
        self._node.register(self, 1, hello)
        self._node.agent_hung_up(self, 1)

    def hung_up(self, attempt: int) -> None:
        """It has gone."""

    def answered(self, attempt: int, message: UnitToAgent) -> None:
        """It has gone."""
