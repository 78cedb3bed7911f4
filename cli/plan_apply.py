"""`kvcompass plan apply NEW.toml`: the next version of a plan, while the fleet runs."""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.consoles import wide_console
from cli.plan_rollout import Rollout
from cli.plan_visits import Answer, Courier, Target, add_via, targets_of
from kvcompass.errors import KVCompassError, PlanError
from kvcompass.plan import parse_plan
from kvcompass.plan.notes import plan_notes
from kvcompass.plan.parse import decode_plan

_KEY_VARIABLE: Final = "KVCOMPASS_PLAN_KEY"
_NOTHING_IS_BROKEN: Final = "Components one version apart work together, so nothing is broken."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `plan apply`."""
    parser.add_argument("file", type=Path, metavar="NEW", help="the next version of the plan, TOML")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would change and who answers; change nothing"
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        help=f"file with the components' plan_key; without it the variable {_KEY_VARIABLE} is read",
    )
    parser.add_argument(
        "--timeout", type=float, default=15.0, metavar="S", help="for each component at each step (15)"
    )
    add_via(parser)
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="ID",
        help="an edge, unit or worker that is down and not waited for: it reads the new file when it starts",
    )


def run(options: argparse.Namespace) -> int:
    """0: all components run the version; 1: not all, or they cannot; 2: it could not be tried."""
    try:
        body = options.file.read_bytes()
        plan = parse_plan(decode_plan(body))
        key = _key(options.key_file)
    except PlanError as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, KVCompassError) as error:
        print(f"{options.file}: {error}" if isinstance(error, OSError) else error, file=sys.stderr)
        return 2
    try:
        targets = targets_of(plan, options.without)
    except PlanError as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    console = wide_console()
    courier = Courier(body, key, options.timeout, dict(options.via))
    rollout = Rollout(plan.plan_version, targets)
    fit = rollout.check(courier.visit)
    _print_changes(console, rollout)
    if rollout.refusing:
        _print_refusals(console, rollout)
        return 1
    if options.dry_run:
        for note in plan_notes(plan):
            console.print(Text(f"note: {note}"))
    if options.dry_run or not fit:
        _print_table(console, rollout)
        if not fit:
            _print_advice(console, rollout, "Nothing was changed.")
        return 0 if fit else 1
    done = rollout.apply(
        courier.visit, lambda kind, phase: console.print(f"{phase.value}: every {kind.value} ...")
    )
    _print_table(console, rollout)
    if rollout.refusing:
        _print_refusals(console, rollout)
    if done:
        console.print(f"Plan version {plan.plan_version} runs everywhere.")
        return 0
    _print_advice(console, rollout, _how_far(rollout))
    return 1


def _key(path: Path | None) -> str:
    """Errors: OSError, KVCompassError."""
    key = os.environ.get(_KEY_VARIABLE, "") if path is None else path.read_text("utf-8").strip()
    if not key:
        raise KVCompassError(f"no plan key: give --key-file, or set {_KEY_VARIABLE}", field="key")
    return key


def _print_changes(console: Console, rollout: Rollout) -> None:
    changes = rollout.changes()
    if not changes:
        return
    table = Table("change", "", title=f"Plan version {rollout.plan_version}", title_justify="left")
    for field, what in changes:
        table.add_row(Text(field), Text(what))
    console.print(table)


def _print_refusals(console: Console, rollout: Rollout) -> None:
    """Each reason once, with those who gave it."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for target in rollout.refusing:
        for each in rollout.answers[target].refusals:
            reasons.setdefault((each["field"], each["why"], each["roll"]), []).append(target.name)
    console.print("A running fleet cannot take this plan:")
    for (field, why, roll), who in reasons.items():
        everybody = len(who) == len(rollout.targets)
        console.print(Text(f"  {field}: {why}" + ("" if everybody else f" ({'; '.join(who)})")))
        if roll:
            console.print(Text(f"    Instead: {roll}."))


def _print_table(console: Console, rollout: Rollout) -> None:
    table = Table("component", "address", "was", "runs", "settled", "its plan file", "")
    for target in (*rollout.targets, *sorted(rollout.leaving, key=lambda target: target.name)):
        answer = rollout.answers.get(target, Answer("not asked"))
        facts = answer.facts
        kept = "" if "kept" not in facts else "written" if facts["kept"] else "not written"
        table.add_row(
            Text(target.name),
            target.address,
            str(rollout.before.get(target, "")),
            str(facts.get("plan_version", "")),
            "" if "settled" not in facts else "yes" if facts["settled"] else "no",
            kept,
            Text(_note(rollout, target, answer)),
        )
    console.print(table)


def _note(rollout: Rollout, target: Target, answer: Answer) -> str:
    if answer.problem:
        if target in rollout.new:
            return "not running yet: start it with this file"
        return answer.problem + (" (it leaves the plan)" if target in rollout.leaving else "")
    if _is_unsigned(answer):
        return "it has another plan_key"
    if target in rollout.leaving:
        return "has left the plan: end it"
    absent = sorted(set(target.ids) - set(answer.facts["ids"]))
    if absent:
        return f"does not serve {', '.join(absent)}: its settings name its workers"
    return str(answer.facts.get("error") or answer.facts.get("kept_why", ""))


def _is_unsigned(answer: Answer) -> bool:
    return answer.outcome == "unsigned"


def _how_far(rollout: Rollout) -> str:
    if rollout.stopped_at is None:
        return "Not all components have settled."
    kind, phase = rollout.stopped_at
    return f"Not every {kind.value} acknowledged ({phase.value}); later steps were not begun."


def _print_advice(console: Console, rollout: Rollout, how_far: str) -> None:
    told = [(each, rollout.answers[each]) for each in rollout.missing if each in rollout.answers]
    unsigned = [each.name for each, answer in told if _is_unsigned(answer)]
    if unsigned:
        console.print(
            Text(
                f"{how_far} Another plan_key is set at: {'; '.join(unsigned)}. Give theirs with --key-file or"
                f" {_KEY_VARIABLE}, or set this one in their settings and start them again."
            )
        )
        if len(unsigned) == len(rollout.missing):
            return
    failed = [each.name for each in rollout.failed]
    if failed:
        console.print(
            Text(
                f"Failed: {'; '.join(failed)}. See the log there before you run the same command again: it"
                " says what of the plan could not be done."
            )
        )
    absent = "; ".join(each.name for each in rollout.missing if each.name not in (*unsigned, *failed))
    if failed and not absent:
        console.print(Text(f"{how_far} {_NOTHING_IS_BROKEN}"))
        return
    console.print(
        Text(
            f"{how_far} Missing: {absent or 'none'}. {_NOTHING_IS_BROKEN} Bring them back, or start them with"
            " this file as their plan, and run the same command again: it goes on from here. Whoever is down"
            " for longer is left out with --without ID."
        )
    )
