"""An alignment: a frontier of a candidate and a frontier of the live build, at equal offsets.

An alignment makes the rows of the two builds comparable. The candidate's job pins a frontier that
the live build has published, and folds bounded slices that end exactly at that frontier's offsets.
Then the job stores a record with both frontiers. A lease prevents the deletion of both frontiers'
files. The live build's job is not affected.
"""

from __future__ import annotations

from msgspec import Struct

from kappa.base.errors import Broken
from kappa.base.failpoint import failpoint
from kappa.state.build import folder_of_build
from kappa.state.documents import Documents, NumberedRecords, NumberTaken
from kappa.state.frontier import Frontier
from kappa.state.store import Store


class Alignment(Struct, frozen=True):
    """Two frontiers whose offsets are equal in every partition of the topics in `comparable`.

    The offsets of other topics cannot be compared. `lease` is the id of the lease that pins the
    table versions of both frontiers. When the lease has ended (kappa/state/lease.py), the files of
    these versions may be deleted.
    """

    number: int
    candidate: Frontier
    live: Frontier
    comparable: tuple[str, ...]
    lease: str
    format: int = 1


_ALIGNMENT = Documents(Alignment)


def alignment_records(store: Store, build: str) -> NumberedRecords[Alignment]:
    """Returns the stored records of the alignments of a candidate."""
    return NumberedRecords(
        store,
        f"{folder_of_build(build)}/alignments",
        _ALIGNMENT,
        f"alignment {{}} of build {build}",
    )


class Alignments:
    """The alignments of one candidate."""

    def __init__(self, store: Store, build: str) -> None:
        """Prepares access to the alignments of the candidate `build`, without reading any."""
        self._build = build
        self._records = alignment_records(store, build)

    def last(self) -> Alignment | None:
        """Returns the newest alignment, or None if the build was never aligned."""
        found = self._records.last()
        return None if found is None else found[1]

    def put(self, alignment: Alignment) -> None:
        """Stores the next alignment of the candidate.

        Raises Broken if the offsets of the two frontiers are not equal, and NumberTaken if another
        process has already stored an alignment with the same number.
        """
        topics = set(alignment.comparable)
        here, there = alignment.candidate.offsets.only(topics), alignment.live.offsets.only(topics)
        if not here.equals(there):
            raise Broken(
                f"build {self._build} is at {here}, and build {alignment.live.build} at "
                f"{there}: they are not aligned"
            )
        failpoint("alignment.before_put")
        put = self._records.put(alignment.number, alignment)
        failpoint("alignment.after_put")
        if not put:
            raise NumberTaken(f"alignment {alignment.number} of build {self._build}")
