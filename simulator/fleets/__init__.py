"""Fleets to simulate: the paper's, a family to scale, and any plan of the product."""

from simulator.fleets.load import load_fleet
from simulator.fleets.options import FleetOptions

__all__ = ["FleetOptions", "load_fleet"]
