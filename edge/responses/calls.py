"""What workers and their parent ask each other about responses: the methods and their types."""

import msgspec

from edge.responses.shelf import Seen
from edge.responses.store import Kept
from edge.workers.link import Method

STOP_S = 5.0
"""A cancelled response is left within this time, whatever its client reads."""


class Which(msgspec.Struct, frozen=True):
    """A response of a caller."""

    name: str
    owner: str


class Keep(msgspec.Struct, frozen=True):
    """One that is over."""

    name: str
    response: Kept


# What the parent answers.
KEEP: Method[Keep, None] = Method("responses.keep", Keep, None)
LOOK: Method[Which, Seen | None] = Method("responses.look", Which, Seen | None)
CANCEL: Method[Which, bytes | None] = Method("responses.cancel", Which, bytes | None)
FORGET: Method[Which, bool] = Method("responses.forget", Which, bool)

# What a worker answers of those it is answering.
LOOK_HERE: Method[Which, Kept | None] = Method("responses.look_here", Which, Kept | None)
CANCEL_HERE: Method[Which, bytes | None] = Method("responses.cancel_here", Which, bytes | None)
