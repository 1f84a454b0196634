"""The routes of language models, wired: those that answer, embed, rank, count and tokenise."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from chassis.admission import Admission
from chassis.channels import Channels
from chassis.place import Waits
from cohabit.llm.v1 import llm_pb2_grpc
from edge import chat, completions, embeddings, legacy, rerank, tokenize
from edge.answering import AnswerEndpoint, Answering
from edge.anthropic import messages
from edge.anthropic.count import CountEndpoint
from edge.catalog import Catalog
from edge.config import EdgeConfig
from edge.described_text import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    COUNT_PATH,
    MESSAGES_PATH,
    RESPONSES_PATH,
)
from edge.entrance import Entrance
from edge.measure import Measure
from edge.responses.endpoint import ResponsesEndpoint
from edge.responses.routes import Responses
from edge.roster import Roster
from edge.single import Parse, SingleEndpoint
from edge.sse import Patience
from edge.tokenize import TokensEndpoint

if TYPE_CHECKING:
    from cohabit.scheduler.v1 import scheduler_pb2_grpc


@asynccontextmanager
async def open_texts(
    config: EdgeConfig,
    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
    model_services: Mapping[str, str],
    entrance: Entrance,
    catalog: Catalog,
    roster: Roster,
    responses: Responses,
) -> AsyncIterator[dict[str, ASGIApp]]:
    """The endpoints by path, connected until the block ends."""
    async with AsyncExitStack() as stack:
        measure = Measure(model_services)
        engines = Channels(config.max_idle_engines, llm_pb2_grpc.LanguageModelServiceStub)
        services = Channels(len(model_services), llm_pb2_grpc.LanguageModelServiceStub)
        for closing in (measure.close, engines.close, services.close):
            stack.push_async_callback(closing)
        waits = Waits(config.admit_answer_s, config.resume_s, config.max_request_s)
        answering = Answering(
            admission=Admission(scheduler, engines, waits),
            entrance=entrance,
            roster=roster,
            measure=measure,
            patience=Patience(config.keepalive_s, config.write_stall_s),
        )
        single = partial(
            SingleEndpoint, answering.admission, entrance, roster, config.write_stall_s
        )
        tokens = partial(TokensEndpoint, entrance, catalog.listed, model_services, services)
        yield {
            **_answers(config, answering, responses),
            COUNT_PATH: CountEndpoint(entrance, roster, catalog, measure),
            **{path: single(parse) for path, parse in _single_answers(config).items()},
            tokenize.PATH: tokens(tokenize.tokenize),
            tokenize.BACK_PATH: tokens(tokenize.detokenize),
        }


def _answers(config: EdgeConfig, answering: Answering, responses: Responses) -> dict[str, ASGIApp]:
    """By path: the dialects of requests that are answered token by token."""
    return {
        CHAT_PATH: AnswerEndpoint(answering, chat.ask),
        COMPLETIONS_PATH: AnswerEndpoint(answering, completions.ask),
        RESPONSES_PATH: ResponsesEndpoint(answering, responses.shelf, responses.in_flight),
        MESSAGES_PATH: AnswerEndpoint(answering, messages.ask),
        **legacy.endpoints(config.legacy_models, answering),
    }


def _single_answers(config: EdgeConfig) -> dict[str, Parse]:
    """By path: the dialects of requests that an engine answers once."""
    parsers: dict[str, Parse] = {embeddings.PATH: embeddings.ask}
    parsers |= dict.fromkeys(rerank.PATHS, rerank.ask)
    if (model := config.default_embedding_model) is not None:
        parsers[embeddings.FEATURES_PATH] = embeddings.feature_extraction(model)
    return parsers
