"""The error table is total and sound, and a Fault survives the wire."""

import re
from pathlib import Path

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import DOMAIN, TABLE, Fault, Reason, not_implemented
from chassis.status import DETAILS_KEY, details_of, fault_of

PROTOS = Path(__file__).parents[2] / "proto" / "cohabit"
BUILT = ("broker", "scheduler", "models", "llm")
# Words of the contracts that are answers or fields, not reasons of an error.
_REASON_AFTER = re.compile(
    r"\b(?:INVALID_ARGUMENT|NOT_FOUND|FAILED_PRECONDITION|UNAVAILABLE|RESOURCE_EXHAUSTED|"
    r"UNIMPLEMENTED|DEADLINE_EXCEEDED|INTERNAL|CANCELLED)\b\s*`([a-z_]+)`"
)
CODES = {code.value[0]: code for code in grpc.StatusCode}


def error(
    code: grpc.StatusCode, details: bytes | None = None, text: str = "raw words"
) -> grpc.aio.AioRpcError:
    trailers = grpc.aio.Metadata(*([(DETAILS_KEY, details)] if details is not None else []))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details=text)


def status(fault: Fault) -> grpc.aio.AioRpcError:
    return error(fault.row.code, details_of(fault), fault.message)


def test_the_table_is_total() -> None:
    assert set(TABLE) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_every_row_is_sound(reason: Reason) -> None:
    row = TABLE[reason]
    assert row.code in set(grpc.StatusCode) - {grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN}
    assert 400 <= row.http <= 599
    assert row.openai_type
    assert row.anthropic_type.endswith("_error")
    assert row.openai_code in (None, reason.value)
    # What the caller did wrong is 4xx on both sides; INTERNAL is never a caller's mistake.
    if row.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND):
        assert row.http < 500
    assert (row.code is grpc.StatusCode.INTERNAL) == (row.http == 500)


@pytest.mark.parametrize("package", BUILT)
def test_every_reason_in_a_contract_exists(package: str) -> None:
    text = (PROTOS / package / "v1" / f"{package}.proto").read_text()
    prose = re.sub(r"\n\s*//\s?", " ", text)
    words = set(_REASON_AFTER.findall(prose))
    assert words, "the contract names its errors"
    assert words <= {reason.value for reason in Reason}


@given(
    st.sampled_from(list(Reason)),
    st.text(max_size=200),
    st.none() | st.integers(0, 3_600_000),
    st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=4),
)
def test_a_fault_survives_the_wire(
    reason: Reason, message: str, retry_ms: int | None, metadata: dict[str, str]
) -> None:
    retry_s = None if retry_ms is None else retry_ms / 1000
    fault = Fault(reason, message, retry_after_s=retry_s, metadata=metadata)
    back = fault_of(status(fault), "peer")
    assert (back.reason, back.message, back.metadata) == (reason, message, metadata)
    assert back.retry_after_s == retry_s


def test_retry_delays_are_kept_to_the_millisecond() -> None:
    back = fault_of(status(Fault(Reason.SATURATED, "x", retry_after_s=1.2344)), "peer")
    assert back.retry_after_s == 1.234


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.CANCELLED, Reason.SERVICE_UNAVAILABLE),
        (grpc.StatusCode.UNAVAILABLE, Reason.SERVICE_UNAVAILABLE),
        (grpc.StatusCode.UNKNOWN, Reason.SERVICE_UNAVAILABLE),
        (grpc.StatusCode.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED),
        (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID_REQUEST),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Reason.DEADLINE_EXCEEDED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.PAYLOAD_TOO_LARGE),
        (grpc.StatusCode.DATA_LOSS, Reason.INTERNAL),
    ],
)
def test_a_bare_status_is_judged_by_its_code(code: grpc.StatusCode, reason: Reason) -> None:
    fault = fault_of(error(code), "peer")
    assert fault.reason is reason
    if reason is Reason.SERVICE_UNAVAILABLE:
        assert (fault.message, fault.retry_after_s) == (
            "The peer service does not answer at the moment; try again shortly.",
            1.0,
        )
    if reason is not Reason.NOT_IMPLEMENTED:
        assert "raw words" not in fault.message


def _foreign(domain: str, reason: str) -> bytes:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(domain=domain, reason=reason))
    return bytes(status_pb2.Status(message="theirs", details=[packed]).SerializeToString())


@pytest.mark.parametrize(
    "details",
    [
        _foreign("googleapis.com", "model_busy"),
        _foreign(DOMAIN, "a_word_of_next_year"),
        b"",
        b"\xff\xff not a message",
    ],
    ids=["domain", "word", "empty", "garbage"],
)
def test_details_that_are_not_ours_are_ignored(details: bytes) -> None:
    fault = fault_of(error(grpc.StatusCode.UNAVAILABLE, details), "peer")
    assert fault.reason is Reason.SERVICE_UNAVAILABLE
    assert "theirs" not in fault.message


@given(st.text(min_size=0, max_size=4000))
def test_a_message_has_a_bound_and_whole_characters(text: str) -> None:
    message = Fault(Reason.INVALID_REQUEST, text).message
    assert len(message.encode()) <= 1503
    if len(text.encode(errors="replace")) <= 1500:
        assert message == text
    else:
        assert message.endswith("…")
        assert text.startswith(message[:-1])


def test_what_is_not_built_says_so() -> None:
    fault = not_implemented("Embedding")
    assert fault.row.code is grpc.StatusCode.UNIMPLEMENTED
    assert fault.message.startswith("Embedding is not built yet")
    assert str(fault) == fault.message
