"""cohabit.llm.v1 requests, measured and planned, and the end of an answer told. No clock here.

What the language model service refuses of a request is refused here too, so that a client meets
no surprise when the model becomes a real one.
"""

import asyncio
from dataclasses import dataclass

from chassis.errors import Fault, Reason, not_implemented
from cohabit.llm.v1 import llm_pb2 as pb
from services.simulated.profile import Profile
from services.simulated.words import Plan, count_talk, count_text, plan

_DEMANDS_TOOLS = frozenset({pb.ToolChoice.MODE_REQUIRED, pb.ToolChoice.MODE_NAMED})
_MOST_STOPS = 64
_MOST_STOP_BYTES = 256
_COUNTED_AT_ONCE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Times:
    """When an answer came to its parts, in seconds of one clock."""

    arrived_s: float
    first_s: float
    last_s: float


async def counted(request: pb.GenerateRequest | pb.CountTokensRequest) -> int:
    """Tokens of the prompt. Raises Fault. A long one takes too long for the event loop."""
    if request.ByteSize() <= _COUNTED_AT_ONCE_BYTES:
        return _count(request)
    return await asyncio.to_thread(_count, request)


def check_answers(key: str, profile: Profile) -> None:
    """Raises Fault unless the model is a language model."""
    if not profile.answers:
        raise Fault(
            Reason.INVALID_REQUEST,
            f"Model '{key}' is of kind {profile.kind} and answers no prompts; ask it by "
            "cohabit.simulated.v1.SimulatedService.Run.",
            metadata={"param": "model"},
        )


def planned(request: pb.GenerateRequest, prompt_tokens: int, profile: Profile) -> Plan:
    """The answer to a prompt of that length. Raises Fault CONTEXT_LENGTH_EXCEEDED and others."""
    _check(request)
    limit_tokens = _limit(request.max_tokens, prompt_tokens, profile.context_tokens)
    own_tokens = limit_tokens if request.ignore_eos else profile.answer_tokens
    return plan(limit_tokens=limit_tokens, own_tokens=own_tokens, stops=tuple(request.stop))


def finish(told: Plan, prompt_tokens: int, times: Times) -> pb.Finish:
    """How the answer ended."""
    cut = pb.FINISH_REASON_LENGTH if told.cut_short else pb.FINISH_REASON_STOP
    first_ms = 1000 * (times.first_s - times.arrived_s)
    return pb.Finish(
        reason=cut,
        stop=told.stop,
        usage=pb.Usage(prompt_tokens=prompt_tokens, completion_tokens=len(told.words)),
        timings=pb.Timings(
            prefill_ms=first_ms,
            first_token_ms=first_ms,
            decode_ms=1000 * (times.last_s - times.first_s),
        ),
    )


def _count(request: pb.GenerateRequest | pb.CountTokensRequest) -> int:
    """Tokens of the prompt. Raises Fault for what is missing or cannot be read."""
    which = request.WhichOneof("input")
    if which == "prompt":
        return count_text(request.prompt)
    if which is None or not request.conversation.messages:
        raise Fault(Reason.INVALID_REQUEST, "There is nothing to answer; send messages.")
    talk = request.conversation
    if talk.tools or talk.tool_choice.mode in _DEMANDS_TOOLS:
        raise not_implemented("Calling tools")
    return count_talk([*_texts(message), message.reasoning] for message in talk.messages)


def _texts(message: pb.Message) -> list[str]:
    if message.role not in (pb.ROLE_SYSTEM, pb.ROLE_USER, pb.ROLE_ASSISTANT):
        if message.role == pb.ROLE_TOOL:
            raise not_implemented("Calling tools")
        raise Fault(Reason.INVALID_REQUEST, "Every message needs a role.")
    if message.tool_calls or message.tool_call_id:
        raise not_implemented("Calling tools")
    if any(part.WhichOneof("part") != "text" for part in message.content):
        raise Fault(Reason.MODALITY_UNSUPPORTED, "This model reads text only; send only text.")
    return [part.text for part in message.content]


def _check(request: pb.GenerateRequest) -> None:
    unbuilt = {
        "More than one answer a request (choices)": request.choices > 1,
        "Log-probabilities (logprobs)": request.logprobs or request.top_logprobs > 0,
        "Constrained output (output)": request.HasField("output"),
        "Ending after a number of sentences (max_sentences)": request.max_sentences > 0,
        "Ending at an unlikely token (min_probability)": request.min_probability > 0,
    }
    for what, asked in unbuilt.items():
        if asked:
            raise not_implemented(what)
    if len(request.stop) > _MOST_STOPS:
        raise _bad_stop(f"at most {_MOST_STOPS} strings")
    if any(not 0 < len(stop.encode()) <= _MOST_STOP_BYTES for stop in request.stop):
        raise _bad_stop(f"strings of 1 to {_MOST_STOP_BYTES} bytes")


def _bad_stop(expected: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, f"`stop` must be {expected}.", metadata={"param": "stop"})


def _limit(max_tokens: int, prompt_tokens: int, context_tokens: int) -> int:
    if prompt_tokens == 0:
        raise Fault(Reason.INVALID_REQUEST, "The prompt is empty; say something.")
    left = context_tokens - prompt_tokens
    if left >= max(1, max_tokens):
        return max_tokens or left
    wanted = max_tokens or "at least 1"
    raise Fault(
        Reason.CONTEXT_LENGTH_EXCEEDED,
        f"This model's context is {context_tokens} tokens, but the request wants {prompt_tokens} "
        f"for the prompt and {wanted} for the answer; shorten one of them.",
        metadata={"prompt_tokens": str(prompt_tokens), "context_tokens": str(context_tokens)},
    )
