"""`python -P -m edge.workers.worker`: an edge whose connections come from its parent.

Only the parent starts it. Signals of a terminal or of a service manager reach the whole group;
what they mean is the parent's affair, and it ends without them when the parent is gone.
"""

import asyncio
import os
import signal

from chassis import log
from chassis.main import Context, run_service
from edge.config import EdgeConfig
from edge.keys.shared import SharedCounting
from edge.opening import opened
from edge.responses.in_flight import InFlight
from edge.responses.shared import SharedShelf, answered_here
from edge.server import Connections
from edge.standing import Standing
from edge.workers.calls import CLOSED, FINISH, READY, STANDING, Told
from edge.workers.child import SOCKETS_ENV, Birth
from edge.workers.handover import Receiver
from edge.workers.link import Bound, Link
from edge.workers.waiting import first_of


async def start(context: Context[EdgeConfig]) -> None:
    """Serve what comes, until the parent says that nothing comes any more."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    config, born = context.own.located(context.document.path.parent), Birth.of(os.environ)
    standing = Standing(workers=config.workers, up=config.workers)
    runs = InFlight(born.slot)
    link = Link(config.most_link_bytes, answered_here(runs))
    async with opened(
        context,
        config.of_one_worker(),
        standing,
        shelf=SharedShelf(link, config.most_link_bytes),
        in_flight=runs,
        counting=SharedCounting(link),
    ) as app:
        ended = _Ended(link)
        connections = Connections(app, standing, ended.one_more)
        finish = asyncio.Event()
        link.answers(_told(standing, connections, finish))
        await link.connect(born.link)  # only now: what the parent tells meanwhile is not lost
        await connections.open()
        receiver = Receiver(born.way, connections.adopt, ended.one_more)
        receiver.start()
        link.tell(READY, None)
        log.get().debug("worker", number=born.slot)
        await first_of(finish.wait(), link.closed.wait())
        receiver.stop()
        connections.drain()
        await connections.finish(config.drain_s)


class _Ended:
    """Counts connections that have ended, for the parent."""

    def __init__(self, link: Link) -> None:
        self._link, self._count = link, 0

    def one_more(self) -> None:
        """Tell."""
        self._count += 1
        self._link.tell(CLOSED, self._count)


def _told(standing: Standing, connections: Connections, finish: asyncio.Event) -> list[Bound]:
    """What the parent may tell."""

    def stands(told: Told) -> None:
        standing.workers, standing.up = told.workers, told.up
        if told.draining and not standing.draining:
            connections.drain()

    def over(_: None) -> None:
        finish.set()

    return [Bound(STANDING, stands), Bound(FINISH, over)]


if __name__ == "__main__":
    if SOCKETS_ENV not in os.environ:
        raise SystemExit("A worker of the edge is started by `python -P -m edge`, not by hand.")
    run_service("edge", EdgeConfig, start, module="edge.workers.worker")
