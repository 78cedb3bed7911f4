"""All rivals by name: a new one is its own file and a line here."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from simulator.rivals.central_directory import CENTRAL_DIRECTORY
from simulator.rivals.chord import CHORD
from simulator.rivals.clairvoyant import CLAIRVOYANT
from simulator.rivals.consistent_hash import CONSISTENT_HASH
from simulator.rivals.dynamo import DYNAMO
from simulator.rivals.least_loaded import LEAST_LOADED
from simulator.rivals.oracle import ORACLE
from simulator.rivals.planetserve import PLANETSERVE
from simulator.rivals.prefix_aware import PREFIX_AWARE
from simulator.rivals.random_choice import RANDOM
from simulator.rivals.skywalker import SKYWALKER
from simulator.router import Rival

RIVALS: Final[Mapping[str, Rival]] = MappingProxyType(
    {
        rival.name: rival
        for rival in (
            RANDOM,
            LEAST_LOADED,
            PREFIX_AWARE,
            CONSISTENT_HASH,
            CHORD,
            PLANETSERVE,
            CENTRAL_DIRECTORY,
            SKYWALKER,
            DYNAMO,
            ORACLE,
            CLAIRVOYANT,
        )
    }
)
"""In the order of reports: the simple ones, those of the paper, and the bounds last."""
