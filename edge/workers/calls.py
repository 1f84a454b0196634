"""What a worker and its parent tell each other about the worker itself."""

import msgspec

from edge.workers.link import Method


class Told(msgspec.Struct, frozen=True):
    """How the edge stands: see `edge.standing`."""

    draining: bool
    workers: int
    up: int


# A worker to its parent.
READY: Method[None, None] = Method("worker.ready", None, None)
"""It takes connections from now on."""
CLOSED: Method[int, None] = Method("worker.closed", int, None)
"""How many of its connections have ended, since it is there."""

# The parent to its workers.
STANDING: Method[Told, None] = Method("worker.standing", Told, None)
FINISH: Method[None, None] = Method("worker.finish", None, None)
"""No connection comes any more: end those there are, and then yourself."""
