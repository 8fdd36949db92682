"""The keys of a sink's records: as Kappa reads them, and never the same for two rows."""

from __future__ import annotations

import json

import pytest

from kappa.base.duck import open_connection
from kappa.serving.outlets.changes.change_set import key_sql


def key_of(row: str) -> str:
    duck = open_connection()
    kind = duck.query(f"select {row}").types[0]
    ((key,),) = duck.execute(f"select {key_sql(row, kind)}").fetchall()
    return str(key)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("'AA'", "AA"),
        ("''", ""),
        ("42::bigint", "42"),
        ("null::varchar", '{"k":null}'),
        ("'{\"k\":null}'", '{"k":"{\\"k\\":null}"}'),
        ("1.5::double", '{"k":1.5}'),
        ("'2026-01-02'::date", '{"k":"2026-01-02"}'),
    ],
)
def test_one_text_or_whole_number_is_itself_and_any_other_key_is_an_object(
    value: str, key: str
) -> None:
    assert key_of(f"struct_pack(k := {value})") == key


def test_a_key_of_several_columns_is_an_object_in_their_order() -> None:
    row = "struct_pack(a := 'x', b := 1::bigint)"

    key = key_of(row)
    assert list(json.loads(key).items()) == [("a", "x"), ("b", 1)]
