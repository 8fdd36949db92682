"""Raw records in archives of earlier declarations, which the topic may have lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import pyarrow as pa

from kappa.base.errors import Damaged
from kappa.engine.read.block_rows import rows_of
from kappa.records.decode.raw import RAW_SCHEMA
from kappa.state.store import Store
from kappa.tables.archive import ArchiveMark, archives_of, folder
from kappa.tables.stored_archive import Block, open_archive

# A column's name in raw records -> its name in an archive.
_RAW = {
    **{name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp")},
    **{name: f"_raw_{name}" for name in ("key", "value", "headers")},
}
_HINT = (
    "move the folder of the newer archive away if that is lost for good: it is made again "
    "from what the topic has"
)
# This many records are decoded at once.
_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True)
class RawStretch:
    """The raw records that an archive has of a partition: all of `[start, end)`.

    `check` raises Damaged if a block differs from the block that was written.
    """

    start: int
    end: int
    blocks: Sequence[Block]
    check: Callable[[Iterable[Block]], None]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The raw records of a topic in its other archives, by partition."""

    kept: Mapping[int, Sequence[RawStretch]]

    @classmethod
    def of(cls, store: Store, mark: ArchiveMark) -> Self:
        """Reads the marks of the other archives of the same topic."""
        kept: dict[int, list[RawStretch]] = {}
        for fingerprint in archives_of(store, mark.topic):
            archive = (
                None
                if fingerprint == mark.fingerprint
                else open_archive(store.address(folder(mark.topic, fingerprint)))
            )
            other = None if archive is None else archive.mark()
            if archive is not None and other is not None and other.topic_id == mark.topic_id:
                archive.ensure_listed(store)
                blocks = archive.blocks() if other.raw else ()
                for partition, ranges in other.raw.items():
                    own = [block for block in blocks if block.partition == partition]
                    kept.setdefault(partition, []).extend(
                        RawStretch(start, end, own, partial(archive.ensure_whole, store))
                        for start, end in ranges
                    )
        return cls(kept)

    def beginning(self, partition: int, first: int, done: int | None) -> int:
        """Returns the beginning of the log that the archives and the topic form together.

        The topic's own first offset is `first`. If all is archived up to `done`, the log goes on
        from there.
        """
        reaching = [each for each in self.kept.get(partition, ()) if each.end >= first]
        if done is None:
            return min([first, *(each.start for each in reaching)])
        return min(first, done) if any(each.start <= done for each in reaching) else first

    def end(self, partition: int, start: int) -> int:
        """Returns the end of the raw records from an offset on, or the offset itself."""
        return max(
            [start, *(each.end for each in self.kept.get(partition, ()) if each.start <= start)]
        )

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Reads the raw records of `[start, end)`, all from one archive."""
        found = next(
            each for each in self.kept[partition] if each.start <= start and each.end >= end
        )
        for block in found.blocks:
            if block.least < end and block.greatest >= start:
                found.check([block])
                try:
                    rows = rows_of(block, list(_RAW.values()), start, end).select(
                        list(_RAW.values())
                    )
                except (OSError, pa.ArrowException) as error:
                    raise Damaged(
                        f"{block.path} cannot be read, and what the topic has lost was to be "
                        f"decoded again from it: {error}",
                        hint=_HINT,
                    ) from error
                yield from (
                    rows.rename_columns(list(_RAW))
                    .cast(RAW_SCHEMA)
                    .to_batches(max_chunksize=_AT_ONCE)
                )
