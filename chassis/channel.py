"""The one place that opens gRPC channels.

Over TCP with the certificates of the process, where it has any (`tls`). grpc.aio reconnects by
itself; the options keep its pauses short, so that a restarted service is found again within a
second.
"""

import grpc

from chassis import log, tls, tracing
from chassis.tracing import Span

MAX_MESSAGE_BYTES = 96 * 1024 * 1024
REQUEST_ID = "x-request-id"
PERMIT_ID = "cohabit-permit-id"
TAKEN_IN = "cohabit-taken-in"
"""Initial metadata: the engine has begun. Until it comes, a call may go elsewhere."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Despite its name no pause: how long one attempt to connect may take. A peer that is short of
    # processor time is not away; at the 100 ms that is the least, a burst of first calls was lost.
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.enable_retries", 0),
    # A channel of its own for each caller: a global subchannel pool would share back-off state.
    ("grpc.use_local_subchannel_pool", 1),
)
_TCP_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A container that comes back has another address: its name is asked for again at once.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
)


def open_channel(target: str) -> grpc.aio.Channel:
    """A channel to `target` ("unix:/path" or "host:port"). The caller closes it."""
    if target.startswith("unix:"):
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    options = _OPTIONS + _TCP_OPTIONS
    if (own := tls.of_process()) is None:
        return grpc.aio.insecure_channel(target, options=options)
    named = (("grpc.ssl_target_name_override", tls.NAME),)
    return grpc.aio.secure_channel(target, own.for_channel(), options=options + named)


def call_metadata(permit_id: str = "", under: Span | None = None) -> tuple[tuple[str, str], ...]:
    """Metadata of an outgoing call: the current request's id, the permit if there is one, and the
    trace it is part of: by `under`, or else by the work at hand.
    """
    pairs = []
    if current := log.request_id.get():
        pairs.append((REQUEST_ID, current))
    if permit_id:
        pairs.append((PERMIT_ID, permit_id))
    if tracing.is_on():
        pairs += tracing.carried(under)
    return tuple(pairs)
