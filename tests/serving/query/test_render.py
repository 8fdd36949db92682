"""Laws of rendering: each value has exactly one form in each output.

No data can control a terminal or break a document.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa.serving.query.render import Form, Listing, cell_text, json_value, render_listing

AT = datetime(2013, 1, 1, 5, 0, 0, 120000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "in_json", "in_csv", "in_table"),
    [
        (None, None, "", "null"),
        ("", "", '""', ""),
        ("ÅÄ日本", "ÅÄ日本", "ÅÄ日本", "ÅÄ日本"),
        ("a,b", "a,b", '"a,b"', "a,b"),
        ('say "x"', 'say "x"', '"say ""x"""', 'say "x"'),
        ("two\nlines", "two\nlines", '"two\nlines"', "two\\nlines"),
        ("\x1b[31mred", "\x1b[31mred", "\x1b[31mred", "\\x1b[31mred"),
        (True, True, "true", "true"),
        (2**70, 2**70, str(2**70), str(2**70)),
        (1.5, 1.5, "1.5", "1.5"),
        (float("nan"), "NaN", "NaN", "NaN"),
        (float("inf"), "Infinity", "Infinity", "Infinity"),
        (float("-inf"), "-Infinity", "-Infinity", "-Infinity"),
        (Decimal("1.10"), "1.10", "1.10", "1.10"),
        (date(2013, 1, 1), "2013-01-01", "2013-01-01", "2013-01-01"),
        (time(5, 30), "05:30:00", "05:30:00", "05:30:00"),
        (AT, *["2013-01-01T05:00:00.120000Z"] * 3),
        (AT.astimezone(timezone(timedelta(hours=2))), *["2013-01-01T05:00:00.120000Z"] * 3),
        (AT.replace(tzinfo=None, microsecond=0), *["2013-01-01T05:00:00"] * 3),
        (Decimal("1E-9"), "0.000000001", "0.000000001", "0.000000001"),
        (b"\xffa", "/2E=", "/2E=", "\\xffa"),
        ([1, None, Decimal("2.0")], [1, None, "2.0"], '"[1,null,""2.0""]"', '[1,null,"2.0"]'),
        (
            {"a": b"x", "n": float("nan")},
            {"a": "eA==", "n": "NaN"},
            '"{""a"":""eA=="",""n"":""NaN""}"',
            '{"a":"eA==","n":"NaN"}',
        ),
    ],
)
def test_each_value_has_one_form(value, in_json, in_csv, in_table) -> None:
    listing = Listing(("x",), ((value,),))

    assert json.loads(render_listing(Form.JSON, listing)) == [{"x": in_json}]
    assert render_listing(Form.CSV, listing) == f"x\n{in_csv}\n"
    assert cell_text(value) == in_table


def test_a_table_is_aligned_by_what_is_seen() -> None:
    listing = Listing(
        ("name", "n", "path"), (("日本", 5, "/a"), ("x", None, "/b")), wide=frozenset({"path"})
    )
    assert (
        render_listing(Form.TABLE, listing, heading="generation 3")
        == "generation 3\nname     n\n────  ────\n日本     5\nx     null\n"
    )


def test_wide_columns_are_for_machines() -> None:
    listing = Listing(("name", "path"), (("x", "/b"),), wide=frozenset({"path"}))
    assert render_listing(Form.CSV, listing) == "name,path\nx,/b\n"


def test_a_listing_of_nothing_keeps_its_columns() -> None:
    nothing = Listing(("a", "b"), ())
    assert [render_listing(form, nothing) for form in (Form.CSV, Form.JSON, Form.TABLE)] == [
        "a,b\n",
        "[]\n",
        "a  b\n─  ─\n",
    ]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))))
def test_any_text_survives_csv_and_json(texts: list[str]) -> None:
    listing = Listing(("x", "y"), tuple((text, 1) for text in texts))

    assert [
        row[0] for row in csv.reader(io.StringIO(render_listing(Form.CSV, listing), newline=""))
    ][1:] == texts
    assert [each["x"] for each in json.loads(render_listing(Form.JSON, listing))] == texts
    assert render_listing(Form.TABLE, listing).count("\n") == len(texts) + 2


@pytest.mark.law
@examples(40)
@given(
    st.recursive(
        st.from_type(None | bool | int | float | Decimal | str | bytes),  # type: ignore[arg-type]
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_is_json(value: object) -> None:
    json.dumps(json_value(value), allow_nan=False)


def test_json_lines_are_rows_and_nothing_else() -> None:
    listing = Listing(("name", "path"), (("x", b"/b"), ("y\n", None)), wide=frozenset({"path"}))

    assert render_listing(Form.JSONL, listing, document={"more": 1}, heading="heading") == (
        '{"name": "x", "path": "L2I="}\n{"name": "y\\n", "path": null}\n'
    )
    assert render_listing(Form.JSONL, Listing(("x",), ())) == ""
