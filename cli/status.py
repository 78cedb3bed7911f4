"""`kvcompass status PLAN.toml`: what every component of a fleet says, and whether all of it is true."""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cli.consoles import wide_console
from cli.plan_visits import Target, add_via, targets_of
from cli.status_asking import Round, ask_all
from cli.status_findings import Finding, findings
from cli.status_tables import tables
from kvcompass.errors import PlanError
from kvcompass.plan import parse_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.parse import decode_plan

_ROUNDS: Final = 4
"""At most: a fleet in motion is asked again before anything is called untrue."""
_BETWEEN_S: Final = 0.4
"""Two rounds: news from another continent takes 0.3 s."""


def add_arguments(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `status`."""
    text = "ask every component of a running fleet how it is"
    parser = commands.add_parser(
        "status",
        help=text,
        description=f"{text.capitalize()}. Exit status 0: all is true; 1: something is not, and what to do "
        "about it is printed; 2: it cannot be asked.",
    )
    parser.add_argument("file", type=Path, metavar="PLAN", help="the plan that runs, TOML")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of tables")
    parser.add_argument("--watch", type=float, metavar="S", help="ask again every S seconds, until Ctrl-C")
    parser.add_argument("--timeout", type=float, default=3.0, metavar="S", help="for each component (3)")
    add_via(parser)
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="ID",
        help="an edge, unit or worker that is not there, and not asked",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """0: all is true; 1: something is not; 2: it cannot be asked."""
    try:
        plan = parse_plan(decode_plan(options.file.read_bytes()))
    except (OSError, PlanError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    try:
        targets = targets_of(plan, options.without)
    except PlanError as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    console = wide_console()
    code = 2
    try:
        while True:
            code = _once(console, plan, targets, options)
            if options.watch is None:
                return code
            time.sleep(max(_BETWEEN_S, options.watch))
    except KeyboardInterrupt:
        return code


def look(
    plan: Plan, targets: Sequence[Target], timeout_s: float, via: Mapping[str, str]
) -> tuple[Round, list[Finding]]:
    """Asks until all is true, or for some rounds; what was told last, and what is not true.

    Who lets the time pass is asked once: each costs as long as all the others together.
    """
    rounds: list[Round] = []
    silent: Round = {}
    while True:
        answers = ask_all([each for each in targets if each not in silent], timeout_s, via)
        silent = {**silent, **{each: told for each, told in answers.items() if told.timed_out}}
        rounds.append({each: silent.get(each) or answers[each] for each in targets})
        found = findings(plan, rounds)
        if not _untrue(found) or len(rounds) == _ROUNDS or all(told.problem for told in rounds[-1].values()):
            return rounds[-1], found
        time.sleep(_BETWEEN_S)


def _once(console: Console, plan: Plan, targets: Sequence[Target], options: argparse.Namespace) -> int:
    told, found = look(plan, targets, options.timeout, dict(options.via))
    heard = any(not each.problem for each in told.values())
    code = 2 if not heard else 1 if _untrue(found) else 0
    if options.json:
        print(json.dumps(_document(plan, told, found), sort_keys=True), flush=True)
        return code
    if options.watch is not None and console.is_terminal:
        console.clear()
    for table in tables(plan, told):
        console.print(table)
    if not heard:
        console.print(
            "Nobody answers. Is this the fleet's plan, and can its operations listeners be reached from here?"
        )
        return code
    for each in found:
        note = "note: " if each.is_note else ""
        console.print(Text(f"{note}{each.component}: {each.what}\n    {each.do}."))
    if not _untrue(found):
        console.print(f"All is true: {len(targets)} components, plan version {plan.plan_version}.")
    return code


def _untrue(found: Sequence[Finding]) -> bool:
    return any(not each.is_note for each in found)


def _document(plan: Plan, told: Round, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "fleet": plan.fleet,
        "plan_version": plan.plan_version,
        "all_true": not _untrue(found),
        "findings": [asdict(each) for each in found],
        "components": [
            {
                "kind": target.kind.value,
                "ids": target.ids,
                "address": target.address,
                "problem": answer.problem,
                "plan": answer.plan,
                "health": answer.health,
            }
            for target, answer in told.items()
        ],
    }
