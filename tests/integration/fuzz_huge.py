"""Requests that are large, deep or many, one of each kind, by name: (path, body as bytes).

Hypothesis does not get this far: it searches among small things.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tests.integration.fuzz_words import CONTROL_NAMES, encoded, nested

MB = 1_000_000
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
ROUTES = (
    CHAT, COMPLETIONS, RESPONSES, MESSAGES, COUNT, "/tokenize", "/detokenize", "/v1/embeddings",
    "/v1/rerank", "/api/v1/generate", "/api/v1/summarization", "/api/v1/feature-extraction",
)  # fmt: skip
Case = tuple[str, str, Callable[[], bytes]]


def _chat(text: str = "hi", **more: Any) -> bytes:
    turn = {"role": "user", "content": text}
    return encoded({"model": "tiny", "messages": [turn], "max_tokens": 4} | more)


def _also(fields: Mapping[str, Any]) -> bytes:
    """A chat with fields of any name."""
    return _chat(**dict[str, Any](fields))


def _message(text: str = "hi", **more: Any) -> bytes:
    turn = {"role": "user", "content": text}
    return encoded({"model": "tiny", "messages": [turn], "max_tokens": 4} | more)


def _response(given: Any = "hi", **more: Any) -> bytes:
    return encoded({"model": "tiny", "input": given, "max_output_tokens": 4} | more)


def _shaped(schema: str) -> bytes:
    """A chat that demands an answer of this schema, which is JSON text: `json` cannot write what
    is very deep."""
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": "HERE"}}
    return _chat(response_format=form).replace(b'"HERE"', schema.encode())


def _called(schema: str, choice: str = "required") -> bytes:
    """A chat with one tool of this schema."""
    tool: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": "HERE"}}
    return _chat(tools=[tool], tool_choice=choice).replace(b'"HERE"', schema.encode())


def _deep(depth: int) -> str:
    return nested(depth, '{"type": "object", "properties": {"a": ', "}}", '{"type": "null"}')


def _wide(count: int) -> str:
    words = {f"w{i}": {"type": "integer"} for i in range(count)}
    return json.dumps({"type": "object", "properties": words, "required": list(words)})


def _counted(text: str) -> bytes:
    return encoded({"model": "tiny", "messages": [{"role": "user", "content": text}]})


_OF_TEXT: Mapping[str, Callable[[str], bytes]] = {
    CHAT: _chat,
    MESSAGES: _message,
    COUNT: _counted,
    RESPONSES: _response,
    COMPLETIONS: lambda text: encoded({"model": "tiny", "prompt": text}),
    "/tokenize": lambda text: encoded({"model": "tiny", "content": text, "with_pieces": True}),
    "/v1/embeddings": lambda text: encoded({"model": "bert", "input": text}),
    "/v1/rerank": lambda text: encoded({"model": "rank", "query": text, "documents": ["a"]}),
    "/api/v1/summarization": lambda text: encoded({"text": text}),
}


def _texts() -> Iterator[Case]:
    for name, text in (
        ("letters", "a" * 4 * MB), ("words", "the sea " * MB), ("emoji", "👩🏽" * 400_000),
        ("nothing", "\x00" * MB), ("newlines", "\n" * MB), ("accents", "\u0301" * MB),
        ("controls", "".join(CONTROL_NAMES) * 20_000), ("few", "👩🏽 <s> the sea\x00 " * 30),
        ("most that fits", "a " * 7 * MB), ("too much", "a" * 17 * MB),
    ):  # fmt: skip
        for path, body_of in _OF_TEXT.items():
            yield f"{name} to {path}", path, partial(body_of, text)


def _many() -> Iterator[Case]:
    turn = {"role": "user", "content": "a"}
    reply = {"role": "assistant", "content": "b"}
    part = {"type": "text", "text": "a"}
    item = {"role": "user", "content": [{"type": "input_text", "text": "a"}]}
    tool: dict[str, Any] = {
        "type": "function",
        "function": {"name": "f", "parameters": json.loads(_wide(20))},
    }
    tools = [{**tool, "function": {**tool["function"], "name": f"f{i}"}} for i in range(300)]
    yield "10,000 stops", CHAT, lambda: _chat(stop=[f"s{i}" for i in range(10_000)])
    yield "10,000 stop sequences", MESSAGES, lambda: _message(stop_sequences=["s"] * 10_000)
    yield (
        "64 long stops",
        CHAT,
        lambda: _chat(stop=[f"{i:02}" + "a" * 254 for i in range(64)], n=16),
    )
    yield "64 short stops", CHAT, lambda: _chat(stop=[chr(97 + i) for i in range(64)], n=16)
    yield "16,384 turns", CHAT, lambda: _chat(messages=[turn, reply] * 8_192)
    yield "16,385 turns", CHAT, lambda: _chat(messages=[turn] * 16_385)
    yield "100,000 turns", MESSAGES, lambda: _message(messages=[turn] * 100_000)
    yield "4,096 messages", MESSAGES, lambda: _message(messages=[turn, reply] * 2_048)
    yield (
        "4,096 counted",
        COUNT,
        lambda: encoded({"model": "tiny", "messages": [turn, reply] * 2_048}),
    )
    yield "4,096 items", RESPONSES, lambda: _response([item] * 4_096)
    yield (
        "400 turns of 1,024 parts",
        CHAT,
        lambda: _chat(messages=[{"role": "user", "content": [part] * 1_024}] * 400),
    )
    yield "128 tools", CHAT, lambda: _chat(tools=tools[:128], tool_choice="auto")
    yield "128 tools, one demanded", CHAT, lambda: _chat(tools=tools[:128], tool_choice="required")
    yield "300 tools", CHAT, lambda: _chat(tools=tools)
    yield "tools of one name", CHAT, lambda: _chat(tools=[tool] * 64, tool_choice="required")
    yield (
        "300 functions",
        RESPONSES,
        lambda: _response(tools=[{"type": "function", "name": f"f{i}"} for i in range(300)]),
    )
    yield "1,024 biases", CHAT, lambda: _chat(logit_bias={str(i): -100 for i in range(400)}, n=16)
    yield "10,000 biases", CHAT, lambda: _chat(logit_bias={str(i): 1 for i in range(10_000)})
    yield (
        "every token forbidden",
        CHAT,
        lambda: _chat(logit_bias={str(i): -100 for i in range(436)}),
    )
    yield "unknown tokens", CHAT, lambda: _chat(logit_bias={"1000000": 1})
    yield "16 choices", CHAT, lambda: _chat(n=16, logprobs=True, top_logprobs=20, stream=True)
    yield "16 choices of nothing likely", CHAT, lambda: _chat(n=16, min_probability=1.0)
    yield "a million tokens", COMPLETIONS, lambda: encoded({"model": "tiny", "prompt": [1] * MB})
    yield (
        "lists of tokens",
        COMPLETIONS,
        lambda: encoded({"model": "tiny", "prompt": [[1]] * 10_000}),
    )
    yield (
        "131,072 tokens back",
        "/detokenize",
        lambda: encoded({"model": "tiny", "tokens": [5] * 131_072}),
    )
    yield (
        "256 texts",
        "/v1/embeddings",
        lambda: encoded({"model": "bert", "input": ["the sea "] * 256}),
    )
    yield (
        "100,000 texts",
        "/v1/embeddings",
        lambda: encoded({"model": "bert", "input": ["a"] * 100_000}),
    )
    yield (
        "256 documents",
        "/v1/rerank",
        lambda: encoded({"model": "rank", "query": "sea", "documents": ["the moon "] * 256}),
    )
    yield (
        "100,000 documents",
        "/v1/rerank",
        lambda: encoded({"model": "rank", "query": "sea", "documents": ["a"] * 100_000}),
    )
    yield "half a million fields", CHAT, lambda: _also({f"x{i}": 1 for i in range(500_000)})
    yield (
        "much metadata",
        RESPONSES,
        lambda: _response(metadata={f"x{i}": "a" for i in range(10_000)}),
    )
    yield "a name of a megabyte", CHAT, lambda: _chat(model="a" * MB)
    yield "a field of a megabyte", CHAT, lambda: _also({"a" * MB: 1})


def _schemas() -> Iterator[Case]:
    loop = (
        '{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}'
    )
    tree = '{"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]}'
    branches = json.dumps({"anyOf": [{"const": i} for i in range(20_000)]})
    words = json.dumps({"enum": [f"word {i}" for i in range(50_000)]})
    power = '{"type": "string"}'
    for _ in range(12):
        power = f'{{"anyOf": [{power}, {{"type": "array", "items": {power}}}]}}'
    long = '{"type": "string", "minLength": 1000000, "maxLength": 1000000000}'
    many = '{"type": "array", "items": {"type": "integer"}, "minItems": 1000000}'
    digits = '{"type": "integer", "minimum": -1e300, "maximum": 1e300}'
    pattern = '{"type": "string", "pattern": "^(([a-z]+)+){1,100}$"}'
    counted = '{"type": "string", "pattern": "^((a{1,99}){1,99}){1,99}$"}'
    letters = '{"type": "string", "pattern": "^[\\\\p{L}\\\\p{N}]{1,500}$"}'
    for name, schema in (
        *((f"{depth} deep", _deep(depth)) for depth in (30, 100, 1_000, 100_000)),
        ("lists 10,000 deep", nested(10_000, '{"type": "array", "items": ', "}", "{}")),
        ("anyOf 10,000 deep", nested(10_000, '{"anyOf": [', "]}", "{}")),
        ("100 wide", _wide(100)), ("5,000 wide", _wide(5_000)), ("a loop", loop), ("a tree", tree),
        ("20,000 branches", branches), ("50,000 words", words), ("powers of two", power),
        ("a long text", long), ("many items", many), ("many digits", digits),
        ("a pattern", pattern), ("counted thrice", counted), ("all letters", letters),
        ("a name of a megabyte", json.dumps({"properties": {"a" * MB: {}}})),
    ):  # fmt: skip
        yield f"schema {name}", CHAT, partial(_shaped, schema)
        yield f"tool {name}", CHAT, partial(_called, schema)
        yield f"offered {name}", CHAT, partial(_called, schema, "auto")


def _grammars() -> Iterator[Case]:
    rules = "\n".join(f'r{i} ::= "a" r{i + 1}' for i in range(20_000)) + '\nr20000 ::= "a"'
    for name, form in (
        ("regex counted", {"regex": "((a{1,99}){1,99}){1,99}"}),
        ("regex of a megabyte", {"regex": "a" * MB}),
        ("regex 10,000 deep", {"regex": nested(10_000, "(", ")", "a")}),
        ("regex of choices", {"regex": "|".join(f"w{i}" for i in range(20_000))}),
        ("regex over letters", {"regex": "[\\p{L}\\p{N}]{1,500}"}),
        ("regex doubled", {"regex": "(a?){500}a{500}"}),
        ("grammar that turns left", {"grammar": 'root ::= root "a" | "a"'}),
        ("grammar without end", {"grammar": 'root ::= "a" root'}),
        ("grammar of nothing", {"grammar": "root ::= x\nx ::= root"}),
        ("grammar of 20,000 rules", {"grammar": f"root ::= r0\n{rules}"}),
        ("grammar 10,000 deep", {"grammar": "root ::= " + nested(10_000, "(", ")", '"a"')}),
        ("grammar counted", {"grammar": 'root ::= (("a"{1,99}){1,99}){1,99}'}),
        ("grammar of a megabyte", {"grammar": f'root ::= "{"a" * MB}"'}),
        ("grammar that doubles", {"grammar": 'root ::= ("a"? | "a" root)*'}),
    ):
        kind = next(iter(form))
        yield name, CHAT, partial(_chat, response_format={"type": kind, **form})


def _broken() -> Iterator[Case]:
    for name, raw in (
        ("nothing", b""), ("null", b"null"), ("a list", b"[]"), ("a number", b"1e999"),
        ("half", b'{"model": "tiny", "mess'), ("two", b"{}{}"), ("not UTF-8", b'{"model": "\xff"}'),
        ("UTF-16", '{"model": "tiny"}'.encode("utf-16")), ("with a mark", b"\xef\xbb\xbf{}"),
        ("deep", b"[" * MB), ("deep objects", b'{"a":' * MB),
        ("deep in a field", b'{"user":' + b"[" * MB),
        ("deep and closed", b'{"model":"tiny","user":' + nested(MB, "[", "]").encode() + b"}"),
        ("a long number", b'{"model":"tiny","seed":' + b"9" * MB + b"}"),
        ("a long fraction", b'{"model":"tiny","temperature":0.' + b"9" * MB + b"}"),
        ("many nulls", b'{"model":"tiny","messages":[' + b"null," * MB + b"null]}"),
    ):  # fmt: skip
        for path in ROUTES:
            yield f"{name} to {path}", path, partial(bytes, raw)


def cases() -> list[Case]:
    """All of them; a body is made when it is wanted, for together they are large."""
    return [*_texts(), *_many(), *_schemas(), *_grammars(), *_broken()]
