"""Faults of an engine, set while it runs: what is wrong now, and how often it went wrong."""

import asyncio
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from services.mock_sglang.errors import EngineError, flat_error
from services.mock_sglang.events.publisher import Delivery
from services.mock_sglang.prompt_drift import DriftName
from services.mock_sglang.settings import EvictionName

CRASH_STATUS = 137
"""What a shell sees of a killed process."""
MOST_BATCHES = 1_000_000_000
MOST_SEED = 2**63 - 1
"""What a JSON answer can show."""
STRIKES = ("hang", "status_500", "drop_events", "restart", "silence_load", "stick_events")
"""Faults that strike again and again; the others are states, or the end."""


class LostEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Batches that are numbered and not published."""

    share: float = 0.0
    """Of all batches, drawn one by one."""
    next_batches: int = 0
    """So many from now on, whatever the share."""
    kept: bool = True
    """Whether a replay has them."""


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /kvcompass_mock/faults: all that is wrong from now on. `{}` is a sound engine."""

    crash_after_ms: int | None = None
    """The process exits hard, with nothing said to anybody, after so long."""
    hang: bool = False
    """Nothing is answered, model time stands still, no events come. What waits goes on afterwards."""
    slow: float = 1.0
    """Factor on all that the engine computes."""
    status_500: float = 0.0
    """Share of generating requests that fail at once."""
    drop_events: LostEvents = LostEvents()
    restart: bool = False
    """Once: running requests end, caches are empty, batches count from 0, with AllBlocksCleared first."""
    ring_batches: int | None = None
    """Batches kept for replay, at most `event_ring_batches`; null is that."""
    silence_load: bool = False
    """/v1/loads and /get_load answer nothing, and the load's publisher is silent."""
    eviction_policy: EvictionName | None = None
    """Null is the setting's."""
    chat_drift: DriftName | None = None
    """Chats are read by another template or tokenizer than the settings', or with a token before all."""
    stick_events: bool = False
    """The event publisher is stuck: no batch comes and no replay is answered. All of it comes afterwards."""
    random_seed: int = 0
    """Of the shares: equal settings give the same fate to the nth request and to the nth batch."""


_FAULTS = msgspec.json.Decoder(Faults)
_UNKNOWN = re.compile(r"unknown field `(\w+)`(?: - at `\$\.([\w.]+)`)?")


def read_faults(body: bytes, ring_batches: int) -> Faults:
    """Parse and check a body. Errors: EngineError 400 naming the field."""
    try:
        faults = _FAULTS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(str(error)) from error
    shares = {"status_500": faults.status_500, "drop_events.share": faults.drop_events.share}
    for field, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise _refused("must be between 0 and 1", field)
    if not 0.01 <= faults.slow <= 10_000.0:
        raise _refused("must be between 0.01 and 10000", "slow")
    if not 0 <= faults.drop_events.next_batches <= MOST_BATCHES:
        raise _refused(f"must be between 0 and {MOST_BATCHES}", "drop_events.next_batches")
    if not -MOST_SEED <= faults.random_seed <= MOST_SEED:
        raise _refused(f"must be between {-MOST_SEED} and {MOST_SEED}", "random_seed")
    if faults.crash_after_ms is not None and not 0 <= faults.crash_after_ms <= 3_600_000:
        raise _refused("must be between 0 and 3600000", "crash_after_ms")
    if faults.ring_batches is not None and not 1 <= faults.ring_batches <= ring_batches:
        raise _refused(f"must be between 1 and {ring_batches}", "ring_batches")
    return faults


def _malformed(reason: str) -> EngineError:
    """msgspec names an unknown field in its text, and the place of a bad value at its end."""
    unknown = _UNKNOWN.search(reason)
    if unknown is not None:
        section = f"{unknown[2]}." if unknown[2] else ""
        return _refused("is no fault", section + unknown[1])
    message, _, place = reason.partition(" - at `$.")
    return _refused(message, place.rstrip("`") or "body")


def _refused(message: str, field: str) -> EngineError:
    return EngineError(400, flat_error(400, f"{field}: {message}", "BadRequestError", field))


class FaultSwitches:
    """The faults of one engine process. Answers the questions that its parts ask; does nothing by itself."""

    def __init__(self, exit_now: Callable[[int], object] = os._exit) -> None:
        self._exit_now = exit_now
        self._crash: asyncio.TimerHandle | None = None
        self._answering = asyncio.Event()
        self._telling_load = asyncio.Event()
        self._left_to_drop = 0
        self.counts: Counter[str] = Counter(dict.fromkeys(STRIKES, 0))
        """By fault: how often it struck. Monotonic."""
        self.now = Faults()
        self.set(self.now)

    def set(self, faults: Faults) -> None:
        """From now on, exactly these. A crash that was still to come is called off."""
        self.now = msgspec.structs.replace(faults, restart=False)
        # A stream of its own for each share, so that neither depends on how requests and batches interleave.
        self._request_draws = random.Random(f"requests {faults.random_seed}")  # noqa: S311
        self._batch_draws = random.Random(f"batches {faults.random_seed}")  # noqa: S311
        self._left_to_drop = faults.drop_events.next_batches
        _let(self._answering, not faults.hang)
        _let(self._telling_load, not faults.silence_load)
        if self._crash is not None:
            self._crash.cancel()
            self._crash = None
        if faults.crash_after_ms is not None:
            loop = asyncio.get_running_loop()
            self._crash = loop.call_later(faults.crash_after_ms / 1_000, self._exit_now, CRASH_STATUS)
        self.counts["hang"] += faults.hang
        self.counts["restart"] += faults.restart
        self.counts["stick_events"] += faults.stick_events

    def clear(self) -> None:
        """A sound engine: what waits goes on."""
        self.set(Faults())

    def shown(self) -> dict[str, Any]:
        """For GET: what is set, how many batches are still to be dropped, and the counts."""
        state: dict[str, Any] = msgspec.to_builtins(self.now)
        state["drop_events"]["next_batches"] = self._left_to_drop
        return {"faults": state, "struck": dict(self.counts)}

    async def until_answering(self) -> None:
        """Returns once the engine does not hang."""
        await self._answering.wait()

    async def until_telling_load(self) -> None:
        """Returns once the load is told."""
        if not self._telling_load.is_set():
            self.counts["silence_load"] += 1
        await self._telling_load.wait()

    def fails(self) -> bool:
        """Whether this request gets status 500."""
        failed = self._request_draws.random() < self.now.status_500
        self.counts["status_500"] += failed
        return failed

    def delivery(self) -> Delivery:
        """What becomes of this batch."""
        lost = self.now.drop_events
        if self._left_to_drop:
            self._left_to_drop -= 1
        elif self._batch_draws.random() >= lost.share:
            return Delivery.SENT
        self.counts["drop_events"] += 1
        return Delivery.UNSENT if lost.kept else Delivery.FORGOTTEN


def _let(gate: asyncio.Event, is_open: bool) -> None:
    if is_open:
        gate.set()
    else:
        gate.clear()
