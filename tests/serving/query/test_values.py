"""Each type of DuckDB, with extreme values, through every output of Kappa.

Law: a value that is read back from an output equals the original, or the output refuses the column
by name (docs/reference/values.md).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kappa.base.duck import DUCKDB_ERRORS, Connection, open_connection
from kappa.base.errors import UsageError
from kappa.base.sql import text
from kappa.commands.changes import change_text
from kappa.declare.alert import AlertBirth
from kappa.declare.formats.csv_events import Csv
from kappa.declare.sink import row_writer
from kappa.declare.values.columns import Column, Scalar
from kappa.serving.http.page import formatting
from kappa.serving.outlets.alerts.message import row_messages
from kappa.serving.outlets.changes.change_set import CHANGES, ChangeKind, ChangeSet, ChangeSetHead
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.render import Form, Listing, cell_text, render_listing
from kappa.serving.query.sandbox.answer_writers import PieceFile, write_answer
from kappa.state.offsets import Offsets
from kappa.tables.views.exact_rows import python_rows

MOST_HUGE = "170141183460469231731687303715884105727"
# The value in SQL, and as JSON has it.
VALUES: list[tuple[str, Any]] = [
    ("null::integer", None),
    ("true", True),
    ("(-128)::tinyint", -128),
    ("(-32768)::smallint", -32768),
    ("2147483647::integer", 2147483647),
    ("(-9223372036854775807 - 1)::bigint", -(2**63)),
    (f"{MOST_HUGE}::hugeint", 2**127 - 1),
    (f"(-{MOST_HUGE}::hugeint - 1)", -(2**127)),
    ("(10^9)::hugeint", 10**9),
    ("255::utinyint", 255),
    ("65535::usmallint", 65535),
    ("4294967295::uinteger", 4294967295),
    ("18446744073709551615::ubigint", 2**64 - 1),
    ("340282366920938463463374607431768211455::uhugeint", 2**128 - 1),
    (f"('{'9' * 60}')::bignum", "9" * 60),
    ("0.1::float", 0.10000000149011612),
    ("3.4028235e38::float", 3.4028234663852886e38),
    ("5e-324::double", 5e-324),
    ("1.7976931348623157e308::double", 1.7976931348623157e308),
    ("'-0.0'::double", -0.0),
    ("'nan'::double", "NaN"),
    ("'inf'::double", "Infinity"),
    ("'-inf'::float", "-Infinity"),
    ("1.10::decimal(9, 2)", "1.10"),
    (f"{'9' * 38}::decimal(38, 0)", "9" * 38),
    (f"(-0.{'0' * 37}1)::decimal(38, 38)", f"-0.{'0' * 37}1"),
    ("0::decimal(2, 2)", "0.00"),
    ("''", ""),
    ("'null'", "null"),
    ("'a' || chr(0) || chr(10) || '\"é\U0001f600'", 'a\0\n"é\U0001f600'),
    ("'{\"a\": 1}'::json", '{"a": 1}'),
    ("''::blob", ""),
    (r"'\x00\xFF'::blob", "AP8="),
    ("'b'::enum('a', 'b')", "b"),
    ("'0F0E0000-0000-0000-0000-00000000000f'::uuid", "0f0e0000-0000-0000-0000-00000000000f"),
    ("'0101'::bit", "0101"),
    ("'POINT (0.1 1e300)'::geometry", "POINT (0.1 1e+300)"),
    ("'2024-02-29'::date", "2024-02-29"),
    ("'9999-12-31'::date", "9999-12-31"),
    ("'infinity'::date", "infinity"),
    ("'-infinity'::date", "-infinity"),
    ("'5881580-07-10'::date", "5881580-07-10"),
    ("'5877642-06-25 (BC)'::date", "-5877641-06-25"),
    ("'0044-03-15 (BC)'::date", "-0043-03-15"),
    ("'0001-01-01'::date", "0001-01-01"),
    ("'24:00:00'::time", "24:00:00"),
    ("'23:59:59.999999'::time", "23:59:59.999999"),
    ("'23:59:59.123456789'::time_ns", "23:59:59.123456789"),
    ("'23:59:59.999999+15:59:59'::timetz", "23:59:59.999999+15:59:59"),
    ("'24:00:00-15:59:59'::timetz", "24:00:00-15:59:59"),
    ("'2024-02-29 12:00:00.000001'::timestamp", "2024-02-29T12:00:00.000001"),
    ("'9999-12-31 23:59:59.999999'::timestamp", "9999-12-31T23:59:59.999999"),
    ("'infinity'::timestamp", "infinity"),
    ("'-infinity'::timestamp", "-infinity"),
    ("'294247-01-10 04:00:54.775806'::timestamp", "294247-01-10T04:00:54.775806"),
    ("'290309-12-22 (BC) 00:00:00'::timestamp", "-290308-12-22T00:00:00"),
    ("'0044-03-15 (BC) 10:00:00.5'::timestamp", "-0043-03-15T10:00:00.500000"),
    ("'0001-01-01 00:00:00'::timestamp", "0001-01-01T00:00:00"),
    ("'infinity'::timestamp_s", "infinity"),
    ("'294247-01-10 04:00:54'::timestamp_s", "294247-01-10T04:00:54"),
    ("'2024-02-29 12:00:00.123'::timestamp_ms", "2024-02-29T12:00:00.123000"),
    ("'2024-02-29 12:00:00.123456789'::timestamp_ns", "2024-02-29T12:00:00.123456789"),
    ("'2262-04-11 23:47:16.854775806'::timestamp_ns", "2262-04-11T23:47:16.854775806"),
    ("'1677-09-22 00:00:00'::timestamp_ns", "1677-09-22T00:00:00"),
    ("'infinity'::timestamp_ns", "infinity"),
    ("'2024-02-29 12:00:00+00'::timestamptz", "2024-02-29T12:00:00Z"),
    ("'9999-12-31 23:59:59.999999+00'::timestamptz", "9999-12-31T23:59:59.999999Z"),
    ("'10000-01-01 00:00:00+00'::timestamptz", "10000-01-01T00:00:00Z"),
    ("'infinity'::timestamptz", "infinity"),
    ("'-infinity'::timestamptz", "-infinity"),
    ("'294247-01-10 04:00:54.775806+00'::timestamptz", "294247-01-10T04:00:54.775806Z"),
    ("'-290000-01-01T00:00:00.000001Z'::timestamptz", "-290000-01-01T00:00:00.000001Z"),
    ("interval '14 days 12:34:56.789'", "14 days 12:34:56.789"),
    ("interval '14 days 12:34:57.789'", "14 days 12:34:57.789"),
    ("interval '1 month'", "1 month"),
    ("interval '0 days'", "00:00:00"),
    ("to_months(-1) + to_days(1) + to_microseconds(-1)", "-1 month 1 day -00:00:00.000001"),
    (
        "to_months(2147483647) + to_days(2147483647) + to_microseconds(9223372036854775807)",
        "178956970 years 7 months 2147483647 days 2562047788 hours 0 minutes 54775807 microseconds",
    ),
    (
        "to_months(-2147483648) + to_days(-2147483648) + to_microseconds(-9223372036854775807)",
        (
            "-178956970 years -8 months -2147483648 days -2562047788 hours 0 minutes"
            " -54775807 microseconds"
        ),
    ),
    ("[]::integer[]", []),
    ("['infinity'::timestamp, null]", ["infinity", None]),
    ("[['\\xFF'::blob], null]", [["/w=="], None]),
    ("['infinity'::date]::date[1]", ["infinity"]),
    ("[1.5::decimal(2, 1)]::decimal(2, 1)[1]", ["1.5"]),
    ("{'a\"b': interval '1 month', 'c''d': 'nan'::double}", {'a"b': "1 month", "c'd": "NaN"}),
    ("{'a': null::integer}", {"a": None}),
    ("row(1, 'infinity'::timestamp)", [1, "infinity"]),
    ("map {'a': 'infinity'::date}", {"a": "infinity"}),
    ("map {true: 1}", {"true": 1}),
    ("map {'infinity'::timestamp: [interval '1 day']}", {"infinity": ["1 day"]}),
    ("map {'nan'::double: 1}", {"NaN": 1}),
    ("map {1.5::decimal(2, 1): null}::map(decimal(2, 1), integer)", {"1.5": None}),
    ("map {{'x': 1}: 'a'}", {'{"x":1}': "a"}),
    ("union_value(n := 1)::union(n integer, s varchar)", {"n": 1}),
    ("union_value(t := 'infinity'::timestamp)::union(n integer, t timestamp)", {"t": "infinity"}),
    ("union_value(n := null)::union(n integer, s varchar)", {"n": None}),
    ("[{'u': union_value(n := 1), 'm': map {1: 2}}]", [{"u": {"n": 1}, "m": {"1": 2}}]),
]
UNNAMED = "row(1, 'infinity'::timestamp)"
NAMED = [(sql, value) for sql, value in VALUES if sql != UNNAMED]
# Arrow's decimals have 38 digits, its intervals nanoseconds in 64 bits.
TOO_LARGE = [
    (sql, value)
    for sql, value in VALUES
    if (type(value) is int and abs(value) >= 10**38) or "2562047788 hours" in str(value)
]


class Kept(PieceFile):
    """An answer's pieces, which are kept instead of sent."""

    def __init__(self) -> None:
        super().__init__(-1, 1 << 20)
        self.content = b""

    def flush(self) -> None:
        self.content += bytes(self._held)
        self._held.clear()


@pytest.fixture(scope="module")
def duck() -> Iterator[Connection]:
    with open_connection() as duck:
        yield duck


def asked(duck: Connection, sql: str, form: str) -> bytes:
    """Returns the bytes with which a query's process answers."""
    kept = Kept()
    write_answer(duck, sql, {"form": form, "rows": 10, "head": {}}, kept)
    kept.flush()
    return kept.content


def row_of(values: list[tuple[str, Any]]) -> str:
    """Returns a query for a row of these values, with a comment at the end."""
    columns = (f"({sql}) as c{place}" for place, (sql, _) in enumerate(values))
    return f"select {', '.join(columns)} -- and a comment"


def differing(values: list[tuple[str, Any]], found: list[Any]) -> dict[str, Any]:
    """Returns the found values that differ in JSON, by the SQL of the written value.

    In Python, 1 equals True and 0.0 equals -0.0, so their texts are compared.
    """
    both = zip(values, found, strict=True)
    return {sql: each for (sql, value), each in both if repr(each) != repr(value)}


def in_csv(value: Any) -> str:
    one_line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value if isinstance(value, str) else "" if value is None else one_line


def back_sql(sql: str, kind: str, value: Any) -> tuple[str, str]:
    """Returns SQL that checks that DuckDB casts the JSON back to the value, and its parameter."""
    if "STRUCT(INTEGER, " in kind or any(each in kind for each in ("BLOB[", "MAP(", "UNION(")):
        return "? is not null", ""  # SQL has no cast from JSON to these
    if kind == "BLOB":
        return f"from_base64(?) = ({sql})", value
    written, cast = (value, "varchar") if isinstance(value, str) else (json.dumps(value), "json")
    return f"(?::{cast})::{kind} is not distinct from ({sql})", written


def lost_columns(duck: Connection, values: list[tuple[str, Any]], source: str) -> list[str]:
    """Returns the values that a relation's columns do not contain, after casts to their types."""
    duck.execute(f"create or replace temp table given as {row_of(values).partition(' --')[0]}")
    kinds = duck.query("from given").types
    held = [place for place, kind in enumerate(kinds) if "UNION" not in str(kind)]
    same = ", ".join(
        f"f.c{place}::{kinds[place]} is not distinct from g.c{place}" for place in held
    )
    (row,) = duck.execute(f"select {same} from {source} f, given g").fetchall()
    return [values[place][0] for place, is_same in zip(held, row, strict=True) if not is_same]


def change_set_of(duck: Connection, changes: str) -> ChangeSet:
    duck.execute(f"create or replace temp table {CHANGES} as {changes}")
    head = ChangeSetHead(ChangeKind.SLICE, "t", "p", None, Cursor(1, "b", 1), Offsets(), ("k",), ())
    return ChangeSet(head, None, Reader(duck, served=True), ())  # type: ignore[arg-type]  # it reads no point


def test_each_value_reads_back_from_its_form_in_json(duck: Connection) -> None:
    kinds = map(str, duck.query(row_of(VALUES)).types)
    backs = [back_sql(sql, kind, value) for (sql, value), kind in zip(VALUES, kinds, strict=True)]

    sql = f"select {', '.join(each for each, _ in backs)}"
    (row,) = duck.execute(sql, [written for _, written in backs]).fetchall()
    assert [VALUES[place][0] for place, is_same in enumerate(row) if not is_same] == []


def test_answers_in_text_have_each_value(duck: Connection) -> None:
    document = json.loads(asked(duck, row_of(VALUES), "json"))
    (line,) = asked(duck, row_of(VALUES), "jsonl").splitlines()
    lines = csv.reader(io.StringIO(asked(duck, row_of(VALUES), "csv").decode(), newline=""))

    assert differing(VALUES, list(document["rows"][0].values())) == {}
    assert differing(VALUES, list(json.loads(line).values())) == {}
    assert list(lines)[1] == [in_csv(value) for _, value in VALUES]
    kinds = [str(kind) for kind in duck.query(row_of(VALUES)).types]
    assert [column["type"] for column in document["columns"]] == kinds


def test_only_an_empty_text_has_quotes_in_csv(duck: Connection) -> None:
    assert asked(duck, "select '' as a, null as b, ''::blob as c", "csv") == b'a,b,c\n"",,""\n'


@pytest.mark.parametrize("form", ["arrow", "parquet", "saved"])
def test_columns_hold_each_value_or_refuse_it_by_name(
    duck: Connection, form: str, tmp_path: Path
) -> None:
    refused = [each for each in TOO_LARGE if form == "arrow" or type(each[1]) is int]
    held = [each for each in NAMED if each not in refused]
    file = tmp_path / "v.parquet"

    def write(sql: str) -> None:
        if form == "saved":
            Reader(duck, served=True).save_parquet(sql, file)
        elif form == "parquet":
            file.write_bytes(asked(duck, sql, form))
        else:
            duck.register("found", pa.ipc.open_stream(asked(duck, sql, form)).read_all())

    write(row_of(held))
    assert lost_columns(duck, held, "found" if form == "arrow" else text(str(file))) == []
    for sql, _ in refused:
        with pytest.raises((*DUCKDB_ERRORS, UsageError, pa.ArrowException), match="column v holds"):
            write(f"select {sql} as v")


def test_commands_print_each_value(duck: Connection) -> None:
    found = Reader(duck, served=True).rows(row_of(VALUES))
    listing = Listing(found.columns, found.rows)
    printed = csv.reader(io.StringIO(render_listing(Form.CSV, listing), newline=""))

    assert differing(VALUES, [*json.loads(render_listing(Form.JSON, listing))[0].values()]) == {}
    assert differing(VALUES, [*json.loads(render_listing(Form.JSONL, listing)).values()]) == {}
    assert list(printed)[1] == [in_csv(value) for _, value in VALUES]
    cells = dict(zip([sql for sql, _ in VALUES], map(cell_text, found.rows[0]), strict=True))
    odd = {
        sql: cells[sql]
        for sql, value in VALUES
        if not ("blob" in sql or "chr" in sql) and cells[sql] != (in_csv(value) or cell_text(value))
    }
    assert odd == {}


def test_changes_sinks_and_alerts_send_each_value(duck: Connection) -> None:
    row = ", ".join(f"c{place} := {sql}" for place, (sql, _) in enumerate(NAMED))
    change_set = change_set_of(
        duck,
        "select 'update' as op, 1::bigint as times, struct_pack(k := 1, "
        f"{row}) as before, struct_pack(k := 1, {row}) as after",
    )

    (line,) = change_set.json_lines()
    ((key, sent),) = change_set.key_and_row_messages()
    alert, head = AlertBirth("a", "t", "page"), change_set.head
    (message,) = row_messages(alert, head, change_set.counts(), [line], most=1, now=0)

    assert key == "1"
    change = json.loads(line)
    rows = [change["before"], change["after"], json.loads(sent or "")]
    for found in (*rows, json.loads(message.body)["after"]):
        assert differing(NAMED, list(found.values())[1:]) == {}


def test_a_line_of_changes_shows_as_changed_only_what_is(duck: Connection) -> None:
    row = "d := 'nan'::double, l := ['nan'::float, -0.0], s := {'x': 'nan'::double}, z := null"
    (change,) = change_set_of(
        duck,
        f"select 'update' as op, 1::bigint as times, struct_pack(k := 1, {row}) as before,"
        f" struct_pack(k := 2, {row}) as after",
    ).rows()

    assert change_text(change) == '~ k=1 → 2 d=NaN l=["NaN",0.0] s={"x":"NaN"} z=null'


def test_the_page_shows_each_value(duck: Connection) -> None:
    (row,) = json.loads(asked(duck, row_of(VALUES), "json"))["rows"]

    for value in row.values():
        shown = formatting.value(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert json.loads(shown.replace(",", "")) == value
        elif isinstance(value, str):
            assert shown == (value if value.isprintable() else repr(value)[1:-1])


def test_a_type_without_a_form_is_refused_by_name(duck: Connection) -> None:
    for form in ("json", "jsonl", "csv", "arrow", "parquet"):
        with pytest.raises(UsageError, match="column v is of DuckDB's type VARIANT") as refused:
            asked(duck, "select 1 as w, [1::variant] as v", form)
        assert "v::varchar" in refused.value.hint


def test_an_infinite_key_is_not_that_of_a_far_time(duck: Connection) -> None:
    fields = "k := 'infinity'::timestamptz", "k := '9999-12-31T23:59:59.999999Z'::timestamptz"
    sql = (
        "select 'insert' as op, 1::bigint as times, null::struct(k timestamptz) as before, "
        "struct_pack({}) as after"
    )
    change_set = change_set_of(duck, " union all ".join(sql.format(each) for each in fields))

    keys = [key for key, _ in change_set.key_and_row_messages()]
    assert keys == ['{"k":"9999-12-31T23:59:59.999999Z"}', '{"k":"infinity"}']


def test_a_sink_of_avro_refuses_a_time_that_it_lacks() -> None:
    field = {"name": "d", "type": {"type": "int", "logicalType": "date"}}
    schema = {"type": "record", "name": "r", "fields": [field]}
    stored = {"avro": {"schema": json.dumps(schema), "references": [], "id": None}}
    write = row_writer(json.dumps(stored), [("d", "date")])

    assert write('{"d": "9999-12-31"}')
    with pytest.raises(UsageError, match="d is"):
        write('{"d": "infinity"}')


@pytest.mark.parametrize("separator", [",", ";", " ", "1"])
def test_a_sink_of_csv_writes_each_text_or_refuses_it_by_name(separator: str) -> None:
    form, columns = Csv(separator=separator), [Column("a", Scalar("string"))]
    stored = {"csv": {"fields": None, "separator": separator}}
    write = row_writer(json.dumps(stored), [("a", "string")])

    for value in ["", "\ufeffx", "\ufeff", "a\n\r\n", '"', "\0", " x ", "1", ",;", "a\u2028b", "é"]:
        line = write(json.dumps({"a": value}))
        assert form.event_reader(columns).fields(line) == {"a": value}, line
    with pytest.raises(UsageError, match="a is null, and a line of CSV"):
        write('{"a": null}')


def test_rows_of_arrow_are_text_where_python_lacks_a_time() -> None:
    micros = [253_402_300_800_000_000, None, 0, 2**63 - 1]
    table = pa.table({"at": pa.array(micros, pa.timestamp("us", "UTC")), "n": range(4)})

    shown = [str(row["at"]) for row in python_rows(table)]
    assert shown == ["10000-01-01T00:00:00Z", "None", "1970-01-01 00:00:00+00:00", "infinity"]
    assert python_rows(table.slice(1, 2)) == table.slice(1, 2).to_pylist()
