"""POST /v1/chat/completions: OpenAI's chat dialect, from its body to its writers."""

import uuid

from edge import chat_request
from edge.answering import Asked
from edge.chat_response import Collected, Stream


def ask(body: bytes) -> Asked:
    """`edge.answering.Parse` of this dialect."""
    chat = chat_request.parse(body)
    return Asked(
        model=chat.model,
        generate=chat.generate,
        stream=chat.stream,
        events=lambda served: Stream(
            _new_id(), served.created_s, served.model, include_usage=chat.include_usage
        ),
        whole=lambda served: Collected(_new_id(), served.created_s, served.model),
    )


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"
