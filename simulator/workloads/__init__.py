"""Workloads: what is asked, where it starts and when it arrives."""

from simulator.workloads.build import (
    build_source,
    build_workload,
    capacity_of,
    read_beginning,
    recorded_rate_per_s,
)
from simulator.workloads.capacity import Capacity
from simulator.workloads.named import WORKLOADS
from simulator.workloads.options import Arrivals, WorkloadOptions, data_folder

__all__ = [
    "WORKLOADS",
    "Arrivals",
    "Capacity",
    "WorkloadOptions",
    "build_source",
    "build_workload",
    "capacity_of",
    "data_folder",
    "read_beginning",
    "recorded_rate_per_s",
]
