"""Why a stream to another component ended, in a line: each new reason is logged once."""

import grpc.aio


def reason_of(error: Exception) -> str:
    """Return why a stream ended, in a line."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
