"""Reads the frames of whole batches of records.

A frame is the bytes that a schema registry's serializer puts before a message, with the id of the
message's schema.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.declare.formats.registry_schemas import FRAME_BYTES, MAGIC
from kappa.declare.values.arrow import Places, array_of, ends_of
from kappa.records.decode.find_loops import gather
from kappa.records.decode.find_values import Texts, texts_of


def by_schema(records: Texts) -> Mapping[int, Places]:
    """Returns the indexes of the framed records in a batch, by the schema id in the frame."""
    framed = np.flatnonzero(_framed_records(records))
    starts = records.ends[framed].astype(np.int64)
    heads = records.data[starts[:, None] + np.arange(FRAME_BYTES)].astype(np.int64)
    ids = heads[:, 1] << 24 | heads[:, 2] << 16 | heads[:, 3] << 8 | heads[:, 4]
    return {int(each): framed[ids == each] for each in np.unique(ids)}


def messages_of(values: pa.Array) -> pa.Array:
    """Returns the messages in framed values. A value without a frame becomes null."""
    records = texts_of(values)
    lengths = np.where(_framed_records(records), np.diff(records.ends) - FRAME_BYTES, -1).astype(
        np.int64
    )
    ends = ends_of(lengths)
    data = np.empty(ends[-1], np.uint8)
    gather(records.data, records.ends[:-1].astype(np.int64) + FRAME_BYTES, ends, data)
    return array_of(pa.binary(), lengths, ends, data)


def begin_with(records: Texts, places: Places, frame: bytes) -> npt.NDArray[np.bool_]:
    """Returns a mask of the records at the indexes `places` that begin with `frame`."""
    starts = records.ends[places].astype(np.int64)
    marks = records.ends[places + 1] - starts >= len(frame)
    heads = records.data[starts[marks][:, None] + np.arange(len(frame))]
    marks[marks] = (heads == np.frombuffer(frame, np.uint8)).all(axis=1)
    return marks


def _framed_records(records: Texts) -> npt.NDArray[np.bool_]:
    marks = records.valid & (np.diff(records.ends) >= FRAME_BYTES)
    marks[marks] = records.data[records.ends[:-1][marks]] == MAGIC
    return marks
