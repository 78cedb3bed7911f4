"""An agent's side of the Report stream, reduced to what the protocol asks of it."""

from dataclasses import dataclass, field

import numpy as np

from kvcompass.keys.digest import holdings_digest
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    AgentHello,
    AgentToUnit,
    Edits,
    FullReport,
    Handshake,
    Renewal,
)


def edits_of(sequence: int, tiers: dict[int, int]) -> Edits:
    return Edits(sequence, np.array(list(tiers), np.uint64), np.array(list(tiers.values()), np.uint8))


@dataclass
class TwinAgent:
    """Holdings of one worker in one shard; every method returns what is sent."""

    worker_id: str
    layout: dict[str, str]
    plan_version: int = 1
    epoch: int = 1
    sequence: int = 0
    holdings: dict[int, int] = field(default_factory=dict)

    def hello(self) -> AgentHello:
        handshake = Handshake(self.worker_id, self.epoch, PROTOCOL_VERSION, self.plan_version, self.layout)
        return AgentHello(handshake, self.worker_id, self.renewal())

    def renewal(self) -> Renewal:
        keys = np.array(list(self.holdings), np.uint64)
        tiers = np.array(list(self.holdings.values()), np.uint8)
        return Renewal(self.sequence, holdings_digest(keys, tiers), len(self.holdings))

    def edit(self, tiers: dict[int, int]) -> Edits:
        for key, tier in tiers.items():
            self.holdings[key] = tier
            if not tier:
                del self.holdings[key]
        self.sequence += 1
        return edits_of(self.sequence, tiers)

    def full_report(self, chunk: int = 3) -> list[AgentToUnit]:
        pairs = list(self.holdings.items())
        starts = list(range(0, len(pairs), chunk)) or [0]
        messages: list[AgentToUnit] = []
        for start in starts:
            self.sequence += 1
            part = edits_of(self.sequence, dict(pairs[start : start + chunk]))
            messages.append(
                FullReport(
                    self.sequence,
                    part.keys,
                    part.tiers,
                    first=start == 0,
                    last=start == starts[-1],
                )
            )
        return messages

    def restart(self) -> None:
        self.epoch += 1
        self.sequence = 0
