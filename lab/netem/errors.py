"""What keeps a router from doing its work."""

from kvcompass.errors import KVCompassError


class RouterError(KVCompassError):
    """The router cannot start or obey; the message says what to change."""
