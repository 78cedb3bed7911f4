"""`kvcompass plan show|check|assign|apply`."""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from cli import plan_apply
from cli.plan_tables import print_plan
from kvcompass.errors import PlanError
from kvcompass.plan import assign_text, parse_plan
from kvcompass.plan.model import ModelIdentity
from kvcompass.plan.notes import plan_notes
from kvcompass.plan.parse import decode_plan
from services.prompt import PromptEncoder
from services.prompt.encoder import BUILTIN
from services.prompt.errors import PromptAssetError
from services.runtime.disk import LocalDisk
from services.runtime.whole_file import remove_leftovers, replace_file

_WRITER: Final = "assign"
_WORDS: Final = ("forest", "window")
"""Of two conversations that differ in nothing else."""
_THE_MODELS_OWN: Final = "name the model's own file"


def add_arguments(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `plan` and its subcommands."""
    plan = commands.add_parser("plan", help="show, check or complete the description of a fleet")
    subcommands = plan.add_subparsers(title="plan commands", metavar="COMMAND", required=True)
    for name, run, text in (
        ("show", _show, "print what follows from a plan"),
        ("check", _check, "print every fault of a plan, or OK"),
        ("assign", _assign, "give each worker without table and slot its own, in the file itself"),
    ):
        parser = subcommands.add_parser(name, help=text, description=text.capitalize() + ".")
        parser.add_argument("file", type=Path, metavar="FILE", help="the plan, TOML")
        parser.set_defaults(command=run)
        if run is _assign:
            parser.add_argument(
                "--reuse",
                action="store_true",
                help="give the places of workers that have left first; `apply` refuses those not free yet",
            )
    text = "bring a running fleet the next version of its plan"
    parser = subcommands.add_parser("apply", help=text, description=text.capitalize() + ".")
    plan_apply.add_arguments(parser)
    parser.set_defaults(command=plan_apply.run)


def _show(options: argparse.Namespace) -> int:
    try:
        plan = parse_plan(decode_plan(options.file.read_bytes()), allow_unassigned=True)
    except (OSError, PlanError) as error:
        return _refused(options.file, error)
    print_plan(plan)
    return 0


def _check(options: argparse.Namespace) -> int:
    try:
        plan = parse_plan(decode_plan(options.file.read_bytes()))
    except PlanError as error:
        print(error)
        return 1
    except OSError as error:
        return _refused(options.file, error)
    faults = _prompt_faults(plan.model, options.file.parent)
    print("\n".join(faults) or "OK")
    for field, value in (("tokenizer", plan.model.tokenizer), ("chat_template", plan.model.chat_template)):
        if value.startswith(BUILTIN):
            print(
                f"note: model.{field} is the lab's: real engines are read by their own file (docs/install.md)"
            )
    for note in plan_notes(plan):
        print(f"note: {note}")
    return 1 if faults else 0


def _prompt_faults(model: ModelIdentity, folder: Path) -> list[str]:
    """What is wrong with the files by which prompts become tokens; each is tried beside the builtin other."""
    faults = []
    for field, name, why_not in (
        ("tokenizer", model.tokenizer, _why_no_tokenizer),
        ("chat_template", model.chat_template, _why_no_template),
    ):
        try:
            why = why_not(PromptEncoder.load(**{field: name}, base_dir=folder))
        except PromptAssetError as error:
            why = str(error)
        except Exception as error:  # whatever the libraries raise, and the expressions of a template
            why = f"loads and cannot be used ({type(error).__name__}: {error}); {_THE_MODELS_OWN}"
        if why:
            faults.append(f"model.{field}: {why}")
    return faults


def _why_no_tokenizer(encoder: PromptEncoder) -> str:
    """Why one that loads is of no use; empty: it is."""
    tokens = [encoder.encode(word, rendered=True).tolist() for word in _WORDS]
    for word, ids in zip(_WORDS, tokens, strict=True):
        if not ids:
            return f"gives no tokens for {word!r}; {_THE_MODELS_OWN}"
    if tokens[0] == tokens[1]:
        return f"gives {' and '.join(map(repr, _WORDS))} the same tokens; {_THE_MODELS_OWN}"
    return ""


def _why_no_template(encoder: PromptEncoder) -> str:
    """As `_why_no_tokenizer`."""
    told = [encoder.render_chat([{"role": "user", "content": word}]) for word in _WORDS]
    if not all(text.strip() for text in told):
        return f"renders a conversation to nothing; {_THE_MODELS_OWN}"
    if told[0] == told[1]:
        return f"renders every conversation the same, without what was said; {_THE_MODELS_OWN}"
    if any(word not in text for word, text in zip(_WORDS, told, strict=True)):
        return f"leaves out words of a message; {_THE_MODELS_OWN}"
    return ""


def _assign(options: argparse.Namespace) -> int:
    try:
        before = decode_plan(options.file.read_bytes())
        after = assign_text(before, reuse=options.reuse)
        if after != before:
            disk = LocalDisk()
            remove_leftovers(disk, disk.followed(options.file), writer=_WRITER)
            replace_file(disk, options.file, after.encode(), writer=_WRITER)
    except (OSError, PlanError) as error:
        return _refused(options.file, error)
    old = {worker.id: worker for worker in parse_plan(before, allow_unassigned=True).workers}
    new = [worker for worker in parse_plan(after).workers if worker != old[worker.id]]
    for worker in new:
        print(f"{worker.id}: table {worker.table}, slot {worker.slot}")
    if not new:
        print("every worker already has a table and a slot")
    return 0


def _refused(path: Path, error: OSError | PlanError) -> int:
    if isinstance(error, OSError):
        print(f"{path}: {error.strerror or error}", file=sys.stderr)
        return 2
    print(error, file=sys.stderr)
    return 1
