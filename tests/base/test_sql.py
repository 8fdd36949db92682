"""Whatever a name or a text contains, it stays one name or one text in SQL."""

from __future__ import annotations

import duckdb
import pytest

from kappa.base.sql import quoted, spark_quote, text


@pytest.mark.parametrize("value", ["plain", "", "it's", "''; drop table t --", 'say "x"', "a\\"])
def test_a_text_is_one_literal_to_duckdb(value: str) -> None:
    assert duckdb.sql(f"select {text(value)}").fetchone() == (value,)


@pytest.mark.parametrize("name", ["Plain", "it's", 'say "x"', "a b", "select"])
def test_a_name_is_one_name_to_duckdb(name: str) -> None:
    assert duckdb.sql(f"select 1 as {quoted(name)}").columns == [name]


def test_a_name_is_one_name_to_spark() -> None:
    assert spark_quote("a`b") == "`a``b`"
