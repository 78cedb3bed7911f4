"""A fleet of real processes that is broken in every way, under load, and watched until its views are true."""
