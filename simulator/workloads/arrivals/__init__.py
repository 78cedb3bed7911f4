"""Arrival processes, one a file, and the two loops that give a workload's turns their times."""
