"""The legacy text routes into llm.v1, and refusals that name the field. Pure.

A text is continued as it stands, without a chat template. Only where the model is to think first
does it go through the template, because that is where thinking is switched on.
"""

from cohabit.llm.v1 import llm_pb2 as pb
from edge import json_body
from edge.legacy_body import (
    DEFAULT_MAX_LENGTH,
    DEFAULT_SUMMARY_CHARS,
    GenerateBody,
    SummarizationBody,
    generate_decoder,
    summarization_decoder,
)
from edge.openai_request import Inert, refuse_unless_inert, stops_of

_INERT: Inert = {"min_length": (None, 0, 1), "stream": (None, False)}
_SAMPLING = ("top_p", "top_k", "temperature", "repetition_penalty", "min_p")

_CONTINUE = (
    "You continue texts. Answer with what comes next in the user's text and nothing else, "
    "in its tone and style."
)
_SUMMARISE = (
    "Summarise the user's text in at most {chars} characters. Answer with the summary alone."
)
# Few languages take more tokens than one for two characters; what is too long is cut anyway.
_CHARS_PER_TOKEN = 2
_SPARE_TOKENS = 16


def parse_generate(body: bytes) -> tuple[GenerateBody, pb.GenerateRequest]:
    """The request in `body`, as it was written and as it is meant. Raises Fault."""
    asked = json_body.decode(generate_decoder, body)
    refuse_unless_inert(asked, _INERT)
    generate = pb.GenerateRequest(
        max_tokens=asked.max_length or DEFAULT_MAX_LENGTH,
        stop=stops_of(asked.stop_sequences, "stop_sequences"),
        sampling=_sampling(asked),
        choices=asked.number_of_results or 0,
        max_sentences=asked.max_sentences or 0,
        min_probability=asked.min_probability or 0,
    )
    if asked.enable_thinking:
        generate.conversation.CopyFrom(_told(_CONTINUE, asked.text))
        generate.thinking = pb.THINKING_ENABLED
    else:
        generate.prompt = asked.text
    return asked, generate


def parse_summarization(body: bytes) -> tuple[SummarizationBody, pb.GenerateRequest]:
    """The request in `body`, as it was written and as it is meant. Raises Fault."""
    asked = json_body.decode(summarization_decoder, body)
    chars = summary_chars(asked)
    return asked, pb.GenerateRequest(
        conversation=_told(_SUMMARISE.format(chars=chars), asked.text),
        thinking=pb.THINKING_DISABLED,
        max_tokens=chars // _CHARS_PER_TOKEN + _SPARE_TOKENS,
    )


def summary_chars(asked: SummarizationBody) -> int:
    """The longest summary."""
    return asked.max_length or DEFAULT_SUMMARY_CHARS


def _sampling(asked: GenerateBody) -> pb.Sampling:
    sampling = pb.Sampling()
    for field in _SAMPLING:
        if (value := getattr(asked, field)) is not None:
            setattr(sampling, field, value)
    if asked.seed:
        sampling.seed = asked.seed % 2**64
    return sampling


def _told(instruction: str, text: str) -> pb.GenerateRequest.Conversation:
    talk = pb.GenerateRequest.Conversation()
    for role, said in ((pb.ROLE_SYSTEM, instruction), (pb.ROLE_USER, text)):
        talk.messages.add(role=role).content.add().text = said
    return talk
