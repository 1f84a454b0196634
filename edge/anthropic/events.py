"""llm.v1 answers into the events of an Anthropic stream.

Pure: messages in, bytes out. Blocks follow each other: one is closed before the next begins. What
is the same in all deltas of a block is encoded once; per message only the words are.
"""

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.anthropic.response import (
    EMPTY_INPUT,
    SIGNATURE,
    ContentBlock,
    MessageAnswer,
    MessageUsage,
    Shown,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    calls_shown,
    stop_reason_of,
    stop_sequence_of,
    usage_of,
)
from edge.timings import Timings, timings_of


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """The stream begins. The usage is a first guess: `message_delta` has the true one."""

    message: MessageAnswer


class ContentBlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: ContentBlock


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    """More thoughts."""

    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta"):
    """The last of a thinking block."""

    signature: str


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """More of a call's input: JSON when put together."""

    partial_json: str


class ContentBlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    """More of the block that is open."""

    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class ContentBlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    """The block is whole."""

    index: int


class StopDelta(msgspec.Struct):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    """The answer is whole. `metrics` is the house's own."""

    delta: StopDelta
    usage: MessageUsage
    metrics: Timings


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """The stream ends."""


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """Nothing comes yet. May come before everything else."""


STREAM_EVENTS = (
    MessageStart,
    ContentBlockStart,
    ContentBlockDelta,
    ContentBlockStop,
    MessageDelta,
    MessageStop,
    Ping,
)
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":'
_HEADS = {
    TextBlock: _DELTA + b'{"type":"text_delta","text":',
    ThinkingBlock: _DELTA + b'{"type":"thinking_delta","thinking":',
    ToolUseBlock: _DELTA + b'{"type":"input_json_delta","partial_json":',
}
_TAIL = b"}}\n\n"
_encode = msgspec.json.Encoder().encode


def event(told: msgspec.Struct) -> bytes:
    """One event, its name taken from its type."""
    name = str(told.__struct_config__.tag)
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(told))


PING = event(Ping())


class Stream:
    """One answer as it comes: `edge.answering.EventWriter`."""

    def __init__(self, name: str, served: Served, shown: Shown) -> None:
        self._name, self._served, self._shown = name, served, shown
        self._began = False
        self._prompt_tokens = 0
        self._index = -1
        self._open: tuple[type[ContentBlock], int] | None = None
        self._head = b""

    def feed(self, message: pb.GenerateResponse) -> bytes:
        """The events for one message, together; empty when it says nothing for the client."""
        if message.HasField("prefill"):
            self._prompt_tokens = message.prefill.total_tokens
        told = b""
        if message.reasoning:
            told += self._think(message.reasoning)
        if message.text:
            told += self._begin(TextBlock, TextBlock("")) + self._delta(message.text)
        for call in calls_shown(message, self._shown):
            told += self._call(call)
        if message.HasField("finish"):
            told += self._close() + self._stop(message.finish)
        if told and not self._began:
            self._began = True
            told = self._start() + told
        return told

    def end(self) -> bytes:
        """The last event of an answer that finished."""
        return event(MessageStop())

    def _start(self) -> bytes:
        usage = MessageUsage(self._prompt_tokens, 0)
        message = MessageAnswer(id=self._name, model=self._served.model, content=[], usage=usage)
        return event(MessageStart(message))

    def _stop(self, finish: pb.Finish) -> bytes:
        why = StopDelta(stop_reason_of(finish), stop_sequence_of(finish))
        return event(MessageDelta(why, usage_of(finish), timings_of(self._served, finish)))

    def _think(self, thought: str) -> bytes:
        begin = self._begin(ThinkingBlock, ThinkingBlock("", ""))
        return begin + (self._delta(thought) if self._shown.thinking else b"")

    def _call(self, call: pb.ToolCallDelta) -> bytes:
        block = ToolUseBlock(call.id, call.name, EMPTY_INPUT)
        told = self._begin(ToolUseBlock, block, call.index)
        return told + (self._delta(call.arguments_json) if call.arguments_json else b"")

    def _begin(self, kind: type[ContentBlock], block: ContentBlock, call: int = 0) -> bytes:
        if self._open == (kind, call):
            return b""
        told = self._close()
        self._open = (kind, call)
        self._index += 1
        self._head = _HEADS[kind] % self._index
        return told + event(ContentBlockStart(self._index, block))

    def _delta(self, words: str) -> bytes:
        return self._head + _encode(words) + _TAIL

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        (kind, _), self._open = self._open, None
        told = event(ContentBlockStop(self._index))
        if kind is ThinkingBlock:
            signed = ContentBlockDelta(self._index, SignatureDelta(SIGNATURE))
            return event(signed) + told
        return told
