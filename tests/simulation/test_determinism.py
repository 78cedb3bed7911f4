"""The same seed gives the same bytes, in another process and with another hash seed too."""

import os
import subprocess
import sys

from simulator.fleets import FleetOptions, load_fleet
from simulator.product import product_rival
from tests.simulation.runs import fingerprint, simulated


def main() -> str:
    fleet = load_fleet("testbed-11", FleetOptions(shards=2))
    return fingerprint(simulated(fleet, product_rival("kvcompass"), count=150, rate_per_s=40, seed=5))


def test_the_same_seed_gives_the_same_bytes() -> None:
    first = main()
    assert main() == first
    for hash_seed in ("0", "4711"):
        told = subprocess.run(
            [sys.executable, "-c", "from tests.simulation.test_determinism import main; print(main())"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=110,
        )
        assert told.stdout.strip() == first
