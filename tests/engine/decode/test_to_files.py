"""Tests of the tasks that decode the topics of a large slice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kappa import Topic
from kappa.engine.children.rehearsal import MemoryLog
from kappa.records.decode import parquet_decoder
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

CLICKS = Topic("clicks", event="page string not null")


def test_a_task_puts_how_many_records_it_has_read_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_decoder, "_COUNT_SECONDS", 0.0)
    log = MemoryLog()
    for number in range(9):
        log.add("clicks", 0, b'{"page": "%d"}' % number)
    raw = log.read_records(Slice(1, 0, Offsets(), Offsets({"clicks": {0: 9}})))
    counted: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in raw.to_batches(max_chunksize=4):
            yield batch
            counted.append((tmp_path / "_0.read").read_text())

    seen = parquet_decoder.decode_to_file(
        batches(), CLICKS, {}, parquet_decoder.Remembering(), tmp_path / "0.parquet"
    )

    assert counted == ["4", "8", "9"]
    assert (seen[0].decoded, (tmp_path / "_0.read").read_text()) == (9, "9")
    # Who reads the folder's data takes the count for none of them.
    assert ds.dataset(tmp_path, format="parquet").count_rows() == 9
