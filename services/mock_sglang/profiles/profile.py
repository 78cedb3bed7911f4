"""The questions that a version of SGLang answers differently."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import TierEvents
from services.mock_sglang.load_report import LoadReport


class EventReport(Protocol):
    """How a version words the events of one dp rank."""

    def told(self, events: Sequence[EngineEvent]) -> list[EngineEvent]:
        """The events as they are published, in order. Mutates what it keeps of them."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One version of the engine, seen from outside."""

    version: str
    tier_events: TierEvents
    event_report: Callable[[], EventReport]
    encode_batch: Callable[[Sequence[EngineEvent], float, int], bytes]
    """Events, seconds since 1970 and the dp rank to one payload."""
    replayed: Callable[[bytes, bytes, bytes], tuple[bytes, ...]]
    """Topic, sequence and payload to the frames of one reply after the client's own."""
    replay_end: tuple[bytes, ...]
    """The frames that end a replay."""
    loads: Callable[[LoadReport], dict[str, Any]]
    """The body of /v1/loads."""
    get_load: Callable[[LoadReport], list[dict[str, Any]]] | None
    """The body of /get_load; None where the route is gone."""
    ready_route: bool
    """Whether there is /ready, which answers at once."""
    load_publisher: bool
    """Whether `load_publish_endpoint` works."""
    kv_events_info: bool
    """Whether /server_info describes the event ports under `kv_events`."""
    chat_token_ids: bool
    """Whether chat requests may bring their token ids, and /tokenize takes messages."""
    salts: bool
    """Whether salts separate caches; where they do not, they are accepted all the same."""
    extra_key: bool
    """Whether `extra_key` is taken, as another salt."""
    uncached_details: dict[str, int] | None
    """`usage.prompt_tokens_details` of an answer that reused nothing."""
