"""Reads the samples of a few names out of a page in Prometheus' text format."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.worker_agent.engine_client import MalformedError

SAMPLES_MOST: Final = 16_384
"""Of the wanted names, in one page."""
LINE_BYTES: Final = 64 << 10
"""Of the labels of one sample; a hundred times what engines write."""
LABEL: Final = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*+)="((?:[^"\\]|\\.)*+)"')
"""Tried only where a name begins, and never twice: the time is that of one reading."""


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
            name, labels = line[1].decode(), line[2] or b""
            if len(found) == SAMPLES_MOST:
                raise MalformedError(f"/metrics has more than {SAMPLES_MOST} samples", field=name)
            if len(labels) > LINE_BYTES:
                raise MalformedError(
                    f"/metrics: {name} has labels longer than {LINE_BYTES} bytes", field=name
                )
            try:
                sample = Sample(name, dict(LABEL.findall(labels.decode())), float(line[3]))
            except ValueError as error:
                raise MalformedError(f"/metrics: {name} is no sample", field=name) from error
            found.append(sample)
        return found
