"""Errors of the simulator."""

from kvcompass.errors import KVCompassError


class SimulationError(KVCompassError):
    """A run cannot be made, or broke a law."""
