"""The redriven records of a batch, and the originals that these records name."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.declare.values.reason import Rejected
from kappa.records.redrive import HEADER, Original, Position, original_of

# By place in the batch, the original that a record names, or the reason why the record cannot be
# redriven.
Originals = Mapping[int, Original | Rejected]


def originals_in(batch: pa.RecordBatch, topic: Topic) -> dict[int, Original | Rejected]:
    """Finds the redriven records of a batch, by place.

    A record that names an original which the record cannot replace has the verdict instead.
    """
    headers = batch.column("headers")
    # Nearly always no record has headers, or none of ours.
    names = pc.struct_field(headers.flatten(), "key")
    if (
        topic.kind is TopicKind.COMPACTED
        or topic.has_changes
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
