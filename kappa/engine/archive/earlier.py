"""What archives of earlier declarations have kept raw of a topic: records as they lay in the log, which the topic itself may have lost since.

Read next: engine/archive/archiver.py, which decodes them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from kappa.base.errors import Damaged
from kappa.engine.decode.raw import RAW_SCHEMA
from kappa.engine.read.archived import rows_of
from kappa.state.store import Store
from kappa.tables.archive import FOLDER, ArchiveMark, folder
from kappa.tables.delta import Block, open_archive

# As raw records name them, and as an archive does.
_RAW = {
    **{name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp")},
    **{name: f"_raw_{name}" for name in ("key", "value", "headers")},
}
_HINT = "move the folder of the newer archive away where that is lost for good: it is made again from what the topic has"
# So many records are decoded at once.
_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True)
class RawStretch:
    """What one archive has raw of a partition: all of `[start, end)`."""

    start: int
    end: int
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is kept raw of a topic, per partition, by each archive that has some."""

    kept: Mapping[int, Sequence[RawStretch]]

    @classmethod
    def of(cls, store: Store, mark: ArchiveMark) -> Self:
        """Of the other archives of the very topic that this one is of."""
        kept: dict[int, list[RawStretch]] = {}
        for path in sorted(store.path(f"{FOLDER}/{mark.topic}").glob("*/_delta_log")):
            archive = (
                None
                if path.parent.name == mark.fingerprint
                else open_archive(str(store.path(folder(mark.topic, path.parent.name))))
            )
            other = None if archive is None else archive.mark()
            if archive is not None and other is not None and other.topic_id == mark.topic_id:
                blocks = archive.blocks() if other.raw else ()
                for partition, ranges in other.raw.items():
                    own = [block for block in blocks if block.partition == partition]
                    kept.setdefault(partition, []).extend(
                        RawStretch(start, end, own) for start, end in ranges
                    )
        return cls(kept)

    def beginning(self, partition: int, first: int, done: int | None) -> int:
        """Where the log begins that these and the topic are together, whose own first offset is `first`; where all is archived up to `done`, it is gone on with from there."""
        reaching = [each for each in self.kept.get(partition, ()) if each.end >= first]
        if done is None:
            return min([first, *(each.start for each in reaching)])
        return min(first, done) if any(each.start <= done for each in reaching) else first

    def end(self, partition: int, start: int) -> int:
        """Up to where one of them goes on from an offset; that itself where none does."""
        return max(
            [start, *(each.end for each in self.kept.get(partition, ()) if each.start <= start)]
        )

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The raw records of `[start, end)`, which lie in one of them."""
        found = next(
            each for each in self.kept[partition] if each.start <= start and each.end >= end
        )
        for block in found.blocks:
            if block.least < end and block.greatest >= start:
                try:
                    rows = rows_of(block, list(_RAW.values()), start, end).select(
                        list(_RAW.values())
                    )
                except (OSError, pa.ArrowException) as error:
                    raise Damaged(
                        f"{block.path} cannot be read, and what the topic has lost was to be decoded again from it: {error}",
                        hint=_HINT,
                    ) from error
                yield from (
                    rows.rename_columns(list(_RAW))
                    .cast(RAW_SCHEMA)
                    .to_batches(max_chunksize=_AT_ONCE)
                )
