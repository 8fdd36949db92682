"""The lag of each build behind the log, by partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.replay.status.status import Status
from kappa.serving.query.render import Listing


def lag_listing(status: Status, topics: Iterable[str]) -> Listing:
    """Makes a row of each build and partition that it reads, of some topics or of all.

    An end is null if the broker did not answer, or has the topic no more.
    """
    only = frozenset(topics)
    rows = []
    for build in status.builds:
        wanted = build.topics & only if only else build.topics
        known = build.offsets.only(wanted)
        if status.end is not None:
            known = known.highest(status.end.only(wanted))
        for topic, partition, _ in known.items():
            at = build.offsets.at(topic, partition)
            end = None if status.end is None else status.end.at(topic, partition)
            rows.append(
                (
                    build.pipeline,
                    build.role,
                    build.build,
                    topic,
                    partition,
                    at,
                    end,
                    None if end is None else max(0, end - at),
                )
            )
    columns = ("pipeline", "role", "build", "topic", "partition", "frontier", "end", "behind")
    return Listing(columns, tuple(rows))
