"""Laws of statements: a semicolon in quotes or comments ends none, and no text is lost."""

from __future__ import annotations

import time

import pytest

from kappa.serving.query.statements import SqlStatement, split_statements


@pytest.mark.parametrize(
    ("sql", "statements", "rest"),
    [
        ("select 1;", ["select 1"], None),
        ("select 1; select 2", ["select 1"], "select 2"),
        ("select ';' as a, \";\" as b; x", ["select ';' as a, \";\" as b"], "x"),
        ("select $$ ; $$, $t$ ;; $t$;", ["select $$ ; $$, $t$ ;; $t$"], None),
        ("select 1 -- ; no end\n;", ["select 1 -- ; no end"], None),
        ("/* ; */ select 1 /* ; */;", ["/* ; */ select 1 /* ; */"], None),
        ("select 'no end;", [], "select 'no end;"),
        ("select 1 /* no end;", [], "select 1 /* no end;"),
        (";; ;select 1;;", ["select 1"], None),
        ("select 'é;日', 本; x\udcff\0;", ["select 'é;日', 本", "x\udcff\0"], None),
        ("select 1; -- done\n /* all */ ", ["select 1"], None),
        (" \n-- nothing\n", [], None),
        (" \n-- nothing\n--/* nothing", [], None),
        ("/* a /* b */ c */ /**/", [], None),
        ("/* a /* b */", [], "/* a /* b */"),
        ("/**/*/", [], "/**/*/"),
        ("", [], None),
    ],
)
def test_statements_end_at_semicolons(sql: str, statements: list[str], rest: str | None) -> None:
    split = split_statements(sql)

    assert [each.text for each in split.statements] == statements
    assert (None if split.rest is None else split.rest.text) == rest


def test_each_statement_has_its_line() -> None:
    split = split_statements("\nselect 1;\n\n select\n2;select 3;\nselect 'ä'\n")

    assert split.whole == (
        SqlStatement("select 1", 2),
        SqlStatement("select\n2", 4),
        SqlStatement("select 3", 5),
        SqlStatement("select 'ä'", 6),
    )


@pytest.mark.parametrize(
    "sql", ["/**/" * 20_000 + "select 1", ";" * 60_000, "1;\n" * 30_000, "--\n" * 30_000 + "x"]
)
def test_a_text_of_any_parts_is_split_at_once(sql: str) -> None:
    """Any client of the shared server may send such a text, so splitting must be fast."""
    begun = time.process_time()
    split = split_statements(sql)

    assert time.process_time() - begun < 5
    assert len(split.statements) == sql.count("1;")
    assert (split.rest is None) == sql.endswith((";", ";\n"))
