"""Asks an engine what it is: SGLang at `/server_info`, vLLM at `/version` and `/metrics`."""

import re
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from kvcompass.engine_facts import EngineFacts, EventPublisher
from services.worker_agent.engine_client import JSON_BYTES, MalformedError, NotThereError, decoded
from services.worker_agent.load_sources.exposition import Exposition
from services.worker_agent.load_sources.metrics_route import AsksBytes, MetricsRoute
from services.worker_agent.load_sources.source import RANKS_MOST

_LISTENING_HOSTS: Final = frozenset({"*", "::", "[::]", "0.0.0.0"})
_CACHE_INFO: Final = Exposition(["vllm:cache_config_info"])
_PARTS: Final = {"prefill": "prefill", "decode": "decode"}
_SHOWN_MOST: Final = 64
"""Characters of a version."""
_MODEL_MOST: Final = 256
"""Of the name a model is served by, often a path."""

_Kind = TypeVar("_Kind")
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_Ranks = Annotated[int, msgspec.Meta(ge=1, le=1_024)]
_Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
_Address = Annotated[str, msgspec.Meta(max_length=256, pattern=r"^[ -~]*\Z")]
"""A host or an endpoint: shown to people, so of what can be printed."""


class _Described(msgspec.Struct, frozen=True):
    """`kv_events` of SGLang 0.5.23: what of `kv_events_config` is in force."""

    endpoint_host: _Address
    endpoint_port_base: _Port
    block_size: _Tokens | None = None
    dp_size: _Ranks | None = None
    replay_endpoint_port_base: _Port | None = None


class _Configured(msgspec.Struct, frozen=True):
    """`--kv-events-config`."""

    publisher: str | None = "null"
    endpoint: _Address = "tcp://*:5557"
    bind: bool | None = None
    replay_endpoint: _Address | None = None


class _ServerInfo(msgspec.Struct, frozen=True):
    """Strict about what events are understood by; the rest (`Any`) may be of any type."""

    version: Any = ""
    served_model_name: Any = ""
    page_size: _Tokens | None = None
    dp_size: _Ranks = 1
    tp_size: Any = None
    context_length: Any = None
    kv_events: _Described | None = None
    kv_events_config: str | None = None
    enable_hierarchical_cache: Any = None
    enable_cache_report: Any = None
    disable_radix_cache: Any = None
    disaggregation_mode: Any = None


class _Version(msgspec.Struct, frozen=True):
    version: Any = ""


_INFO: Final = msgspec.json.Decoder(_ServerInfo)
_CONFIG: Final = msgspec.json.Decoder(_Configured)
_VERSION: Final = msgspec.json.Decoder(_Version)


async def ask_facts(client: AsksBytes, engine: Literal["sglang", "vllm"]) -> EngineFacts:
    """Ask. Errors: EngineError; MalformedError names what in the answer cannot be used."""
    if engine == "vllm":
        version = decoded(_VERSION, await client.get_bytes("/version", JSON_BYTES), "/version")
        return vllm_facts(version.version, await MetricsRoute().page(client))
    try:
        return sglang_facts(await client.get_bytes("/server_info", JSON_BYTES))
    except NotThereError as error:
        message = f'{error}: SGLang 0.5.10 and later have it; of vLLM set engine.kind = "vllm"'
        raise NotThereError(message, field="/server_info") from error


def sglang_facts(body: bytes) -> EngineFacts:
    """What `/server_info` says. Errors: MalformedError."""
    info = decoded(_INFO, body, "/server_info")
    described = info.kv_events
    radix_disabled = _of(bool, info.disable_radix_cache)
    return EngineFacts(
        engine="sglang",
        version=_shown(info.version, _SHOWN_MOST),
        model=_shown(info.served_model_name, _MODEL_MOST),
        page_size=(described and described.block_size) or info.page_size,
        dp_size=(described and described.dp_size) or info.dp_size,
        tp_size=_of(int, info.tp_size),
        context_length=_of(int, info.context_length),
        tells_publisher=True,
        publisher=_publisher(info),
        host_tier=_of(bool, info.enable_hierarchical_cache),
        cache_report=_of(bool, info.enable_cache_report),
        prefix_cache=None if radix_disabled is None else not radix_disabled,
        part=_PARTS.get(_of(str, info.disaggregation_mode) or "", "both"),
    )


def vllm_facts(version: Any, metrics: bytes) -> EngineFacts:
    """What `/version` and `/metrics` say: `vllm:cache_config_info` is there once for each rank.

    Errors: MalformedError.
    """
    ranks = [sample.labels for sample in _CACHE_INFO.samples(metrics)]
    if len(ranks) > RANKS_MOST:
        raise MalformedError(f"/metrics has more than {RANKS_MOST} ranks", field="vllm:cache_config_info")
    first = ranks[0] if ranks else {}
    page_size = first.get("block_size", "")
    return EngineFacts(
        engine="vllm",
        version=_shown(version, _SHOWN_MOST),
        page_size=int(page_size) if re.fullmatch("[1-9][0-9]{0,6}", page_size) else None,
        dp_size=max(1, len(ranks)),
        prefix_cache={"True": True, "False": False}.get(first.get("enable_prefix_caching", "")),
    )


def _publisher(info: _ServerInfo) -> EventPublisher | None:
    text = info.kv_events_config
    config = decoded(_CONFIG, text.encode(), "kv_events_config of /server_info") if text else _Configured()
    described = info.kv_events
    if described is not None:
        replay = described.replay_endpoint_port_base
        host = described.endpoint_host
        binds = host in _LISTENING_HOSTS if config.bind is None else config.bind
        return EventPublisher(
            f"tcp://{host}:{described.endpoint_port_base}",
            f"tcp://{host}:{replay}" if replay is not None else "",
            binds,
        )
    if config.publisher in (None, "null"):
        return None
    return EventPublisher(config.endpoint, config.replay_endpoint or "", _binds(config))


def _binds(config: _Configured) -> bool:
    """As SGLang 0.5.10 decides; later ones may be told."""
    if config.bind is not None:
        return config.bind
    endpoint = config.endpoint
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))


def _shown(value: Any, most: int) -> str:
    """A text that people read, in logs and on terminals: short, and without what a terminal obeys."""
    text = (_of(str, value) or "")[:most]
    return "".join(character if character.isprintable() else "?" for character in text)


def _of(kind: type[_Kind], value: Any) -> _Kind | None:
    """A fact that only informs: one of another type is none."""
    return value if type(value) is kind else None
