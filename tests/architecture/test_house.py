"""Rules of the house that no linter checks."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kvcompass", "services", "simulator", "lab", "cli", "bench")
FILES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "wire/pb" not in str(path)
)


def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    return [ROOT / name for name in listing.stdout.splitlines()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert len(docstring) >= 15, "say in one line what this module is for"


def test_nothing_is_called_utils() -> None:
    banned = re.compile(r"(utils?|helpers?|misc|common)\.py$")
    assert [str(path) for path in FILES if banned.search(path.name)] == []


def test_the_required_top_level_exists() -> None:
    for name in (
        "pyproject.toml",
        "Makefile",
        "README.md",
        "LICENSE",
        "proto",
        "services/edge",
        "services/maintenance",
    ):
        assert (ROOT / name).exists(), name


def test_every_relative_link_of_the_docs_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in (path for path in tracked() if path.suffix == ".md" and path.exists())
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_core_reads_no_clock_and_no_global_randomness() -> None:
    banned = re.compile(
        r"\b(time\.(time|monotonic|perf_counter)|datetime\.now|random\.(random|randint|choice)|np\.random\.(rand|seed))\b"
    )
    guilty = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in FILES
        if path.is_relative_to(ROOT / "kvcompass")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if banned.search(line)
    ]
    assert guilty == []
