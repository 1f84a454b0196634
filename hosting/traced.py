"""What an engine's work came to, on the span of the call at hand: counts and times, nothing else.

Names are those of OpenTelemetry, where it has any.
"""

from google.protobuf.message import Message

from chassis import tracing
from cohabit.llm.v1 import llm_pb2

_REASON = len("FINISH_REASON_")


def generated(finish: llm_pb2.Finish) -> None:
    """An answer has ended; of several choices the last one stands."""
    if not (span := tracing.current.get()):
        return
    usage = finish.usage
    span.tell(
        {
            "cohabit.finish_reason": llm_pb2.FinishReason.Name(finish.reason)[_REASON:].lower(),
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
        }
    )
    took(finish.timings)


def took(timings: Message) -> None:
    """Its phases: every field of a `Timings` message, which are all times by name."""
    if not (span := tracing.current.get()):
        return
    names = [field.name for field in timings.DESCRIPTOR.fields]
    span.tell({f"cohabit.{name}": round(float(getattr(timings, name)), 3) for name in names})
