"""Rows of files: CSV is read exactly, and an error names its line."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path

import pytest

from kappa.base.errors import DeclarationError
from kappa.code.project import load_project
from kappa.declare.seed import read_seed
from kappa.declare.table import Table
from kappa.engine.views.view_maintenance import seed_rows
from kappa.tables.shape import table_births

PIPELINE = """
from kappa import Table, Topic, pipeline
VISITS = Topic("visits", event="id string")
@pipeline(reads={"visits": VISITS}, writes=[Table("visits"), TABLE])
def web(visits):
    return {"visits": visits}
"""


def table(folder: Path, content: bytes, given: str = "") -> Table:
    (folder / "pipelines").mkdir(exist_ok=True)
    (folder / "pipelines" / "rates.csv").write_bytes(content)
    return declared(folder, f'Table("rates", file="rates.csv"{given})')


def declared(folder: Path, text: str) -> Table:
    (folder / "pipelines").mkdir(exist_ok=True)
    (folder / "pipelines" / "web.py").write_text(PIPELINE.replace("TABLE", text), encoding="utf-8")
    return load_project(folder).pipelines["web"].tables[1]


def rows(found: Table) -> list[dict[str, object]]:
    assert found.file is not None
    birth = born(found)
    return seed_rows(found.file, birth).to_pylist()


def born(found: Table):
    from types import SimpleNamespace

    return table_births(SimpleNamespace(tables=(found,)), {})[0]  # type: ignore[arg-type]


def refusal(folder: Path, content: bytes, given: str = "") -> str:
    with pytest.raises(DeclarationError) as refused:
        rows(table(folder, content, given))
    assert refused.value.hint or "twice" in refused.value.message
    return refused.value.message


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "-20", ""], "bigint", [1, -20, None]),
        (["1", "2.5"], "double", [1.0, 2.5]),
        (["true", "FALSE"], "boolean", [True, False]),
        (["2024-02-29", ""], "date", [dt.date(2024, 2, 29), None]),
        (
            ["2024-01-01T00:00:00Z"],
            "timestamp",
            [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
        ),
        # What a number would not give back as it is written is a text.
        (["007", "8"], "string", ["007", "8"]),
        (["9223372036854775808"], "string", ["9223372036854775808"]),
        (["0.1234567890123456789"], "string", ["0.1234567890123456789"]),
        (["1", '""'], "string", ["1", ""]),
        (["2024-01-01 10:00:00"], "string", ["2024-01-01 10:00:00"]),
        (["1", " 2"], "string", ["1", " 2"]),
        (["", ""], "string", [None, None]),
    ],
)
def test_a_column_is_of_the_type_that_all_its_values_are_of(
    tmp_path: Path, texts: list[str], kind: str, values: list[object]
) -> None:
    content = "\n".join(["v,n", *(f"{text},x" for text in texts)]).encode()
    found = table(tmp_path, content)

    assert born(found).columns == (("v", kind), ("n", "string"))
    assert [row["v"] for row in rows(found)] == values


def test_declared_types_are_exact(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        b"id,rate,code\n1,1.0934,007\n2,.5,8\n",
        ', columns="rate decimal(10,4) not null, code string, id smallint"',
    )

    assert born(found).columns == (
        ("id", "smallint"),
        ("rate", "decimal(10,4)"),
        ("code", "string"),
    )
    assert rows(found) == [
        {"id": 1, "rate": Decimal("1.0934"), "code": "007"},
        {"id": 2, "rate": Decimal("0.5000"), "code": "8"},
    ]


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (b"\xef\xbb\xbfa,b\r\n1,x\r\n", [{"a": 1, "b": "x"}]),
        ('a,b\n"x, ""y""",\n"zwei\nZeilen","é"'.encode(), [
            {"a": 'x, "y"', "b": None}, {"a": "zwei\nZeilen", "b": "é"}]),
        (b"a\n\n1\n", [{"a": None}, {"a": 1}]),
        (b"a,b\n", []),
    ],
)  # fmt: skip
def test_csv_is_read_as_it_is_written(
    tmp_path: Path, content: bytes, read: list[dict[str, object]]
) -> None:
    assert rows(table(tmp_path, content)) == read


@pytest.mark.parametrize(
    ("content", "given", "told"),
    [
        (b"", "", "rates.csv:1: there is no header"),
        (b"\n1\n", "", "rates.csv:1: there is no header"),
        (b"a,b\n1,2\n3\n", "", "rates.csv:3: the row has 1 value, and the header names 2"),
        (b"a,b\n1,2,3\n", "", "rates.csv:2: the row has 3 values, and the header names 2"),
        (b"a,b\n1,2\n\n", "", "rates.csv:3: the line is empty"),
        (b"a,A\n", "", "rates.csv:1: the header has the column A twice"),
        ("größe\n".encode(), "", "rates.csv:1: the header has 'größe'"),
        (b"a, b\n", "", "rates.csv:1: the header has ' b'"),
        (b"_a\n", "", "rates.csv:1: the header has '_a'"),
        (b"a,\n", "", "rates.csv:1: the header has an empty name"),
        (b"a\nx\n\xff\n", "", "rates.csv:3: byte 4 is not UTF-8"),
        (b'a\n"x\ny', "", "rates.csv:2: a quote is opened and never closed"),
        (b'a\nx"y"\n', "", "rates.csv:2: a quote is within the value x"),
        (b'a\n"x"y\n', "", "rates.csv:2: text follows a closed quote"),
        (b"a\nx\ry\n", "", "rates.csv:2: a carriage return is in the middle of a line"),
        (b'a\n"x\ny"\nz\n', ', columns="a int"', 'rates.csv:2: a is the text "x\\ny", not a whole'),
        (b'a\n"x\ny"\nz\n', ', columns="a string", keys=("b",)', "rates.csv:1: the header has no"),
        (b'a\n"1\n"\nz\n', ', columns="a int"', "rates.csv:2: a is the text"),
        (b"a\n1\n300\n", ', columns="a tinyint"', "rates.csv:3: a is 300, beyond what tinyint"),
        (b"a\n1.234\n", ', columns="a decimal(5,2)"', "rates.csv:2: a is 1.234, more digits"),
        (b"a\n2023-02-29\n", ', columns="a date"', 'rates.csv:2: a is "2023-02-29", a day that'),
        (b"a,b\n1,\n", ', columns="a int, b int not null"', "rates.csv:2: b is null"),
        (b"a\n1\n", ', columns="a int, b int"', "the header has no column b, and columns= does"),
        (b"a,b\n1,2\n", ', columns="a int"', "the header has a column b, and columns= does not"),
        (
            b"a,b\n1,1\n,2\n1,3\n,4\n1,5\n1,6\n",
            ', keys=("a",)',
            "lines 2 and 4 have a=1; lines 3 and 5 have a=null; lines 2 and 6 have a=1 and 1 more",
        ),
        (b"a\n1.5\n", ', keys=("a",)', "the key a is of type double, which has no exact"),
    ],
)
def test_a_mistake_in_the_file_names_its_line(
    tmp_path: Path, content: bytes, given: str, told: str
) -> None:
    message = refusal(tmp_path, content, given)

    assert message.startswith(f"{tmp_path}/pipelines/web.py:4: table rates: pipelines/rates.csv:")
    assert told in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('Table("rates", file="none.csv")', "pipelines/none.csv is not there"),
        ('Table("rates", file="../pipelines")', "pipelines is not a file"),
        ('Table("rates", file="../../rates.csv")', "../../rates.csv is not in the project"),
        ('Table("rates", file="/etc/passwd")', "/etc/passwd is not in the project"),
        ('Table("rates", file="out.csv")', "pipelines/out.csv leads out of the project"),
        ('Table("rates", file="a\\0b")', "cannot be read: embedded null"),
        ('Table("rates", file="huge.csv")', "has at most 16,777,216"),
        ('Table("rates", file=7)', "an int for its file, which is not a path"),
        ('Table("rates", file="x.csv", fold={}, latest=VISITS)', "has the rows of a file, and"),
        ('Table("rates", file="ok.csv", expire="a", after="1 day")', "is of a file, and its rows"),
        ('Table("rates", columns="a int")', "has columns, and no file"),
        ('Table("rates", file="ok.csv", columns=["a"])', "a list for columns"),
        ('Table("rates", file="ok.csv", columns="a array<int>")', "one plain value in each place"),
        ('Table("rates", file="ok.csv", columns="a int default 1")', "one plain value in each"),
        ('Table("rates", file="ok.csv", columns="a colour")', "table rates: "),
    ],
)  # fmt: skip
def test_a_mistake_in_the_declaration_is_refused(tmp_path: Path, text: str, told: str) -> None:
    project = tmp_path / "project"
    (project / "pipelines").mkdir(parents=True)
    (tmp_path / "out.csv").write_text("a\n", encoding="utf-8")
    (project / "pipelines" / "ok.csv").write_text("a\n", encoding="utf-8")
    (project / "pipelines" / "out.csv").symlink_to(tmp_path / "out.csv")
    with (project / "pipelines" / "huge.csv").open("wb") as huge:
        os.truncate(huge.fileno(), (16 << 20) + 1)

    with pytest.raises(DeclarationError) as refused:
        declared(project, text)

    assert refused.value.message.startswith(f"{project}/pipelines/web.py:4: table rates")
    assert told in refused.value.message
    assert refused.value.hint


@pytest.mark.slow
def test_a_large_file_may_be_of_two_tables(tmp_path: Path) -> None:
    line = b"7,abcdefghijklmnop\n"
    content = b"id,name\n" + line * ((16 << 20) // len(line) - 1)
    found = table(tmp_path, content, "), Table('again', file='./rates.csv'")

    assert found.file is not None
    columns, (ids, names) = read_seed(found.file)

    assert [str(column) for column in columns] == ["id bigint", "name string"]
    assert len(ids) == len(names) == content.count(b"\n") - 1
