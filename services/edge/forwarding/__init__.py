"""A request on its way: attempts, hops, the connection to an engine or a peer edge, and how attempts end."""
