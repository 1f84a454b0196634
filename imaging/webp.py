"""The size of a WebP file from its header: the decoder takes the canvas before it can be asked.

RFC 9649: 2.5 (VP8), 2.6 (VP8L) and 2.7 (VP8X).
"""

import struct

from imaging.refusals import Unreadable


def size_px(data: bytes) -> tuple[int, int]:
    """Width and height of the canvas."""
    name = data[12:16]
    try:
        if name == b"VP8X":
            low = struct.unpack_from("<HBHB", data, 24)
            return low[0] + (low[1] << 16) + 1, low[2] + (low[3] << 16) + 1
        if name == b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        if name == b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    except struct.error:
        raise Unreadable("is WebP, cut short in its header") from None
    raise Unreadable("is WebP without a picture in it")
