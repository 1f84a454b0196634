"""POST /v1/completions: OpenAI's completion dialect, from its body to its writers."""

import uuid

from edge import completions_request
from edge.answering import Asked
from edge.completions_request import CompletionRequest
from edge.completions_response import Collected, Stream


def ask(body: bytes) -> Asked:
    """`edge.answering.Parse` of this dialect."""
    return asked(completions_request.parse(body))


def asked(request: CompletionRequest, otherwise: str = "") -> Asked:
    """What the request asks; `otherwise` is the model for when there is none of its name."""
    return Asked(
        model=request.model,
        generate=request.generate,
        stream=request.stream,
        events=lambda served: Stream(_new_id(), served, include_usage=request.include_usage),
        whole=lambda served: Collected(_new_id(), served),
        prompt="prompt",
        otherwise=otherwise,
    )


def _new_id() -> str:
    return f"cmpl-{uuid.uuid4().hex}"
