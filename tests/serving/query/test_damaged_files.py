"""Laws of damaged files: a query names the file, the build, and what to do.

Command line and HTTP report the same. Queries that do not need the file are answered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from asking import Server, problem
from deltalake import DeltaTable, write_deltalake
from served import DELAYS, PLANES, ROWS_OF_PLANES, Platform

from kappa.base.errors import Damaged, KappaError, UsageError
from kappa.serving.query.query import answer_query, save_answer
from kappa.serving.query.reader.errors import damage_in_message
from kappa.serving.query.sandbox.question import Allowance, Format, Question
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.build import table_path
from kappa.state.store import Store
from kappa.tables.versions import files

pytestmark = pytest.mark.slow

DRAW = random.Random(7)  # the same rows each time
MANY = pa.table(
    {
        "carrier": [f"carrier {DRAW.random()}" for _ in range(20_000)],
        "flights": list(range(20_000)),
        "_state": [b"x"] * 20_000,
    }
)
READING = "select max(carrier) as carrier, sum(flights) as flights from delays"
EACH = "select carrier, flights from delays"


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    platform = Platform(Store(tmp_path / "root"))
    platform.serve(
        "flights",
        {DELAYS: MANY, PLANES: ROWS_OF_PLANES},
        {"late": "select * from delays where flights > 3", "later": "select * from late"},
    )
    return platform


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Allowance(at_once=1)) as sandbox:
        yield sandbox


def file_of(platform: Platform) -> Path:
    (path,) = files(table_path(platform.store, "flights-1", "delays"), 0, None)
    return Path(path)


def flip(file: Path, first: int, count: int) -> None:
    content = bytearray(file.read_bytes())
    content[first : first + count] = bytes(each ^ 0xFF for each in content[first : first + count])
    file.write_bytes(content)


def footer_of(file: Path) -> int:
    """Returns the position at which the Parquet metadata begin."""
    content = file.read_bytes()
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a page": lambda file: flip(file, 5000, 400),
    "a page's head": lambda file: flip(file, 4, 200),
    "the end": lambda file: flip(file, file.stat().st_size - 4, 4),
    "the footer": lambda file: flip(file, footer_of(file), 60),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1000]),
    "empty": lambda file: file.write_bytes(b""),
    "gone": Path.unlink,
}


def assert_names(error: KappaError, file: Path) -> None:
    assert isinstance(error, Damaged)
    assert f"builds/flights-1/tables/delays/{file.name}" in error.message
    assert "pipeline flights" in error.message
    assert str(file) not in str(error)
    assert "kappa replay flights" in error.hint
    assert "\n" not in error.message


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_query_of_a_damaged_file_names_file_build_and_way_on(
    platform: Platform, sandbox: Sandbox, tmp_path: Path, damage: str
) -> None:
    file = file_of(platform)
    # Not read before: DuckDB would answer from its own copy, which is as it was written.
    DAMAGES[damage](file)
    asks: list[Callable[[], object]] = [
        lambda: answer_query(platform.store, READING),
        lambda: answer_query(platform.store, EACH),
        lambda: answer_query(platform.store, "select * from later"),
        lambda: sandbox.ask_query(platform.store, Question("select * from later")),
        lambda: save_answer(platform.store, EACH, tmp_path / "answer.csv"),
        lambda: save_answer(platform.store, EACH, tmp_path / "answer.parquet"),
        lambda: sandbox.ask_query(platform.store, Question(READING)),
        *(
            lambda form=form: sandbox.ask_query(platform.store, Question(EACH, form))
            for form in Format
        ),
    ]
    for ask in asks:
        with pytest.raises(KappaError) as told:
            ask()
        assert_names(told.value, file)

    assert answer_query(platform.store, "select seats from planes").rows == ((100,),)
    with sandbox.ask_query(platform.store, Question("select seats from planes")).body as body:
        assert b'"seats": 100' in body.read()


def test_over_http_it_is_a_problem_of_the_server(platform: Platform) -> None:
    DAMAGES["a page"](file_of(platform))

    with Server(platform.store, Allowance(at_once=1)) as server:
        status, kind, detail = problem(server.query(READING))

    assert (status, kind) == (500, "damaged")
    assert file_of(platform).name in detail


@pytest.mark.parametrize(
    "sql",
    [
        "select error('a mistake of theirs')",
        "select error('part-00000.snappy.parquet')",
        "select strptime('x', '%Q')",
        "select regexp_matches(carrier, '(') from delays",
        "select carrier::int from delays",
        "select no_column from delays",
    ],
)
def test_a_mistake_in_a_query_stays_one(platform: Platform, sandbox: Sandbox, sql: str) -> None:
    for ask in (
        lambda: answer_query(platform.store, sql),
        lambda: sandbox.ask_query(platform.store, Question(sql)),
    ):
        with pytest.raises(UsageError):
            ask()


def test_a_file_of_a_bucket_is_known_by_any_of_its_urls():
    path = "b/kappa/builds/x/tables/t/part-1.parquet"
    told = f"HTTP Error: HTTP GET error reading 'http://127.0.0.1:7070/{path}' (HTTP 404 Not Found)"

    other = path.replace("part-1", "part-0")
    found = damage_in_message(told, {f"s3://{other}": "p", f"s3://{path}": "q"})

    assert found is not None
    assert found.message == (
        "file builds/x/tables/t/part-1.parquet of pipeline q cannot be read: HTTP GET error "
        "reading 'part-1.parquet' (HTTP 404 Not Found)"
    )


def test_a_damaged_checkpoint_of_a_table_is_told_from_a_version_that_is_gone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table"
    for number in range(3):
        write_deltalake(str(path), pa.table({"n": [number]}), mode="append")
    DeltaTable(str(path)).create_checkpoint()
    log = path / "_delta_log"
    for number in range(2):
        (log / f"{number:020}.json").unlink()

    with pytest.raises(Damaged) as gone:
        files(str(path), 1, None)
    assert "a lease may have run out" in gone.value.hint

    write_deltalake(str(path), pa.table({"n": [3]}), mode="append")
    (log / f"{3:020}.json").unlink()
    # It was the newest, which no collection deletes.
    with pytest.raises(Damaged, match=r"/0{19}3\.json is gone") as lost:
        files(str(path), 3, None)
    assert "kappa replay" in lost.value.hint

    (checkpoint,) = log.glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-50])
    with pytest.raises(Damaged) as damaged:
        files(str(path), 2, None)
    assert "2.checkpoint.parquet is not as it was written" in damaged.value.message
    assert "kappa replay" in damaged.value.hint
    assert "lease" not in str(damaged.value)
