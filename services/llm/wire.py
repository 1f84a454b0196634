"""cohabit.llm.v1 messages ↔ the engine's values."""

from chassis.errors import Fault, Reason, not_implemented
from cohabit.llm.v1 import llm_pb2 as pb
from services.llm.engine import (
    BarePrompt,
    ChatMessage,
    Chunk,
    Conversation,
    Finish,
    FinishReason,
    GenerateParams,
    Prompt,
    Role,
    SamplingParams,
)

_ROLES = {
    pb.ROLE_SYSTEM: Role.SYSTEM,
    pb.ROLE_USER: Role.USER,
    pb.ROLE_ASSISTANT: Role.ASSISTANT,
    pb.ROLE_TOOL: Role.TOOL,
}
_THINKING = {
    pb.THINKING_UNSPECIFIED: None,
    pb.THINKING_ENABLED: True,
    pb.THINKING_DISABLED: False,
}
_DEMANDS_TOOLS = frozenset({pb.ToolChoice.MODE_REQUIRED, pb.ToolChoice.MODE_NAMED})
_FINISH = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


def prompt_of(request: pb.GenerateRequest | pb.CountTokensRequest) -> Prompt:
    """What to answer. Raises Fault for what is missing or not built."""
    which = request.WhichOneof("input")
    if which == "prompt":
        return BarePrompt(request.prompt)
    if which is None or not request.conversation.messages:
        raise Fault(Reason.INVALID_REQUEST, "There is nothing to answer; send messages.")
    talk = request.conversation
    if talk.tools or talk.tool_choice.mode in _DEMANDS_TOOLS:
        raise not_implemented("Calling tools")
    if request.thinking not in _THINKING:
        raise Fault(Reason.INVALID_REQUEST, f"There is no thinking mode {request.thinking}.")
    return Conversation(
        tuple(_message(message) for message in talk.messages),
        continue_last=talk.continue_last,
        thinking=_THINKING[request.thinking],
    )


def params_of(request: pb.GenerateRequest) -> GenerateParams:
    """How to answer. Raises Fault for what is not built."""
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
    given = request.sampling
    chosen = {f.name: value for f, value in given.ListFields() if f.name != "logit_bias"}
    return GenerateParams(
        max_tokens=request.max_tokens,
        stop=tuple(request.stop),
        sampling=SamplingParams(**chosen, logit_bias=dict(given.logit_bias)),
        ignore_eos=request.ignore_eos,
    )


def response_of(chunk: Chunk) -> pb.GenerateResponse:
    """A piece of an answer."""
    response = pb.GenerateResponse(text=chunk.text, tokens=chunk.tokens)
    if chunk.prefill is not None:
        response.prefill.done_tokens = chunk.prefill.done_tokens
        response.prefill.total_tokens = chunk.prefill.total_tokens
    if chunk.finish is not None:
        response.finish.CopyFrom(_finish(chunk.finish))
    return response


def _message(message: pb.Message) -> ChatMessage:
    if message.role not in _ROLES:
        raise Fault(Reason.INVALID_REQUEST, "Every message needs a role.")
    if message.tool_calls or message.tool_call_id or message.role == pb.ROLE_TOOL:
        raise not_implemented("Calling tools")
    texts = []
    for part in message.content:
        if part.WhichOneof("part") != "text":
            raise Fault(
                Reason.MODALITY_UNSUPPORTED,
                "This model reads text only; send only text.",
            )
        texts.append(part.text)
    if message.reasoning and message.role != pb.ROLE_ASSISTANT:
        raise Fault(Reason.INVALID_REQUEST, "Only messages of the assistant have `reasoning`.")
    return ChatMessage(_ROLES[message.role], "".join(texts), message.name, message.reasoning)


def _finish(finish: Finish) -> pb.Finish:
    usage, timings = finish.usage, finish.timings
    return pb.Finish(
        reason=_FINISH[finish.reason],
        stop=finish.stop,
        usage=pb.Usage(
            prompt_tokens=usage.prompt_tokens,
            cached_prompt_tokens=usage.cached_prompt_tokens,
            completion_tokens=usage.completion_tokens,
            reasoning_tokens=usage.reasoning_tokens,
        ),
        timings=pb.Timings(
            tokenize_ms=timings.tokenize_ms,
            engine_wait_ms=timings.engine_wait_ms,
            prefill_ms=timings.prefill_ms,
            first_token_ms=timings.first_token_ms,
            decode_ms=timings.decode_ms,
        ),
    )
