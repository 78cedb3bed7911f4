"""What a router says: one JSON object a line, on standard output."""

import json
import time


def say(event: str, **fields: object) -> None:
    """Writes one line at once."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(json.dumps({"timestamp": stamp, "event": event, **fields}), flush=True)
