"""The counts of a build's rejects, and the check that a candidate does not have too many.

A candidate with too many rejects is stopped. The job itself counts the rejects, so this module
reads the rejects without a query engine. kappa/declare/reject_limit.py decides whether there are
too many rejects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from kappa.base.errors import Broken
from kappa.declare.options import REJECTS
from kappa.declare.reject_limit import beyond_text, is_beyond, rejected_of, remedy_text
from kappa.state.build import Birth, table_path
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.parquet import parquet_dataset
from kappa.tables.versions import files

_SHOWN_REASONS = 5


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """The number of rejects per reason, and an example reject as text."""

    reasons: Mapping[str, int]
    example: str

    @classmethod
    def of(cls, store: Store, birth: Birth, frontier: Frontier) -> RejectCounts:
        """Counts a build's rejects at a frontier by reason, and reads one reject as an example."""
        found = files(
            table_path(store, birth.build, REJECTS),
            frontier.versions[REJECTS],
            frontier.file_lists.get(REJECTS),
        )
        if not found:
            return cls({}, "")
        rejects, is_one = parquet_dataset(found), pc.field("reason").is_valid()
        reasons = Counter(
            rejects.to_table(columns=["reason"], filter=is_one).column("reason").to_pylist()
        )
        rows = rejects.head(
            1, columns=["topic", "partition", "offset", "detail"], filter=is_one
        ).to_pylist()
        return cls(
            reasons, "".join("{topic}:{partition}:{offset}: {detail}".format(**row) for row in rows)
        )

    @property
    def text(self) -> str:
        """Returns a text: the most frequent reasons with their counts, and the example reject."""
        frequent = sorted(self.reasons.items(), key=lambda each: (-each[1], each[0]))
        reasons = ", ".join(
            f"{reason} {count:,}" for reason, count in frequent[:_SHOWN_REASONS]
        ) + (", and others" if len(frequent) > _SHOWN_REASONS else "")
        return f"{reasons}; for example {self.example}" if self.example else reasons


def ensure_rejects_within_limit(
    store: Store, birth: Birth, frontier: Frontier, end: Offsets
) -> None:
    """Raises Broken if the build has more rejects than its limit allows.

    The build is stopped only if it would exceed its limit even if all records up to `end` were
    valid. So the decision does not depend on how the log is cut into slices.
    """
    rejected, records = rejected_of(frontier.tally)
    if is_beyond(birth.max_rejects, rejected, records + end.distance(frontier.offsets)):
        found = RejectCounts.of(store, birth, frontier)
        raise Broken(
            f"pipeline {birth.pipeline} has {beyond_text(birth.max_rejects, rejected, records)}: "
            f"{found.text}",
            hint=remedy_text(birth.pipeline),
        )
