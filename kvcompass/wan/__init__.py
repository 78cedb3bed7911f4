"""The fault vocabulary: what a wide-area link does to packets, in one language for labs and simulators."""

from kvcompass.wan.errors import WanError
from kvcompass.wan.link import LINK_FIELDS, Link, changed_link, read_link
from kvcompass.wan.parse import parse_profile
from kvcompass.wan.profile import Pair, WanProfile

__all__ = [
    "LINK_FIELDS",
    "Link",
    "Pair",
    "WanError",
    "WanProfile",
    "changed_link",
    "parse_profile",
    "read_link",
]
