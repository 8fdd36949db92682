"""A pipeline whose builds are folded by hand, and a reader that knows only the changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
from births import make_birth
from msgspec.structs import replace
from writers import make_writer

from kappa import View
from kappa.base.clock import Stopwatch
from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.declare.table import Expiry
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.views.view_maintenance import MaintainedViews
from kappa.engine.write.commit import Merging, TableWriter
from kappa.engine.write.maintenance import Maintenance
from kappa.engine.write.publisher import Publisher
from kappa.serving.outlets.changes.change_set import ChangeSet, RowChange
from kappa.state.build import TopicBirth, put_birth
from kappa.state.frontier import Frontier
from kappa.state.journal.events import Event, Receipt, Served, Staged, SwitchAsked
from kappa.state.journal.journal import Journal
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns
from kappa.tables.shape import LATEST_COLUMNS, REJECTS_BIRTH
from kappa.tables.views.view_tables import view_births

TOTALS = TableBirth(
    "totals",
    (("k", "string"), ("rows", "bigint"), ("least", "double")),
    keys=("k",),
    fold={"rows": ("count", None), "least": ("min", "least")},
)
NEWEST = TableBirth(
    "newest", (("id", "int"), ("city", "string"), *LATEST_COLUMNS), ("id",), latest="newest"
)
EVENTS = TableBirth("events", (("k", "string"), ("n", "int")))
RECENT = TableBirth("recent", (("k", "string"), ("at", "timestamp")), expiry=Expiry("at", 10_000))
SOURCES = (TOTALS, NEWEST, EVENTS, RECENT)
VIEWS = view_births(
    (
        View("cities", "select city, count(*) as n from newest group by city", keys=["city"]),
        View("pairs", "select e.k, e.n, t.rows from events e join totals t using (k)", by=["k"]),
    ),
    SOURCES,
)
TABLES = (*SOURCES, *VIEWS, REJECTS_BIRTH)
FOLLOWED = tuple(table.name for table in (*SOURCES, *VIEWS))


class FoldedBuild:
    """A build whose slices are committed and published without a log and without Spark."""

    def __init__(
        self,
        store: Store,
        name: str,
        tables: tuple[TableBirth, ...],
        clock: Any,
        sinks: tuple[SinkBirth, ...] = (),
        alerts: tuple[AlertBirth, ...] = (),
    ) -> None:
        self.name = name
        topics = (TopicBirth("events", "i", "retained", 1),)
        birth = make_birth(name, tables, topics=topics, sinks=sinks, alerts=alerts)
        put_birth(store, birth)
        self._birth = birth
        merging = Merging(1 << 26, 2)
        self.writers = {
            each.name: make_writer(store, each, name, driver_rows=1_000, merging=merging)
            for each in tables
        }
        self._views = MaintainedViews([*self.writers.values()], birth, are_current=True)
        self.publisher = Publisher(store, birth, hold_seconds=10)
        begun = self.publisher.begin(Frontier(1, name, 1, Offsets(), self._versions(), ""))
        self.maintenance = Maintenance(
            store, birth, [*self.writers.values()], self.publisher, seconds=30, clock=clock
        )
        # Another host has folded some, if the build was born there.
        self.slices = begun.offsets.at("events", 0)

    def _versions(self) -> dict[str, int]:
        """Returns the versions of all tables, including the tables of waiting recent rows."""
        return {
            each: version
            for writer in self.writers.values()
            for each, version in writer.versions().items()
        }

    def fold(self, rows: Mapping[str, pa.Table], log_time: int) -> None:
        """Commits a slice to all tables and views, and publishes it."""
        start, end = (Offsets({"events": {0: n}}) for n in (self.slices, self.slices + 1))
        mark = Mark(self.name, "", 1, self.slices, start, end, log_time={"events": {0: log_time}})
        self.slices += 1
        for name, writer in self.writers.items():
            if writer.birth.view is None:
                writer.commit(ArrowRows(rows[name]) if name in rows else None, mark)
        self._views.commit(mark, cast("Any", None), Stopwatch(), are_due=True)
        self.publisher.publish(mark, self._versions())

    def keep_up(self) -> None:
        """Joins files, drains recent rows, and deletes files that no lease needs."""
        self.maintenance.run()

    def close(self) -> None:
        """Ends the threads of the build."""
        self._views.close()
        for writer in self.writers.values():
            writer.close()


class ChangingWorld:
    """Two different builds of one pipeline, one of which serves."""

    def __init__(
        self,
        store: Store,
        seed: int,
        *sinks: tuple[SinkBirth, ...],
        alerts: tuple[tuple[AlertBirth, ...], ...] = (),
        now: float = 1_000.0,
        prefix: str = "p",
    ) -> None:
        """Makes a world with these sinks and alerts.

        One group of sinks or alerts is used for both builds. With two groups, the second one is
        used for the second build.
        """
        self.now = now
        self.draw = random.Random(seed)
        self.generation = 0
        wider = replace(EVENTS, columns=(*EVENTS.columns, ("more", "string")))
        others = tuple(wider if each is EVENTS else each for each in TABLES)
        self._made = [
            (name, tables, sinks[place] if sinks else (), alerts[place] if alerts else ())
            for name, tables, place in (
                (f"{prefix}-a", TABLES, 0),
                (f"{prefix}-b", TABLES if self.draw.random() < 0.6 else others, -1),
            )
        ]
        self.move(store)
        self.slices: list[int] = []
        self.serve(0, asked=False)

    def move(self, store: Store) -> None:
        """Continues with another store of the same root: the store of its next control host."""
        self.store = store
        self.builds = [
            FoldedBuild(store, name, tables, lambda: self.now, sinks, alerts)
            for name, tables, sinks, alerts in self._made
        ]

    @property
    def live(self) -> FoldedBuild:
        """Returns the build that serves."""
        return self.builds[self._serving]

    def serve(self, number: int, *, asked: bool) -> None:
        """Makes a build serve, by an undo if `asked`."""
        self._serving = number
        self.generation += 1
        name = self.builds[number].name
        begun = self._append(
            SwitchAsked("p", name, "undo") if asked else Staged("p", name, "v", ("new",))
        )
        receipt = Receipt("p", name, "v", Offsets(), None, None)
        self._append(Served(begun, self.generation, {"p": name}, receipt))

    def _append(self, event: Event) -> int:
        journal = Journal(self.store)
        last, _ = journal.last_served()
        record = journal.append(last + 1, event)
        assert record is not None
        return record.number

    def fold(self) -> None:
        """Folds one more slice into each build. The records of both builds are the same."""
        self.slices.append(self.draw.getrandbits(30))
        for number, build in enumerate(self.builds):
            self._catch_up(build, number)

    def _catch_up(self, build: FoldedBuild, number: int) -> None:
        while build.slices < len(self.slices):
            place = build.slices
            log_time = 1_000 * place
            build.fold(
                some_rows(random.Random(self.slices[place] + number), place, build.writers),
                log_time,
            )

    def step(self) -> str:
        """Takes a random step of the world, and returns the step's name.

        The reader takes the step `restart`, and the time passes in the step `late`.
        """
        what = self.draw.choice(["fold"] * 5 + ["keep up", "switch", "restart", "late"])
        if what == "fold":
            for _ in range(self.draw.choice([1, 1, 4])):
                self.fold()
        elif what == "keep up":
            for build in self.builds:
                build.keep_up()
        elif what == "switch":
            self.serve(1 - self._serving, asked=self.draw.random() < 0.5)
        elif what == "late":
            self.now += self.draw.choice([5.0, 90.0])
        return what

    def close(self) -> None:
        """Ends all threads."""
        for build in self.builds:
            build.close()


def some_rows(draw: random.Random, place: int, writers: Mapping[str, TableWriter]) -> Any:
    """Returns a slice's contributions: few keys, nulls, equal rows, tombstones, or nothing."""

    def key() -> str | None:
        return draw.choice([None, "a", "b", "ç"])

    rows: dict[str, list[dict[str, Any]]] = {
        "totals": [
            {"k": each, "rows": draw.choice([1, 2]), "least": draw.choice([None, 0.5, 7.0])}
            for each in draw.sample([None, "a", "b", "ç", "d", "e"], draw.choice([0, 1, 3]))
        ],
        "newest": [
            {
                "id": each,
                "city": draw.choice([None, "x", "y"]),
                "_log_time": 1_000 * place,
                "_partition": 0,
                "_offset": 10 * place + each,
                "_deleted": draw.random() < 0.3,
            }
            for each in draw.sample([1, 2, 3], draw.choice([0, 1, 2]))
        ],
        "events": [
            {"k": key(), "n": draw.choice([None, 1])} for _ in range(draw.choice([0, 1, 3]))
        ],
        "recent": [
            # A step of a second: a row is gone ten steps later.
            {"k": key(), "at": draw.choice([None, 1_000_000 * place])}
            for _ in range(draw.choice([0, 1, 2]))
        ],
    }
    return {
        name: pa.Table.from_pylist(found, arrow_schema(contribution_columns(writers[name].birth)))
        for name, found in rows.items()
        if found
    }


class Consumer:
    """A reader that knows a table only by its change sets."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.by_key: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def apply(self, change_set: ChangeSet) -> None:
        """Applies a change set. The changes must fit the rows."""
        keys = change_set.head.keys
        if change_set.head.starts_over:
            self.rows.clear()
        for change in change_set.rows():
            self._apply(change, keys)
        assert all(count > 0 for count in self.rows.values())

    def _apply(self, change: RowChange, keys: tuple[str, ...]) -> None:
        before, after = (
            None if row is None else tuple(row.items()) for row in (change.before, change.after)
        )
        assert before != after
        assert (before is None, after is None) == (
            change.op == "insert",
            change.op == "delete",
        )
        if before is not None:
            assert self.rows[before] >= change.times, (change, self.rows)
            self.rows[before] -= change.times
            if not self.rows[before]:
                del self.rows[before]
        if after is not None:
            self.rows[after] += change.times
        if keys and change.before and change.after:
            assert [change.before[key] for key in keys] == [change.after[key] for key in keys]
