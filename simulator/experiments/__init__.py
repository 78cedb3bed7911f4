"""Runs, sweeps over many of them, and the comparison that the documents show."""
