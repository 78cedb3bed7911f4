"""The HTTP face: bodies in, answers out, and what the engine tells of itself."""
