"""The index's replication under faults: its own state machines, a virtual clock, a seed.

See `docs/convergence.md`. `python -m simulator.convergence --help`.
"""
