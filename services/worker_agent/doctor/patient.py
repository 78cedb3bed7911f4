"""Which engine is examined, and as what: a worker of a plan, or one that is made up for the occasion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kvcompass.engine_facts import EngineFacts
from kvcompass.errors import KVCompassError
from kvcompass.plan.model import (
    Edge,
    IndexRule,
    LengthRule,
    MaintenanceUnit,
    ModelIdentity,
    Plan,
    RoutingRule,
    SharingGroup,
    Worker,
)
from services.runtime.plan_file import load_plan
from services.runtime.settings import load_settings, resolve_path
from services.worker_agent.settings import EngineSettings, WorkerAgentSettings

_BLOCK: Final = 16
"""Tokens a page, of an engine that no plan describes: what is told to who has to change it."""
_CONTEXT: Final = 131_072


class PatientError(KVCompassError):
    """The command line does not say which engine, or contradicts the plan."""


@dataclass(frozen=True, slots=True)
class Patient:
    """An engine to examine."""

    plan: Plan
    worker: Worker
    plan_path: Path | None
    """None: nobody gave a plan, and what depends on it is not examined."""
    settings: EngineSettings
    settings_say: str | None
    """Which engine it is by the agent's settings; None where they were not given."""
    connect_via: Mapping[str, str]

    @property
    def has_plan(self) -> bool:
        """Whether the worker is one of a plan."""
        return self.plan_path is not None

    def known_as(self, facts: EngineFacts, served: Sequence[str]) -> "Patient":
        """The same, asked as the engine it is; without a plan by its own model."""
        settings = msgspec.structs.replace(self.settings, kind=facts.engine)
        if self.has_plan:
            return replace(self, settings=settings)
        name = served[0] if served else facts.model
        model = replace(self.plan.model, id=name)
        return replace(self, settings=settings, plan=replace(self.plan, model=model))


@dataclass(frozen=True, slots=True)
class Named:
    """The command line; None where an option was not given."""

    engine: str | None = None
    events: str | None = None
    replay: str | None = None
    plan: Path | None = None
    worker: str | None = None
    settings: Path | None = None
    api_key_file: Path | None = None


def patient(named: Named) -> Patient:
    """Find out who it is. Errors: PatientError; those of settings and plans."""
    settings = None
    plan_path = named.plan
    if named.settings is not None:
        settings = load_settings(WorkerAgentSettings, named.settings)
        plan_path = plan_path or resolve_path(named.settings, settings.plan)
    engine = settings.engine if settings is not None else EngineSettings()
    if named.api_key_file is not None:
        engine = msgspec.structs.replace(engine, api_key=_key(named.api_key_file))
    via = settings.connect_via if settings is not None else {}
    if plan_path is None:
        if named.engine is None:
            raise PatientError("name the engine's URL: --engine http://host:30000", field="--engine")
        plan = _made_up(named.engine)
        worker = plan.workers[0]
    else:
        plan = load_plan(plan_path)
        ids = settings.workers if settings is not None else []
        worker = _worker_of(plan, named, ids)
    worker = replace(
        worker,
        url=named.engine or worker.url,
        events=worker.events if named.events is None else named.events,
        replay=worker.replay if named.replay is None else named.replay,
    )
    if not _is_url(worker.url):
        raise PatientError(f"{worker.url!r} is no URL like http://host:30000", field="--engine")
    workers = tuple(worker if each.id == worker.id else each for each in plan.workers)
    said = settings.engine.kind if settings is not None else None
    return Patient(replace(plan, workers=workers), worker, plan_path, engine, said, via)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _key(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PatientError(f"cannot read {path}: {error}", field="--api-key-file") from error


def _worker_of(plan: Plan, named: Named, ids: list[str]) -> Worker:
    known = {worker.id: worker for worker in plan.workers}
    if named.worker is not None:
        ids = [named.worker]
    elif named.engine is not None:
        ids = [worker.id for worker in plan.workers if worker.url == named.engine.rstrip("/")]
    if len(ids) != 1 or ids[0] not in known:
        which = f"{', '.join(ids)}" if ids else "none"
        raise PatientError(
            f"one worker is examined at a time, and {which} is named; the plan has {', '.join(known)}",
            field="--worker",
        )
    return known[ids[0]]


def _made_up(url: str) -> Plan:
    """A plan of this engine alone."""
    return Plan(
        fleet="doctor",
        plan_version=1,
        model=ModelIdentity("", "", "", _BLOCK, _CONTEXT),
        lengths=LengthRule(),
        index=IndexRule(),
        routing=RoutingRule(),
        regions=("here",),
        wan_ms=((0.0,),),
        edges=(Edge("edge", "here", "", "", ""),),
        units=(MaintenanceUnit("unit", 0, "here", ""),),
        workers=(
            Worker("engine", "here", url, "", 0, 0, prefill_ms_per_token=0.1, reload_ms_per_token=0.01),
        ),
        sharing_groups=(SharingGroup("default"),),
    )
