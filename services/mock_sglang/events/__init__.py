"""What leaves over ZMQ, and the load that several faces tell."""
