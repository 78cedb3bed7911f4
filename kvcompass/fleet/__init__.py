"""What one edge knows of every worker: load and its age, own work in flight, belief, suspicion."""

from kvcompass.fleet.load import LoadVerdict, RegionLoad, WorkerLoad, WorkerState
from kvcompass.fleet.view import FleetView, Standing

__all__ = ["FleetView", "LoadVerdict", "RegionLoad", "Standing", "WorkerLoad", "WorkerState"]
