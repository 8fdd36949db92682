"""The law of the catalogue for Postgres clients: it gives no access outside of the snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform
from test_sandbox import LOOKING_AROUND, LOOKING_OUTSIDE

from kappa.base.errors import UsageError
from kappa.serving.query.postgres.wire import Wire
from kappa.serving.query.sandbox.question import Allowance, Format, Question, Reply
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.store import Store

pytestmark = pytest.mark.slow

INSIDE = [
    "select * from kappa_catalogue._relations",
    "select * from kappa_catalogue.duckdb_views",
    "select kappa_catalogue.getenv('HOME')",
    "select * from pg_catalog.pg_class",
    "select * from information_schema.tables",
]


class Asked:
    """A sandbox over a snapshot, and files next to the root."""

    def __init__(self, folder: Path) -> None:
        self.platform = Platform(Store(folder / "root"))
        self.platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES})
        self.sandbox = Sandbox(Allowance(memory=256 << 20, seconds=20))
        secret = folder / "secret.csv"
        secret.write_text("the-secret-of-another\n", encoding="utf-8")
        self.names = dict.fromkeys(("secret", "parquet", "own"), str(secret)) | {"port": "9"}

    def ask(self, sql: str) -> Reply:
        question = Question(sql, Format.POSTGRES, wire=Wire(catalogue=True))
        return self.sandbox.ask_query(self.platform.store, question)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    found = Asked(tmp_path_factory.mktemp("walls"))
    with found.sandbox:
        yield found


@pytest.mark.parametrize("sql", [LOOKING_OUTSIDE[0], *LOOKING_AROUND, *INSIDE])
def test_the_catalogue_opens_no_other_way(asked: Asked, sql: str) -> None:
    """With the catalogue, a query sees no more than without it."""
    with pytest.raises(UsageError):
        asked.ask(sql.format(**asked.names)).body.close()


@pytest.mark.long
@pytest.mark.parametrize("sql", LOOKING_OUTSIDE[1:])
def test_the_catalogue_reads_no_other_file(asked: Asked, sql: str) -> None:
    """With the catalogue, a query reads no files other than those of the tables."""
    with pytest.raises(UsageError) as refused:
        asked.ask(sql.format(**asked.names)).body.close()

    assert "the-secret-of-another" not in str(refused.value)


def test_tables_beside_the_catalogue_have_rows(asked: Asked) -> None:
    """A named table has its rows; for other tables, the catalogue has only the columns."""
    with asked.ask(
        "select count(*), (select count(*) from kappa_catalogue.pg_attribute) from delays"
    ).body as body:
        content = body.read()

    # Each of both counts: a length of 1 or 2, and the digits.
    assert b"\0\0\0\x013" in content
    assert re.search(rb"\0\0\0\x02\d\d", content)
