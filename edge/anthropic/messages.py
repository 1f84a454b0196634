"""POST /v1/messages: Anthropic's dialect, from its body to its writers."""

import uuid

from edge.answering import Asked
from edge.anthropic import request
from edge.anthropic.events import Stream
from edge.anthropic.response import Collected


def ask(body: bytes) -> Asked:
    """`edge.answering.Parse` of this dialect."""
    asked = request.parse(body)
    return Asked(
        model=asked.model,
        generate=asked.generate,
        stream=asked.stream,
        events=lambda served: Stream(_new_id(), served, asked.shown),
        whole=lambda served: Collected(_new_id(), served, asked.shown),
    )


def _new_id() -> str:
    return f"msg_{uuid.uuid4().hex}"
