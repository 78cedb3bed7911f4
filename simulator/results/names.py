"""What policies are called for people."""

from typing import Final

_TITLES: Final = {
    "kvcompass": "KVCompass",
    "planetserve": "PlanetServe",
    "skywalker": "SkyWalker",
    "dynamo": "Dynamo",
    "chord": "Chord",
    "oracle": "Oracle",
}
"""Where it is not the command line's name."""


def title(policy: str, is_bound: bool = False) -> str:
    """Return a policy's name in tables and plots."""
    name = _TITLES.get(policy, policy.replace("_", " ").replace("-", " "))
    return f"{name} (bound)" if is_bound else name
