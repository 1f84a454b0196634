"""The layer in front of all routes: who calls, whether it may, and whether it does too much.

Pure ASGI, behind the access layer, which has said in which dialect a refusal is worded. What is
refused here has not been read beyond its headers.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.errors import Fault, Reason
from edge import errors
from edge.admin_access import check_local
from edge.keys.caller import NOBODY, OPEN, Caller, caller_with, tell
from edge.keys.core import UNBOUNDED, Refused
from edge.keys.counting import Counting, Headers, standing, too_much
from edge.keys.credential import credential_of, without_credentials
from edge.keys.entry import Key
from edge.keys.keyring import Keyring
from edge.keys.trust import Trust, trust_of


@dataclass(frozen=True, slots=True)
class Checked:
    """What a house with keys checks callers by."""

    keyring: Callable[[], Keyring]
    """The keys as of now."""
    counting: Counting
    clock: Callable[[], float] = time.time
    """Unix seconds: keys expire by the calendar."""


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, checked: Checked | None) -> None:
        """`checked`: None in open mode, where a key is passed over: clients always send one."""
        self._app, self._checked = app, checked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or self._checked is None:
            await self._serve(OPEN, scope, receive, send)
            return
        try:
            key = await _key_for(scope, self._checked)
        except Fault as fault:
            await errors.response(fault)(scope, receive, send)
            return
        if key is None or not key.bounds:
            await self._serve(NOBODY if key is None else caller_with(key), scope, receive, send)
            return
        await self._counted(key, self._checked.counting, scope, receive, send)

    async def _serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        tell(scope, caller)
        if scope["type"] == "http":
            scope["headers"] = without_credentials(scope["headers"])
        await self._app(scope, receive, send)

    async def _counted(
        self, key: Key, counting: Counting, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            now = await counting.enter(key.name, key.bounds)
        except Fault as fault:
            await errors.response(fault)(scope, receive, send)
            return
        told = _telling(standing(key.bounds, now), send)
        if isinstance(now, Refused):
            await errors.response(too_much(key.bounds, now))(scope, receive, told)
            return
        try:
            await self._serve(caller_with(key), scope, receive, told)
        finally:
            counting.leave(key.name)


async def _key_for(scope: Scope, checked: Checked) -> Key | None:
    """The key that a request may go on with; None: it needs none. Raises Fault."""
    trust = trust_of(scope["path"])
    if trust in (Trust.OPEN, Trust.ADMIN):
        return None
    if trust is Trust.SIGNALS and await _is_local(scope):
        return None
    key = checked.keyring().holder(credential_of(scope["headers"]), checked.clock())
    if trust is Trust.SIGNALS:
        if not key.signals:
            raise Fault(
                Reason.LOCAL_ONLY,
                f"{scope['path']} tells of all callers: read it on this machine itself, or with a "
                "key that has `signals: true`.",
            )
        # Counting a scrape would blind the house when it has much to tell.
        return replace(key, bounds=UNBOUNDED)
    return key


async def _is_local(scope: Scope) -> bool:
    try:
        await check_local(Request(scope))
    except Fault:
        return False
    return True


def _telling(headers: Headers, send: Send) -> Send:
    """`send`, which puts these headers on the answer."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers.items()]
        await send(message)

    return told if headers else send
