"""Whether a build's tables are what its log gives again: the comparison of a proof.

It is the diff's comparison (replay/rollout/verify/diff.py), and stricter: the rejects are compared
too, row by row, and rows have a hash. Columns that may depend on the order in which rows were
folded, or on chance (law 8), are left out of the hash, and named. What compaction decides is set
aside and counted: unsettled keys (law 5), and rejects of compacted topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from kappa.base.sql import quoted, text
from kappa.declare.options import REJECTS
from kappa.declare.topic_options import TopicKind
from kappa.replay.rollout.prove.row_hash import hash_of_all, hash_sql, left_out_of, table_hash
from kappa.replay.rollout.verify.diff import TextsOf, Unsettled, settled
from kappa.replay.rollout.verify.rows import Relations, RowSample, compare_appended, compare_keyed
from kappa.replay.rollout.verify.unsettled import plain_texts
from kappa.replay.rollout.verify.verification_progress import table_step
from kappa.serving.query.pair import AFTER, BEFORE
from kappa.serving.query.reader.reader import Reader
from kappa.state.build import Birth
from kappa.state.journal.verification import Difference
from kappa.state.table import TableBirth


@dataclass(frozen=True, slots=True)
class Compared:
    """One table: its difference, samples, and the hashes of both sides.

    `left_out` names columns that are not in the hashes, with why.
    """

    difference: Difference
    samples: tuple[RowSample, ...]
    hashes: tuple[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """True if no row differs, and the hashes do not either."""
        return self.difference.equal and self.hashes[0] == self.hashes[1]


def compare_tables(
    reader: Reader,
    birth: Birth,
    *,
    unsettled: Unsettled,
    texts_of: TextsOf = lambda _table: plain_texts,
    samples: int,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> tuple[Compared, ...]:
    """Compares all tables of two builds of one birth, the rejects last.

    `on_progress` is called before each. Raises Broken if a key is twice in a table.
    """
    found = []
    for number, table in enumerate(birth.tables, 1):
        on_progress(table_step("comparing", table.name, number, len(birth.tables)))
        found.append(_compared(reader, birth, table, unsettled, texts_of, samples))
    return tuple(found)


def hash_before(tables: Iterable[Compared]) -> str:
    """Returns the hash of the tables before, all of them together."""
    return hash_of_all(
        (each.difference.table, each.difference.rows_before or 0, each.hashes[0]) for each in tables
    )


def _compared(
    reader: Reader,
    birth: Birth,
    table: TableBirth,
    unsettled: Unsettled,
    texts_of: TextsOf,
    samples: int,
) -> Compared:
    found, common, left_out = (
        Difference(table.name, None, None),
        dict(table.served),
        left_out_of(table),
    )
    if table.keys:
        sources, aside = settled(reader, table, unsettled, texts_of)
        difference, shown = compare_keyed(
            reader,
            found,
            table.keys,
            common,
            samples,
            sources=sources,
            likeness={column: table.exactness(column) for column in common},
        )
    else:
        sources, aside = _appended(reader, birth, table)
        difference, shown = compare_appended(reader, found, common, samples, sources=sources)
    hashed = [(name, kind) for name, kind in table.served if name not in left_out]
    before, after = (_hash(reader, hashed, source) for source in sources)
    return Compared(replace(difference, unsettled=aside), shown, (before, after), left_out)


def _appended(reader: Reader, birth: Birth, table: TableBirth) -> tuple[Relations, int]:
    whole = f"{BEFORE}.{quoted(table.name)}", f"{AFTER}.{quoted(table.name)}"
    compacted = [topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED]
    if table.name != REJECTS or not compacted:
        return whole, 0
    # A reject whose key was written again may exist for one side only, by compaction.
    names = ", ".join(map(text, compacted))
    theirs = f"topic in ({names})"
    aside = max(
        int(reader.rows(f"select count(*) from {side} where {theirs}").rows[0][0]) for side in whole
    )
    before, after = (f"(select * from {side} where not {theirs})" for side in whole)
    return (before, after), aside


def _hash(reader: Reader, columns: Iterable[tuple[str, str]], source: str) -> str:
    ((_, *sums),) = reader.rows(hash_sql(columns, source)).rows
    return table_hash(map(int, sums))
