"""The `kvcompass` command: plans, keys, the lab and the simulator."""
