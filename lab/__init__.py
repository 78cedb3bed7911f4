"""Shell 3: a multi-region fleet as local processes, a workload, and a report."""
