"""The engine's answers → cohabit.llm.v1 messages."""

from dataclasses import asdict

from cohabit.llm.v1 import llm_pb2 as pb
from services.llm.engine import Holdings, Occupancy
from services.llm.values import Candidate, Chunk, Finish, FinishReason, TokenLogprob, ToolCallDelta

_FINISH = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.TOOL_CALLS: pb.FINISH_REASON_TOOL_CALLS,
}


def response_of(chunk: Chunk) -> pb.GenerateResponse:
    """A piece of an answer."""
    response = pb.GenerateResponse(
        choice=chunk.choice, text=chunk.text, reasoning=chunk.reasoning, tokens=chunk.tokens
    )
    if chunk.prefill is not None:
        response.prefill.done_tokens = chunk.prefill.done_tokens
        response.prefill.total_tokens = chunk.prefill.total_tokens
    if chunk.tool_calls:
        response.tool_calls.extend(map(_delta, chunk.tool_calls))
    if chunk.logprobs:
        response.logprobs.extend(map(_logprob, chunk.logprobs))
    if chunk.finish is not None:
        response.finish.CopyFrom(_finish(chunk.finish))
    return response


def occupancy_response(occupancy: Occupancy, held: Holdings) -> pb.GetOccupancyResponse:
    """What an engine is doing, and what its cache holds."""
    return pb.GetOccupancyResponse(**asdict(occupancy), **asdict(held))


def _delta(delta: ToolCallDelta) -> pb.ToolCallDelta:
    return pb.ToolCallDelta(
        index=delta.index, id=delta.id, name=delta.name, arguments_json=delta.arguments_json
    )


def _logprob(token: TokenLogprob) -> pb.TokenLogprob:
    return pb.TokenLogprob(chosen=_candidate(token.chosen), top=map(_candidate, token.top))


def _candidate(candidate: Candidate) -> pb.TokenLogprob.Candidate:
    return pb.TokenLogprob.Candidate(
        token=candidate.token, text=candidate.text, logprob=candidate.logprob
    )


def _finish(finish: Finish) -> pb.Finish:
    usage, timings, saved = finish.usage, finish.timings, finish.speculation
    told = pb.Finish(
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
    if saved is not None:
        told.speculation.drafted_tokens = saved.drafted_tokens
        told.speculation.accepted_tokens = saved.accepted_tokens
        told.speculation.saved_calls = saved.saved_calls
    return told
