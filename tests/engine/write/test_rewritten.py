"""Laws of a rewritten table: it has the same rows as after a merge, or its own rows."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from waiting import COUNTED, FOLDED, LATEST, commit, contributions
from writers import make_mark, make_writer

from kappa.base.errors import Broken, KappaError
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.write.commit import Merging, Rewriting, TableWriter
from kappa.state.mark import Mark
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import Guard
from kappa.tables.merge import contribution_columns
from kappa.tables.versions import files

BYTES = 1 << 26


class Pair:
    """Two tables of one kind: delta-rs merges into the first, and the second is rewritten."""

    def __init__(self, folder: Path, table: TableBirth) -> None:
        self.table, self.folder = table, folder
        self.merged, self.anew = (
            make_writer(Store(folder / name), table, driver_rows=1_000_000)
            for name in ("merged", "anew")
        )
        self.rewriting = Rewriting(
            Store(folder / "anew"), table, self.anew.stored, folder / "scratch", BYTES, None
        )
        self.place = 0

    def fold(self, rows: pa.Table) -> None:
        commit(self.merged, "b", self.place, rows)
        self.write_anew(rows)

    def write_anew(self, rows: pa.Table) -> None:
        self.rewriting.contributed.mkdir(parents=True)
        half = rows.num_rows // 2
        for number, part in enumerate([rows.slice(0, half), rows.slice(half)]):
            pq.write_table(
                part, self.rewriting.contributed / f"{number}.parquet", row_group_size=100_000
            )
        self.rewriting.fold(make_mark(self.place), Guard("b/t/1", self.place + 1))
        assert not (self.folder / "scratch").exists()
        self.place += 1

    def rows(self, writer: TableWriter) -> list[dict[str, object]]:
        schema = arrow_schema(self.table.columns)
        found = [
            pq.ParquetFile(path).read().select(schema.names).cast(schema)
            for path in files(writer.path, writer.version, None)
        ]
        return sorted(pa.concat_tables([schema.empty_table(), *found]).to_pylist(), key=repr)


@pytest.mark.law
@examples(8)
@given(st.sampled_from([FOLDED, COUNTED, LATEST]), st.integers(0, 10_000), st.integers(1, 4))
def test_it_leaves_the_rows_that_a_merge_leaves(
    tmp_path_factory: pytest.TempPathFactory, table: TableBirth, seed: int, slices: int
) -> None:
    pair = Pair(tmp_path_factory.mktemp("pair"), table)
    draw = random.Random(seed)
    for place in range(slices):
        pair.fold(contributions(table, draw, place))

        assert pair.rows(pair.anew) == pair.rows(pair.merged)
        assert pair.anew.stored.mark() == make_mark(place)


def test_a_sum_that_does_not_fit_stops_it_and_changes_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path, COUNTED)
    types = arrow_schema(contribution_columns(COUNTED))
    most = pa.Table.from_pylist([{"k": "a", "bids": 1, "total": 2**63 - 1}], types)
    pair.write_anew(most)
    before = pair.rows(pair.anew)

    with pytest.raises(Broken, match="contributions could not be folded into table counted"):
        pair.write_anew(pa.Table.from_pylist([{"k": "a", "bids": 1, "total": 1}], types))

    assert pair.rows(pair.anew) == before
    assert not (tmp_path / "scratch").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_large_table_is_rewritten(tmp_path: Path) -> None:
    """DuckDB 1.5 waited for ever for itself here, since the merged rows are those of a union."""
    pair, count = Pair(tmp_path, COUNTED), 2_000_000
    types = arrow_schema(contribution_columns(COUNTED))
    keys = pa.array(range(count)).cast("string")
    rows = pa.table(
        [keys, *(pa.repeat(1, count).cast(each.type) for each in types if each.name != "k")], types
    )
    pair.write_anew(rows)
    pair.write_anew(rows)

    found = pa.concat_tables(
        pq.ParquetFile(path).read() for path in files(pair.anew.path, pair.anew.version, None)
    )
    assert found.num_rows == count
    assert found["bids"].unique().to_pylist() == [2]


def test_the_same_slice_is_not_folded_twice(tmp_path: Path) -> None:
    pair = Pair(tmp_path, COUNTED)
    rows = contributions(COUNTED, random.Random(3), 0)
    pair.write_anew(rows)
    before, pair.place = pair.rows(pair.anew), 0

    with pytest.raises(Broken, match="is in"):
        pair.write_anew(rows)

    assert pair.rows(pair.anew) == before


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    pair = Pair(tmp_path, COUNTED)
    pair.rewriting.contributed.mkdir(parents=True)
    (pair.rewriting.contributed / "0.parquet").write_bytes(b"no file of Parquet")

    with pytest.raises(KappaError, match="could not be folded into table counted"):
        pair.rewriting.fold(make_mark(0), Guard("b/t/1", 1))


def test_it_is_for_many_contributions_beside_a_table_not_much_larger(tmp_path: Path) -> None:
    pair = Pair(tmp_path, COUNTED)
    types = arrow_schema(contribution_columns(COUNTED))
    pair.write_anew(
        pa.Table.from_pylist([{"k": str(each), "bids": 1} for each in range(100)], types)
    )

    assert pair.rewriting.takes(25)
    assert not pair.rewriting.takes(24)


@pytest.mark.parametrize("table", [FOLDED, COUNTED, LATEST])
def test_rows_too_large_for_a_merge_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: TableBirth
) -> None:
    """Rows that are too large for a merge are rewritten, because a merge takes much more memory."""
    folded: list[Mark] = []
    fold = Rewriting.fold

    def noting(self: Rewriting, mark: Mark, guard: Guard) -> None:
        folded.append(mark)
        fold(self, mark, guard)

    monkeypatch.setattr(Rewriting, "fold", noting)
    pair = Pair(tmp_path, table)
    merging = Merging(at_most_bytes=1)
    wide = make_writer(Store(tmp_path / "wide"), table, driver_rows=1_000_000, merging=merging)
    draw = random.Random(5)
    for place in range(3):
        rows = contributions(table, draw, place)
        commit(pair.merged, "b", place, rows)
        commit(wide, "b", place, rows)

    assert pair.rows(wide) == pair.rows(pair.merged)
    assert folded
