"""Laws of `kappa query`: the SQL comes from an argument, a file, or stdin."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
from served import DELAYS, ROWS_OF_DELAYS, Platform
from typing_in import Ended, Kappa

from kappa.commands.terminal import progress
from kappa.state.lease import sorted_leases
from kappa.state.store import Store


class Typist:
    """A person or script that types `kappa query` with some stdin."""

    def __init__(self, kappa: Kappa, monkeypatch: pytest.MonkeyPatch) -> None:
        self._kappa = kappa
        self._patch = monkeypatch

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ended:
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return self._kappa("query", *arguments)


@pytest.fixture
def query(kappa: Kappa, monkeypatch: pytest.MonkeyPatch) -> Typist:
    return Typist(kappa, monkeypatch)


@pytest.mark.parametrize("arguments", [(), ("-",), ("-f", "-")])
def test_sql_comes_from_stdin(query: Typist, arguments: tuple[str, ...]) -> None:
    assert query(*arguments, "-o", "csv", stdin="select 'ä;' as x".encode()) == (0, "x\nä;\n", "")


def test_sql_comes_from_a_file(query: Typist, tmp_path: Path) -> None:
    (tmp_path / "hits.sql").write_text("-- hits\nselect 1 as x;\n", encoding="utf-8")

    assert query("-f", "hits.sql", "-o", "csv") == (0, "x\n1\n", "")
    assert query("-f", "hits.sql", "--out", "x.csv") == (0, "", "1 row written to x.csv\n")


def test_statements_are_answered_in_order(query: Typist, tmp_path: Path) -> None:
    """All statements read one snapshot. In JSON, each answer is a separate document."""
    two = b"select 1 as x; select 2 as y;"

    assert query(stdin=two) == (0, "x\n─\n1\n\ny\n─\n2\n", "")
    assert query("-o", "csv", stdin=two) == (0, "x\n1\ny\n2\n", "")
    code, out, _ = query("-o", "json", stdin=two)
    first, end = json.JSONDecoder().raw_decode(out)
    assert (code, first["rows"], json.loads(out[end:])["rows"]) == (0, [{"x": 1}], [{"y": 2}])


def test_statements_see_one_snapshot(
    query: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform(Store(tmp_path / ".kappa"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    from kappa.serving.query.reader.reader import Reader

    rows = Reader.keep_rows

    def rows_while_it_goes_on(reader: Reader, sql: str):
        found = rows(reader, sql)
        platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
        return found

    monkeypatch.setattr(Reader, "keep_rows", rows_while_it_goes_on)
    counted = b"select count(*) as n from delays;"

    assert query("-o", "csv", stdin=2 * counted) == (0, "n\n3\nn\n3\n", "")
    assert query("-o", "csv", stdin=counted)[1] == "n\n9\n"
    assert sorted_leases(platform.store, time.time())[0] == ()


def test_a_wrong_statement_is_named(query: Typist) -> None:
    code, out, err = query(stdin=b"select 1;\n\nselekt 2;\nselect 3")

    assert (code, out) == (2, "")
    assert err.startswith("error: statement 2 of 3, at line 3: the query cannot be run: ")


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        ((), b"", "there is no SQL in stdin"),
        (("-f", "empty.sql"), b"", "there is no SQL in empty.sql"),
        (("-f", "nothing.sql"), b"", "nothing.sql cannot be read: No such file"),
        (("-f", "."), b"", ". cannot be read: Is a directory"),
        (("-f", "x.sql", "select 1"), b"", "SQL was given twice"),
        ((), b"select '\xff'", "stdin is not text in UTF-8: byte 8"),
        (("--out", "x.csv"), b"select 1; select 2", "a file has one answer"),
        (("select 1; select 2",), b"", "this is more than one statement"),
    ],
)
def test_sql_that_cannot_be_meant_is_refused(
    query: Typist, tmp_path: Path, arguments: tuple[str, ...], stdin: bytes, told: str
) -> None:
    (tmp_path / "empty.sql").write_text("-- nothing\n", encoding="utf-8")

    code, out, err = query(*arguments, stdin=stdin)

    assert (code, out) == (2, "")
    assert told in err
    assert "hint: " in err


def test_the_shell_needs_a_terminal(kappa: Kappa) -> None:
    ended = kappa("shell").has(2)
    assert ended.err.startswith("error: the shell needs a terminal\nhint: ")


def test_a_script_gets_the_answer_alone(query: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a query takes, progress lines are only for terminals."""
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)

    code, out, err = query("select count(*) as n from range(20000000) r(i)", "-o", "csv")

    assert (code, out, err) == (0, "n\n20000000\n", "")


def test_an_error_that_quotes_data_is_escaped(query: Typist) -> None:
    code, _, err = query("select 'x\x1b[2Jy'::integer")

    assert code == 2
    assert err.replace("\n", "").isprintable()
