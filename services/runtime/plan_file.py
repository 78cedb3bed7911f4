"""Reads a plan from a file; the core parses it."""

from pathlib import Path

from kvcompass.plan.model import Plan
from kvcompass.plan.parse import decode_plan, parse_plan
from services.runtime.settings import SettingsError


def load_plan(path: Path) -> Plan:
    """Errors: SettingsError when the file cannot be read, PlanError with every fault."""
    try:
        return parse_plan(decode_plan(path.read_bytes()))
    except OSError as error:
        raise SettingsError(f"cannot read plan {path}: {error.strerror}", field="plan") from error
