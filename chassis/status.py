"""Fault ↔ gRPC status with google.rpc.ErrorInfo and RetryInfo."""

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from chassis.errors import DOMAIN, TABLE, Fault, Reason

DETAILS_KEY = "grpc-status-details-bin"

# What a bare status (one that carries no ErrorInfo of ours) means to the caller.
_BARE = {
    grpc.StatusCode.INVALID_ARGUMENT: Reason.INVALID_REQUEST,
    grpc.StatusCode.UNIMPLEMENTED: Reason.NOT_IMPLEMENTED,
    grpc.StatusCode.DEADLINE_EXCEEDED: Reason.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.PAYLOAD_TOO_LARGE,
    grpc.StatusCode.UNAVAILABLE: Reason.SERVICE_UNAVAILABLE,
    # Our own cancels surface as asyncio.CancelledError. A CANCELLED that comes from the other
    # side is a transport that refused or dropped the call, not anybody's wish.
    grpc.StatusCode.CANCELLED: Reason.SERVICE_UNAVAILABLE,
    grpc.StatusCode.UNKNOWN: Reason.SERVICE_UNAVAILABLE,
}


def details_of(fault: Fault) -> bytes:
    """The serialised google.rpc.Status that carries the fault's reason and retry delay."""
    status = status_pb2.Status(code=fault.row.code.value[0], message=fault.message)
    status.details.append(
        _packed(
            error_details_pb2.ErrorInfo(
                reason=fault.reason.value, domain=DOMAIN, metadata=dict(fault.metadata)
            )
        )
    )
    if fault.retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(fault.retry_after_s * 1000))
        status.details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    return bytes(status.SerializeToString())


def fault_of(error: grpc.aio.AioRpcError, peer: str) -> Fault:
    """What a failed call to `peer` means, as a fault of our own.

    A status with our ErrorInfo comes back as the fault it was. A bare one is judged by its code;
    its text is the library's and stays in the house.
    """
    trailers = error.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            fault = _parse(value)
            if fault is not None:
                return fault
    reason = _BARE.get(error.code(), Reason.INTERNAL)
    if reason is Reason.SERVICE_UNAVAILABLE:
        message = f"The {peer} service does not answer at the moment; try again shortly."
        return Fault(reason, message, retry_after_s=1.0)
    if reason is Reason.NOT_IMPLEMENTED:
        return Fault(reason, error.details() or f"The {peer} service does not offer this.")
    return Fault(reason, f"The {peer} service answered {error.code().name}.")


def _parse(raw: bytes) -> Fault | None:
    try:
        return _unpacked(status_pb2.Status.FromString(raw))
    except DecodeError:  # not ours, whatever it is
        return None


def _unpacked(status: "status_pb2.Status") -> Fault | None:
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    found, retry_after_s = False, None
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            found = detail.Unpack(info) and info.domain == DOMAIN
        elif detail.Is(retry.DESCRIPTOR) and detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToMilliseconds() / 1000
    if not found or info.reason not in {reason.value for reason in TABLE}:
        return None
    return Fault(
        Reason(info.reason),
        status.message,
        retry_after_s=retry_after_s,
        metadata=dict(info.metadata),
    )


def _packed(
    message: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo,
) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
