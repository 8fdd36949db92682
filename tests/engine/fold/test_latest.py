"""Law of latest rows: DuckDB finds the same rows in files as Arrow finds here (law 4)."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import Table, Topic
from kappa.base.duck import open_connection
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.latest import emptied_sql, latest_input, latest_sql, latest_table
from kappa.engine.slice_in_spark import DecodedFiles
from kappa.records.decode.outcome import Fate, decoded_columns
from kappa.records.decode.parquet_decoder import CarriedTimes
from kappa.records.redrive import Position
from kappa.tables.shape import latest_birth

TOPIC = Topic(
    "things",
    kind="compacted",
    partitions=2,
    key="k",
    event="k string, n bigint, d decimal(20,3), at timestamp, parts array<struct<a: int>>",
)
TABLE = latest_birth(Table("t", latest=TOPIC))
SCHEMA = arrow_schema(decoded_columns(TOPIC))


def decoded(draw: random.Random, partition: int, rows: int) -> pa.Table:
    """Returns records of one partition with few keys and many equal times."""
    clock = 0
    made = []
    for offset in range(rows):
        clock += draw.choice([0, 0, 1])
        fate = draw.choice(list(Fate))
        valid = fate in {Fate.DECODED, Fate.DELETION}
        made.append(
            {
                "k": draw.choice(["a", "ß", "", None, "it's"]),
                "n": draw.choice([None, offset]) if valid else None,
                "d": offset if valid else None,
                "at": offset if valid else None,
                "parts": [{"a": offset}, None] if valid else None,
                "_partition": partition,
                "_offset": offset,
                "_log_time": clock,
                "_fate": fate,
            }
        )
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.mark.law
@examples(30)
@given(
    st.integers(0, 10_000),
    st.integers(0, 30),
    st.sampled_from([None, {0: (2, 9), 1: (0, 5)}]),
    st.sets(st.integers(0, 9)),
)
def test_files_have_the_latest_rows_that_their_records_have(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    rows: int,
    within: dict[int, tuple[int, int]] | None,
    duplicates: set[int],
) -> None:
    folder, draw = tmp_path_factory.mktemp("it's [1]"), random.Random(seed)
    parts = [decoded(draw, partition, rows) for partition in range(2)]
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet")
    left_out = {Position(TOPIC.name, 1, offset) for offset in duplicates}
    paths = tuple(str(folder / f"{number}.parquet") for number in range(2))
    files = DecodedFiles(TOPIC.name, paths, within, frozenset(), CarriedTimes())

    elsewhere = Position("another", 0, 0)
    query = latest_sql(TABLE, files.sql(latest_input(TABLE), {*left_out, elsewhere}))
    with open_connection() as duck:
        found = duck.execute(query).to_arrow_table()

    kept = [
        row
        for row in pa.concat_tables(parts).to_pylist()
        if (
            within is None
            or within[row["_partition"]][0] <= row["_offset"] < within[row["_partition"]][1]
        )
        and Position(TOPIC.name, row["_partition"], row["_offset"]) not in left_out
    ]
    wanted = latest_table(pa.Table.from_pylist(kept, SCHEMA), TABLE)
    assert sorted(found.cast(wanted.schema).to_pylist(), key=repr) == sorted(
        wanted.to_pylist(), key=repr
    )


@examples(30)
@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(0, 12))
def test_a_truncation_hides_each_key_from_before_it(seed: int, rows: int, at: int) -> None:
    records = decoded(random.Random(seed), 0, rows)
    records = records.filter(pc.not_equal(records.column("_offset"), at))
    log_time = max((r["_log_time"] for r in records.to_pylist() if r["_offset"] < at), default=0)
    truncated = (log_time, 0, at)
    whole = latest_table(records, TABLE)
    stored = pa.table({"k": pa.array(["a", "of before"], pa.string())})

    with open_connection() as duck:
        duck.register("whole", whole)
        duck.register("stored", stored)
        sql = emptied_sql(TABLE, "select * from whole", "select * from stored", truncated)
        found = duck.execute(sql).to_arrow_table().cast(whole.schema).to_pylist()

    after = records.filter(pc.greater(records.column("_offset"), at))
    wanted = {row["k"]: row for row in latest_table(after, TABLE).to_pylist()}
    nothing = dict.fromkeys(whole.column_names)
    for key in {"a", "of before", *whole.column("k").to_pylist()} - wanted.keys():
        order = dict(zip(("_log_time", "_partition", "_offset"), truncated, strict=True))
        wanted[key] = {**nothing, "k": key, **order, "_deleted": True}
    assert {row["k"]: row for row in found} == wanted
    assert len(found) == len({row["k"] for row in found})


def test_what_a_deleted_row_was_is_not_kept() -> None:
    record = {"k": "a", "n": 7, "_partition": 0, "_offset": 3, "_log_time": 5}
    rows = pa.Table.from_pylist([{**record, "_fate": Fate.DELETION}], SCHEMA)

    (hidden,) = latest_table(rows, TABLE).to_pylist()

    assert (hidden["k"], hidden["n"], hidden["_offset"], hidden["_deleted"]) == ("a", None, 3, True)
