"""Reads the samples of a few names out of a page in Prometheus' text format."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.worker_agent.engine_client import MalformedError

SAMPLES_MOST: Final = 16_384
"""Of the wanted names, in one page."""
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line. Label values keep their backslashes."""

    name: str
    labels: Mapping[str, str]
    value: float


class Exposition:
    """Finds the samples of a closed set of names. All other lines, nearly the whole page, are skipped."""

    def __init__(self, names: Sequence[str]) -> None:
        wanted = "|".join(re.escape(name) for name in names)
        self._line = re.compile(rf"^({wanted})(?:\{{(.*)\}})?[ \t]+(\S+)".encode(), re.MULTILINE)

    def samples(self, page: bytes) -> list[Sample]:
        """Errors: MalformedError naming the metric that has no number, or too many samples."""
        found: list[Sample] = []
        for line in self._line.finditer(page):
            name = line[1].decode()
            if len(found) == SAMPLES_MOST:
                raise MalformedError(f"/metrics has more than {SAMPLES_MOST} samples", field=name)
            try:
                value = float(line[3])
                labels = dict(_LABEL.findall((line[2] or b"").decode()))
            except ValueError as error:
                raise MalformedError(f"/metrics: {name} is no sample", field=name) from error
            found.append(Sample(name, labels, value))
        return found
