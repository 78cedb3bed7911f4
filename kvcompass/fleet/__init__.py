"""What one edge knows of every worker: load and its age, own work in flight, belief, suspicion.

The view is imported from its own module: it brings a compiler, and a worker agent only tells load.
"""

from kvcompass.fleet.load import LoadVerdict, RegionLoad, WorkerLoad, WorkerState

__all__ = ["LoadVerdict", "RegionLoad", "WorkerLoad", "WorkerState"]
