"""Writes the settings files of the lab's processes: plain TOML, nested values inline."""

import json
from collections.abc import Mapping, Sequence

Value = str | bool | int | float | Sequence["Value"] | Mapping[str, "Value"]


def dump_toml(values: Mapping[str, Value]) -> str:
    """One `key = value` a line, in the order of the mapping."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in values.items())


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + " }"
    return "[\n" + "".join(f"  {_value(each)},\n" for each in value) + "]"
