"""Hostile words, numbers and schemas, and JSON that holds them: what the bodies of a fuzz run are
made of. Which fields they go into is said in `fuzz_bodies`.
"""

import json
from typing import Any

from hypothesis import strategies as st

CONTROL_NAMES = (
    "<|im_start|>", "<|im_end|>", "<|im_start|>system\n", "<|endoftext|>", "<s>", "</s>", "[INST]",
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<unk>", "[CLS]", "[SEP]", "<|eot_id|>",
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "\x00", "a\x00b", "\ud800", "\udfff\ud800", "\ufeff", "\ufffe\uffff", "\U0010ffff",
    "\u202e\u200d\u2066", "e" + "\u0301" * 50, "👩\u200d👧" * 20, "\r\n\x85\u2028\u2029",
    "{{ messages }}", "{% raw %}",
    "data: [DONE]\n\n", "\n\n", "'\"\\", "%s%n", "../../etc/passwd", "0" * 2_000, "a b " * 2_000,
)  # fmt: skip
MOST = 2**63


def texts() -> st.SearchStrategy[str]:
    """Any characters: noncharacters, NUL, names of control tokens, seldom half a surrogate pair."""
    anything = st.text(max_size=40)
    names = st.sampled_from(CONTROL_NAMES)
    return st.one_of(
        anything, names, st.sampled_from(ODD_TEXTS), st.tuples(names, anything).map("".join)
    )


def numbers() -> st.SearchStrategy[Any]:
    """Integers and floats from the edges of their types; not all of them are JSON."""
    edges = (0, -0.0, -1, 1, 16, 17, 20, 21, 2**31 - 1, 2**31, 2**32, MOST, 2**64, -MOST, 10**400)
    small = (1e-45, 1e-7, 5e-324, 1e308, float("nan"), float("inf"), float("-inf"))
    return st.one_of(
        st.sampled_from(edges), st.sampled_from(small), st.integers(), st.floats(-3, 3)
    )


def near(low: float, high: float) -> st.SearchStrategy[Any]:
    """Mostly from the range that is allowed, its ends among them."""
    allowed = st.one_of(st.sampled_from([low, high]), st.floats(low, high, exclude_min=True))
    return st.one_of(allowed, allowed, allowed, numbers())


def counts(low: int, high: int) -> st.SearchStrategy[Any]:
    """As `near`, of integers."""
    allowed = st.integers(low, high)
    return st.one_of(allowed, allowed, allowed, numbers())


def anything(leaves: int = 12) -> st.SearchStrategy[Any]:
    """Whatever JSON can hold, and a little more."""
    leaf = st.one_of(st.none(), st.booleans(), numbers(), texts())
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4),
        max_leaves=leaves,
    )


_KEYWORDS = {
    "type": st.sampled_from(["object", "array", "string", "number", "integer", "null", "x", []]),
    "enum": st.lists(anything(3), max_size=4),
    "const": anything(3),
    "pattern": st.sampled_from(
        ["^a+$", "(a+)+$", "[", "(?=x)", "\\p{L}{1000}", "(" * 500, "a{9999}"]
    ),
    "format": st.sampled_from(["date-time", "uuid", "x", 1]),
    "minLength": counts(0, 9), "maxLength": counts(0, 9), "minItems": counts(0, 3),
    "maxItems": counts(0, 3), "minimum": numbers(), "maximum": numbers(), "multipleOf": numbers(),
    "required": st.lists(texts(), max_size=3),
    "additionalProperties": st.booleans(),
    "$ref": st.sampled_from(["#", "#/$defs/a", "#/properties/a", "http://x/y", "#/a~0~1", ""]),
}  # fmt: skip


_INNER: st.SearchStrategy[Any] = st.deferred(lambda: _SCHEMAS)
_NAMED = st.dictionaries(st.one_of(st.just("a"), texts()), _INNER, max_size=2)
_BRANCHES = st.lists(_INNER, max_size=2)
_WITHIN = {
    "properties": _NAMED, "$defs": _NAMED, "items": _INNER, "prefixItems": _BRANCHES,
    "anyOf": _BRANCHES, "oneOf": _BRANCHES, "allOf": _BRANCHES, "not": _INNER,
}  # fmt: skip


@st.composite
def _few(draw: st.DrawFn) -> dict[str, Any]:
    """Of the many keywords that there are, two or three."""
    words = _KEYWORDS | _WITHIN
    names = draw(st.lists(st.sampled_from(sorted(words)), max_size=3, unique=True))
    return {name: draw(words[name]) for name in names}


_SCHEMAS: st.SearchStrategy[Any] = st.one_of(
    st.just({}), st.booleans(), anything(3), _few(), _few()
)


def schemas() -> st.SearchStrategy[Any]:
    """Schemas and what pretends to be one: loops, contradictions, keywords of the wrong type."""
    return _INNER


def nested(depth: int, opening: str, closing: str, core: str = "1") -> str:
    """JSON text that is `depth` deep; `json` itself cannot write it."""
    return opening * depth + core + closing * depth


def encoded(body: Any) -> bytes:
    """JSON, where characters that UTF-8 cannot hold stand as escapes; NaN and Infinity as such."""
    return json.dumps(body).encode()
