"""llm.v1 answers into one Anthropic message; of a stream, what its `events` have in common with it.

Pure: messages in, bytes out.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.timings import Timings, timings_of

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

SIGNATURE = "Y29oYWJpdA=="
"""Of every thinking block. Clients send it back unread, and so it is taken: thoughts are the
caller's own here, and prove nothing."""

_STOP_REASONS: dict[int, StopReason] = {
    pb.FINISH_REASON_LENGTH: "max_tokens",
    pb.FINISH_REASON_TOOL_CALLS: "tool_use",
}
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Shown:
    """What of an answer its client wishes to see."""

    thinking: bool = True
    """The words of thinking blocks; without, the blocks are there and empty."""
    one_call_only: bool = False
    """No tool call but the first."""


class MessageOutputDetails(msgspec.Struct):
    """Of the output: what was thought rather than said."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct):
    """Tokens counted. The prompt is the sum of the three kinds of input."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens_details: MessageOutputDetails | None = None


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """Text."""

    text: str


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call."""

    id: str
    name: str
    input: msgspec.Raw


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock
EMPTY_INPUT = msgspec.Raw(b"{}")


class MessageAnswer(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """A message, as the model answered it. `metrics` is the house's own."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage
    metrics: Timings | msgspec.UnsetType = msgspec.UNSET


def usage_of(finish: pb.Finish) -> MessageUsage:
    """The usage that a finished answer reports."""
    told = finish.usage
    return MessageUsage(
        input_tokens=told.prompt_tokens - told.cached_prompt_tokens,
        output_tokens=told.completion_tokens,
        cache_read_input_tokens=told.cached_prompt_tokens,
        output_tokens_details=MessageOutputDetails(told.reasoning_tokens),
    )


def stop_reason_of(finish: pb.Finish) -> StopReason:
    """Why the answer ended, in Anthropic's word."""
    if finish.reason in _STOP_REASONS:
        return _STOP_REASONS[finish.reason]
    return "stop_sequence" if finish.stop else "end_turn"


def stop_sequence_of(finish: pb.Finish) -> str | None:
    """The stop sequence that ended the answer, if one did."""
    return finish.stop if stop_reason_of(finish) == "stop_sequence" else None


def calls_shown(message: pb.GenerateResponse, shown: Shown) -> list[pb.ToolCallDelta]:
    """The pieces of tool calls that the client gets to see."""
    return [call for call in message.tool_calls if call.index == 0 or not shown.one_call_only]


@dataclass(slots=True)
class _Open:
    """A block in the making; `call` is the index of a tool call, None for words."""

    kind: type[ContentBlock]
    call: pb.ToolCallDelta | None
    pieces: list[str]


class Collected:
    """One answer that is sent whole: `edge.answering.BodyWriter`."""

    def __init__(self, name: str, served: Served, shown: Shown) -> None:
        self._name, self._served, self._shown = name, served, shown
        self._blocks: list[_Open] = []
        self.finish: pb.Finish | None = None

    def feed(self, message: pb.GenerateResponse) -> None:
        """Take one message in."""
        if message.reasoning:
            said = message.reasoning if self._shown.thinking else ""
            self._block(ThinkingBlock).pieces.append(said)
        if message.text:
            self._block(TextBlock).pieces.append(message.text)
        for call in calls_shown(message, self._shown):
            self._block(ToolUseBlock, call).pieces.append(call.arguments_json)
        if message.HasField("finish"):
            self.finish = message.finish

    def body(self) -> bytes:
        """The JSON body. Call once `finish` is set."""
        assert self.finish is not None  # noqa: S101 - the caller's duty
        return _encode(
            MessageAnswer(
                id=self._name,
                model=self._served.model,
                content=[_whole(block) for block in self._blocks],
                stop_reason=stop_reason_of(self.finish),
                stop_sequence=stop_sequence_of(self.finish),
                usage=usage_of(self.finish),
                metrics=timings_of(self._served, self.finish),
            )
        )

    def _block(self, kind: type[ContentBlock], call: pb.ToolCallDelta | None = None) -> _Open:
        last = self._blocks[-1] if self._blocks else None
        same = last is not None and last.kind is kind
        if last is None or not same or (call and last.call and call.index != last.call.index):
            last = _Open(kind, call, [])
            self._blocks.append(last)
        return last


def _whole(block: _Open) -> ContentBlock:
    said = "".join(block.pieces)
    if block.call is not None:
        return ToolUseBlock(block.call.id, block.call.name, _input(said))
    return ThinkingBlock(said, SIGNATURE) if block.kind is ThinkingBlock else TextBlock(said)


def _input(arguments_json: str) -> msgspec.Raw:
    # A call that the end of the tokens cut short is no JSON; `stop_reason` says so.
    try:
        called_with = msgspec.json.decode(arguments_json)
    except (msgspec.DecodeError, RecursionError):
        return EMPTY_INPUT
    return msgspec.Raw(arguments_json.encode()) if isinstance(called_with, dict) else EMPTY_INPUT
