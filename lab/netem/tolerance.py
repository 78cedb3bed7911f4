"""How far a measured round trip may be from the one asked for, wherever a lab is judged."""

from typing import Final

LEAST_MS: Final = 3.0
"""What a busy machine's wake-ups add, on the shortest of ways too."""
SHARE: Final = 0.05


def allowed_error_ms(round_trip_ms: float) -> float:
    """3 ms or 5 %, whichever is more."""
    return max(LEAST_MS, SHARE * round_trip_ms)
