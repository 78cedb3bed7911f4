"""Where the load of an engine is heard: one file a source, and the choice among them."""
