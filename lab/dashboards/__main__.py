"""`python -m lab.dashboards [--check]`: dashboard, alert rules and docs/metrics.md, written anew."""

import argparse
import sys
from pathlib import Path

from lab.dashboards.documents import documents


def main() -> int:
    """Exit code 1 when `--check` finds a file that differs."""
    parser = argparse.ArgumentParser(prog="python -m lab.dashboards", description=__doc__)
    parser.add_argument("--into", type=Path, default=Path(), help="root of the repository; default: here")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file would change")
    options = parser.parse_args()
    old = [
        (path, text)
        for path, text in ((options.into / name, text) for name, text in documents().items())
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path, text in old:
        if options.check:
            sys.stderr.write(f"{path} differs from its code: python -m lab.dashboards writes it\n")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path}\n")
    return 1 if options.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
