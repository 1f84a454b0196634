"""POST /v1/chat/completions: OpenAI's chat dialect, from its body to its writers."""

import uuid

from edge import chat_request
from edge.answering import Asked
from edge.chat_writers import Collected, Stream


def ask(body: bytes) -> Asked:
    """`edge.answering.Parse` of this dialect."""
    chat = chat_request.parse(body)
    parallel = chat.parallel_tool_calls
    return Asked(
        model=chat.model,
        generate=chat.generate,
        stream=chat.stream,
        events=lambda served: Stream(
            _new_id(), served, include_usage=chat.include_usage, parallel=parallel
        ),
        whole=lambda served: Collected(_new_id(), served, parallel=parallel),
    )


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"
