"""The pauses of one connection of a process."""

import random

from kvcompass.roles.backoff import Backoff


def new_backoff() -> Backoff:
    """A backoff with jitter of its own: who broke off together does not come back together."""
    return Backoff(random.Random())  # noqa: S311 - jitter is no secret
