"""Schemas that answers can be held to, and what is said of the others: keyword and path."""

import json
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field

from chassis.errors import Fault
from services.llm.grammar_source import checked
from services.llm.schema_words import KEYWORDS
from services.llm.unfit import Unfit
from services.llm.values import ConstraintKind, OutputConstraint
from tests.constraint_kit import accepts, grammars, held_to, refusal, schema_form, walk

COMPILED_WITHIN_S = 3.0
"""Generous: the slowest takes a fifth of a second on an idle machine."""

ENDLESS = {"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}


def needs(schema: Any, name: str = "a") -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema}, "required": [name]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (needs({"unevaluatedProperties": False}), "`$.properties.a.unevaluatedProperties` is not"),
        ({"items": {"not": {}}}, "`$.items.not` is not supported"),
        ({"anyOf": [{}, {"if": {}}]}, "`$.anyOf[1].if` is not supported"),
        ({"uniqueItems": True}, "`$.uniqueItems` is not supported"),
        ({"properties": {"a b": {"contains": {}}}}, '`$.properties["a b"].contains` is not'),
        ({"$defs": {"x": {"propertyNames": {}}}}, "`$.$defs.x.propertyNames` is not supported"),
        ({"dependentRequired": {}}, "`$.dependentRequired` is not supported"),
        ({"$dynamicRef": "#a"}, "`$.$dynamicRef` is not supported"),
        ({"items": [{}]}, "`$.items` must be one schema; for a list of them say `prefixItems`"),
        ({"type": "text"}, "`$.type` must be one or more of array,"),
        ({"type": []}, "`$.type` must be one or more of"),
        ({"enum": []}, "`$.enum` must be a list of values, at least one"),
        ({"anyOf": []}, "`$.anyOf` must be a list of schemas, at least one"),
        ({"properties": []}, "`$.properties` must be an object of schemas"),
        ({"required": "a"}, "`$.required` must be a list of names"),
        ({"minLength": -1}, "`$.minLength` must be a whole number from 0"),
        ({"minLength": 1.5}, "`$.minLength` must be a whole number from 0"),
        ({"maxItems": True}, "`$.maxItems` must be a whole number from 0"),
        ({"minimum": "1"}, "`$.minimum` must be a number"),
        ({"exclusiveMinimum": True}, "`$.exclusiveMinimum` must be a number"),
        ({"multipleOf": 0}, "`$.multipleOf` must be a number above 0"),
        ({"multipleOf": 1e-300}, "`$.multipleOf` must be between"),
        ({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}, "`$.allOf[1].multipleOf` is too"),
        ({"pattern": 3}, "`$.pattern` must be a regular expression"),
        ({"type": "string", "format": "regex"}, "`$.format` is not supported; supported are date"),
        ({"$ref": "other.json"}, "`$.$ref` must lead into this document"),
        ({"$ref": "#anchor"}, "`$.$ref` must lead into this document"),
        ({"items": {"$ref": "#/$defs/x"}}, "`$.items.$ref` leads to no schema"),
        ({"const": 1, "$ref": "#/const"}, "`$.$ref` leads to no schema"),
        ({"$ref": "#"}, "`$.$ref` demands itself"),
        (ENDLESS, "`$.properties.n.$ref` demands itself without an end"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "`$.anyOf[0].$ref` demands itself"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "`$.items.$ref` demands itself"),
        (needs(7), "`$.properties.a` must be a schema"),
        (False, "`$` is `false`: nothing can fulfil it"),
        ([], "`$` must be a schema"),
        (needs({"type": "string", "pattern": "a(?=b)"}), "`$.properties.a.pattern` cannot be"),
        (needs({"type": "string", "pattern": "("}), "`$.properties.a.pattern` cannot be compiled"),
        (
            needs({"allOf": [{"type": "string"}, {"type": "null"}]}),
            "`$.properties.a.allOf` cannot be compiled: nothing can fulfil it: incompatible types",
        ),
        (
            needs({"type": "integer", "minimum": 3, "maximum": 2}),
            "`$.properties.a.minimum` cannot be compiled: nothing can fulfil it: minimum (3)",
        ),
        (
            needs({"type": "string", "minLength": 3, "maxLength": 2}),
            "`$.properties.a.minLength` cannot be compiled: nothing can fulfil it",
        ),
        (
            {
                "type": "array",
                "minItems": 2,
                "prefixItems": [{}, needs({"enum": [1], "type": "null"})],
            },
            "`$.prefixItems[1].properties.a.enum` cannot be compiled: nothing can fulfil it",
        ),
        (
            {"$defs": {"d": {"type": "null", "const": 1}}, "anyOf": [{"$ref": "#/$defs/d"}]},
            "`$.$defs.d.const` cannot be compiled: nothing can fulfil it",
        ),
        (
            {"type": "object", "additionalProperties": False, "required": ["b"]},
            "`$.additionalProperties` cannot be compiled: nothing can fulfil it: required property",
        ),
        (
            {"type": "string", "pattern": "^a$", "minLength": 5},
            "`$.pattern` cannot be compiled: its pattern, format and lengths exclude each other",
        ),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            "`$.oneOf` cannot be compiled: its choices may hold at once",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {}},
                "patternProperties": {"^x": {}},
                "minProperties": 2,
            },
            "`$.minProperties` cannot be compiled: min/maxProperties only supported",
        ),
    ],
    ids=lambda value: json.dumps(value)[:50] if not isinstance(value, str) else "",
)
def test_a_refusal_names_the_keyword_and_its_path(schema: Any, said: str) -> None:
    assert refusal(schema_form(schema)).startswith(said)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{", "not JSON"),
        ('{"const": NaN}', "not JSON"),
        ('{"const": 1e999}', "not JSON"),
        ('{"const": "\\ud800"}', "not JSON"),
        ("\ud800", "not JSON"),
        ("[" * 100_000, "nested too deep"),
        (json.dumps({"const": "x" * 300_000}), "larger than 256 KiB"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_what_is_no_schema_at_all_is_refused(source: str, said: str) -> None:
    assert said in refusal(OutputConstraint(ConstraintKind.JSON_SCHEMA, source))


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = needs(schema)
    return schema


def doubled(depth: int) -> Any:
    """Each schema twice in the next one, by name: 2^depth when written out."""
    parts = {
        f"d{i}": {
            "type": "array",
            "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 2,
            "minItems": 2,
        }
        for i in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{depth}": {"type": "null"}}}


HOSTILE = {
    "deep": nested(200),
    "just deep enough": nested(40),
    "10,000 values": {"enum": [f"value {i}" for i in range(10_000)]},
    "5,000 long values": {"enum": [f"{i * 7919 % 10_007} {'x' * 30}" for i in range(5000)]},
    "long value": {"const": "x" * 100_000},
    "longest value": {"const": "x" * 8000},
    "deep value": {"const": json.loads("[" * 300 + "]" * 300)},
    "millions of positions": {"type": "string", "pattern": "^(a{1000}){1000}$"},
    "hidden repeats": {"type": "string", "pattern": "^([(]a{900}[)]){900}$"},
    "optional repeats": {"type": "string", "pattern": "^(a?){500}a{499}$"},
    "backtracking": {"type": "string", "pattern": "^(a+)+$"},
    "many states": {"type": "string", "pattern": "^(a|b)*a(a|b){30}c$"},
    "hard to intersect": {"type": "string", "pattern": "(a|b)*a(a|b){99}c", "minLength": 9999},
    "long string": {"type": "string", "minLength": 60_000, "maxLength": 2**31 - 1},
    "longer string": {"type": "string", "minLength": 10**6},
    "long array": {"type": "array", "items": {}, "minItems": 60_000, "maxItems": 10**9},
    "endless array": {"type": "array", "maxItems": 10**18},
    "3,000 properties": {"type": "object", "properties": {f"p{i}": {} for i in range(3000)}},
    "400 properties": {"type": "object", "properties": {f"p{i}": {} for i in range(400)}},
    "3,000 required": {
        "type": "object",
        "properties": {f"p{i}": {"type": "null"} for i in range(3000)},
        "required": [f"p{i}" for i in range(3000)],
    },
    "3,000 required and one mistake": {
        "type": "object",
        "properties": {f"p{i}": {"type": "null"} for i in range(3000)}
        | {"p2999": {"type": "null", "const": 1}},
        "required": [f"p{i}" for i in range(3000)],
    },
    "products of choices": {
        "allOf": [{"anyOf": [needs({"const": n}, f"p{i}") for n in (1, 2)]} for i in range(20)]
    },
    "products of names": doubled(30),
    "fine steps": {"type": "integer", "multipleOf": 9_999_991},
    "many steps": {"anyOf": [{"type": "integer", "multipleOf": 9000 + i} for i in range(200)]},
    "many patterns": {"anyOf": [{"type": "string", "pattern": f"^a{{990}}{i}"} for i in range(99)]},
    "patterned names": {
        "type": "object",
        "patternProperties": {f"^{c}.*{d}$": {} for c in "abcdefghij" for d in "abcdefghij"},
    },
    "a ring": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "many choices": {"oneOf": [needs({"const": f"kind {i}"}) for i in range(1000)]},
    "wide and deep": {"anyOf": [nested(38) for _ in range(60)]},
}


def begin(schema: Any) -> None:
    """The first tokens of an answer, always the last of those allowed."""
    constraint = held_to(schema)
    for _ in range(20):
        if constraint.over:
            break
        constraint.accept(int(constraint.mask().nonzero()[0][-1]))


def fault_of(work: Callable[[], object]) -> Fault | None:
    try:
        work()
    except Fault as fault:
        return fault
    return None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_are_answered_in_time(name: str) -> None:
    grammars().compile(OutputConstraint(ConstraintKind.JSON_OBJECT))
    began = time.perf_counter()
    fault = fault_of(lambda: begin(HOSTILE[name]))
    if fault is not None:
        assert fault.metadata == {"param": "response_format"}
        assert len(str(fault)) < 600
    assert time.perf_counter() - began < COMPILED_WITHIN_S


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("deep", "is nested deeper than 40 schemas"),
        ("10,000 values", "`$.enum` is one value more than the 5000"),
        ("long value", "`$.const` has a string longer than 8192 bytes"),
        ("millions of positions", "`$.pattern` cannot be matched: it stands for more than 1000"),
        ("many patterns", "and those before stand for more than 20000 positions"),
        ("longer string", "`$.minLength` must be a whole number from 0 to 65536"),
        ("3,000 properties", "`$.properties` has more than 400 that may be left out"),
        ("fine steps", "`$.multipleOf` is too fine"),
    ],
)
def test_what_is_too_large_is_refused_by_name(name: str, said: str) -> None:
    assert said in refusal(schema_form(HOSTILE[name]))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.dictionaries(
            st.sampled_from([*list(KEYWORDS), "not", "a"]),
            parts | st.sampled_from(["object", "string", "#", "#/$defs/a", "date", "a+"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(junk)
def test_nothing_but_a_refusal_comes_of_junk(schema: Any) -> None:
    fault = fault_of(lambda: held_to(schema))
    assert fault is None or fault.metadata == {"param": "response_format"}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    colour: Colour | None = None


class Owner(BaseModel):
    """An owner of pets."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=12, description="How they are called")
    pet: Cat | Dog = Field(discriminator="kind")
    friends: list["Owner"] = Field(default_factory=list, max_length=2)
    scores: dict[str, float] = Field(default_factory=dict)
    pair: tuple[int, bool] = (0, False)


@pytest.mark.parametrize("seed", range(12))
def test_a_pydantic_model_takes_what_its_schema_allowed(seed: int) -> None:
    answer = walk(held_to(Owner.model_json_schema()), seed)
    Owner.model_validate_json(answer)


def test_tagged_unions_are_told_apart_and_the_tag_is_demanded() -> None:
    constraint = held_to(Owner.model_json_schema())
    assert accepts(constraint, '{"name": "A", "pet": {"kind": "dog", "colour": "red"}}')
    assert accepts(constraint, '{"name": "A", "pet": {"kind": "cat", "lives": 3}}')
    assert not accepts(constraint, '{"name": "A", "pet": {"colour": "red"}}')
    assert not accepts(constraint, '{"name": "A", "pet": {"kind": "cat", "colour": "red"}}')


@pytest.mark.parametrize(
    "choices",
    [
        [needs({"const": 1}), needs({"const": 1.0})],
        [needs({"const": "x"}), {"properties": {"a": {"const": "y"}}}],
        [{"type": "integer"}, {"type": ["number", "null"]}],
    ],
)
def test_choices_that_may_hold_at_once_are_not_taken_for_apart(choices: list[Any]) -> None:
    assert "oneOf" in str(checked(json.dumps({"oneOf": choices}))[0])


def test_a_oneof_beside_an_anyof_still_counts() -> None:
    schema = {"anyOf": [{"maxLength": 2}], "oneOf": [{"type": "string"}, {"type": "null"}]}
    assert accepts(held_to(schema), '"ab"')
    assert not accepts(held_to(schema), '"abc"')
    assert not accepts(held_to(schema), "3")


def test_a_strict_schema_as_openai_has_it() -> None:
    schema = {
        "type": "object",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}},
            "when": {"type": ["string", "null"], "format": "date-time"},
            "size": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "definitions": {
            "step": {
                "type": "object",
                "properties": {"text": {"type": "string", "maxLength": 9}},
                "required": ["text"],
                "additionalProperties": False,
            }
        },
        "required": ["steps", "when", "size"],
        "additionalProperties": False,
    }
    text = '{"steps":[{"text":"go"}],"when":"2026-11-30T12:00:00Z","size":null}'
    Draft202012Validator(schema).validate(json.loads(text))
    assert accepts(held_to(schema), text)
    assert not accepts(held_to(schema), text.replace("2026-11-30", "today"))
    assert not accepts(held_to(schema), text.replace('"text"', '"word"'))


def test_remarks_are_dropped_and_meaning_is_kept() -> None:
    schema = {
        "$id": "http://a/b",
        "title": "T",
        "x-guidance": {"whitespace_pattern": "x*", "lenient": True},
        "type": "string",
        "format": "password",
        "uniqueItems": False,
        "deprecated": True,
    }
    assert checked(json.dumps(schema))[0] == {"type": "string"}
    assert checked('{"properties": {"not": {"title": 1}}}')[0] == {"properties": {"not": {}}}


@pytest.mark.parametrize("name", ["a b", "a/b", "a~b", "x[int]", "é", "a%b", '"'])
def test_names_of_definitions_may_be_anything(name: str) -> None:
    escaped = name.replace("%", "%25").replace("~", "~0").replace("/", "~1")
    schema = {"$ref": f"#/$defs/{escaped}", "$defs": {name: {"type": "null"}}}
    assert accepts(held_to(schema), "null")
    assert not accepts(held_to(schema), "1")


def test_a_reference_that_is_no_text_is_refused() -> None:
    with pytest.raises(Unfit, match="UTF-8"):
        checked('{"$ref": "#/%ff"}')[0]
