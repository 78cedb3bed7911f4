"""Puts routers through their paces in network namespaces: the same program, measured from outside."""
