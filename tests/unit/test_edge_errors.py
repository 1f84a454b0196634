"""The error envelope, its headers, and the bounds of the edge's configuration."""

import json

import pytest
from pydantic import ValidationError

from chassis.errors import TABLE, Fault, Reason, not_implemented
from edge.config import EdgeConfig
from edge.errors import bad_field, envelope, model_not_found, response

RETRIED_BY_CLIENTS = {408, 409, 429}


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_an_envelope(reason: Reason) -> None:
    answer = response(Fault(reason, "Words."))
    row = TABLE[reason]
    assert answer.status_code == row.http
    error = json.loads(bytes(answer.body))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["message"], error["type"]) == ("Words.", row.openai_type)
    assert error["code"] == row.openai_code
    retried = row.http in RETRIED_BY_CLIENTS or row.http >= 500
    assert (answer.headers.get("x-should-retry") == "false") is retried


@pytest.mark.parametrize(
    ("after_s", "seconds", "milliseconds"),
    [
        (1.0, "1", "1000"),
        (1.001, "2", "1001"),
        (0.05, "1", "50"),
        (0.0, "1", "1"),
        (30, "30", "30000"),
    ],
)
def test_retry_headers(after_s: float, seconds: str, milliseconds: str) -> None:
    headers = response(Fault(Reason.QUEUE_FULL, "Full.", retry_after_s=after_s)).headers
    assert headers["retry-after"] == seconds
    assert headers["retry-after-ms"] == milliseconds
    assert "x-should-retry" not in headers


@pytest.mark.parametrize(
    ("fault", "param"),
    [
        (bad_field("top_p", "No."), "top_p"),
        (bad_field(None, "No."), None),
        (model_not_found("x"), "model"),
        (Fault(Reason.CONTEXT_LENGTH_EXCEEDED, "Long."), "messages"),
        (not_implemented("It"), None),
    ],
)
def test_param(fault: Fault, param: str | None) -> None:
    assert json.loads(envelope(fault))["error"]["param"] == param


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.1.2.3:80", "[::1]:8080", "localhost:8080"])
def test_loopback_addresses_are_taken(listen: str) -> None:
    assert EdgeConfig(listen=listen).address[1] == int(listen.rpartition(":")[2])


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("0.0.0.0:8080", "without API keys"),
        ("[::]:8080", "without API keys"),
        ("192.168.1.5:80", "without API keys"),
        ("example.org:80", "without API keys"),
        ("8080", "host:port"),
        (":8080", "host:port"),
        ("127.0.0.1:x", "host:port"),
        ("127.0.0.1:70000", "host:port"),
    ],
)
def test_other_addresses_are_refused(listen: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        EdgeConfig(listen=listen)
