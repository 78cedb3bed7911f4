"""Shell 2: thin services that drive the core with sockets and real clocks."""
