"""The one error type of the house and the frozen table that says how each error looks outside.

A domain error is a `Fault` with a `Reason`. The table maps every reason to a gRPC code, an HTTP
status and the words that OpenAI and Anthropic clients expect. Nothing else in the project chooses
a status. `tests/unit/test_errors.py` asserts that the table is total.

    Fault
    ├── reason   for machines: google.rpc.ErrorInfo.reason
    ├── message  for people: what was wrong and what to do
    └── retry_after_s, metadata
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import grpc

DOMAIN = "cohabit"

_MOST_MESSAGE_BYTES = 1500
"""The text travels in HTTP/2 trailers, percent-encoded and once more in the details: 8 KiB."""


class Reason(StrEnum):
    """Every way in which the house says no."""

    INVALID_REQUEST = "invalid_request"
    MALFORMED_JSON = "malformed_json"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    INVALID_TEMPLATE = "invalid_template"
    MODALITY_UNSUPPORTED = "modality_unsupported"
    INVALID_IMAGE = "invalid_image"
    IMAGE_TOO_LARGE = "image_too_large"
    SIZE_MISMATCH = "size_mismatch"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    LOCAL_ONLY = "local_only"
    INVALID_API_KEY = "invalid_api_key"
    MODEL_NOT_ALLOWED = "model_not_allowed"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    LORA_NOT_FOUND = "lora_not_found"
    LORA_PATH_REFUSED = "lora_path_refused"
    JOB_NOT_FOUND = "job_not_found"
    RESULT_NOT_FOUND = "result_not_found"
    RESULT_EXPIRED = "result_expired"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    INVALID_PAGE_TOKEN = "invalid_page_token"  # noqa: S105 - no secret
    INVALID_OFFSET = "invalid_offset"
    STORAGE_FULL = "storage_full"
    MODEL_NOT_FOUND = "model_not_found"
    RESPONSE_NOT_FOUND = "response_not_found"
    PREVIOUS_RESPONSE_NOT_FOUND = "previous_response_not_found"
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    DEVICE_NOT_FOUND = "device_not_found"
    FILE_NOT_FOUND = "file_not_found"
    LEASE_NOT_FOUND = "lease_not_found"
    LEASE_REQUIRED = "lease_required"
    PERMIT_REQUIRED = "permit_required"
    PERMIT_REVOKED = "permit_revoked"
    PERMIT_IN_USE = "permit_in_use"
    GRANT_LAPSED = "grant_lapsed"
    MODEL_BUSY = "model_busy"
    MODEL_EVICTED = "model_evicted"
    QUEUE_FULL = "queue_full"
    FAIRNESS_KEY_QUEUE_FULL = "fairness_key_queue_full"
    EXECUTOR_QUEUE_FULL = "executor_queue_full"
    SATURATED = "saturated"
    ADMISSION_TIMEOUT = "admission_timeout"
    RUN_TOO_LONG = "run_too_long"
    NEVER_FITS = "never_fits"
    NO_HEADROOM = "no_headroom"
    SLOW_READER = "slow_reader"
    MODEL_FAILED = "model_failed"
    ENGINE_CRASHED = "engine_crashed"
    DEVICE_UNREACHABLE = "device_unreachable"
    SERVICE_UNAVAILABLE = "service_unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    NOT_IMPLEMENTED = "not_implemented"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Row:
    """How one reason looks on each wire."""

    code: grpc.StatusCode
    http: int
    openai_type: str
    openai_code: str | None
    anthropic_type: str


def _caller(http: int, code: grpc.StatusCode, word: str | None = None) -> Row:
    anthropic = "not_found_error" if http == 404 else "invalid_request_error"
    return Row(code, http, "invalid_request_error", word, anthropic)


def _busy(http: int, code: grpc.StatusCode, word: str) -> Row:
    kind = "rate_limit_error" if http == 429 else "overloaded_error"
    return Row(code, http, "rate_limit_error" if http == 429 else "server_error", word, kind)


_C = grpc.StatusCode

TABLE: Mapping[Reason, Row] = MappingProxyType(
    {
        Reason.INVALID_REQUEST: _caller(400, _C.INVALID_ARGUMENT),
        Reason.MALFORMED_JSON: _caller(400, _C.INVALID_ARGUMENT, "malformed_json"),
        Reason.CONTEXT_LENGTH_EXCEEDED: _caller(
            400, _C.INVALID_ARGUMENT, "context_length_exceeded"
        ),
        Reason.INVALID_TEMPLATE: _caller(400, _C.INVALID_ARGUMENT, "invalid_template"),
        Reason.MODALITY_UNSUPPORTED: _caller(400, _C.INVALID_ARGUMENT, "modality_unsupported"),
        Reason.INVALID_IMAGE: _caller(400, _C.INVALID_ARGUMENT, "invalid_image"),
        Reason.IMAGE_TOO_LARGE: _caller(400, _C.INVALID_ARGUMENT, "image_too_large"),
        Reason.SIZE_MISMATCH: _caller(400, _C.INVALID_ARGUMENT, "size_mismatch"),
        Reason.PAYLOAD_TOO_LARGE: _caller(413, _C.INVALID_ARGUMENT, "payload_too_large"),
        Reason.HEADERS_TOO_LARGE: _caller(431, _C.INVALID_ARGUMENT, "headers_too_large"),
        Reason.LOCAL_ONLY: Row(
            _C.PERMISSION_DENIED, 403, "invalid_request_error", "local_only", "permission_error"
        ),
        Reason.INVALID_API_KEY: Row(
            _C.UNAUTHENTICATED,
            401,
            "invalid_request_error",
            "invalid_api_key",
            "authentication_error",
        ),
        Reason.MODEL_NOT_ALLOWED: Row(
            _C.PERMISSION_DENIED,
            403,
            "invalid_request_error",
            "model_not_allowed",
            "permission_error",
        ),
        Reason.RATE_LIMIT_EXCEEDED: _busy(429, _C.RESOURCE_EXHAUSTED, "rate_limit_exceeded"),
        Reason.LORA_NOT_FOUND: _caller(404, _C.NOT_FOUND, "lora_not_found"),
        Reason.LORA_PATH_REFUSED: Row(
            _C.PERMISSION_DENIED,
            403,
            "invalid_request_error",
            "lora_path_refused",
            "permission_error",
        ),
        Reason.JOB_NOT_FOUND: _caller(404, _C.NOT_FOUND, "job_not_found"),
        Reason.RESULT_NOT_FOUND: _caller(404, _C.NOT_FOUND, "result_not_found"),
        Reason.RESULT_EXPIRED: _caller(410, _C.FAILED_PRECONDITION, "result_expired"),
        Reason.IDEMPOTENCY_KEY_REUSED: _caller(409, _C.ALREADY_EXISTS, "idempotency_key_reused"),
        Reason.INVALID_PAGE_TOKEN: _caller(400, _C.INVALID_ARGUMENT, "invalid_page_token"),
        Reason.INVALID_OFFSET: _caller(416, _C.OUT_OF_RANGE, "invalid_offset"),
        Reason.STORAGE_FULL: _busy(507, _C.RESOURCE_EXHAUSTED, "storage_full"),
        Reason.MODEL_NOT_FOUND: _caller(404, _C.NOT_FOUND, "model_not_found"),
        Reason.RESPONSE_NOT_FOUND: _caller(404, _C.NOT_FOUND, "response_not_found"),
        Reason.PREVIOUS_RESPONSE_NOT_FOUND: _caller(
            400, _C.FAILED_PRECONDITION, "previous_response_not_found"
        ),
        Reason.ROUTE_NOT_FOUND: _caller(404, _C.UNIMPLEMENTED, "route_not_found"),
        Reason.METHOD_NOT_ALLOWED: _caller(405, _C.UNIMPLEMENTED, "method_not_allowed"),
        Reason.DEVICE_NOT_FOUND: _caller(404, _C.NOT_FOUND, "device_not_found"),
        Reason.FILE_NOT_FOUND: _caller(404, _C.NOT_FOUND, "file_not_found"),
        Reason.LEASE_NOT_FOUND: _caller(404, _C.NOT_FOUND, "lease_not_found"),
        Reason.LEASE_REQUIRED: _caller(400, _C.FAILED_PRECONDITION, "lease_required"),
        Reason.PERMIT_REQUIRED: _caller(400, _C.FAILED_PRECONDITION, "permit_required"),
        Reason.PERMIT_REVOKED: _busy(503, _C.FAILED_PRECONDITION, "permit_revoked"),
        Reason.PERMIT_IN_USE: _caller(409, _C.FAILED_PRECONDITION, "permit_in_use"),
        Reason.GRANT_LAPSED: _busy(503, _C.FAILED_PRECONDITION, "grant_lapsed"),
        Reason.MODEL_BUSY: _caller(409, _C.FAILED_PRECONDITION, "model_busy"),
        Reason.MODEL_EVICTED: _busy(503, _C.UNAVAILABLE, "model_evicted"),
        Reason.QUEUE_FULL: _busy(429, _C.RESOURCE_EXHAUSTED, "queue_full"),
        Reason.FAIRNESS_KEY_QUEUE_FULL: _busy(
            429, _C.RESOURCE_EXHAUSTED, "fairness_key_queue_full"
        ),
        Reason.EXECUTOR_QUEUE_FULL: _busy(429, _C.RESOURCE_EXHAUSTED, "executor_queue_full"),
        Reason.SATURATED: _busy(429, _C.RESOURCE_EXHAUSTED, "saturated"),
        Reason.ADMISSION_TIMEOUT: _busy(503, _C.UNAVAILABLE, "admission_timeout"),
        Reason.RUN_TOO_LONG: _busy(504, _C.DEADLINE_EXCEEDED, "run_too_long"),
        Reason.NEVER_FITS: _busy(503, _C.FAILED_PRECONDITION, "never_fits"),
        Reason.NO_HEADROOM: _busy(503, _C.UNAVAILABLE, "no_headroom"),
        Reason.SLOW_READER: _caller(429, _C.RESOURCE_EXHAUSTED, "slow_reader"),
        Reason.MODEL_FAILED: _busy(503, _C.UNAVAILABLE, "model_failed"),
        Reason.ENGINE_CRASHED: _busy(503, _C.UNAVAILABLE, "engine_crashed"),
        Reason.DEVICE_UNREACHABLE: _busy(503, _C.UNAVAILABLE, "device_unreachable"),
        Reason.SERVICE_UNAVAILABLE: _busy(503, _C.UNAVAILABLE, "service_unavailable"),
        Reason.DEADLINE_EXCEEDED: _busy(504, _C.DEADLINE_EXCEEDED, "deadline_exceeded"),
        Reason.CANCELLED: Row(_C.CANCELLED, 499, "server_error", "cancelled", "api_error"),
        Reason.NOT_IMPLEMENTED: _caller(501, _C.UNIMPLEMENTED, "not_implemented"),
        Reason.INTERNAL: Row(_C.INTERNAL, 500, "server_error", "internal", "api_error"),
    }
)


class Fault(Exception):
    """A refusal or failure that a caller may see.

    `message` is one sentence for people. `retry_after_s` is set where waiting helps.
    `metadata` travels in ErrorInfo: short words and numbers, no secrets.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        retry_after_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.message = _clipped(message)
        super().__init__(self.message)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.metadata: Mapping[str, str] = dict(metadata or {})

    @property
    def row(self) -> Row:
        """How this fault looks on each wire."""
        return TABLE[self.reason]


def _clipped(message: str) -> str:
    """A sentence may quote what a caller sent, and that may be of any length."""
    raw = message.encode(errors="replace")
    if len(raw) <= _MOST_MESSAGE_BYTES:
        return message
    return raw[:_MOST_MESSAGE_BYTES].decode(errors="ignore") + "…"


def not_implemented(what: str) -> Fault:
    """The answer of everything that is in a contract but not built: it names what is missing."""
    return Fault(Reason.NOT_IMPLEMENTED, f"{what} is not built yet in this version of Cohabit.")
