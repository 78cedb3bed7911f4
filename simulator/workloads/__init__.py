"""Workloads: what is asked, where it starts and when it arrives."""

from simulator.workloads.build import Arrivals, WorkloadOptions, build_source

__all__ = ["Arrivals", "WorkloadOptions", "build_source"]
