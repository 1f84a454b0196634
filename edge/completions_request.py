"""OpenAI's completion dialect into llm.v1, and refusals that name the field.

Pure: bytes in, a CompletionRequest out. Ranges and types are checked by `completions_body` while
parsing.
"""

from dataclasses import dataclass

from chassis.errors import Fault
from cohabit.llm.v1 import llm_pb2 as pb
from edge import json_body
from edge.completions_body import PromptBody, decoder, engine_decoder
from edge.errors import bad_field
from edge.json_body import asks_for_nothing
from edge.openai_request import answered, includes_usage

_DEFAULT_MAX_TOKENS = 16
_TEXT_IS_THERE = "`echo` is not supported: the prompt is yours already; remove it."


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A completion request, understood."""

    model: str
    stream: bool
    include_usage: bool
    generate: pb.GenerateRequest


def parse(body: bytes) -> CompletionRequest:
    """The request in `body`. Raises Fault, its `param` the field at fault."""
    asked = json_body.decode(decoder, body)
    return _request(asked, asked.model)


def parse_for_engine(engine: str, body: bytes) -> CompletionRequest:
    """The same for a path that names the model. Raises Fault."""
    return _request(json_body.decode(engine_decoder, body), engine)


def _request(asked: PromptBody, model: str) -> CompletionRequest:
    if not asks_for_nothing(asked.echo, (None, False)):
        raise bad_field("echo", _TEXT_IS_THERE)
    if asked.best_of not in (None, asked.n or 1):
        raise bad_field("best_of", "`best_of` must be what `n` is: no other answer is thrown away.")
    return CompletionRequest(
        model=model,
        stream=bool(asked.stream),
        include_usage=includes_usage(asked),
        generate=_generate(asked, model),
    )


def _generate(asked: PromptBody, model: str) -> pb.GenerateRequest:
    generate = answered(asked)
    generate.model = model
    generate.max_tokens = asked.max_tokens or _DEFAULT_MAX_TOKENS
    prompt = _one_prompt(asked)
    if isinstance(prompt, str):
        generate.prompt = prompt
        generate.suffix = asked.suffix or ""
    else:
        if asked.suffix:
            raise bad_field("suffix", "`suffix` goes together with a `prompt` of text; remove it.")
        generate.prompt_token_ids.ids.extend(prompt)
    if asked.logprobs is not None:
        generate.logprobs, generate.top_logprobs = True, asked.logprobs
    return generate


def _one_prompt(asked: PromptBody) -> str | list[int]:
    """The text, or the tokens. Raises Fault for several prompts, and for none."""
    given: str | list[int] | list[str | int | list[int]] = asked.prompt
    if isinstance(given, list) and len(given) == 1 and not isinstance(given[0], int):
        given = given[0]
    prompt = given if isinstance(given, str) else [item for item in given if isinstance(item, int)]
    if len(prompt) < len(given):
        raise _several(mixed=bool(prompt))
    if not prompt:
        raise bad_field("prompt", "`prompt` is empty: expected a text or tokens.")
    return prompt


def _several(*, mixed: bool) -> Fault:
    if mixed:
        return bad_field("prompt", "`prompt` mixes tokens with other things; send one kind.")
    return bad_field("prompt", "`prompt` holds several prompts; send one request for each.")
