"""The tally of a partition: the number of its offsets with each outcome. Pure.

Every offset that was read has exactly one outcome: it was decoded, rejected, a duplicate, a
tombstone, or absent. The frontiers of a build, and the metadata of the commits of tables and
archives, contain tallies.
"""

from __future__ import annotations

from msgspec import Struct


class Tally(Struct, frozen=True):
    """The counts of a partition's offsets since the build's origin, by outcome.

    The first five counts add up to the number of offsets. `absent` counts the offsets without a
    record, and `late` counts the rejected records that were late.
    """

    decoded: int = 0
    duplicate: int = 0
    rejected: int = 0
    tombstone: int = 0
    absent: int = 0
    late: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.decoded + other.decoded,
            self.duplicate + other.duplicate,
            self.rejected + other.rejected,
            self.tombstone + other.tombstone,
            self.absent + other.absent,
            self.late + other.late,
        )
