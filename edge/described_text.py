"""What the routes take and answer on which language models write."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from edge.anthropic.body import CountTokensBody, MessagesBody
from edge.anthropic.count import TokenCount
from edge.anthropic.events import STREAM_EVENTS
from edge.anthropic.response import MessageAnswer
from edge.anthropic.words import AnthropicError
from edge.chat_body import ChatBody
from edge.chat_response import ChatCompletion, ChatCompletionChunk
from edge.completions_body import Completion, CompletionBody, EngineBody
from edge.config import LegacyRoute
from edge.documenting import Described, Operation, posted, said
from edge.legacy import PATHS
from edge.legacy_body import GenerateBody, Generated, SummarizationBody, Summary
from edge.responses.body import INPUT_ITEMS, ResponsesBody, ResponseTool
from edge.responses.objects import (
    ResponseDeleted,
    ResponseEvent,
    ResponseItemList,
    ResponseObject,
)
from edge.speech import ErrorEnvelope

CHAT_PATH = "/v1/chat/completions"
RESPONSES_PATH = "/v1/responses"
COMPLETIONS_PATH = "/v1/completions"
MESSAGES_PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"

_WHOLE = "The answer; with `stream: true`, server-sent events."


def _chat() -> Operation:
    done = said(ChatCompletion, _WHOLE, streamed=(ChatCompletionChunk, ErrorEnvelope))
    return posted("create_chat_completion", "Answer a conversation", "chat", ChatBody, done)


def _responses() -> Operation:
    done = said(ResponseObject, _WHOLE, streamed=ResponseEvent)
    summary = "Answer, and keep the answer"
    return posted("create_response", summary, "responses", ResponsesBody, done)


def _messages() -> Operation:
    done = said(MessageAnswer, _WHOLE, streamed=(*STREAM_EVENTS, AnthropicError))
    summary = "Answer a conversation"
    return posted("create_message", summary, "messages", MessagesBody, done, AnthropicError)


def _count() -> Operation:
    done = said(TokenCount, "Its length, as the model would see it; who is not loaded stays so.")
    summary = "Count the tokens of a prompt"
    return posted(
        "count_message_tokens", summary, "messages", CountTokensBody, done, AnthropicError
    )


def _completions() -> Operation:
    done = said(Completion, _WHOLE, streamed=(Completion, ErrorEnvelope))
    return posted("create_completion", "Complete a prompt", "completions", CompletionBody, done)


def _engine() -> Operation:
    done = said(Completion, _WHOLE, streamed=(Completion, ErrorEnvelope))
    summary = "Complete a prompt on an engine"
    told = posted("legacy_engines", summary, "legacy", EngineBody, done)
    engine = {"type": "string", "minLength": 1}
    told["parameters"].append({"name": "engine", "in": "path", "required": True, "schema": engine})
    return told


def _continued(route: LegacyRoute, summary: str) -> Described:
    def operation() -> Operation:
        done = said(Generated, "The continuations.")
        media = done["content"]["application/json"]
        media["schema"] = {"type": "array", "items": media["schema"]}
        return posted(f"legacy_{route}", summary, "legacy", GenerateBody, done)

    return Described(operation, (GenerateBody, Generated))


def _summarization() -> Operation:
    done = said(Summary, "The summary.")
    return posted("legacy_summarization", "Summarise a text", "legacy", SummarizationBody, done)


def _of(operation: Callable[[], Operation], *types: type) -> Described:
    return Described(operation, types)


TEXT: Mapping[str, Described] = MappingProxyType(
    {
        CHAT_PATH: _of(_chat, ChatBody, ChatCompletion, ChatCompletionChunk),
        COMPLETIONS_PATH: _of(_completions, CompletionBody, Completion),
        RESPONSES_PATH: _of(
            _responses,
            *(ResponsesBody, *INPUT_ITEMS, ResponseTool, ResponseObject, ResponseEvent),
            *(ResponseDeleted, ResponseItemList),
        ),
        MESSAGES_PATH: _of(_messages, MessagesBody, MessageAnswer, *STREAM_EVENTS, AnthropicError),
        COUNT_PATH: _of(_count, CountTokensBody, TokenCount),
        PATHS["generate"]: _continued("generate", "Continue a text"),
        PATHS["generate_large"]: _continued(
            "generate_large", "Continue a text on the larger model"
        ),
        PATHS["autocomplete"]: _continued("autocomplete", "Continue what is being typed"),
        PATHS["summarization"]: _of(_summarization, SummarizationBody, Summary),
        PATHS["engines"]: _of(_engine, EngineBody, Completion),
    }
)
"""By path."""
LEGACY_PATHS = frozenset(PATHS.values())
