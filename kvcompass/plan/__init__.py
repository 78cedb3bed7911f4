"""The plan of a fleet: model, parsing with one message a fault, slots given append-only, layout digest."""

from kvcompass.plan.assign import assign_text
from kvcompass.plan.dump import dump_plan
from kvcompass.plan.parse import parse_plan

__all__ = ["assign_text", "dump_plan", "parse_plan"]
