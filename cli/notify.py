"""Tells the service manager that started us how we are, by the protocol of sd_notify(3).

Without a manager (no `NOTIFY_SOCKET`) nothing is told.
"""

import os
import socket
from contextlib import suppress

_ENV = "NOTIFY_SOCKET"


def ready(status: str) -> None:
    """The service is started; `status` is a line for people."""
    _tell(f"READY=1\nSTATUS={status}")


def status(text: str) -> None:
    """A line for people."""
    _tell(f"STATUS={text}")


def _tell(message: str) -> None:
    address = os.environ.get(_ENV, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # a name in the abstract namespace
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        manager.sendto(message.encode(), address)
