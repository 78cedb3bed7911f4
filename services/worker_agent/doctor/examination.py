"""Examines an engine: what it says, what its sockets do, and a probe from end to end."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec
import zmq.asyncio

from kvcompass.engine_facts import EngineFacts
from kvcompass.errors import KVCompassError
from kvcompass.roles.engine_fit import rank_endpoint
from services.runtime.grpc_transport import Dialer
from services.worker_agent.chat_probe import served_models
from services.worker_agent.doctor.check import Check, fail, ok, warn
from services.worker_agent.doctor.facts_checks import Flags, Words, facts_checks
from services.worker_agent.doctor.patient import Patient
from services.worker_agent.doctor.probe_checks import Reads, probe_checks
from services.worker_agent.doctor.socket_checks import listening, load_check, replay_check
from services.worker_agent.engine_client import EngineClient, EngineError, NotThereError
from services.worker_agent.engine_facts import ask_facts

_HTTP_MS: Final = 5_000
"""For each answer but that to the probe."""
_NAMES_SHOWN: Final = 5
_FLAGS: Final = msgspec.json.Decoder(Flags)


class UnaskedError(KVCompassError):
    """The engine does not answer at all."""


async def examine(patient: Patient, reader: Reads | None) -> AsyncIterator[Check]:
    """Yield each finding as it is made. Errors: UnaskedError, before the first."""
    dialer = Dialer(patient.connect_via)
    url = dialer.url(patient.worker.url)
    context = zmq.asyncio.Context()
    try:
        async with EngineClient(url, api_key=patient.settings.api_key, timeout_ms=_HTTP_MS) as client:
            words = await _words(client)
            facts = words.facts
            yield ok("answers", url)
            if patient.settings_say is not None and patient.settings_say != facts.engine:
                yield fail(
                    "kind",
                    f"the settings say engine.kind = {patient.settings_say!r}",
                    f'engine.kind = "{facts.engine}"',
                )
            patient = patient.known_as(facts, words.served)
            for check in facts_checks(words, patient):
                yield check
            yield await load_check(client, context, patient, dialer)
            async for check in _through_sockets(client, context, facts, patient, dialer, reader):
                yield check
    finally:
        context.destroy(linger=0)


async def _words(client: EngineClient) -> Words:
    """Errors: UnaskedError."""
    served = await served_models(client)
    try:
        facts = await _facts(client)
    except EngineError as error:
        if served:
            raise UnaskedError(
                f"an engine serves {', '.join(served[:_NAMES_SHOWN])} there and does not say what it is: "
                f"{error}. Let /server_info through to it (vLLM: /version and /metrics), or name its port",
                field="--engine",
            ) from error
        raise UnaskedError(
            f"{error}. Does the engine run there? --engine names its HTTP listener, --api-key-file its key",
            field="--engine",
        ) from error
    flags = Flags()
    if facts.engine == "sglang":
        with suppress(EngineError):
            flags = await client.get("/server_info", _FLAGS)
    return Words(facts, flags, served)


async def _facts(client: EngineClient) -> EngineFacts:
    """Of SGLang, or of vLLM, whichever it is. Errors: EngineError."""
    try:
        return await ask_facts(client, "sglang")
    except NotThereError:
        return await ask_facts(client, "vllm")


async def _through_sockets(
    client: EngineClient,
    context: zmq.asyncio.Context,
    facts: EngineFacts,
    patient: Patient,
    dialer: Dialer,
    reader: Reads | None,
) -> AsyncIterator[Check]:
    events, replay = endpoints(facts, patient)
    if replay:
        told = facts.publisher is not None and not patient.worker.replay
        yield await replay_check(context, dialer.url(replay), told=told)
    if not events:
        if not facts.tells_publisher:
            yield warn(
                "event socket", "the engine does not say where it publishes", "--events tcp://HOST:5557"
            )
        async for check in probe_checks(client, None, facts, patient, reader):
            yield check
        return
    async with listening(context, dialer.url(events), facts, patient) as (connected, heard):
        yield connected
        async for check in probe_checks(client, heard, facts, patient, reader):
            yield check


def endpoints(facts: EngineFacts, patient: Patient) -> tuple[str, str]:
    """Of events and replays: the plan's and the command line's go before the engine's own words."""
    worker, publisher = patient.worker, facts.publisher
    if publisher is None:
        return worker.events, worker.replay
    host, rank = urlsplit(worker.url).hostname or "", worker.dp_rank or 0
    host = f"[{host}]" if ":" in host else host
    return (
        worker.events or rank_endpoint(publisher, publisher.endpoint, host, rank),
        worker.replay or rank_endpoint(publisher, publisher.replay_endpoint, host, rank),
    )
