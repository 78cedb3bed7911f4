"""The engines behind the face: one a data-parallel rank, and what this process does for a request."""
