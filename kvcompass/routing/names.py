"""The names of the policies, for settings and commands."""

from typing import Final, Literal, get_args

PolicyName = Literal["kvcompass", "regional", "round_robin"]
POLICY_NAMES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)
"""In the order in which they are compared."""
