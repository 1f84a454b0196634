"""Among whom capacity is shared: the name a client gives itself in a header.

It is a wish, as the tier is: without API keys nobody can be held to a name, and a name is of use
only where clients do not work against each other. With keys (`keys.caller`) it is passed over.
"""

from starlette.datastructures import Headers

from edge.errors import bad_field

HEADER = "x-cohabit-key"
MOST_CHARS = 128


def key_of(headers: Headers) -> str:
    """The fairness key of a request with these headers; empty without one. Raises Fault."""
    given = headers.get(HEADER)
    if given is None:
        return ""
    key = given.strip()
    if not 0 < len(key) <= MOST_CHARS or not key.isprintable() or not key.isascii():
        raise bad_field(
            HEADER,
            f"The header {HEADER} must be 1 to {MOST_CHARS} printable characters of ASCII.",
        )
    return key
