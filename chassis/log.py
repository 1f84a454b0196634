"""JSON logs, one object a line, each with the request it belongs to.

`COHABIT_LOG=console` (set by the launcher on a terminal) turns them into readable lines.
Never logged: header values, bodies, query strings, prompts, keys.
"""

import logging
import os
import sys
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

import structlog
from structlog.typing import Processor

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The request being served by the current task; empty outside of one."""

trace_id: ContextVar[str] = ContextVar("trace_id", default="")
"""The trace that it is part of; empty where none is told."""


def _with_request(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if current := request_id.get():
        event["request_id"] = current
    if traced := trace_id.get():
        event["trace_id"] = traced
    return event


def _with_service(service: str) -> Processor:
    def add(
        _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    return add


def configure(service: str, level: str = "info") -> None:
    """Set up logging of this process, whose name is `service`. Call once, before anything logs.

    On a terminal the name is left out: the launcher shows it before each line.
    """
    console = os.environ.get("COHABIT_LOG") == "console"
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)
        if console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            *([] if console else [_with_service(service)]),
            _with_request,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if console else "iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")


def get() -> Any:
    """The process's logger (structlog: `get().info("event", key=value)`)."""
    return structlog.get_logger()
