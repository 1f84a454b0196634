"""The keywords of JSON Schema (2020-12) that answers can be held to, and what each may hold."""

from enum import Enum, auto


class Holds(Enum):
    """What stands behind a keyword."""

    SCHEMA = auto()
    SCHEMAS = auto()
    NAMED_SCHEMAS = auto()
    PATTERNED_SCHEMAS = auto()
    COUNT = auto()
    NUMBER = auto()
    STEP = auto()
    TYPES = auto()
    NAMES = auto()
    VALUES = auto()
    VALUE = auto()
    PATTERN = auto()
    FORMAT = auto()
    REFERENCE = auto()


KEYWORDS = {
    "$defs": Holds.NAMED_SCHEMAS,
    "definitions": Holds.NAMED_SCHEMAS,
    "properties": Holds.NAMED_SCHEMAS,
    "patternProperties": Holds.PATTERNED_SCHEMAS,
    "additionalProperties": Holds.SCHEMA,
    "items": Holds.SCHEMA,
    "prefixItems": Holds.SCHEMAS,
    "anyOf": Holds.SCHEMAS,
    "oneOf": Holds.SCHEMAS,
    "allOf": Holds.SCHEMAS,
    "minItems": Holds.COUNT,
    "maxItems": Holds.COUNT,
    "minLength": Holds.COUNT,
    "maxLength": Holds.COUNT,
    "minProperties": Holds.COUNT,
    "maxProperties": Holds.COUNT,
    "minimum": Holds.NUMBER,
    "maximum": Holds.NUMBER,
    "exclusiveMinimum": Holds.NUMBER,
    "exclusiveMaximum": Holds.NUMBER,
    "multipleOf": Holds.STEP,
    "type": Holds.TYPES,
    "required": Holds.NAMES,
    "enum": Holds.VALUES,
    "const": Holds.VALUE,
    "pattern": Holds.PATTERN,
    "format": Holds.FORMAT,
    "$ref": Holds.REFERENCE,
}

UNSUPPORTED = frozenset(
    {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
        "propertyNames",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
        "$recursiveRef",
    }
)
"""They would change what is valid, so they cannot be passed over. All others are remarks."""

SAYS_NOTHING = (
    ("uniqueItems", False),
    ("unevaluatedItems", True),
    ("unevaluatedProperties", True),
)

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})

FORMATS = frozenset(
    {
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
    }
)
UNSUPPORTED_FORMATS = frozenset(
    {
        "idn-email",
        "idn-hostname",
        "uri-reference",
        "iri",
        "iri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    }
)
"""The standard's other formats. A word it does not know (`int32`, `password`) is a remark."""
