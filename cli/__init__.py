"""The `kvcompass` command: plans, keys and the lab."""
