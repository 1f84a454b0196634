"""Which dialect a request is answered in, and what each says of a fault."""

import json
from typing import Any

import pytest

from chassis.errors import TABLE, Fault, Reason
from edge.anthropic.words import ANTHROPIC
from edge.speech import OPENAI, Speech
from edge.tongues import speech_of

VERSION = (b"anthropic-version", b"2023-06-01")


@pytest.mark.parametrize(
    ("path", "headers", "speech"),
    [
        ("/v1/messages", [], ANTHROPIC),
        ("/v1/messages/count_tokens", [], ANTHROPIC),
        ("/v1/messages/nothing", [VERSION], ANTHROPIC),
        ("/v1/messagesx", [VERSION], OPENAI),
        ("/v1/models", [], OPENAI),
        ("/v1/models", [VERSION], ANTHROPIC),
        ("/v1/models/org/x", [(b"x", b"y"), VERSION], ANTHROPIC),
        ("/v1/modelsx", [VERSION], OPENAI),
        ("/v1/chat/completions", [VERSION], OPENAI),
        ("/", [VERSION], OPENAI),
    ],
)
def test_the_dialect_of_a_request(path: str, headers: Any, speech: Speech) -> None:
    assert speech_of({"path": path, "headers": headers}) is speech


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_anthropics_words(reason: Reason) -> None:
    said = ANTHROPIC.envelope(Fault(reason, "Words."), "r1")
    error = {
        "type": TABLE[reason].anthropic_type,
        "message": "Words.",
        "details": {"error_code": reason.value},
    }
    assert json.loads(said) == {"type": "error", "error": error, "request_id": "r1"}
    event = ANTHROPIC.event(Fault(reason, "Words."), "r1")
    assert event == b"event: error\ndata: " + said + b"\n\n"


def test_silence_is_a_ping() -> None:
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    assert ANTHROPIC.keepalive("") == ping
    assert ANTHROPIC.keepalive("queued behind 3") == b": keepalive queued behind 3\n\n" + ping
