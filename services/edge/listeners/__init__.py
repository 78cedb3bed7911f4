"""Where requests arrive: clients on the public listener, edges of other regions on the peer listener."""
