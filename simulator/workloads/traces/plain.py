"""A form of one's own: JSON lines, one request a line, that anyone can write."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from simulator.request import Request
from simulator.streams import array_stream
from simulator.workloads.text_tokens import Encode
from simulator.workloads.tokens import TOKENS_MOST, VOCABULARY, Tokens, TokenSource
from simulator.workloads.traces.regions import Regions
from simulator.workloads.traces.row import Row, json_rows
from simulator.workloads.traces.trace import Entry, InOrder
from simulator.workloads.workload import Turn

_Part = str | int | tuple[str, int]
_NAMES: Final = 1_024
"""Contents that are kept; one that has been dropped is made again."""
_FIELDS: Final = ("at_ms", "prompt", "answer", "region", "tenant", "category", "family")


def read_plain(
    path: Path, regions: Regions, names: Sequence[str], tokens: TokenSource, encode: Encode
) -> Iterator[Entry]:
    """Read `prompt` and `answer`; optionally `at_ms`, `region` (a name of the plan), `tenant`, `category`,
    `family`.

    A prompt or an answer is a text, or a list of parts: a text, a number (so many tokens that occur nowhere
    else, new at every mention) or `["name", n]` (the first n tokens of the content of that name, the same
    wherever it is named). So what a later turn repeats, its answer too, must have names. An answer may also
    be just a number.

    Raises:
        TraceError: With file, line and field.
    """
    times, content = InOrder(), _Content(regions, tokens, encode)
    for row in json_rows(path):
        for field in row.fields:
            if field not in _FIELDS:
                raise row.error(field, f"unknown; a request has {', '.join(_FIELDS)}")
        at_us = None
        if "at_ms" in row:
            at_us = times.check(row, "at_ms", round(1_000 * row.number("at_ms")))
        line = _Line(
            _region(row, names) if "region" in row else None,
            row.integer("tenant") if "tenant" in row else 0,
            row.text("category") if "category" in row else "",
            row.text("family") if "family" in row else "",
            _parts(row, "prompt"),
            _parts(row, "answer"),
            content,
        )
        yield Entry(at_us, 1, line.begin)


def _region(row: Row, names: Sequence[str]) -> int:
    name = row.text("region")
    if name not in names:
        raise row.error("region", f"{name!r} is no region of the fleet: {', '.join(names)}")
    return names.index(name)


def _parts(row: Row, field: str) -> list[_Part]:
    value = row.value(field)
    if isinstance(value, str) or (field == "answer" and isinstance(value, int)):
        value = [value]
    if not isinstance(value, list) or not value:
        raise row.error(field, f"{value!r:.80} is neither a text nor a list of parts")
    return [_part(row, field, part) for part in value]


def _part(row: Row, field: str, part: object) -> _Part:
    if isinstance(part, str) and part:
        return part
    if type(part) is int and 0 < part < TOKENS_MOST:
        return part
    if (
        isinstance(part, list)
        and len(part) == 2
        and isinstance(part[0], str)
        and type(part[1]) is int
        and 0 < part[1] < TOKENS_MOST
    ):
        return part[0], part[1]
    raise row.error(
        field,
        f'{part!r:.80} is no part: a text, a number of tokens up to {TOKENS_MOST - 1:,}, or ["name", tokens]',
    )


class _Content:
    """Makes what parts stand for."""

    def __init__(self, regions: Regions, tokens: TokenSource, encode: Encode) -> None:
        self.regions = regions
        self._tokens = tokens
        self._encode = encode
        self._named = lru_cache(_NAMES)(_named)

    def of(self, parts: list[_Part]) -> Tokens:
        made = [self._part(part) for part in parts]
        return made[0] if len(made) == 1 else np.concatenate(made)

    def _part(self, part: _Part) -> Tokens:
        if isinstance(part, int):
            return self._tokens.fresh(part)
        if isinstance(part, str):
            return self._encode(part)
        name, length = part
        return self._named(name, 1 << (length - 1).bit_length())[:length]


@dataclass(frozen=True, slots=True)
class _Line:
    region: int | None
    tenant: int
    category: str
    family: str
    prompt: list[_Part]
    answer: list[_Part]
    content: _Content

    def begin(self, id_: int, arrives_us: int) -> Turn:
        prompt, answer = self.content.of(self.prompt), self.content.of(self.answer)
        region = self.content.regions.next() if self.region is None else self.region
        return Turn(Request(id_, arrives_us, region, prompt, answer, self.tenant, self.category, self.family))


def _named(name: str, length: int) -> Tokens:
    """Return a name's content; shorter ones are its beginnings."""
    return array_stream(0, f"workload.named {name}").integers(0, VOCABULARY, length, np.int32)
