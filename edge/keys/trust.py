"""What a path asks of who calls it. Pure, and closed: a path that is not named here needs a key."""

from enum import Enum, auto

from edge.docs import DOCS_FILES, DOCS_PATH, OPENAPI_PATH
from edge.probes import SIGNALS

_OPEN = frozenset(("/", "/health", "/readyz", DOCS_PATH, OPENAPI_PATH, *DOCS_FILES))
_ADMIN = "/v1/admin/"


class Trust(Enum):
    """Whom a route serves."""

    OPEN = auto()
    """Everybody: probes have no keys, and pages that explain are read before there is one."""
    ADMIN = auto()
    """Those on the machine itself; the routes see to it (`admin_access`). Keys open nothing."""
    SIGNALS = auto()
    """Those on the machine itself, and keys with the right to them: they tell of all callers."""
    KEYED = auto()
    """Holders of a key."""


def trust_of(path: str) -> Trust:
    """Whom a path serves, in a house with keys; the path as the router compares it."""
    if path in _OPEN:
        return Trust.OPEN
    if path in SIGNALS:
        return Trust.SIGNALS
    if path.startswith(_ADMIN):
        return Trust.ADMIN
    return Trust.KEYED
