"""Events declared by JSON Schema: columns, rejects, and keywords that are refused, not ignored."""

from __future__ import annotations

import json
import pickle
import re
from decimal import Decimal
from typing import Any

import pytest

from kappa import Table, Topic, pipeline
from kappa.base.errors import DeclarationError
from kappa.code.fingerprint import compute_fingerprint, declaration_lines
from kappa.declare.values.json_schema import read_schema
from kappa.declare.values.reason import Reason, Rejected
from kappa.records.record import RecordReader
from kappa.testing import some_events

# As Pydantic writes one: references, a choice between something and null, annotations.
VISIT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.org/visit.json",
    "title": "Visit",
    "type": "object",
    "required": ["id", "page", "at", "kind", "note"],
    "properties": {
        "id": {"type": "string", "format": "uuid", "examples": ["a"]},
        "page": {"type": "string", "minLength": 1, "maxLength": 5, "default": "/"},
        "at": {"type": "string", "format": "date-time", "description": "when"},
        "kind": {"$ref": "#/$defs/Kind", "description": "beside a reference"},
        "note": {"type": ["string", "null"]},
        "day": {"type": "string", "format": "date"},
        "n": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10},
        "small": {"type": "integer", "format": "int32", "default": -1},
        "ms": {"type": "integer", "x-kappa-type": "timestamp"},
        "price": {"type": "number", "x-kappa-type": "decimal(10,2)", "minimum": 0.1},
        "share": {"type": "number", "maximum": 0.1},
        "flag": {
            "anyOf": [{"type": "boolean"}, {"type": "null"}],
            "default": None,
            "x-owner": "us",
        },
        "tags": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-z]+$"},
            "maxItems": 2,
        },
        "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
    },
    "$defs": {
        "Kind": {"enum": ["view", "click"], "type": "string"},
        "Place": {
            "type": "object",
            "properties": {
                "lat": {"type": "number"},
                "name": {"type": "string", "default": "somewhere"},
                "zones": {"type": "array", "items": {"type": ["integer", "null"]}},
            },
            "required": ["lat"],
            "additionalProperties": False,
        },
    },
}
VISITS = Topic("visits", event=VISIT)
READER = RecordReader(VISITS)
EVENT: dict[str, Any] = {
    "id": "123e4567-e89b-12d3-a456-426614174000",
    "page": "a",
    "at": "2024-01-01T00:00:00Z",
    "kind": "view",
    "note": None,
}


def event(**fields: Any) -> bytes:
    given = {**EVENT, **fields}
    return json.dumps({name: each for name, each in given.items() if each != "(missing)"}).encode()


def read(reader: RecordReader, value: bytes) -> dict[str, Any]:
    row = reader.read(None, value)
    assert isinstance(row, tuple)
    return dict(zip([column.name for column in VISITS.columns], row, strict=False))


def rejection(reader: RecordReader, value: bytes) -> Rejected:
    with pytest.raises(Rejected) as rejected:
        reader.read(None, value)
    return rejected.value


def of(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an event with one property."""
    return {"type": "object", "properties": {"x": schema}}


def test_the_columns_that_a_schema_makes() -> None:
    assert [str(column) for column in VISITS.columns] == [
        "id string not null",
        'page string not null default "/"',
        "at timestamp not null",
        "kind string not null",
        "note string",
        "day date",
        "n bigint",
        "small int not null default -1",
        "ms timestamp",
        "price decimal(10,2)",
        "share double",
        "flag boolean",
        "tags array<string>",
        "place struct<lat:double not null,name:string not null,zones:array<bigint>>",
    ]


def test_a_topic_goes_to_sparks_workers_as_it_is() -> None:
    assert pickle.loads(pickle.dumps(VISITS)) == VISITS


def test_what_a_schema_allows_is_read_as_by_ddl() -> None:
    ddl = (
        "id string not null, page string not null default '/', at timestamp not null, "
        "note string, price decimal(10,2), tags array<string>"
    )
    by_ddl = RecordReader(Topic("visits", event=ddl))
    value = event(page="(missing)", price=0.1, tags=["a", "b"], other=[1])

    found = read(READER, value)

    assert tuple(
        found[name] for name in ("id", "page", "at", "note", "price", "tags")
    ) == by_ddl.read(None, value)
    assert (found["page"], found["small"], found["price"]) == ("/", -1, Decimal("0.1"))
    assert read(READER, event(place={"lat": 1, "zones": [1, None]}))["place"] == {
        "lat": 1.0,
        "name": "somewhere",
        "zones": [1, None],
    }
    assert read(READER, event(ms=1000))["ms"] == 1_000_000


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"note": "(missing)"}, "note is missing, and the schema requires it"),
        ({"day": None}, "day is null, and the schema allows no null"),
        ({"kind": "buy"}, 'kind is the text "buy", and the schema says enum ["view", "click"]'),
        ({"id": "1"}, 'id is the text "1", and the schema says format "uuid"'),
        ({"page": ""}, 'page is the text "", and the schema says minLength 1'),
        ({"page": "abcdef"}, "the schema says maxLength 5"),
        (
            {"at": 1_700_000_000_000},
            "at is the whole number 1700000000000, and the schema wants a text",
        ),
        ({"ms": "2024-01-01T00:00:00Z"}, "the schema wants a whole number"),
        ({"n": -1}, "n is the whole number -1, and the schema says minimum 0"),
        ({"n": 10}, "the schema says exclusiveMaximum 10"),
        ({"price": 0.09}, "the schema says minimum 0.1"),
        ({"share": 0.11}, "the schema says maximum 0.1"),
        ({"tags": ["a", "b", "c"]}, "tags is an array, and the schema says maxItems 2"),
        ({"tags": ["A"]}, "an element of tags is the text"),
        ({"tags": ["a\n"]}, "the schema says pattern"),
        ({"tags": [None]}, "an element of tags is null, and the schema allows no null"),
        (
            {"place": {"lat": 1, "long": 2}},
            "place.long is the whole number 2, and the schema allows no other fields",
        ),
    ],
)
def test_what_a_schema_forbids_is_a_reject_that_says_so(fields: dict[str, Any], said: str) -> None:
    rejected = rejection(READER, event(**fields))

    assert rejected.reason is Reason.AGAINST_SCHEMA
    assert said in rejected.detail


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 1.0}, Reason.WRONG_TYPE),
        ({"id": None}, Reason.MISSING),
        ({"small": None}, Reason.MISSING),
        ({"place": {}}, Reason.MISSING),
        ({"place": {"lat": 1, "name": None}}, Reason.MISSING),
        ({"small": 2**31}, Reason.OUT_OF_RANGE),
    ],
)
def test_what_its_columns_cannot_hold_is_a_reject_as_by_ddl(
    fields: dict[str, Any], reason: Reason
) -> None:
    assert rejection(READER, event(**fields)).reason is reason


@pytest.mark.parametrize("share", [0.1, 0, -1e300])
def test_a_bound_is_compared_as_it_is_written(share: float) -> None:
    assert read(READER, event(share=share))["share"] == share


@pytest.mark.parametrize(
    ("schema", "allowed", "forbidden"),
    [
        ({"type": "integer", "enum": [1, 2.0]}, [1, 2], [3]),
        ({"type": "number", "const": 1}, [1, 1.0], [1.5]),
        ({"type": "boolean", "const": True}, [True], [False]),
        ({"type": ["string", "null"], "enum": ["a"]}, ["a"], [None]),
        ({"type": ["string", "null"], "enum": ["a", None]}, ["a", None], ["b"]),
        ({"oneOf": [{"type": "string", "const": "a"}, {"type": "null"}]}, ["a", None], ["b"]),
        ({"type": "string", "pattern": "[$]\\$$"}, ["x$$"], ["$", "$$x", "$$\n"]),
        ({"type": "string", "pattern": "^\\d$"}, ["1"], ["\u0661"]),
        ({"type": "number", "exclusiveMinimum": 0}, [5e-324], [0, -0.0]),
        (
            {"type": "array", "items": {"type": "integer", "maximum": 1}, "minItems": 1},
            [[1]],
            [[], [2]],
        ),
    ],
)
def test_limits_mean_what_the_draft_says(
    schema: dict[str, Any], allowed: list[Any], forbidden: list[Any]
) -> None:
    reader = RecordReader(Topic("t", event=of(schema)))

    for value in allowed:
        assert reader.read(None, json.dumps({"x": value}).encode())
    for value in forbidden:
        assert rejection(reader, json.dumps({"x": value}).encode()).reason is Reason.AGAINST_SCHEMA


def test_old_names_are_no_other_fields() -> None:
    schema = {**of({"type": "string"}), "additionalProperties": False}
    reader = RecordReader(Topic("t", event=schema, was={"x": ("y", "z")}))

    assert reader.read(None, b'{"y": "a", "z": 1}') == ("a",)
    other = rejection(reader, b'{"w": 1, "x": "a"}').detail
    assert other == "w is the whole number 1, and the schema allows no other fields"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "no type at /"),
    ({"type": "array", "items": {"type": "string"}}, "type at /, an event is exactly one object"),
    (
        {"type": ["object", "null"], "properties": {"x": {"type": "string"}}},
        "an event is exactly one object",
    ),
    ({"type": "object"}, "no properties at /"),
    (
        {**of({"type": "string"}), "$schema": "http://json-schema.org/draft-04/schema#"},
        "not a draft that Kappa knows",
    ),
    ({**of({"type": "string"}), "required": ["y"]}, "required at /, which names y"),
    (
        {**of({"type": "string"}), "patternProperties": {}},
        "patternProperties at /, which is not enforced",
    ),
    (
        {**of({"type": "string"}), "additionalProperties": {"type": "string"}},
        "additionalProperties at /",
    ),
    ({**of({"type": "string"}), "default": {}}, "default at /"),
    (of({}), "no type at /properties/x"),
    ({"type": "object", "properties": {"x": True}}, "true at /properties/x"),
    (of({"type": ["string", "integer"]}), "type at /properties/x"),
    (of({"type": "null"}), "type at /properties/x"),
    (of({"type": "strng"}), "type at /properties/x"),
    (
        of({"type": "string", "format": "email"}),
        "format at /properties/x, 'email', which is not enforced",
    ),
    (
        of({"type": "string", "minimum": 1}),
        "minimum at /properties/x, that says nothing of type string",
    ),
    (
        of({"type": "integer", "multipleOf": 2}),
        "multipleOf at /properties/x, which is not enforced",
    ),
    (of({"type": "string", "minLenght": 2}), "minLenght at /properties/x"),
    (of({"type": "string", "minLength": -1}), "minLength at /properties/x"),
    (of({"type": "integer", "minimum": "1"}), "minimum at /properties/x"),
    (of({"type": "integer", "exclusiveMinimum": True}), "exclusiveMinimum at /properties/x"),
    (of({"type": "string", "pattern": "\\p{L}"}), "pattern at /properties/x"),
    (of({"type": "string", "enum": []}), "enum at /properties/x"),
    (of({"type": "string", "enum": [["a"]]}), "enum at /properties/x"),
    (of({"type": "array"}), "no items at /properties/x"),
    (
        of({"type": "array", "items": {"type": "string", "default": "a"}}),
        "default at /properties/x/items",
    ),
    (
        of({"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        "uniqueItems at /properties/x",
    ),
    (of({"type": "object"}), "no properties at /properties/x"),
    (
        of({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        "anyOf at /properties/x, which cannot become a column",
    ),
    (
        of({"anyOf": [{"type": "string"}, {"type": "null"}], "maxLength": 1}),
        "maxLength at /properties/x, beside anyOf",
    ),
    (of({"allOf": [{"type": "string"}]}), "no type at /properties/x"),
    (of({"type": "string", "allOf": []}), "allOf at /properties/x"),
    (
        of({"$ref": "other.json"}),
        "$ref at /properties/x, 'other.json', which is not within the schema",
    ),
    (of({"$ref": "#/$defs/y"}), "$ref at /properties/x, #/$defs/y, which is not there"),
    (of({"$ref": "#"}), "$ref at /properties/x/properties/x, #, which refers to itself"),
    (
        {**of({"$ref": "#/$defs/y", "type": "string"}), "$defs": {"y": {"type": "string"}}},
        "type at /properties/x, beside a $ref",
    ),
    (of({"type": "integer", "x-kappa-type": "string"}), "x-kappa-type at /properties/x"),
    (of({"type": "integer", "x-kappa-type": "decimal(99)"}), "x-kappa-type at /properties/x"),
    (of({"type": "integer", "x-kappa-typ": "int"}), "x-kappa-typ at /properties/x"),
    (of({"type": "string", "default": None}), "default at /properties/x, null"),
    (of({"type": "string", "default": 1}), "the default of x is the whole number 1"),
    (of({"type": "string", "maxLength": 1, "default": "ab"}), "the default of x is the text"),
    (
        of(
            {
                "type": "object",
                "properties": {"y": {"type": "string", "enum": ["a"], "default": "b"}},
            }
        ),
        "the default of y is the text",
    ),
    (
        {"type": "object", "properties": {"user-id": {"type": "string"}}},
        "'user-id' at /properties, which is not a valid column name",
    ),
    ({"type": "object", "properties": {"_x": {"type": "string"}}}, "'_x' at /properties"),
    (
        {"type": "object", "properties": {"x": {"type": "string"}, "X": {"type": "string"}}},
        "X is declared twice",
    ),
    (of({"type": "string", "enum": [{1, 2}]}), "not JSON"),
    (of({"type": "number", "maximum": float("inf")}), "not JSON"),
]


@pytest.mark.parametrize(("schema", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_not_enforced_is_refused_with_keyword_and_path(
    schema: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)) as refused:
        Topic("t", event=schema)

    assert refused.value.message.startswith(f"{__file__}:")


def version(**declared: Any) -> str:
    @pipeline(reads={"visits": Topic("visits", **declared)}, writes=[Table("t")])
    def visits(visits: Any) -> Any:
        return {"t": visits}

    return compute_fingerprint(visits, "nowhere", "visits", lambda _: None).version


@pytest.mark.parametrize(
    "other",
    [
        of({"type": "string", "maxLength": 3}),
        of({"type": "string", "default": "a"}),
        of({"type": ["string", "null"]}),
        {**of({"type": "string"}), "required": ["x"]},
        {**of({"type": "string"}), "additionalProperties": False},
        of({"type": "array", "items": {"type": "string"}}),
    ],
)
def test_what_a_schema_means_makes_the_version_and_is_told(other: dict[str, Any]) -> None:
    plain = of({"type": "string"})

    assert version(event=other) != version(event=plain)
    assert [*read_schema(other).place_lines()] != [*read_schema(plain).place_lines()]


def test_deep_inside_it_counts_too() -> None:
    inside = [
        of(of({"type": "array", "items": {"type": "string", **each}}))
        for each in ({}, {"minLength": 1})
    ] + [of(of({"type": "array", "items": {"type": ["string", "null"]}}))]

    assert len({version(event=schema) for schema in inside}) == 3


def test_prose_order_of_keywords_and_references_make_no_version() -> None:
    described = {
        **of({"description": "text", "$ref": "#/$defs/y"}),
        "title": "t",
        "$defs": {"y": {"maxLength": 3, "type": "string"}},
    }

    assert version(event=described) == version(event=of({"type": "string", "maxLength": 3}))


def test_a_plan_shows_it_line_by_line() -> None:
    @pipeline(
        reads={
            "visits": Topic(
                "visits", event={**of({"type": "string", "maxLength": 3}), "required": ["x"]}
            )
        },
        writes=[Table("t")],
    )
    def visits(visits: Any) -> Any:
        return {"t": visits}

    assert declaration_lines(visits)["topic visits"].splitlines()[-4:] == [
        "column x string not null",
        "event object as struct<x:string>",
        "event.x string as string, maxLength 3, required",
        "given to the function as visits",
    ]


@pytest.mark.slow
def test_random_events_of_a_schema_are_valid() -> None:
    @pipeline(
        reads={
            "visits": VISITS,
            "old": Topic(
                "old", event="page string not null default '/', n int", was={"page": "url"}
            ),
        },
        writes=[Table("t")],
    )
    def visits(visits: Any, old: Any) -> Any:
        return {"t": visits, "o": old}

    for name, reader in (("visits", READER), ("old", RecordReader(visits.topics[1]))):
        values = [
            each.value for each in some_events(visits, 300)[name] if isinstance(each.value, dict)
        ]
        for value in values:
            assert reader.read(None, json.dumps(value).encode())
        assert len({json.dumps(value) for value in values}) > 5
        assert {"page", "url"} & set().union(*values) == (
            {"page"} if name == "visits" else {"page", "url"}
        )
