"""The records of a batch that are redriven, and the originals that they name."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.declare.topic_kind import TopicKind
from kappa.records.redrive import HEADER, Original, Position, original_of
from kappa.values.reason import Rejected

# By its place in the batch, the original that a record names, or why it cannot stand for one.
Originals = Mapping[int, Original | Rejected]


def originals_in(batch: pa.RecordBatch, topic: Topic) -> dict[int, Original | Rejected]:
    """By their place in the batch the records that stand for an earlier one, or name one that they cannot stand for."""
    headers = batch.column("headers")
    # Nearly always none has any, or none that is ours.
    names = pc.struct_field(headers.flatten(), "key")
    if (
        topic.kind is TopicKind.COMPACTED
        or not len(names)
        or not pc.any(pc.equal(names, HEADER)).as_py()
    ):
        return {}
    found: dict[int, Original | Rejected] = {}
    for place, (partition, offset, each) in enumerate(
        zip(
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
            headers.to_pylist(),
            strict=True,
        )
    ):
        try:
            original = original_of(
                [(header["key"], header["value"]) for header in each or ()],
                Position(topic.name, partition, offset),
            )
        except Rejected as verdict:
            found[place] = verdict
        else:
            if original is not None:
                found[place] = original
    return found
