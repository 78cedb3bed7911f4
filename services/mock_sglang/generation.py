"""What is asked of an engine, whichever route it came by."""

import msgspec
import numpy as np
from numpy.typing import NDArray


class Bootstrap(msgspec.Struct, frozen=True):
    """Where the halves of a prefill-decode pair meet for one request."""

    host: str
    port: int
    room: int


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What any of the routes asks for, after checking. `limit`: answer tokens at most."""

    id: str
    prompt: NDArray[np.int32]
    limit: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    model: str = ""
    dp_rank: int | None = None
    """The rank that is asked for."""
    bootstrap: Bootstrap | None = None
    scope: str = ""
    """What separates its cache from that of equal tokens."""
    workload: str = ""
    """Kind and turn of the request, which the eviction policy `wa` looks at."""
