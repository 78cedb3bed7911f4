"""A request as an edge sees it: its bytes and headers, who asks, for what prompt, and how errors look."""
