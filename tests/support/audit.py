"""An audit: a served table at each cursor that was given out, as queries read it.

A cursor's files are kept for a while only: so each is read soon after it was given out, whether a
consumer has come that far or not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from book import Applied, applied, digest_of, faults, row_text
from meanwhile import Beside
from testbed import Testbed

from kappa.base.errors import KappaError
from kappa.journal.view import JournalView
from kappa.state.build import folded_by, read_birth
from kappa.state.frontier import Frontier
from kappa.state.lease import Lease, read_lease
from serving.pin.past import generations
from serving.pin.snapshot import Snapshot
from serving.query.query import Answer, answer, connect
from serving.query.render import plain
from serving.reader.reader import Rows

_REST_SECONDS = 0.3
_PREFIX = "leases/changes-"


class Audit(Beside):
    """Reads the tables at each cursor's frontier; `known` has their digests."""

    def __init__(self, bed: Testbed, tables: Sequence[str]) -> None:
        super().__init__()
        self._bed = bed
        self._store = bed.store
        self._tables = tables
        self.known: dict[tuple[str, int], Mapping[str, int]] = {}
        self.gone = 0

    def go_on(self) -> None:
        for name in self._store.names("leases"):
            if name.startswith(_PREFIX):
                id_ = name.rsplit("/", 1)[-1].removesuffix(".json")
                lease = read_lease(self._store, id_)
                if lease is not None and lease.frontier is not None and _lives(lease):
                    self._read(id_, lease.frontier)

    def rest(self) -> None:
        self.ends.wait(_REST_SECONDS)

    def _read(self, id_: str, frontier: Frontier) -> None:
        place = frontier.build, frontier.number
        if place in self.known:
            return
        try:
            found = self._digests(frontier)
        except (KappaError, OSError):
            if (still := read_lease(self._store, id_)) is not None and _lives(still):
                raise
            self.gone += 1
            return
        if (still := read_lease(self._store, id_)) is not None and _lives(still):
            self.known[place] = found

    def _digests(self, frontier: Frontier) -> Mapping[str, int]:
        birth = read_birth(self._store, frontier.build)
        snapshot = Snapshot(
            0, {birth.pipeline: birth.build}, {birth.build: frontier}, {birth.build: birth}
        )
        with connect(snapshot, self._store) as reader:
            return {name: digest_of(texts(reader.rows(f"from {name}"))) for name in self._tables}

    def served(self) -> Mapping[str, int]:
        """Returns the digests of what is served now."""
        return {
            name: digest_of(texts(answer(self._store, f"from {name}"))) for name in self._tables
        }

    def wrong(self, book: Path, table: str) -> tuple[list[str], Counter[str]]:
        """Holds a consumer's history to what was served; counts its change sets by kind."""
        wrong, counted = faults(book), Counter[str]()
        serving = {
            each.number: set(each.serving.values())
            for each in generations(JournalView(self._store).records())
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
    """Returns rows as a consumer of JSON has them."""
    return [
        (row_text({name: plain(value) for name, value in zip(rows.columns, row, strict=True)}), 1)
        for row in rows.rows
    ]


def _lives(lease: Lease) -> bool:
    return time.time() < lease.expires_at
