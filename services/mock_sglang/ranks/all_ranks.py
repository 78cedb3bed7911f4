"""All ranks of one engine process: who takes a request, and what they say together."""

import time

from services.mock_sglang.errors import bad_request
from services.mock_sglang.faults import Faults, FaultSwitches
from services.mock_sglang.generation import Generation
from services.mock_sglang.load_report import LoadReport
from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.ranks.rank import Rank
from services.mock_sglang.settings import MockSettings


class Ranks:
    """At least one rank."""

    def __init__(self, settings: MockSettings, faults: FaultSwitches) -> None:
        self._version = PROFILES[settings.event_profile].version
        self._paired = settings.role != "both"
        self._turn = 0
        self.all = [Rank(settings, number, faults) for number in range(settings.dp_size)]

    def choose(self, generation: Generation) -> Rank:
        """The rank that a request names, that its room gives to both halves of a pair, or the next in turn.

        Errors: EngineError 400 when it names one that is not there.
        """
        number, count = generation.dp_rank, len(self.all)
        if number is not None:
            if not 0 <= number < count:
                raise bad_request(f"routed_dp_rank={number} out of range [0, {count})")
            return self.all[number]
        if self._paired and generation.bootstrap is not None:
            return self.all[generation.bootstrap.room % count]
        rank = self.all[self._turn]
        self._turn = (self._turn + 1) % count
        return rank

    def report(self) -> LoadReport:
        """The load of all of them now."""
        return LoadReport(self._version, time.time(), len(self.all), [rank.load() for rank in self.all])

    @property
    def resident_blocks(self) -> int:
        """Blocks in VRAM that a later request may reuse, of all of them."""
        return sum(rank.engine.resident_blocks for rank in self.all)

    def flush(self) -> bool:
        """Empty the caches of ranks without requests; False when some have any."""
        flushed = [rank.engine.flush() for rank in self.all]
        return all(flushed)

    def abort(self, request_id: str) -> None:
        """End a request, wherever it is."""
        for rank in self.all:
            rank.engine.abort(request_id)

    def abort_all(self) -> None:
        """End every request."""
        for rank in self.all:
            rank.engine.abort_all()

    def apply(self, faults: Faults) -> None:
        """Be as faulty as this from now on."""
        for rank in self.all:
            rank.apply(faults)

    def start(self) -> None:
        """Publish, until `close`."""
        for rank in self.all:
            rank.start()

    async def close(self) -> None:
        """End everything."""
        for rank in self.all:
            await rank.close()
