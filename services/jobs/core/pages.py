"""Tokens of pages: where a listing goes on, and of which listing it is one.

    base64url( big-endian: seq of the last job shown, 8 bytes | checksum of the listing, 4 bytes )

They are opaque, not secret: a forged one shows its forger nothing but his own jobs.
"""

import binascii
import struct
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from services.jobs.core.values import Job

_FORM = struct.Struct(">QI")


class InvalidToken(Exception):
    """The token was made by no listing, or by another one."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Whose jobs, of which states and kinds; an empty filter matches all."""

    owner: str
    states: frozenset[int] = frozenset()
    kinds: frozenset[int] = frozenset()

    def wants(self, job: Job) -> bool:
        """The job belongs into it."""
        return (
            job.owner == self.owner
            and (not self.states or job.state in self.states)
            and (not self.kinds or job.kind in self.kinds)
        )

    def checksum(self) -> int:
        """Differs, almost surely, from that of another listing."""
        return zlib.crc32(repr((self.owner, sorted(self.states), sorted(self.kinds))).encode())


def page(
    newest_first: Iterable[Job], listing: Listing, size: int, token: str
) -> tuple[list[Job], str]:
    """One page, and the token of the next; empty: it was the last. Raises InvalidToken."""
    below = _seq_of(token, listing) if token else None
    wanted = (
        job for job in newest_first if listing.wants(job) and (below is None or job.seq < below)
    )
    shown: list[Job] = []
    for job in wanted:
        if len(shown) == size:
            return shown, _token(shown[-1].seq, listing)
        shown.append(job)
    return shown, ""


def _token(seq: int, listing: Listing) -> str:
    return urlsafe_b64encode(_FORM.pack(seq, listing.checksum())).decode()


def _seq_of(token: str, listing: Listing) -> int:
    try:
        seq, checksum = _FORM.unpack(urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error, struct.error):
        raise InvalidToken from None
    if checksum != listing.checksum():
        raise InvalidToken
    return int(seq)
