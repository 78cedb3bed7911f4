"""Prefill and decode apart (PD): answers are decoded by other engines than prompts are prefilled by."""

from collections.abc import Callable, Sequence
from typing import Final

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import EngineRequest, Progress
from simulator.clock import Clock, Priority
from simulator.engine_host import EngineHost
from simulator.fleet import Fleet
from simulator.request import Request
from simulator.streams import random_stream

TRANSFER_US_PER_TOKEN: Final = 131_072 / 25e3
"""KV of Llama-3.1-8B in BF16, 131,072 bytes a token, over a 200 Gbit/s network card (25 GB/s), which is
the paper's gamma too. The whole prompt is sent when its prefill has ended."""


class Decoders:
    """All decode engines of a fleet. An answer goes to one of its prefill worker's region, at random."""

    def __init__(
        self,
        clock: Clock,
        fleet: Fleet,
        answered: Callable[[Progress], None],
        nowhere: Callable[[Request], None],
        seed: int,
    ) -> None:
        """`answered` gets the progress of answers; `nowhere` a request that every decoder refused."""
        self.hosts: Final = [
            EngineHost(clock, decoder.config, self._heard, _silent) for decoder in fleet.decoders
        ]
        self._clock = clock
        self._answered = answered
        self._nowhere = nowhere
        self._stream = random_stream(seed, "decoders")
        self._of_region: list[list[EngineHost]] = [[] for _ in range(fleet.regions)]
        for decoder, host in zip(fleet.decoders, self.hosts, strict=True):
            self._of_region[decoder.region].append(host)

    def __len__(self) -> int:
        return len(self.hosts)

    def hand_over(self, region: int, request: Request) -> None:
        """A prefill worker of a region is done with a prompt: its KV is sent to a decoder there."""
        arrives_us = self._clock.now_us + round(TRANSFER_US_PER_TOKEN * len(request.prompt))
        order = self._stream.sample(self._of_region[region], len(self._of_region[region]))
        self._clock.at(arrives_us, Priority.MESSAGE, self._decode, request, order)

    def _decode(self, request: Request, order: list[EngineHost]) -> None:
        asked = EngineRequest(
            str(request.id), request.prompt, request.answer, request.category, transferred=True
        )
        for host in order:
            if host.submit(asked) is None:
                return
        self._nowhere(request)

    def _heard(self, steps: Sequence[Progress]) -> None:
        for progress in steps:
            self._answered(progress)


def _silent(_events: Sequence[EngineEvent]) -> None:
    """Decoders keep no prefix cache: nobody asks what they hold."""
