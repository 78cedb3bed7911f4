"""Checks a demo's figures against what the demo promises: `python -m lab.acceptance out/demo.json`."""

import json
import sys
from pathlib import Path
from typing import Any, Final

_LEAST_LONG_SHARE: Final = 0.30
"""Share of requests whose prefix, as long as the longest first length, an earlier request had."""


def broken_promises(figures: dict[str, Any]) -> list[str]:
    """One sentence for each promise that the figures break; empty when all are kept."""
    policies = figures["policies"]
    ours, alone = policies["kvcompass"], policies["regional"]
    broken = [
        f"{name}: {report['errors']} requests failed" for name, report in policies.items() if report["errors"]
    ]
    if ours["cross_region_hits"] < 1:
        broken.append("kvcompass: no request was served better from another region's cache")
    if ours["reused_tokens"] <= alone["reused_tokens"]:
        broken.append(
            f"kvcompass reused {ours['reused_tokens']} tokens, each region alone {alone['reused_tokens']}"
        )
    share = figures["run"]["shares"]["shared_part"]
    if share < _LEAST_LONG_SHARE:
        broken.append(f"only {share:.0%} of requests share a long prefix")
    return broken


def main() -> int:
    """Exit status 1 when a promise is broken, 2 when there is no such file."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo.json")
    try:
        broken = broken_promises(json.loads(path.read_text("utf-8")))
    except OSError as error:
        print(f"cannot read {path}: {error.strerror}; run `make demo` first", file=sys.stderr)
        return 2
    for sentence in broken:
        print(f"{path}: {sentence}", file=sys.stderr)
    if not broken:
        print(f"{path}: every promise of the demo is kept")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
