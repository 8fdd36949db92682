"""Decoded files, the same on a disk and in a bucket: read and rewritten by address."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from bucket_site import VISITS, random_log

from kappa.declare.values.reason import Reason
from kappa.engine.children.rehearsal import MemoryLog
from kappa.engine.function.refused_records import refused_of
from kappa.engine.slice_in_spark import DecodedFiles
from kappa.records.decode.outcome import Fate
from kappa.records.decode.parquet_decoder import CarriedTimes, Remembering, decode_to_file
from kappa.state.build import slice_scratch
from kappa.state.files.address import writing_file
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store

pytestmark = pytest.mark.slow


def decoded(store: Store, log: MemoryLog) -> DecodedFiles:
    """Decodes the log's visits, one file per partition, as workers elsewhere do."""
    folder, files = slice_scratch(store, "b", "job"), []
    for share in log.ranges(Slice(1, 0, Offsets(), log.end), VISITS.name):
        files.append(f"{folder}/decoded/0/{share.partition}.parquet")
        with writing_file(files[-1]) as path:
            decode_to_file(share.batches(), VISITS, {}, Remembering(), path)
    return DecodedFiles(VISITS.name, tuple(files), None, frozenset(), CarriedTimes())


def pages_of(files: DecodedFiles) -> list[str]:
    chunks = files.valid((("page", "string"),), 10)
    return [page for chunk in chunks for page in chunk["page"].to_pylist()]


def places_of(rows: pa.Table) -> set[tuple[int, int]]:
    return {*zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)}


def test_records_that_become_rejects_are_rejects_in_the_files(any_store: Store) -> None:
    log = random_log(MemoryLog(), 200)
    files = decoded(any_store, log)
    places = files.places(pc.field("_fate") == int(Fate.DECODED))
    before = pages_of(files)
    refused = places.slice(3, 5)

    files.reject(
        refused_of(
            pa.table(
                {
                    "topic": pa.repeat(VISITS.name, refused.num_rows),
                    "partition": refused["_partition"],
                    "offset": refused["_offset"],
                    "detail": pa.repeat("no reason", refused.num_rows),
                }
            ),
            next(iter(Reason)),
            log.read_records(Slice(1, 0, Offsets(), log.end)).filter(
                pc.field("topic") == VISITS.name
            ),
        )
    )

    assert len(before) == places.num_rows > 100
    assert pages_of(files) == before[:3] + before[8:]
    rejected = files.places(pc.field("_fate") == int(Fate.REJECTED))
    assert places_of(refused) < places_of(rejected)
    left = [each for each in any_store.names("builds/b/slice") if each.endswith(".parquet")]
    assert [any_store.address(each) for each in left] == [*files.files]
