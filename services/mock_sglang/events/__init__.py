"""What leaves over ZMQ."""
