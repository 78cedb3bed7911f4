"""The worker agent: beside an engine, it tells what the engine holds and how busy it is."""
