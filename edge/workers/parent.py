"""The parent of an edge's workers: it listens, keeps what they share, and serves nothing itself."""

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path

from chassis import log, metrics
from chassis.main import Context
from chassis.process import child_env
from chassis.restarts import CONFIGURATION_EXIT
from chassis.server import until_signal
from edge.config import EdgeConfig
from edge.keys.file import read_keys
from edge.keys.shared import LimitsRoom
from edge.listening import Listener, bind, take_all_descriptors
from edge.responses.room import ResponsesRoom
from edge.responses.store import store_of
from edge.workers.child import Worker
from edge.workers.crew import Crew, Start
from edge.workers.link import Bound, Link
from edge.workers.waiting import first_of

_LATE_S = 2.0
"""Beyond the drain time: a last word to clients, and the end of a process."""


async def serve(context: Context[EdgeConfig]) -> None:
    """Serve until told to stop. Raises ConfigError; SystemExit when workers cannot start."""
    config = context.own.located(context.document.path.parent)
    if config.keys_file is not None:
        read_keys(config.keys_file)  # so that it is told once, and not by every worker
    take_all_descriptors()
    listener = bind(*config.address)
    counted = _emptied(context.house.run_dir / "edge-signals")
    links: dict[int, Link] = {}
    crew = Crew(
        config.workers,
        _starter(context.document.path, counted),
        (_Counts(counted), ResponsesRoom(store_of(config), links), LimitsRoom()),
        links,
        config.most_link_bytes,
    )
    line = Listener(listener, crew.take)
    host, port = line.address
    crew.begin()
    line.start()
    log.get().info("serving", address=f"http://{host}:{port}", workers=config.workers)
    await first_of(until_signal(), crew.gave_up.wait())
    crew.drain()
    if not crew.gave_up.is_set():
        await asyncio.sleep(config.linger_s)
    await line.close()
    await crew.finish(config.drain_s + _LATE_S)
    if crew.gave_up.is_set():
        raise SystemExit(CONFIGURATION_EXIT)


class _Counts:
    """The metrics of workers, which they count in files: those of one that has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def methods(self, slot: int) -> Sequence[Bound]:  # noqa: ARG002
        """None: files are read by whoever is asked."""
        return ()

    def gone(self, slot: int) -> None:
        """What it held counts no more."""
        metrics.worker_over(self._folder, slot)


def _starter(config_path: Path, counted: Path) -> Start:
    # -P: a foreign `edge` folder in the working directory must not be imported.
    argv = (sys.executable, "-P", "-m", "edge.workers.worker", "--config", str(config_path))
    env = child_env() | {metrics.SHARED_ENV: str(counted)}

    def start(slot: int, link: Link) -> Awaitable[Worker]:
        return Worker.start(slot, argv, env, link)

    return start


def _emptied(folder: Path) -> Path:
    """What an earlier run has counted counts no more."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in folder.iterdir():
        left.unlink()
    return folder
