"""From what became of each request to figures, and from the figures of several seeds to what may be said."""
