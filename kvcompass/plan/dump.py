"""Plan -> TOML text that parses back to an equal plan."""

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from kvcompass.plan.model import Plan, Worker
from kvcompass.plan.sections import UNASSIGNED

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED: Final = frozenset('"\\') | {chr(code) for code in (*range(0x20), 0x7F)}


def dump_plan(plan: Plan) -> str:
    """Return the plan as TOML, every field written out; `parse_plan` gives an equal plan again."""
    blocks = [
        _block("[fleet]", {"name": plan.fleet, "plan_version": plan.plan_version}),
        _block("[model]", asdict(plan.model)),
        _block("[lengths]", asdict(plan.lengths)),
        _block("[index]", asdict(plan.index)),
        _block("[routing]", asdict(plan.routing)),
        *(_block("[[region]]", {"id": region}) for region in plan.regions),
        _wan(plan),
        *(_block("[[sharing_group]]", asdict(group)) for group in plan.sharing_groups),
        *(_block("[[edge]]", asdict(edge)) for edge in plan.edges),
        *(_block("[[unit]]", asdict(unit)) for unit in plan.units),
        *(_block("[[worker]]", _worker_fields(worker)) for worker in plan.workers),
    ]
    return "\n".join(blocks)


def _worker_fields(worker: Worker) -> dict[str, Any]:
    fields = asdict(worker)
    if worker.table == UNASSIGNED:
        del fields["table"], fields["slot"]
    return {name: value for name, value in fields.items() if value is not None}


def _wan(plan: Plan) -> str:
    rows = []
    for origin, row in zip(plan.regions, plan.wan_ms, strict=True):
        cells = (f"{_key(region)} = {_value(ms)}" for region, ms in zip(plan.regions, row, strict=True))
        rows.append(f"{_key(origin)} = {{ {', '.join(cells)} }}")
    return _lines("[wan_ms]", rows)


def _block(header: str, fields: dict[str, Any]) -> str:
    return _lines(header, (f"{name} = {_value(value)}" for name, value in fields.items()))


def _lines(header: str, lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in (header, *lines))


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: str | float | tuple[int, ...]) -> str:
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(repr, value))}]"
    return repr(value)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if character in _ESCAPED else character
