"""The legacy text routes: text-generator.io's, and OpenAI's of the time when engines had paths.

Each is offered only where the configuration gives it a model, which it takes for every name that
is no model's: their clients say `best`, or an engine that has long been gone. None of them streams
but the engines' route, which is OpenAI's completion dialect with the model in the path.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from cohabit.llm.v1 import llm_pb2 as pb
from edge import completions, completions_request
from edge.answering import AnswerEndpoint, Answering, Asked, Parse, unstreamed
from edge.config import LegacyRoute
from edge.legacy_request import parse_generate, parse_summarization, summary_chars
from edge.legacy_response import GeneratedTexts, SummaryText

PATHS: Mapping[LegacyRoute, str] = {
    "generate": "/api/v1/generate",
    "generate_large": "/api/v1/generate-large",
    "autocomplete": "/api/v1/autocomplete",
    "summarization": "/api/v1/summarization",
    "engines": "/v1/engines/{engine}/completions",
}


def endpoints(models: Mapping[LegacyRoute, str], answering: Answering) -> dict[str, ASGIApp]:
    """The routes that have a model, by path."""
    return {PATHS[route]: _endpoint(route, model, answering) for route, model in models.items()}


def _endpoint(route: LegacyRoute, model: str, answering: Answering) -> ASGIApp:
    if route == "engines":
        return EngineEndpoint(answering, model)
    ask = ask_summary if route == "summarization" else ask_texts
    return AnswerEndpoint(answering, partial(ask, model))


def ask_texts(model: str, body: bytes) -> Asked:
    """What a body asks that wants its text continued; `model` is the route's. Raises Fault."""
    asked, generate = parse_generate(body)
    return _whole(asked.model, model, generate, GeneratedTexts(asked.text))


def ask_summary(model: str, body: bytes) -> Asked:
    """What a body asks that wants its text summarised. Raises Fault."""
    asked, generate = parse_summarization(body)
    return _whole(asked.model, model, generate, SummaryText(summary_chars(asked)))


def _whole(
    wish: str | None,
    otherwise: str,
    generate: pb.GenerateRequest,
    writer: GeneratedTexts | SummaryText,
) -> Asked:
    model = wish or otherwise
    generate.model = model
    return Asked(
        model=model,
        generate=generate,
        stream=False,
        events=unstreamed,
        whole=lambda _served: writer,
        prompt="text",
        otherwise=otherwise,
    )


@dataclass(frozen=True, slots=True)
class EngineEndpoint:
    """The route whose path names the model."""

    answering: Answering
    otherwise: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        parse = _for_engine(scope["path_params"]["engine"], self.otherwise)
        await AnswerEndpoint(self.answering, parse)(scope, receive, send)


def _for_engine(engine: str, otherwise: str) -> Parse:
    def parse(body: bytes) -> Asked:
        request = completions_request.parse_for_engine(engine, body)
        return completions.asked(request, otherwise)

    return parse
