"""`make compose-test`: puts the lab of deploy/compose through its paces, and writes what it saw."""
