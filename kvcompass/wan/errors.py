"""What is wrong with a WAN profile, or with a change to one of its links."""

from kvcompass.errors import KVCompassError


class WanError(KVCompassError):
    """A profile or a link is faulty. `field` is its TOML path, and the message begins with it."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(f"{field}: {message}", field=field)
