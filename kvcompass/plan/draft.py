"""The first half of parsing: TOML text -> fields of the right type, with faults for all others."""

import tomllib
from dataclasses import dataclass, field
from typing import Any, Final

from kvcompass.errors import PlanError
from kvcompass.plan import sections
from kvcompass.plan.faults import Faults
from kvcompass.plan.values import BadValueError
from kvcompass.spelling import meant_by, unknown_key

Entry = dict[str, Any]
"""One section read: every field of it is present; a field that was missing or bad is None."""

Matrix = dict[str, dict[str, float | None] | None]
"""Latencies by region names as written; None where a row or a value was bad."""

_TABLES: Final = {
    "fleet": sections.FLEET,
    "model": sections.MODEL,
    "lengths": sections.LENGTHS,
    "index": sections.INDEX,
    "routing": sections.ROUTING,
}
_OPTIONAL_TABLES: Final = frozenset({"lengths", "index", "routing"})
_ARRAYS: Final = {
    "region": sections.REGION,
    "edge": sections.EDGE,
    "unit": sections.UNIT,
    "worker": sections.WORKER,
    "sharing_group": sections.SHARING_GROUP,
}
_OPTIONAL_ARRAYS: Final = frozenset({"sharing_group"})


@dataclass(slots=True)
class Draft:
    """A plan file whose fields have the right types; nothing is checked across sections yet."""

    tables: dict[str, Entry] = field(default_factory=dict)
    arrays: dict[str, list[Entry]] = field(default_factory=dict)
    wan_ms: Matrix | None = None


def read_draft(text: str, faults: Faults) -> Draft:
    """Read a plan file, adding one fault for each value that cannot be taken.

    Raises:
        PlanError: The text is no TOML; nothing else can be said about it then.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError((("toml", f"not valid TOML: {error}"),)) from error
    known = [*_TABLES, *_ARRAYS, "wan_ms"]
    for name in document:
        if name not in known:
            close = meant_by(name, known)
            meant = f"unknown section, did you mean {close}?" if close else "unknown section;"
            faults.add(name, f"{meant} a plan has {', '.join(known)}")
    draft = Draft()
    for name, fields in _TABLES.items():
        draft.tables[name] = _table(document, name, fields, faults)
    for name, fields in _ARRAYS.items():
        draft.arrays[name] = _array(document, name, fields, faults)
    draft.wan_ms = _wan(document, faults)
    return draft


def _table(document: dict[str, Any], name: str, fields: sections.Fields, faults: Faults) -> Entry:
    if name not in document and name not in _OPTIONAL_TABLES:
        faults.add(name, f"missing section; add [{name}]")
        return dict.fromkeys(fields)
    value = document.get(name, {})
    if not isinstance(value, dict):
        faults.add(name, f"expected a table [{name}]")
        return dict.fromkeys(fields)
    return _entry(value, name, fields, faults)


def _array(document: dict[str, Any], name: str, fields: sections.Fields, faults: Faults) -> list[Entry]:
    value = document.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        faults.add(name, f"expected one [[{name}]] table for each")
        return []
    if not value and name not in _OPTIONAL_ARRAYS:
        faults.add(name, f"missing; a fleet has at least one [[{name}]]")
    entries = [_entry(item, f"{name}[{i}]", fields, faults) for i, item in enumerate(value)]
    for i, entry in enumerate(entries):
        if entry["id"] is not None:
            faults.name(f"{name}[{i}]", entry["id"])
    return entries


def _entry(value: dict[str, Any], path: str, fields: sections.Fields, faults: Faults) -> Entry:
    meant = {meant_by(name, fields) for name in value if name not in fields}
    for name in value:
        if name not in fields:
            first = faults.first_of(path.partition("[")[0])
            faults.add(f"{path}.{name}", unknown_key(name, fields, list_known=first))
    entry: Entry = {}
    for name, spec in fields.items():
        if name in value:
            entry[name] = _value(value[name], f"{path}.{name}", spec, faults)
        elif spec.default is sections.REQUIRED:
            if name not in meant:
                faults.add(f"{path}.{name}", "missing")
            entry[name] = None
        else:
            entry[name] = spec.default
    return entry


def _value(value: object, path: str, spec: sections.Field, faults: Faults) -> Any:
    try:
        return spec.read(value)
    except BadValueError as error:
        faults.add(path, str(error))
        return None


def _wan(document: dict[str, Any], faults: Faults) -> Matrix | None:
    if "wan_ms" not in document:
        faults.add(
            "wan_ms", "missing section; add [wan_ms] with one-way latencies, wan_ms.FROM = { TO = 80.0 }"
        )
        return None
    rows = document["wan_ms"]
    if not isinstance(rows, dict):
        faults.add("wan_ms", "expected a table of tables, wan_ms.FROM = { TO = 80.0 }")
        return None
    matrix: Matrix = {}
    for origin, row in rows.items():
        if not isinstance(row, dict):
            faults.add(f"wan_ms.{origin}", "expected a table { TO = 80.0 } of one-way latencies in ms")
            matrix[origin] = None
            continue
        matrix[origin] = {
            region: _value(value, f"wan_ms.{origin}.{region}", sections.WAN_MS, faults)
            for region, value in row.items()
        }
    return matrix
