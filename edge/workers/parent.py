"""The parent of an edge's workers: it listens, keeps what they share, and serves nothing itself."""

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from chassis import log
from chassis.main import Context
from chassis.process import child_env
from chassis.restarts import CONFIGURATION_EXIT
from chassis.server import until_signal
from edge.config import EdgeConfig
from edge.listening import Listener, bind
from edge.responses.room import ResponsesRoom
from edge.responses.store import store_of
from edge.server_limits import take_all_descriptors
from edge.workers.child import Worker
from edge.workers.crew import Crew
from edge.workers.link import Link

METRICS_ENV = "PROMETHEUS_MULTIPROC_DIR"
_LATE_S = 2.0
"""Beyond the drain time: a last word to clients, and the end of a process."""
_OVERHEAD_BYTES = 1024 * 1024


async def serve(context: Context[EdgeConfig]) -> None:
    """Serve until told to stop. Raises ConfigError, and SystemExit when workers cannot start."""
    config = context.own
    take_all_descriptors()
    listener = bind(*config.address)
    links: dict[int, Link] = {}
    rooms = (_Metrics(_emptied(context.house.run_dir / "edge-signals")), ...)
