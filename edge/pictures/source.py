"""A picture as a request names it, in four ways: a file, base64, a data URL, an http(s) URL.

All end as the bytes of a picture with its true media type. Nothing is decoded here.
"""

import asyncio
import base64
import binascii
import re

from chassis.errors import Reason
from cohabit.common.v1 import common_pb2
from edge.body import MIB, Room
from edge.errors import bad_field
from edge.pictures.fetch import Fetch, is_url
from edge.pictures.upload import MOST_FILE_BYTES, Upload
from imaging.refusals import invalid
from imaging.sniff import kind_of, seen_in
from imaging.values import Bounds

WIDEST = Bounds(max_px=16_384 * 16_384, max_bytes=MOST_FILE_BYTES)
"""The most that any service may be configured to take; which less each takes, it says itself."""
_AT_ONCE_CHARS = 256 * 1024
_DATA_URL = re.compile(r"data:[^,]{0,200}?(?P<base64>;base64)?,", re.IGNORECASE)
_OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]{0,20}:", re.IGNORECASE)


class PictureSource:
    """Reads the pictures of one request, which together hold at most 80 MiB."""

    def __init__(self, fetch: Fetch, room: Room) -> None:
        self._fetch = fetch
        self._room = room
        self._held_bytes = 0

    async def media(self, value: str | Upload, param: str) -> common_pb2.Media:
        """The picture that `value` names. Raises Fault, its `param` the field at fault."""
        data = await self._bytes(value, param)
        kind = kind_of(data)
        if kind is None:
            raise invalid(param, seen_in(data))
        self._held_bytes += len(data)
        if self._held_bytes > MOST_FILE_BYTES:
            message = (
                f"The pictures of one request hold at most {MOST_FILE_BYTES // MIB} MiB; send less."
            )
            raise bad_field(param, message, Reason.PAYLOAD_TOO_LARGE)
        return common_pb2.Media(data=data, mime_type=kind.value)

    async def _bytes(self, value: str | Upload, param: str) -> bytes:
        if isinstance(value, Upload):
            return value.data
        if is_url(value):
            return await self._fetch.picture(value, param, self._room.hold)
        if len(value) <= _AT_ONCE_CHARS:
            return from_words(value, param)
        return await asyncio.to_thread(from_words, value, param)


def from_words(text: str, param: str) -> bytes:
    """The bytes of a data URL, or of plain base64. Raises Fault."""
    coded = text
    if match := _DATA_URL.match(text):
        if match["base64"] is None:
            raise bad_field(param, f"The data URL in `{param}` must be of base64.")
        coded = text[match.end() :]
    elif _OTHER_URL.match(text):
        message = f"`{param}` must be base64, a data URL, or a URL of http or https."
        raise bad_field(param, message)
    try:
        return base64.b64decode("".join(coded.split()), validate=True)
    except (binascii.Error, ValueError):
        message = f"`{param}` is neither a URL nor valid base64; send one of the two."
        raise bad_field(param, message, Reason.INVALID_IMAGE) from None
