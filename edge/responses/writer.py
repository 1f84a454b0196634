"""llm.v1 messages into one Response object and its events, in OpenAI's order.

Pure: messages in, bytes out. An item is closed before the next is opened, and everything has the
next `sequence_number`. An answer that is told whole is written in the same way, and nobody looks at
its events: one meaning, two wires.

    response.created, response.in_progress
      output_item.added
        content_part.added, deltas, done, content_part.done     messages and reasoning
        function_call_arguments.delta, .done                    function calls
      output_item.done
    response.completed | response.incomplete | response.failed and error | error (cancelled)
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.responses.items import NewId
from edge.responses.objects import (
    IncompleteDetails,
    InputTokensDetails,
    ItemStatus,
    OutputTokensDetails,
    ResponseErrorDetail,
    ResponseObject,
    ResponseUsage,
)
from edge.responses.open_item import Called, OpenItem, Said, Thought
from edge.speech import ErrorDetail
from edge.timings import timings_of

_Code = Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
_CODES: dict[str, _Code] = {
    "rate_limit_error": "rate_limit_exceeded",
    "invalid_request_error": "invalid_prompt",
}
_encode = msgspec.json.Encoder().encode


class Writer:
    """One response. Feed it every message; ask for the end after the last, or tell it the fault."""

    def __init__(self, response: ResponseObject, new_id: NewId) -> None:
        self.response = response
        self.told = False
        """Somebody has been told the id."""
        self._new_id = new_id
        self._served: Served | None = None
        self._number = 0
        self._item: OpenItem | None = None
        self._called: set[int] = set()
        self._finish: pb.Finish | None = None

    def begin(self, served: Served) -> None:
        """It is known who serves it."""
        self._served, self.response.model = served, served.model

    # What happens to it.

    def feed(self, message: pb.GenerateResponse) -> bytes:
        """The events for one message, together."""
        events = self._opening()
        if message.reasoning:
            events += self._think(message.reasoning)
        # Without text there may be no message: the token may begin a thought or a call.
        if message.text or (message.logprobs and isinstance(self._item, Said)):
            events += self._say(message.text, message.logprobs)
        for delta in message.tool_calls:
            events += self._call(delta)
        if message.HasField("finish"):
            self._finish = message.finish
        return events

    def end(self, now_s: int) -> bytes:
        """The last events of an answer that finished, at this Unix time."""
        finish, served, response = self._finish, self._served, self.response
        assert finish is not None and served is not None  # noqa: S101, PT018 - the caller's duty
        cut = finish.reason == pb.FINISH_REASON_LENGTH
        events = b"" if self._item or response.output else self._open(Said, "msg_")
        events += self._close("incomplete" if cut else "completed")
        response.usage, response.metrics = _usage(finish.usage), timings_of(served, finish)
        response.status = "incomplete" if cut else "completed"
        if cut:
            response.incomplete_details = IncompleteDetails("max_output_tokens")
        else:
            response.completed_at = now_s
        return events + self._state(f"response.{response.status}")

    def fail(self, fault: Fault, detail: ErrorDetail) -> bytes:
        """The last events of an answer that failed in mid-stream; `detail` is the fault's.

        The `error` event comes in any case: it is the one that the official client raises.
        """
        events = self._opening()
        if fault.reason is Reason.CANCELLED:
            self.leave()
        elif self.response.status == "in_progress":
            self._settle("failed")
            code = _CODES.get(detail.type, "server_error")
            self.response.error = ResponseErrorDetail(code, fault.message)
            events += self._state("response.failed")
        told = {"code": detail.code, "message": detail.message, "param": detail.param}
        return events + self._event("error", **told, error=detail)

    def leave(self) -> None:
        """Nobody waits for it any more. Nothing happens to one that is over."""
        if self.response.status == "in_progress":
            self._settle("cancelled")

    def body(self) -> bytes:
        """The response as it is now."""
        if self._item is None:
            return _encode(self.response)
        output = [*self.response.output, self._item.item("in_progress")]
        return _encode(msgspec.structs.replace(self.response, output=output))

    def _settle(self, status: Literal["failed", "cancelled"]) -> None:
        self._close("incomplete")
        self.response.status = status

    # The items.

    def _think(self, piece: str) -> bytes:
        events = b"" if isinstance(self._item, Thought) else self._open(Thought, "rs_")
        return events + self._add(piece)

    def _say(self, piece: str, logprobs: Sequence[pb.TokenLogprob]) -> bytes:
        events = b"" if isinstance(self._item, Said) else self._open(Said, "msg_")
        if not logprobs:
            return events + self._add(piece)
        assert isinstance(self._item, Said)  # noqa: S101 - opened above
        return events + self._item.add_with(self._next(), piece, logprobs)

    def _call(self, delta: pb.ToolCallDelta) -> bytes:
        item, events = self._item, b""
        if not isinstance(item, Called) or item.call_index != delta.index:
            if self._called and not self.response.parallel_tool_calls:
                return b""  # the first one is all that was asked for
            if delta.index in self._called:
                raise ValueError("the pieces of two tool calls come mixed")
            self._called.add(delta.index)
            events = self._open(lambda name, index: Called(name, index, delta), "fc_")
        return events + (self._add(delta.arguments_json) if delta.arguments_json else b"")

    def _add(self, piece: str) -> bytes:
        assert self._item is not None  # noqa: S101 - opened by the caller
        return self._item.add(self._next(), piece)

    def _open(self, make: Callable[[str, int], OpenItem], prefix: str) -> bytes:
        events = self._close("completed")
        item = self._item = make(self._new_id(prefix), len(self.response.output))
        events += self._event(
            "response.output_item.added", output_index=item.index, item=item.bare()
        )
        if (part := item.part()) is not None:
            events += self._event("response.content_part.added", **item.place, part=part)
        return events

    def _close(self, status: ItemStatus) -> bytes:
        item, self._item = self._item, None
        if item is None:
            return b""
        done = item.item(status)
        self.response.output.append(done)
        events = self._event(f"{item.event}.done", **item.place, **item.whole())
        if (part := item.part()) is not None:
            events += self._event("response.content_part.done", **item.place, part=part)
        return events + self._event("response.output_item.done", output_index=item.index, item=done)

    # The wire.

    def _opening(self) -> bytes:
        if self.told:
            return b""
        self.told = True
        return self._state("response.created") + self._state("response.in_progress")

    def _state(self, kind: str) -> bytes:
        return self._event(kind, response=self.response)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = _encode({"type": kind, "sequence_number": self._next(), **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number


def _usage(told: pb.Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=told.prompt_tokens,
        input_tokens_details=InputTokensDetails(told.cached_prompt_tokens),
        output_tokens=told.completion_tokens,
        output_tokens_details=OutputTokensDetails(told.reasoning_tokens),
        total_tokens=told.prompt_tokens + told.completion_tokens,
    )
