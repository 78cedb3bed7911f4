"""The example plan that the repository ships, for tests that need a whole and ordinary fleet."""

from pathlib import Path

from kvcompass.plan import parse_plan

EXAMPLE_FILE = Path(__file__).parents[2] / "deploy" / "plans" / "three-regions.toml"
EXAMPLE_TEXT = EXAMPLE_FILE.read_text("utf-8")
THREE_REGIONS = parse_plan(EXAMPLE_TEXT)
