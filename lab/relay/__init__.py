"""A wide-area network on loopback: a relay that holds bytes back for as long as they would travel."""
