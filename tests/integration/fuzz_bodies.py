"""Bodies of every dialect with hostile things in some of their fields; what a sound one looks like.

A body is sound but for a few fields, or it would be refused for the first one and never reach an
engine. Answers are short: what is searched is how requests are read and told, not how long models
talk.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tests.integration.fuzz_words import anything, counts, near, numbers, schemas, texts

Body = dict[str, Any]
Fields = Mapping[str, st.SearchStrategy[Any]]
FEW = 3
"""Fields that are hostile at once."""
MOST_TOKENS = 6
REGEXES = ("a+", "(a|b)*c", "[", "(a{500}){500}", "\\d{3}", "(?<x>a)\\1", "", "\x00", ".*")
GRAMMARS = (
    'root ::= "a"', "root ::= root", "x", 'root ::= ("a" | root)*', "", "root ::= [^\\x00]+",
)  # fmt: skip


def _parts() -> st.SearchStrategy[Any]:
    text = st.fixed_dictionaries({"type": st.just("text"), "text": texts()})
    image = st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}})
    return st.one_of(texts(), st.lists(text, max_size=3), st.lists(image, max_size=1), st.none())


def _calls() -> st.SearchStrategy[Any]:
    arguments = st.one_of(st.sampled_from(["{}", "", "{", '{"a": 1}', "[]", "null"]), texts())
    function = st.fixed_dictionaries(
        {"name": st.sampled_from(["f", "g"]) | texts(), "arguments": arguments}
    )
    call = {"id": st.sampled_from(["c", "d"]), "type": st.just("function"), "function": function}
    return st.lists(st.fixed_dictionaries(call), max_size=3)


_TURN_KINDS: Mapping[str, Fields] = {
    "system": {},
    "user": {"name": texts()},
    "assistant": {"tool_calls": _calls(), "reasoning_content": texts()},
    "tool": {"tool_call_id": st.sampled_from(["c", "d"])},
}


def _turn(role: str) -> st.SearchStrategy[Any]:
    sound = {"role": st.just(role), "content": _parts()}
    if role == "tool":
        return st.fixed_dictionaries(sound | dict(_TURN_KINDS[role]))
    return st.fixed_dictionaries(sound, optional=_TURN_KINDS[role])


def conversations() -> st.SearchStrategy[list[Any]]:
    """Turns of all roles in any order, also in those that no template expects."""
    sound = st.one_of([_turn(role) for role in _TURN_KINDS])
    odd = st.fixed_dictionaries({"role": texts(), "content": anything(3)})
    return st.lists(st.one_of(sound, sound, sound, odd), min_size=1, max_size=5)


def _tools() -> st.SearchStrategy[Any]:
    function = st.fixed_dictionaries(
        {"name": st.sampled_from(["f", "g", "a b"])},
        optional={"parameters": schemas(), "description": texts(), "strict": st.booleans()},
    )
    return st.lists(
        st.fixed_dictionaries({"type": st.just("function"), "function": function}), max_size=4
    )


def _formats() -> st.SearchStrategy[Any]:
    named = st.fixed_dictionaries({"name": st.just("n"), "schema": schemas()})
    regexes = st.sampled_from(REGEXES) | texts()
    grammars = st.sampled_from(GRAMMARS) | texts()
    return st.one_of(
        st.just({"type": "json_object"}),
        st.fixed_dictionaries({"type": st.just("json_schema"), "json_schema": named}),
        st.fixed_dictionaries({"type": st.just("regex"), "regex": regexes}),
        st.fixed_dictionaries({"type": st.just("grammar"), "grammar": grammars}),
        anything(4),
    )


_CHOICES = st.one_of(
    st.sampled_from(["none", "auto", "required", "any"]),
    st.just({"type": "function", "function": {"name": "f"}}),
    anything(3),
)
_BIASES = st.dictionaries(
    st.one_of(st.integers(-2, 2**33).map(str), st.sampled_from(["0", "1", "٣", "x", ""])),
    st.one_of(st.floats(-100, 100), numbers()),
    max_size=4,
)
_SAMPLED: Fields = {
    "temperature": near(0, 2),
    "top_p": near(1e-5, 1),
    "top_k": counts(0, 2**31 - 1),
    "min_p": near(0, 1),
    "typical_p": near(1e-5, 1),
    "repetition_penalty": near(1e-3, 10),
    "presence_penalty": near(-2, 2),
    "frequency_penalty": near(-2, 2),
    "seed": counts(-(2**63), 2**63 - 1),
    "max_sentences": counts(0, 3),
    "min_probability": near(0, 1),
    "n": counts(1, 3),
    "stop": st.one_of(texts(), st.lists(texts(), max_size=5), anything(3)),
    "logit_bias": _BIASES,
    "ignore_eos": st.booleans(),
    "user": anything(3),
}
_CHAT: Fields = {**_SAMPLED} | {
    "tools": _tools(),
    "tool_choice": _CHOICES,
    "response_format": _formats(),
    "logprobs": st.booleans(),
    "top_logprobs": counts(0, 20),
    "parallel_tool_calls": st.booleans(),
    "reasoning_effort": st.sampled_from(["none", "high", "x"]),
    "thinking": st.sampled_from(["enabled", "disabled", "x"]),
    "continue_final_message": st.booleans(),
    "add_generation_prompt": st.booleans(),
    "chat_template_kwargs": anything(4),
    "metadata": anything(),
}
_COMPLETION: Fields = {**_SAMPLED} | {
    "logprobs": counts(0, 20),
    "suffix": texts(),
    "echo": st.booleans(),
    "best_of": counts(1, 3),
}
_RESPONSE: Fields = {
    "instructions": texts(),
    "previous_response_id": texts(),
    "temperature": near(0, 2),
    "top_p": near(1e-5, 1),
    "top_logprobs": counts(0, 20),
    "include": st.lists(st.sampled_from(["message.output_text.logprobs", "x"]), max_size=2),
    "tools": st.lists(
        st.fixed_dictionaries(
            {"type": st.just("function"), "name": st.sampled_from(["f", "g"])},
            optional={"parameters": schemas(), "strict": st.booleans()},
        ),
        max_size=3,
    ),
    "tool_choice": _CHOICES,
    "text": st.fixed_dictionaries(
        {
            "format": st.one_of(
                st.fixed_dictionaries(
                    {"type": st.just("json_schema"), "name": st.just("n"), "schema": schemas()}
                ),
                anything(3),
            )
        }
    ),
    "reasoning": anything(3),
    "metadata": st.dictionaries(texts(), texts(), max_size=3),
    "store": st.booleans(),
    "truncation": st.sampled_from(["auto", "disabled", "x"]),
    "source_lang_code": texts(),
    "target_lang_code": texts(),
}
_BLOCKS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": texts()}),
        st.fixed_dictionaries(
            {
                "type": st.just("tool_use"),
                "id": st.just("c"),
                "name": st.just("f"),
                "input": anything(4),
            }
        ),
        st.fixed_dictionaries(
            {"type": st.just("tool_result"), "tool_use_id": st.just("c"), "content": texts()}
        ),
        st.fixed_dictionaries({"type": st.just("thinking"), "thinking": texts()}),
        anything(3),
    ),
    max_size=4,
)
_TURNS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": texts() | _BLOCKS}
    ),
    min_size=1,
    max_size=4,
)
_MESSAGE: Fields = {
    "system": texts() | _BLOCKS,
    "stop_sequences": st.lists(texts(), max_size=5),
    "temperature": near(0, 1),
    "top_p": near(1e-5, 1),
    "top_k": counts(0, 2**31 - 1),
    "tools": st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["f", "g"])},
            optional={"input_schema": schemas(), "description": texts()},
        ),
        max_size=3,
    ),
    "tool_choice": st.one_of(
        st.sampled_from([{"type": "any"}, {"type": "auto"}, {"type": "tool", "name": "f"}]),
        anything(3),
    ),
    "thinking": st.sampled_from(
        [{"type": "enabled", "budget_tokens": 1}, {"type": "adaptive"}, {"type": "x"}]
    ),
    "output_config": st.fixed_dictionaries(
        {"format": st.fixed_dictionaries({"type": st.just("json_schema"), "schema": schemas()})}
    ),
    "metadata": anything(3),
}
_COUNTED = {name: _MESSAGE[name] for name in ("system", "tools", "tool_choice", "thinking")}


_ITEMS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts()}),
        st.fixed_dictionaries(
            {"type": st.just("function_call_output"), "call_id": st.just("c"), "output": texts()}
        ),
        anything(4),
    ),
    max_size=4,
)
_DOCUMENTS = st.lists(
    st.one_of(texts(), texts(), st.fixed_dictionaries({"text": texts()}), anything(2)), max_size=3
)


def _some(sound: Mapping[str, st.SearchStrategy[Any]], hostile: Fields) -> st.SearchStrategy[Body]:
    """A sound body with a few of the hostile fields."""

    def drawn(names: list[str]) -> st.SearchStrategy[Body]:
        return st.fixed_dictionaries({**sound, **{name: hostile[name] for name in names}})

    return st.lists(st.sampled_from(sorted(hostile)), max_size=FEW, unique=True).flatmap(drawn)


def bodies(models: st.SearchStrategy[str]) -> dict[str, st.SearchStrategy[Body]]:
    """By path: bodies for models that write; `models` draws their names."""
    few, stream = st.integers(1, MOST_TOKENS), st.booleans()
    turns = conversations()
    tokens = st.lists(counts(0, 400), max_size=4)
    return {
        "/v1/chat/completions": _some(
            {"model": models, "messages": turns, "max_tokens": few, "stream": stream}, _CHAT
        ),
        "/v1/completions": _some(
            {"model": models, "prompt": texts() | tokens, "max_tokens": few, "stream": stream},
            _COMPLETION,
        ),
        "/v1/responses": _some(
            {
                "model": models,
                "input": texts() | _ITEMS,
                "max_output_tokens": few,
                "stream": stream,
            },
            _RESPONSE,
        ),
        "/v1/messages": _some(
            {"model": models, "messages": _TURNS, "max_tokens": few, "stream": stream}, _MESSAGE
        ),
        "/v1/messages/count_tokens": _some({"model": models, "messages": _TURNS}, _COUNTED),
        "/tokenize": st.fixed_dictionaries(
            {"model": models, "content": texts()},
            optional={
                "add_special": st.booleans(),
                "parse_special": st.booleans(), "with_pieces": st.booleans(),
            },
        ),
        "/detokenize": st.fixed_dictionaries({"model": models, "tokens": tokens}),
    }  # fmt: skip


def vector_bodies(embedding: str, reranker: str) -> dict[str, st.SearchStrategy[Body]]:
    """By path: bodies for models that do not write."""
    tokens = st.lists(counts(0, 80), max_size=4)
    given = st.one_of(texts(), st.lists(texts(), max_size=6), tokens, st.lists(tokens, max_size=3))
    formats = st.sampled_from(["float", "base64", "x"])
    return {
        "/v1/embeddings": _some(
            {"model": st.just(embedding), "input": given},
            {"dimensions": counts(1, 64), "encoding_format": formats},
        ),
        "/v1/rerank": _some(
            {"model": st.just(reranker), "query": texts(), "documents": _DOCUMENTS},
            {"top_n": counts(1, 9), "return_documents": st.booleans()},
        ),
    }
