"""The filler process: workers that fill the tables and take no requests.

`python -m lab.faults.filler --settings FILE`. To the units each is a worker like any other: reported over the
streams that agents use, with a lease. No engine stands behind it: a real one would have to compute a hundred
million tokens to hold a million prefixes.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
from prometheus_client import CollectorRegistry

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.messages import ReportRequest
from kvcompass.roles.unit_report import UnitReport
from lab.faults.held_keys import HeldKeys
from services.runtime.epoch import new_epoch
from services.runtime.grpc_transport import PROMPT_ANSWER_MS, Dialer
from services.runtime.lifecycle import Lifecycle, run
from services.runtime.logs import configure_logging
from services.runtime.ops import Health, OpsServer
from services.runtime.plan_file import load_plan
from services.runtime.settings import CommonSettings, SettingsError, load_settings, resolve_path
from services.worker_agent.report_stream import ReportStream
from services.worker_agent.settings import StreamSettings


class FillerSettings(CommonSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One TOML file."""

    workers: list[str]
    """Ids in the plan."""
    keys: int
    """Held by all of them together, from the start on. `PUT /faults/keys/N` changes it."""


class Filler:
    """All workers of the process. Lives inside a running event loop."""

    def __init__(self, settings: FillerSettings, plan: Plan) -> None:
        dialer = Dialer(
            settings.connect_via, settings.tls, insecure=settings.insecure, answer_ms=PROMPT_ANSWER_MS
        )
        layout = layout_fields(plan)
        self._channels: dict[str, grpc.aio.Channel] = {
            unit.address: dialer.channel(unit.address) for unit in plan.units
        }
        self._workers = [
            HeldKeys(plan.workers[plan.worker_index(name)], plan.shards, epoch=new_epoch(), random_seed=seed)
            for seed, name in enumerate(settings.workers)
        ]
        self._streams = {
            held.worker.id: [
                ReportStream(
                    UnitReport(held, unit.shard, layout, plan.plan_version, lease_ms=plan.routing.lease_ms),
                    self._channels[unit.address],
                    unit_id=unit.id,
                    worker_id=held.worker.id,
                    vouches=lambda: True,
                    may_renew=lambda: True,
                    settings=StreamSettings(),
                )
                for unit in sorted(plan.units, key=lambda unit: unit.shard)
            ]
            for held in self._workers
        }
        self.hold(str(settings.keys))

    def hold(self, text: str) -> None:
        """Holds so many keys from now on, spread evenly over the workers. Errors: SettingsError."""
        if not text.isascii() or not text.isdigit():
            raise SettingsError(f"{text!r} is no number of keys", field="keys")
        for held in self._workers:
            held.hold(int(text) // len(self._workers))
        for stream in self._all_streams():
            stream.report.on_message(ReportRequest("the filler holds other keys"))
            stream.wake()

    def health(self) -> Health:
        """As an agent tells it."""
        problems = [
            f"{worker}: {stream.unit_id}: {stream.problem}"
            for worker, streams in self._streams.items()
            for stream in streams
            if stream.problem
        ]
        details = {held.worker.id: {"state": "exact", "holdings": _told(held)} for held in self._workers}
        return Health(not problems, "waiting" if problems else "serving", problems, details)

    async def run(self) -> None:
        """Reports until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for stream in self._all_streams():
                    group.create_task(stream.run())
        finally:
            await asyncio.gather(*(channel.close(None) for channel in self._channels.values()))

    def _all_streams(self) -> Sequence[ReportStream]:
        return [stream for streams in self._streams.values() for stream in streams]


def _told(held: HeldKeys) -> dict[str, object]:
    return {
        str(shard): {"keys": held.count(shard), "digest": f"{held.digest(shard):016x}"}
        for shard in range(held.shards)
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m lab.faults.filler", description=__doc__)
    parser.add_argument("--settings", type=Path, required=True)
    path: Path = parser.parse_args(sys.argv[1:]).settings

    async def serve(lifecycle: Lifecycle) -> None:
        settings = load_settings(FillerSettings, path)
        configure_logging("filler", "lab", settings.log_level)
        filler = Filler(settings, load_plan(resolve_path(path, settings.plan)))
        ops = OpsServer(
            settings.ops_address, filler.health, CollectorRegistry(), switches={"keys": filler.hold}
        )
        await ops.start()
        lifecycle.background(filler.run(), "filler")
        await lifecycle.stopping.wait()
        await ops.stop()

    run(serve)


if __name__ == "__main__":
    main()
