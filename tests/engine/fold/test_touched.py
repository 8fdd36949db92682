"""The rows of touched keys at a version, by either writer, including nulls (laws 1 and 9)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold import affected_rows
from kappa.engine.fold.affected_rows import due_rows, touched_frame, touched_rows
from kappa.engine.fold.step_loop import Clocks
from kappa.engine.write.commit import spark_append
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.tables.delta import Guard
from kappa.tables.stored_table import StoredTable, ensure_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = Mark("b", "t", 1, 0, Offsets(), Offsets())
# A key of each possible type, with a null, and the values that its bounds must not exclude.
VALUES: dict[str, list[Any]] = {
    "string": [None, "", "a", "Ä" * 40, "\U0001f600", "Ä" * 39 + "b"],
    "int": [None, -5, 0, 2**31 - 1],
    "bigint": [None, -(2**63), 1],
    "decimal(20,2)": [None, Decimal("-1.50"), Decimal("12345678901234567.89")],
    "date": [None, date(1, 1, 1), date(2024, 2, 29)],
    "timestamp": [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, UTC)],
    "boolean": [None, True, False],
    "smallint": [None, -1, 7],
}


def put(
    path: Path, columns: tuple[tuple[str, str], ...], *slices: list[dict[str, Any]]
) -> StoredTable:
    table = ensure_table(str(path), columns, MARK)
    for number, rows in enumerate(slices):
        table.append(pa.Table.from_pylist(rows, arrow_schema(columns)), MARK, Guard("t", number))
    return table


def found(
    table: StoredTable,
    version: int,
    columns: tuple[tuple[str, str], ...],
    keys: list[dict[str, Any]],
    key_columns: tuple[tuple[str, str], ...],
) -> list[Any]:
    wanted = pa.Table.from_pylist(keys, arrow_schema(key_columns))
    return sorted(touched_rows(table.path, version, columns, wanted).to_pylist(), key=repr)


@pytest.mark.parametrize("kind", VALUES)
def test_keys_of_each_type_are_found_one_by_one_and_null_is_one_of_them(
    tmp_path: Path, kind: str
) -> None:
    columns = (("k", kind), ("n", "int"))
    rows = [{"k": value, "n": number} for number, value in enumerate(VALUES[kind])]
    # Each row in a file of its own, with bounds of its own, and all rows in one file.
    table = put(tmp_path / "t", columns, *([row] for row in rows), rows)

    for row in rows:
        assert found(table, table.version, columns, [{"k": row["k"]}], columns[:1]) == [row, row]
    assert found(table, table.version, columns, [], columns[:1]) == []


def test_days_that_python_lacks_are_keys_as_any_other(tmp_path: Path) -> None:
    columns, days = (("k", "date"), ("n", "int")), [2932897, -1084780, None, 5]
    table = ensure_table(str(tmp_path / "t"), columns, MARK)
    for number, day in enumerate(days):
        rows = pa.table(
            [pa.array([day], pa.int32()).cast(pa.date32()), pa.array([number])], ["k", "n"]
        )
        table.append(rows.cast(arrow_schema(columns)), MARK, Guard("t", number))

    for number, day in enumerate(days):
        keys = pa.table([pa.array([day], pa.int32()).cast(pa.date32())], ["k"])
        there = touched_rows(table.path, table.version, columns, keys)
        assert there.column("n").to_pylist() == [number]


@pytest.mark.law
@examples(30)
@given(
    st.sets(
        st.tuples(*map(st.sampled_from, ([None, *"abc"], [None, 1, 2, 3], [None, True, False])))
    )
)
def test_keys_of_several_columns_are_found_as_a_whole(
    tmp_path_factory: pytest.TempPathFactory, wanted: set[tuple[Any, ...]]
) -> None:
    columns = (("a", "string"), ("b", "int"), ("c", "boolean"))
    rows = [
        dict(zip("abc", values, strict=True))
        for values in product([None, "a", "b"], [None, 1, 2], [None, True, False])
    ]
    table = put(tmp_path_factory.mktemp("t") / "t", columns, rows)

    keys = [dict(zip("abc", values, strict=True)) for values in wanted]

    assert found(table, 1, columns, keys, columns) == sorted(
        (row for row in rows if row in keys), key=repr
    )


def test_rows_are_those_of_the_version_that_is_asked_for(tmp_path: Path) -> None:
    columns = (("k", "string"), ("n", "int"))
    table = put(tmp_path / "t", columns, [{"k": "a", "n": 1}], [{"k": "a", "n": 2}])

    rows = [{"k": "a", "n": 1}, {"k": "a", "n": 2}]
    for version in range(3):
        assert found(table, version, columns, [{"k": "a"}], columns[:1]) == rows[:version]


def test_what_the_bounds_of_keys_leave_out_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (("k", "int"), ("n", "int"))
    slices = [[number] for number in range(5)] + [[None, 9]]
    table = put(tmp_path / "t", columns, *([{"k": k, "n": 0} for k in each] for each in slices))
    read: list[Any] = []
    iter_batches = pq.ParquetFile.iter_batches

    def counted(self: pq.ParquetFile, *arguments: Any, **named: Any) -> Any:
        read.append(named["columns"])
        return iter_batches(self, *arguments, **named)

    monkeypatch.setattr(affected_rows.pq.ParquetFile, "iter_batches", counted)

    assert found(table, table.version, columns, [{"k": 3}], columns[:1]) == [{"k": 3, "n": 0}]
    assert read == [["k"], ["k", "n"]]


def test_more_rows_than_are_held_at_once_are_found_whole(tmp_path: Path) -> None:
    columns = (("k", "int"), ("tags", "array<struct<by:int,at:timestamp>>"))
    rows = [{"k": number % 3, "tags": [{"by": number, "at": None}]} for number in range(10_000)]
    table = put(tmp_path / "t", columns, rows)

    assert len(found(table, 1, columns, [{"k": 1}, {"k": 7}], columns[:1])) == 3333


DUE = (("k", "string"), ("at", "timestamp"), ("_topic", "string"), ("_partition", "int"))


def at(micros: int) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def due(path: str, version: int, clocks: Clocks, *, at_most: int = 9) -> list[str] | None:
    rows = due_rows(path, version, DUE, "at", clocks, at_most=at_most)
    return None if rows is None else sorted(rows["k"].to_pylist())


def test_rows_are_due_once_their_partition_has_reached_their_time(tmp_path: Path) -> None:
    rows = [
        {"k": f"{topic}{partition} {micros}", "_topic": topic, "_partition": partition}
        | {"at": None if micros is None else at(micros)}
        for topic, partition, micros in product("ab", (0, 1), (None, 0, 1000, 1001))
    ]
    table = put(tmp_path / "t", DUE, rows[:8], rows[8:])
    second = int(at(0).timestamp() * 1000)

    assert due(table.path, 2, {}) == []
    assert due(table.path, 2, {"a": {}, "b": {1: second - 1}}) == []
    assert due(table.path, 2, {"a": {1: second + 1}, "b": {7: second + 2}}) == ["a1 0", "a1 1000"]
    clocks = {"a": {0: second, 1: second + 2}, "b": {0: second}}
    assert due(table.path, 2, clocks) == ["a0 0", "a1 0", "a1 1000", "a1 1001", "b0 0"]
    assert due(table.path, 1, clocks) == ["a0 0", "a1 0", "a1 1000", "a1 1001"]
    assert (due(table.path, 2, clocks, at_most=4), due(table.path, 0, clocks)) == (None, [])


def test_what_the_bounds_of_times_leave_out_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"k": "a", "_topic": "a", "_partition": 0}
    table = put(tmp_path / "t", DUE, *([{**row, "at": at(number)}] for number in (1, 2000, 3000)))
    monkeypatch.setattr(affected_rows.pq.ParquetFile, "iter_batches", Exception)
    second = int(at(0).timestamp() * 1000)

    assert due(table.path, 3, {"a": {0: second}}) == []
    with pytest.raises(TypeError):
        due(table.path, 3, {"a": {0: second + 1}})


@pytest.mark.jvm
def test_spark_writes_times_that_are_due_alike(spark: SparkSession, tmp_path: Path) -> None:
    table = put(tmp_path / "t", DUE)
    rows = [{"k": f"{n}", "at": at(n), "_topic": "a", "_partition": 0} for n in (0, 1000, 2001)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, arrow_schema(DUE)))
    spark_append(frame.coalesce(1), table.path, MARK, Guard("t", 0))
    second = int(at(0).timestamp() * 1000)

    found = [due(table.path, 1, {"a": {0: second + ms}}) for ms in (-1, 0, 1, 2, 3)]

    assert found == [[], ["0"], ["0", "1000"], ["0", "1000"], ["0", "1000", "2001"]]


@pytest.mark.jvm
def test_spark_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    columns = (*((f"k{number}", kind) for number, kind in enumerate(VALUES)), ("n", "int"))
    rows: list[dict[str, Any]] = [{"n": place} for place in range(8)]
    for number, values in enumerate(VALUES.values()):
        for place, row in enumerate(rows):
            row[f"k{number}"] = values[place % len(values)]
    table = put(tmp_path / "t", columns, rows[:5], rows[5:])

    def keys(*wanted: int) -> DataFrame:
        chosen = [rows[place] for place in wanted]
        return spark.createDataFrame(pa.Table.from_pylist(chosen, arrow_schema(columns[:-1])))

    for version, wanted, there in ((2, (0, 6, 6), [0, 6]), (1, (0, 6), [0]), (0, (0,), [])):
        frame = touched_frame(spark, table.path, version, columns, keys(*wanted))
        assert sorted(row.n for row in frame.collect()) == there
