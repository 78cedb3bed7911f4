"""The region's queue vector on a forwarded response: a header, base64 of the load message."""

import base64
import binascii

from kvcompass.errors import ProtocolError
from kvcompass.fleet.load import RegionLoad
from services.edge.requests.headers import LOAD_HEADER
from services.wire.load import decode_region_load, encode_region_load


def pack_load(load: RegionLoad) -> bytes:
    """Header value. About 60 bytes a worker."""
    return base64.b64encode(encode_region_load(load))


def unpack_load(value: str) -> RegionLoad:
    """Errors: ProtocolError."""
    try:
        return decode_region_load(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"not base64: {error}", field=LOAD_HEADER) from error
