"""The settling of redriven records depends on what is before the slice (laws 1 and 7).

Later rows of the rejects table do not matter.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from kappa.declare.values.arrow import arrow_schema
from kappa.engine.function.redriven_records import settle_redriven
from kappa.records.redrive import Attempt, Position, Settled
from kappa.state.build import Birth
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.tables.shape import REJECTS_BIRTH

BIRTH = Birth(
    "b", "web", "v", {}, 1, {}, "", (), (REJECTS_BIRTH,), {}, {"visits": {"1": 4}}, {}, "", "me"
)
SLICE = Slice(1, 1, Offsets({"visits": {0: 5}}), Offsets({"visits": {0: 20}}))


def at(offset: int, partition: int = 0) -> Position:
    return Position("visits", partition, offset)


class Decoded:
    """A decoded slice, with the methods that settling needs."""

    def __init__(self, *attempts: Attempt, rejects: Mapping[int, int | None] | None = None) -> None:
        self._attempts = attempts
        self._rejects = {at(offset): of for offset, of in (rejects or {}).items()}
        self.asked = 0
        self.settled: Settled | None = None

    def attempts(self) -> tuple[Attempt, ...]:
        return self._attempts

    def rejected(self, places: Collection[Position]) -> dict[Position, int | None]:
        self.asked += 1
        failed = {each.at: each.of for each in self._attempts if not each.valid}
        return {place: of for place, of in (self._rejects | failed).items() if place in places}

    def settle(self, found: Settled) -> None:
        self.settled = found


def row(
    offset: int, *, redrives: int | None = None, folded: bool | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "topic": "visits",
        "partition": 0,
        "offset": offset,
        "_redrives": redrives,
        "_deleted": folded,
        **more,
    }


def settled(
    store: Store, decoded: Decoded, *rows: dict[str, Any], piece: Slice = SLICE
) -> Settled | None:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), arrow_schema(REJECTS_BIRTH.columns)), content)
    store.put("part.parquet", content.getvalue())
    found = (store.address("part.parquet"),)
    settle_redriven(decoded, piece, BIRTH, REJECTS_BIRTH, lambda: found)  # type: ignore[arg-type]  # of it three methods matter
    return decoded.settled


def test_what_slices_before_have_rejected_and_folded_counts(any_store: Store) -> None:
    decoded = Decoded(
        Attempt(at(7), 1, valid=True),
        Attempt(at(8), 2, valid=True),
        Attempt(at(9), 0, valid=True),
        Attempt(at(10), 3, valid=True),
    )

    found = settled(
        any_store, decoded, row(1), row(2), row(3, redrives=2), row(4, redrives=2, folded=True)
    )

    assert found == Settled({at(7): 1}, frozenset({at(8), at(9), at(10)}))


def test_a_chain_of_any_length_is_read_by_two_queries(tmp_path: Path) -> None:
    """A chain of any length is read by two queries, whether rejected before or in the slice."""
    links = 1_200
    start, end = Offsets({"visits": {0: links}}), Offsets({"visits": {0: 2 * links}})
    decoded = Decoded(
        *(Attempt(at(each + 1), each, valid=False) for each in range(links, 2 * links)),
        Attempt(at(2 * links + 1), 2 * links, valid=True),
        rejects={links: links - 1},
    )

    found = settled(
        Store(tmp_path),
        decoded,
        *(row(each, redrives=each - 1 if each else None) for each in range(links)),
        piece=Slice(1, 1, start, end),
    )

    assert found == Settled({at(2 * links + 1): 0}, frozenset())
    assert decoded.asked == 2


def test_a_slice_that_the_rejects_table_has_already_is_settled_as_it_was(tmp_path: Path) -> None:
    decoded = Decoded(
        Attempt(at(7), 1, valid=True), Attempt(at(8), 6, valid=True), Attempt(at(9), 1, valid=True)
    )

    first = settled(Store(tmp_path), decoded, row(1))
    again = settled(Store(tmp_path), decoded, row(1), row(6), row(7, redrives=1, folded=True))

    assert first == again == Settled({at(7): 1}, frozenset({at(8), at(9)}))


def test_rejects_of_other_topics_and_partitions_are_others(tmp_path: Path) -> None:
    decoded = Decoded(Attempt(at(7), 1, valid=True), Attempt(at(7, 1), 1, valid=True))

    found = settled(Store(tmp_path), decoded, row(1, partition=2), row(1, topic="hits"))

    # Partition 1 of the build begins at offset 4.
    assert found == Settled({at(7, 1): 1}, frozenset({at(7)}))


def test_what_was_folded_in_other_topics_and_partitions_was_folded_there(tmp_path: Path) -> None:
    decoded = Decoded(Attempt(at(7), 1, valid=True))

    found = settled(
        Store(tmp_path),
        decoded,
        row(1),
        row(2, redrives=1, folded=True, partition=2),
        row(2, redrives=1, folded=True, topic="hits"),
    )

    assert found == Settled({at(7): 1}, frozenset())


def test_a_build_without_a_place_to_remember_takes_them_as_any_other_record() -> None:
    decoded = Decoded(Attempt(at(7), 1, valid=True))
    old = replace(REJECTS_BIRTH, columns=REJECTS_BIRTH.columns[:6])

    settle_redriven(decoded, SLICE, BIRTH, old, lambda: ())  # type: ignore[arg-type]  # as above

    assert decoded.settled is None
