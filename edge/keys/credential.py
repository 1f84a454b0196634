"""The API key of a request: where clients put it, and what is no key. Pure.

Headers alone, in the spellings that clients of such servers use. A key in a query or a cookie is
not looked at: queries are written into logs on their way, and cookies are sent by pages that never
saw the key.
"""

from collections.abc import Sequence

from chassis.errors import Fault, Reason

RawHeaders = Sequence[tuple[bytes, bytes]]
"""As ASGI has them: names in small letters."""

_BEARER = b"authorization"
_BARE = (b"x-api-key", b"api-key", b"x-rapid-api-key", b"secret")
NAMES = frozenset((_BEARER, *_BARE))
"""Headers that may hold a key."""


def credential_of(headers: RawHeaders) -> bytes | None:
    """The key that a request carries, known or not; None: it carries none. Raises Fault."""
    given = [(name, value) for name, value in headers if name in NAMES]
    if len({name for name, _ in given}) < len(given):
        raise invalid("The request has a header with an API key twice; send it once.")
    keys = {_key(name, value) for name, value in given}
    if len(keys) > 1:
        raise invalid("The request has two different API keys; send one of them.")
    return keys.pop() if keys else None


def without_credentials(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """What is handed on: nothing behind the gate can log or forward a key."""
    return [(name, value) for name, value in headers if name not in NAMES]


def _key(name: bytes, value: bytes) -> bytes:
    if name != _BEARER:
        return value
    scheme, _, key = value.partition(b" ")
    if scheme.lower() != b"bearer" or not key:
        raise invalid("The header authorization must be `Bearer` and the API key.")
    return key


def invalid(message: str) -> Fault:
    """The refusal of a caller who has shown no key that is taken."""
    return Fault(Reason.INVALID_API_KEY, message)
