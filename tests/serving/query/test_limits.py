"""Laws of a query's limits: at a limit it is answered; beyond it is refused with a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform
from shares import long_except

from kappa.base.clock import now
from kappa.base.errors import UsageError
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.sandbox.question import MOST_FILES, Allowance, Format, Question, Reply
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.build import table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

pytestmark = pytest.mark.slow

# The bytes that a socket's buffer takes at once, and beyond; the last is what HTTP lets in.
SIZES = (150_000, 212_991, 212_993, 500_000, 1 << 20)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    platform = Platform(Store(tmp_path_factory.mktemp("limits") / "root"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES})
    return platform


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Allowance(seconds=120, at_once=1)) as sandbox:
        yield sandbox


def body(reply: Reply) -> bytes:
    with reply.body:
        return reply.body.read()


def give_files(platform: Platform, build: str, count: int) -> None:
    """Gives the build's table of delays `count` files, each with the rows of the first file."""
    path = Path(table_path(platform.store, build, DELAYS.name))
    first = next(path.glob("*.parquet"))
    last = Frontiers(platform.store, build).newest()
    assert last is not None
    version = last.versions[DELAYS.name] + 1
    actions = [json.dumps({"commitInfo": {"operation": "WRITE"}})]
    for _ in range(count):
        name = f"part-00000-{os.urandom(16).hex()}-c000.snappy.parquet"
        os.link(first, path / name)
        add = {
            "path": name,
            "partitionValues": {},
            "size": first.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
        }
        actions.append(json.dumps({"add": add}))
    (path / "_delta_log" / f"{version:020}.json").write_text("\n".join(actions) + "\n")
    Frontiers(platform.store, build).publish(
        Frontier(
            last.number + 1,
            build,
            1,
            Offsets({"flights": {0: 12}}),
            {**last.versions, DELAYS.name: version},
            now(),
        )
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "filled",
    [
        "select 1 as n /* {} */",
        "select length('{}') as n",
        'select n from (select 1 as n, 2 as "{}")',
    ],
)
def test_a_query_of_any_size_that_http_lets_in_is_answered(
    sandbox: Sandbox, platform: Platform, filled: str, size: int
) -> None:
    sql = filled.format("x" * (size - len(filled) + 2))

    assert len(sql) == size
    assert json.loads(body(sandbox.ask_query(platform.store, Question(sql))))["rows"]


@pytest.mark.parametrize(
    "sql",
    [
        f'select "{"ä" * 500_000}"',
        f"select '{'ä' * 500_000}'::int",
        f'select 1 as "{"ä" * 500_000}"',
        f'select 1 as "{chr(1) * 1_000_000}"',
        f'select {{"{"x" * 900_000}": 1}} as s',
        f"select * from {'x' * 1_000_000}",
        f"select {'x' * 50_000}(1)",
    ],
    ids=("column", "cast", "name", "control", "type", "table", "function"),
)
@pytest.mark.parametrize("form", [Format.JSON, Format.PARQUET])
def test_a_query_with_a_name_of_any_length_is_refused_in_a_sentence(
    sandbox: Sandbox, platform: Platform, sql: str, form: Format
) -> None:
    with pytest.raises(UsageError) as told:
        sandbox.ask_query(platform.store, Question(sql, form))

    assert told.value.hint
    assert len(str(told.value)) < 10_000


def test_a_snapshot_may_have_so_many_files_and_one_more_is_refused(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    platform = Platform(Store(tmp_path / "root"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    count = Question("select count(*) as n from delays")
    # The table has a file already.
    for more, files in ((800, 801), (MOST_FILES - 801, MOST_FILES)):
        give_files(platform, "flights-1", more)
        told = json.loads(body(sandbox.ask_query(platform.store, count)))
        assert told["rows"] == [{"n": 3 * files}]

    give_files(platform, "flights-1", 1)
    with pytest.raises(TooMuch) as refused:
        sandbox.ask_query(platform.store, count)
    assert "10001 files" in refused.value.message
    assert "flights.delays" in refused.value.message


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 2047, 2048, 2049])
def test_an_answer_of_exactly_the_most_rows_is_whole_and_one_more_is_cut(
    sandbox: Sandbox, platform: Platform, form: Format, rows: int
) -> None:
    for there, cut in ((rows, False), (rows + 1, True)):
        sql = f"select range as n from range({there})"
        reply = sandbox.ask_query(platform.store, Question(sql, form, rows))
        reply.body.close()
        assert (reply.rows, reply.truncated) == (rows, cut)


@pytest.mark.parametrize("form", long_except([Format.CSV], Format))
def test_an_answer_of_many_columns_is_cut_at_its_bytes(platform: Platform, form: Format) -> None:
    columns = ", ".join(f"random() as column_with_some_name_{n}" for n in range(400))
    with Sandbox(Allowance(memory=1 << 30, bytes=16 << 20, seconds=120, at_once=1)) as sandbox:
        reply = sandbox.ask_query(
            platform.store, Question(f"select {columns} from range(20000)", form)
        )
        reply.body.close()
        assert reply.truncated
        assert 0 < reply.rows < 20_000
        assert reply.size <= 17 << 20
