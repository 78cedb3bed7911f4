"""What an engine does for a request: all of it, the prefill half, or the decode half."""

from dataclasses import dataclass
from typing import Protocol

from services.mock_sglang.errors import bad_request, failed
from services.mock_sglang.faults import FaultSwitches
from services.mock_sglang.generation import Bootstrap, Generation
from services.mock_sglang.ranks.engine_loop import Flight
from services.mock_sglang.ranks.transfer import (
    Rooms,
    Transfer,
    TransferError,
    TransferServer,
    ask_for_transfer,
)
from services.mock_sglang.settings import MockSettings
from services.runtime.addresses import split_address


@dataclass(frozen=True, slots=True)
class Part:
    """What this engine computes of a request."""

    limit: int
    """Answer tokens at most."""
    transfer: Transfer | None = None
    """What a prefill engine handed over; None: the prompt is computed here."""


class Role(Protocol):
    """One of the three."""

    async def start(self) -> None:
        """Listen, if it must. Errors: SettingsError."""

    async def stop(self) -> None:
        """Hang up."""

    async def part(self, generation: Generation) -> Part:
        """What to compute of a request, once that can begin. Errors: EngineError."""

    def ended(self, generation: Generation, flight: Flight | None) -> None:
        """A request is over; None: the engine did not take it."""


class WholeRole:
    """Prefill and decode. A room in the request means nothing here."""

    async def start(self) -> None:
        """See Role."""

    async def stop(self) -> None:
        """See Role."""

    async def part(self, generation: Generation) -> Part:
        """See Role."""
        return Part(generation.limit)

    def ended(self, generation: Generation, flight: Flight | None) -> None:
        """See Role."""


class PrefillRole:
    """Computes prompts, answers nothing, and tells the decode engine when a room's prompt is there."""

    def __init__(self, settings: MockSettings, faults: FaultSwitches) -> None:
        self._settings = settings
        self._rooms = Rooms()
        self._server = TransferServer(self._rooms, settings.transfer_timeout_s, faults.until_answering)

    @property
    def port(self) -> int:
        """The bootstrap port, after `start`."""
        return self._server.port

    async def start(self) -> None:
        """See Role."""
        host, _ = split_address(self._settings.address)
        await self._server.start(host, self._settings.bootstrap_port)

    async def stop(self) -> None:
        """See Role."""
        await self._server.stop()

    async def part(self, generation: Generation) -> Part:
        """See Role."""
        _room(generation)
        return Part(limit=0)

    def ended(self, generation: Generation, flight: Flight | None) -> None:
        """See Role."""
        if generation.bootstrap is None:
            return
        if flight is not None and flight.finished:
            transfer = Transfer(flight.cached_tokens, flight.host_tokens)
        else:
            transfer = Transfer(failed=True)
        self._rooms.settle(generation.bootstrap.room, transfer)


class DecodeRole:
    """Waits for the prefill engine that a request names, then answers from what it hands over."""

    def __init__(self, settings: MockSettings) -> None:
        self._timeout_s = settings.transfer_timeout_s

    async def start(self) -> None:
        """See Role."""

    async def stop(self) -> None:
        """See Role."""

    async def part(self, generation: Generation) -> Part:
        """See Role."""
        pair = _room(generation)
        if not pair.host:
            raise bad_request(
                "bootstrap_host: a decode engine must be told its prefill engine", "bootstrap_host"
            )
        try:
            transfer = await ask_for_transfer(pair.host, pair.port, pair.room, self._timeout_s)
        except TransferError as error:
            message = f"Decode transfer failed for request req.rid={generation.id!r} "
            raise failed(f"{message}req.bootstrap_room={pair.room}: {error}") from error
        return Part(generation.limit, transfer)

    def ended(self, generation: Generation, flight: Flight | None) -> None:
        """See Role."""


def role_of(settings: MockSettings, faults: FaultSwitches) -> Role:
    """The role that the settings name."""
    match settings.role:
        case "both":
            return WholeRole()
        case "prefill":
            return PrefillRole(settings, faults)
        case "decode":
            return DecodeRole(settings)


def _room(generation: Generation) -> Bootstrap:
    if generation.bootstrap is None:
        message = "Invalid request: Disaggregated request received without bootstrap room id."
        raise bad_request(f"{message} req.rid={generation.id!r}")
    return generation.bootstrap
