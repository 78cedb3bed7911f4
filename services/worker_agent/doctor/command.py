"""`kvcompass-worker-agent doctor --engine URL`: one engine, from end to end, and what to change."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from kvcompass.errors import KVCompassError
from services.runtime.logs import configure_logging
from services.worker_agent.doctor.check import Check, fail
from services.worker_agent.doctor.examination import UnaskedError, examine
from services.worker_agent.doctor.own_reading import OwnReading
from services.worker_agent.doctor.patient import Named, Patient, patient
from services.worker_agent.doctor.report import EXIT_UNASKED, as_json, as_lines, exit_status

_TIMEOUT_MOST_S: Final = 86_400
_DESCRIPTION = """Examines an engine end to end and prints what to change, a line a check. It sends the engine
two short chats, and changes nothing. Exit status 0: nothing fails (warnings may be there); 1: something must
be changed; 2: the engine does not answer, or a file or an option is at fault."""


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="kvcompass-worker-agent doctor", description=_DESCRIPTION)
    parser.add_argument("--engine", metavar="URL", help="http://host:30000; the plan's, where it names one")
    parser.add_argument(
        "--events", metavar="ENDPOINT", help="tcp://host:5557; as the plan or the engine says"
    )
    parser.add_argument(
        "--replay", metavar="ENDPOINT", help="tcp://host:5657; as the plan or the engine says"
    )
    parser.add_argument("--plan", type=Path, metavar="FILE", help="to compare with what its edges read")
    parser.add_argument("--worker", metavar="ID", help="which worker of the plan the engine is")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="of its agent: plan, worker, key")
    parser.add_argument("--api-key-file", type=Path, metavar="FILE", help="key of the engine's HTTP listener")
    parser.add_argument("--timeout", type=_seconds, default=90.0, metavar="S", help="for all of it (90)")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = vars(parser.parse_args(arguments))
    timeout_s, wants_json = options.pop("timeout"), options.pop("json")
    configure_logging("doctor", "", "error")
    try:
        who = patient(Named(**options))
        checks = uvloop.run(_all(who, timeout_s))
    except KVCompassError as error:
        sys.stderr.write(f"{error.field}: {error}\n" if error.field else f"{error}\n")
        return EXIT_UNASKED
    sys.stdout.write(as_json(who.worker.url, checks) if wants_json else as_lines(checks))
    return exit_status(checks)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < _TIMEOUT_MOST_S:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and less than {_TIMEOUT_MOST_S}")
    return seconds


async def _all(who: Patient, timeout_s: float) -> list[Check]:
    reader = None if who.plan_path is None else OwnReading(who.plan, who.plan_path)
    checks: list[Check] = []
    try:
        async with asyncio.timeout(timeout_s):
            async for check in examine(who, reader):
                checks.append(check)  # noqa: PERF401 - what was found stays when time is up
    except TimeoutError:
        if not checks:
            message = f"nothing answers at {who.worker.url} within {timeout_s:g} s"
            raise UnaskedError(message, field="--engine") from None
        checks.append(
            fail("time", f"not finished within {timeout_s:g} s", "--timeout, or a less busy engine")
        )
    return checks
