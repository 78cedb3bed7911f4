"""What one edge knows of every worker: load and its age, own work in flight, belief, suspicion.

The view is imported from its module: it brings a compiler, which a worker agent that only tells load must not load.
"""

from kvcompass.fleet.load import LoadVerdict, RegionLoad, WorkerLoad, WorkerState

__all__ = ["LoadVerdict", "RegionLoad", "WorkerLoad", "WorkerState"]
