"""The demo's promises are checked, each by itself."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lab import acceptance

KEPT: dict[str, Any] = {
    "policies": {
        "kvcompass": {"errors": 0, "cross_region_hits": 9, "reused_tokens": 700},
        "regional": {"errors": 0, "cross_region_hits": 0, "reused_tokens": 500},
        "round_robin": {"errors": 0, "cross_region_hits": 0, "reused_tokens": 300},
    },
    "run": {"shares": {"shared_part": 0.4}},
}


def test_kept_promises_are_silent() -> None:
    assert acceptance.broken_promises(KEPT) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("policies", "round_robin", "errors"), 2, "round_robin: 2 requests failed"),
        (("policies", "kvcompass", "cross_region_hits"), 0, "another region's cache"),
        (("policies", "kvcompass", "reused_tokens"), 500, "each region alone 500"),
        (("run", "shares", "shared_part"), 0.2, "only 20% of requests"),
    ],
)
def test_each_broken_promise_is_named(path: tuple[str, ...], value: object, words: str) -> None:
    figures = copy.deepcopy(KEPT)
    at = figures
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    (sentence,) = acceptance.broken_promises(figures)
    assert words in sentence


def test_the_exit_status_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = tmp_path / "demo.json"
    monkeypatch.setattr(sys, "argv", ["acceptance", str(figures)])
    assert acceptance.main() == 2
    figures.write_text(json.dumps(KEPT))
    assert acceptance.main() == 0
    figures.write_text(json.dumps(KEPT | {"run": {"shares": {"shared_part": 0.0}}}))
    assert acceptance.main() == 1
