"""A truncation of a source's table hides each key, within the allowed memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rehearsing import memory_log
from writers import make_writer

from kappa import Debezium, Table, Topic, pipeline
from kappa.base.errors import Broken
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.latest import latest_rows, refuse_truncations
from kappa.engine.function.decoded_rows import newest_truncation
from kappa.engine.slice_in_process import SliceHere
from kappa.engine.write.commit import Merging
from kappa.records.decode.decode import decode_table
from kappa.records.decode.raw_records import RawRecord, raw_table
from kappa.state.files.address import arrow_source
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.shape import REJECTS_BIRTH, latest_birth
from kappa.tables.versions import files

FORM = Debezium(times="micros", decimals="text", exactly_once=True)
ORDERS = Topic(
    "orders",
    event="id bigint not null, name string, change_op string not null",
    format=FORM,
    key="id",
)
NEWEST = Table("newest", latest=ORDERS)
BIRTH = latest_birth(NEWEST)
KEYS = 5_000


@pipeline(reads={"orders": ORDERS}, writes=[NEWEST])
def shop() -> dict[str, Any]:
    return {}


def change(offset: int, op: str, key: int | None = None) -> RawRecord:
    value = FORM.encode_event({"id": key, "name": f"n{key}", "change_op": op}, ())
    written = None if key is None else FORM.encoded_key("id", key)
    return ("orders", 0, offset, offset, written, value, ())


class Slices:
    """A table of latest rows into which slices are folded with little memory."""

    def __init__(self, store: Store) -> None:
        merging = Merging(at_most_bytes=1_000)
        self.writer = make_writer(store, BIRTH, driver_rows=10, merging=merging)
        self.number, self.end = 0, 0

    def fold(self, records: Iterable[RawRecord], partitions: int = 1) -> str:
        """Folds a slice; returns the name of the writer that committed it."""
        known = list(records)
        start, end = self.end, self.end + len(known)
        marks = [{"orders": {**dict.fromkeys(range(partitions), 0), 0: at}} for at in (start, end)]
        mark = Mark("b", "newest", 1, self.number, *map(Offsets, marks))
        decoded = SliceHere({"orders": decode_table(raw_table(known), ORDERS, {}, {})})
        rows = latest_rows(decoded, ORDERS, self.writer, mark, None)  # type: ignore[arg-type]  # not needed
        self.number, self.end = self.number + 1, end
        return self.writer.commit(rows, mark)

    def rows(self) -> list[dict[str, Any]]:
        schema = arrow_schema(BIRTH.columns)
        found = (
            pq.ParquetFile(arrow_source(path)).read().select(schema.names).cast(schema)
            for path in files(self.writer.path, self.writer.version, None)
        )
        return pa.concat_tables(found).to_pylist()


def test_a_small_slice_that_truncates_a_large_table_takes_no_keys_into_memory(
    any_store: Store,
) -> None:
    slices = Slices(any_store)
    slices.fold(change(key, "c", key) for key in range(KEYS))
    at = slices.end

    writer = slices.fold([change(at, "c", KEYS), change(at + 1, "t"), change(at + 2, "c", 7)])

    assert writer == "duckdb"
    rows = {row["id"]: row for row in slices.rows()}
    assert len(rows) == KEYS + 1
    assert [row["name"] for row in rows.values() if not row["_deleted"]] == ["n7"]
    assert {row["_offset"] for row in rows.values() if row["_deleted"]} == {at + 1}


def test_where_errors_stop_a_truncation_among_more_partitions_than_declared_does(
    tmp_path: Path,
) -> None:
    slices = Slices(Store(tmp_path))
    slices.fold([change(0, "c", 1)], partitions=3)

    with pytest.raises(Broken, match="record orders:0:1 truncates .* the topic has 3 partitions"):
        slices.fold([change(1, "t")], partitions=3)


def test_a_truncation_among_several_partitions_is_a_reject() -> None:
    """Any producer can send such a truncation, so it must be a reject and not an error."""
    log = memory_log()
    records = [change(0, "c", 1), change(1, "t"), change(2, "u", 1), change(3, "t")]
    for _, partition, _, ms, key, value, _ in records:
        log.add("orders", partition, value, key=key, ms=ms)
    decoded = SliceHere({"orders": decode_table(raw_table(records), ORDERS, {}, {})})

    refuse_truncations(decoded, shop, Offsets({"orders": {0: 4}}), log)
    assert decoded.counts()["orders"][0].rejected == 0
    for _ in range(2):
        refuse_truncations(decoded, shop, Offsets({"orders": {0: 4, 1: 0, 2: 0}}), log)
        counts = decoded.counts()["orders"][0]
        assert (counts.decoded, counts.rejected) == (2, 2)
    assert newest_truncation(decoded.truncations(ORDERS)) is None

    rejects = decoded.rejects(REJECTS_BIRTH).table.to_pylist()
    assert [(row["offset"], row["reason"], row["value"]) for row in rejects] == [
        (at, "unordered", records[at][5]) for at in (1, 3)
    ]
    assert "the topic has 3 partitions" in rejects[0]["detail"]
