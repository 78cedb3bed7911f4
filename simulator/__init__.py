"""Shell 1: the product's state machines, and its rivals, on a virtual clock."""
