"""`python -m simulator.convergence`."""

import sys

from simulator.convergence.command import main

if __name__ == "__main__":
    sys.exit(main())
