"""Objects closed to what their schema does not name; what fits the narrower one fits the wider."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm.schema_closed import closed

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
SHUT = CITY | {"additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "narrower"),
    [
        (CITY, SHUT),
        ({"type": "array", "items": CITY}, {"type": "array", "items": SHUT}),
        ({"$defs": {"c": CITY}, "$ref": "#/$defs/c"}, {"$defs": {"c": SHUT}, "$ref": "#/$defs/c"}),
        ({"anyOf": [CITY, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        (
            {"properties": {"inner": CITY}},
            {"properties": {"inner": SHUT}, "additionalProperties": False},
        ),
    ],
)
def test_what_names_its_properties_is_closed(given: Any, narrower: Any) -> None:
    assert closed(given) == narrower


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        CITY | {"additionalProperties": {"type": "integer"}},
        CITY | {"patternProperties": {"^x": {}}},
        {"allOf": [CITY, {"properties": {"age": {"type": "integer"}}}]},
        CITY | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        CITY | {"$ref": "#/$defs/other"},
        True,
    ],
)
def test_what_says_otherwise_or_has_parts_elsewhere_is_left_alone(schema: Any) -> None:
    assert closed(schema) == schema


NAMES = st.sampled_from(["a", "b", "items", "properties"])
SCHEMAS = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": "integer"}, {}]),
    lambda inner: st.one_of(
        st.builds(lambda p: {"type": "object", "properties": p}, st.dictionaries(NAMES, inner)),
        st.builds(lambda i: {"type": "array", "items": i}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=5,
)


@given(SCHEMAS, VALUES)
def test_what_fits_the_narrower_fits_the_wider(schema: Any, value: Any) -> None:
    if jsonschema.Draft202012Validator(closed(schema)).is_valid(value):
        assert jsonschema.Draft202012Validator(schema).is_valid(value)
