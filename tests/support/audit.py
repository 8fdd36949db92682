"""An audit that reads a served table at each cursor that was given out, as queries read it.

The files of a cursor are kept only for a while. So a lease of the audit keeps them from the moment
the cursor was given out until the audit has read them, even if no consumer has come that far.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from book import Applied, applied, digest_of, faults, row_text
from meanwhile import Beside
from msgspec.structs import replace
from testbed import Testbed

from kappa.serving.query.pin.moments import list_generations
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import Answer, answer_query, connect_reader
from kappa.serving.query.reader.reader import Rows
from kappa.serving.query.render import json_value
from kappa.state.build import folded_by, read_birth
from kappa.state.frontier import Frontier
from kappa.state.journal.journal import JournalView
from kappa.state.lease import ensure_lease, ensure_released, read_lease

_REST_SECONDS = 0.3
_KEPT_SECONDS = 3600.0
# The lease that all cursors at a frontier share (serving/outlets/changes/table_snapshot.py).
_SHARED = re.compile(r"changes-(?P<build>\w+-\w+)-(?P<number>\d+)")


class Audit(Beside):
    """Reads the tables at the frontier of each cursor; `known` contains their digests."""

    def __init__(self, bed: Testbed, tables: Sequence[str]) -> None:
        super().__init__()
        self._bed = bed
        self._store = bed.store
        self._tables = tables
        # Frontiers that leases of the audit keep, by build and number.
        self._kept: dict[tuple[str, int], Frontier] = {}
        self.known: dict[tuple[str, int], Mapping[str, int]] = {}

    def go_on(self) -> None:
        self._keep_new()
        if self._kept:
            self._read_one()

    def rest(self) -> None:
        if not self._kept:
            self.ends.wait(_REST_SECONDS)

    def catch_up(self) -> None:
        """Reads the tables at all cursors that were given out until now."""
        with self.turn:
            self._keep_new()
            while self._kept:
                self._read_one()

    def _keep_new(self) -> None:
        """Puts leases on the frontiers of new cursors, while the readers' leases live (law 11)."""
        for name in self._store.names("leases"):
            id_ = name.rsplit("/", 1)[-1].removesuffix(".json")
            # One with more behind the number is of a follower that has still to look at the floor.
            if found := _SHARED.fullmatch(id_):
                place = found["build"], int(found["number"])
                if place not in self.known and place not in self._kept:
                    self._keep(id_, place)

    def _keep(self, id_: str, place: tuple[str, int]) -> None:
        lease = read_lease(self._store, id_)
        if lease is None or lease.frontier is None:
            return
        assert place == (lease.frontier.build, lease.frontier.number), lease
        expires_at = time.time() + _KEPT_SECONDS
        ensure_lease(
            self._store, replace(lease, id=_own(place), pid=os.getpid(), expires_at=expires_at)
        )
        still = read_lease(self._store, id_)
        if still is not None and time.time() < still.expires_at:
            self._kept[place] = lease.frontier
        else:
            ensure_released(self._store, _own(place))

    def _read_one(self) -> None:
        place, frontier = next(iter(self._kept.items()))
        self.known[place] = self._digests(frontier)
        del self._kept[place]
        ensure_released(self._store, _own(place))

    def _digests(self, frontier: Frontier) -> Mapping[str, int]:
        birth = read_birth(self._store, frontier.build)
        snapshot = Snapshot(
            0, {birth.pipeline: birth.build}, {birth.build: frontier}, {birth.build: birth}
        )
        with connect_reader(snapshot, self._store) as reader:
            return {name: digest_of(texts(reader.rows(f"from {name}"))) for name in self._tables}

    def served(self) -> Mapping[str, int]:
        """Returns the digests of the tables that are served now."""
        return {
            name: digest_of(texts(answer_query(self._store, f"from {name}")))
            for name in self._tables
        }

    def wrong(self, book: Path, table: str) -> tuple[list[str], Counter[str]]:
        """Compares a consumer's history with the served tables.

        Returns the faults, and the number of change sets by kind and by result of the comparison.
        """
        wrong, counted = faults(book), Counter[str]()
        serving = {
            each.number: set(each.serving.values())
            for each in list_generations(JournalView(self._store).records())
        }
        for each in applied(book):
            counted[each.kind] += 1
            counted["changes"] += each.changes
            if each.build not in serving.get(each.generation, set()):
                wrong.append(f"mixed: {each} is of no build that served")
            right = self._right(each, table)
            if right is None:
                counted["not compared"] += 1
            elif right != each.digest:
                wrong.append(f"differs: {each}, and {table} was {right}")
            else:
                counted["equal"] += 1
        return wrong, counted

    def _right(self, what: Applied, table: str) -> int | None:
        tables = self.known.get((folded_by(self._store, what.build), what.frontier))
        return None if tables is None else tables[table]


def texts(rows: Rows | Answer) -> list[tuple[str, int]]:
    """Returns rows in the form in which a consumer of JSON has them."""
    return [
        (
            row_text(
                {name: json_value(value) for name, value in zip(rows.columns, row, strict=True)}
            ),
            1,
        )
        for row in rows.rows
    ]


def _own(place: tuple[str, int]) -> str:
    """Returns the id of the audit's lease on a build's frontier."""
    return f"audit-{place[0]}-{place[1]}"
