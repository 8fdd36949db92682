"""The keys of a sink's records: as Kappa reads them, and never the same for two rows."""

from __future__ import annotations

import json

import pytest

from kappa.base.duck import open_connection
from serving.changes.json_sql import key_sql


def key_of(columns: list[tuple[str, str]], row: str) -> str:
    ((key,),) = open_connection().execute(f"select {key_sql(row, columns)}").fetchall()
    return str(key)


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        ("string", "'AA'", "AA"),
        ("string", "''", ""),
        ("bigint", "42::bigint", "42"),
        ("string", "null::varchar", '{"k":null}'),
        ("string", "'{\"k\":null}'", '{"k":"{\\"k\\":null}"}'),
        ("double", "1.5::double", '{"k":1.5}'),
        ("date", "'2026-01-02'::date", '{"k":"2026-01-02"}'),
    ],
)
def test_one_text_or_whole_number_is_itself_and_any_other_key_is_an_object(
    kind: str, value: str, key: str
) -> None:
    assert key_of([("k", kind)], f"struct_pack(k := {value})") == key


def test_a_key_of_several_columns_is_an_object_in_their_order() -> None:
    row = "struct_pack(b := 1::bigint, a := 'x')"

    key = key_of([("a", "string"), ("b", "bigint")], row)
    assert list(json.loads(key).items()) == [("a", "x"), ("b", 1)]
