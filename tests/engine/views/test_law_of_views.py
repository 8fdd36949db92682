"""I11 for random views over random slices: maintained rows equal those that DuckDB computes."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from births import make_birth
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from view_grammar import TABLES, Grammar
from writers import make_writer

from kappa import View
from kappa.base.clock import Stopwatch
from kappa.base.duck import DuckError
from kappa.base.errors import Broken, DeclarationError
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.views import view_maintenance
from kappa.engine.views.affected_keys import ViewSource
from kappa.engine.views.view_maintenance import MaintainedViews
from kappa.engine.write.commit import Merging
from kappa.serving.query.reader.relations import tables_of
from kappa.state.files.duckdb_access import open_for_few_rows
from kappa.state.frontier import Frontier
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns
from kappa.tables.shape import LATEST_COLUMNS
from kappa.tables.versions import FileLists
from kappa.tables.views.changes import Unfit, view_error
from kappa.tables.views.view_tables import view_births

if TYPE_CHECKING:
    from object_store import ObjectStore
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SOURCES = (
    TableBirth("bids", TABLES["bids"]),
    TableBirth("auctions", (*TABLES["auctions"], *LATEST_COLUMNS), keys=("id",), latest="auctions"),
    TableBirth(
        "persons", TABLES["persons"], ("id",), {"city": ("max", "city"), "born": ("min", "born")}
    ),
)


@pytest.fixture(autouse=True)
def _tries_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the limit for long tries, because each try is long on a busy machine."""
    monkeypatch.setattr(view_maintenance, "_LONG_SECONDS", math.inf)


class Built:
    """A build whose slices are committed without a log and without Spark."""

    def __init__(
        self,
        store: Store,
        births: Sequence[TableBirth],
        large_rows: int | None,
        *,
        most_spilled: int | None = None,
        slice_seconds: float = math.inf,
    ) -> None:
        self._store = store
        self._births = births
        self._merging = Merging(1 << 26, large_rows, most_spilled=most_spilled)
        self._slice_seconds = slice_seconds
        self._slices = 0
        self.failing: Mapping[str, str] = {}
        self.begin()

    def begin(self) -> None:
        """Opens all tables, as a job does at its start."""
        self.writers = {
            birth.name: make_writer(self._store, birth, driver_rows=1_000, merging=self._merging)
            for birth in self._births
        }
        self.birth = make_birth("b", tuple(self._births))
        self._views = MaintainedViews(
            [*self.writers.values()],
            self.birth,
            are_current=True,
            slice_seconds=self._slice_seconds,
        )

    def end(self) -> None:
        """Closes everything, as a job does at its end."""
        self._views.close()
        for writer in self.writers.values():
            writer.close()

    def fold(self, rows: dict[str, pa.Table], *, are_due: bool) -> None:
        """Commits a slice to all tables, and to the views."""
        self._slices += 1
        start, end = (Offsets({"t": {0: 10 * n}}) for n in (self._slices - 1, self._slices))
        mark = Mark("b", "", 1, self._slices, start, end)
        for birth in self._births:
            if birth.view is None:
                self.writers[birth.name].commit(
                    ArrowRows(rows[birth.name]) if birth.name in rows else None, mark
                )
        spark = cast("SparkSession", None)
        self.failing = self._views.commit(
            mark, spark, Stopwatch(), are_due=are_due, failing=self.failing
        )

    def seen(self, name: str) -> list[tuple[Any, ...]]:
        """Returns the rows of a table or view that readers see, in order."""
        versions = {
            each: at for one in self.writers.values() for each, at in one.versions().items()
        }
        frontier = Frontier(1, "b", 1, Offsets(), versions, "", failing=self.failing)
        with open_for_few_rows() as duck:
            sql = tables_of(self.birth, frontier, self._store)[name].sql
            return duck.execute(f"from ({sql}) order by all").fetchall()

    def ensure_views_hold(self, views: Sequence[View]) -> None:
        """Compares the stored rows of each view with the rows of its query over the tables."""
        lists = FileLists()
        with open_for_few_rows() as duck:
            duck.execute("create schema stored")
            for name, writer in self.writers.items():
                schema = "main" if writer.birth.view is None else "stored"
                rows = ViewSource(writer, lists).sql()
                duck.execute(f"create view {schema}.{name} as {rows}")
            for view in views:
                duck.execute(f"create view main.{view.name} as {view.sql}")
                for one, other in (("stored", "main"), ("main", "stored")):
                    sides = [f"from {schema}.{view.name}" for schema in (one, other)]
                    found = duck.execute(f"({sides[0]}) except all ({sides[1]})").fetchall()
                    assert found == [], (one, view.sql)


def some(draw: random.Random, slices: int) -> dict[str, pa.Table]:
    """Returns a slice's contributions: few values, nulls, equal rows, tombstones, or nothing."""

    def value() -> int | None:
        return draw.choice([None, 1, 2, 3])

    rows: dict[str, list[dict[str, Any]]] = {
        "bids": [
            {name: value() for name, _ in TABLES["bids"]} for _ in range(draw.choice([0, 1, 4]))
        ],
        "auctions": [
            {
                **({} if draw.random() < 0.3 else {"category": value(), "seller": value()}),
                "id": key,
                "_log_time": slices,
                "_partition": 0,
                "_offset": 10 * slices + key,
            }
            for key in draw.sample([1, 2, 3], draw.choice([0, 1, 2]))
        ],
        "persons": [
            {"id": key, "city": value(), "born": value()}
            for key in draw.sample([None, 1, 2, 3], draw.choice([0, 0, 2]))
        ],
    }
    for each in rows["auctions"]:
        each["_deleted"] = "seller" not in each
    return {
        birth.name: pa.Table.from_pylist(
            rows[birth.name], arrow_schema(contribution_columns(birth))
        )
        for birth in SOURCES
    }


def ensure_law_holds(store: Store, seed: int) -> str | None:
    """Folds random slices for a random view and a view over it. Returns the query if it is kept."""
    grammar = Grammar(seed)
    draw = grammar.draw
    sql, columns = grammar.query(2)
    by = draw.sample(columns, min(len(columns), draw.choice([1, 1, 2])))
    second = f"select {by[0]} as k, count(*) as n from v group by all"
    views = (View("v", sql, by=by), View("w", second, keys=("k",)))
    try:
        births = (*SOURCES, *view_births(views, SOURCES))
    except DeclarationError:
        return None
    built = Built(store, births, draw.choice([None, 2]))
    try:
        for number in range(1, 6):
            are_due = number in {1, 5} or draw.random() < 0.8
            built.fold(some(draw, number), are_due=are_due)
            if not are_due:
                continue
            if built.failing:
                raise Broken(str(built.failing))
            built.ensure_views_hold(views)
            if draw.random() < 0.2:
                built.end()
                built.begin()
    finally:
        built.end()
    return sql


# Examples in a bucket take longer, by its requests.
@pytest.mark.law
@pytest.mark.parametrize(
    ("place", "number"), [("disk", 15), pytest.param("bucket", 3, marks=pytest.mark.long)]
)
def test_any_view_is_its_query_after_each_slice(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    place: str,
    number: int,
) -> None:
    running: ObjectStore | None = (
        request.getfixturevalue("object_store") if place == "bucket" else None
    )

    def new_store() -> Store:
        folder = tmp_path_factory.mktemp("views")
        if running is None:
            return Store(folder)
        return Store(running.new_root(), storage=running.storage, local=folder)

    @examples(number)
    @given(st.integers(0, 10_000_000))
    def hold(seed: int) -> None:
        try:
            ensure_law_holds(new_store(), seed)
        except (DuckError, Broken) as error:
            # DuckDB does not plan every query, and of some it has a mistake of its own.
            if not any(word in str(error) for word in ("Not implemented", "INTERNAL")):
                raise

    hold()


EVENTS = TableBirth("events", (("k", "string"), ("n", "bigint")))
POISONED = (
    View("totals", "select k, sum(n)::bigint as n from events group by k", keys=("k",)),
    View("doubled", "select k, n * 2 as n from events where n <> -1", by=("k",)),
    View("odd", "select n % 2 as odd, count(*) as n from totals group by all", keys=("odd",)),
    View("counts", "select k, count(*) as n from events group by k", keys=("k",)),
)


def of_events(*rows: tuple[str, int]) -> dict[str, pa.Table]:
    schema = arrow_schema(EVENTS.columns)
    return {"events": pa.Table.from_pylist([{"k": k, "n": n} for k, n in rows], schema)}


def test_a_view_that_its_rows_do_not_fit_fails_alone_and_comes_back(tmp_path: Path) -> None:
    """Readers of the view get its own error, as if the view were not maintained; nothing stops."""
    built = Built(Store(tmp_path), (EVENTS, *view_births(POISONED, (EVENTS,))), None)
    try:
        built.fold(of_events(("a", 5), ("b", 1)), are_due=True)
        assert built.seen("odd") == [(1, 2)]
        for restarts in (False, True):
            built.fold(of_events(("a", 2**63 - 1)), are_due=True)
            assert set(built.failing) == {"totals", "odd", "doubled"}
            assert built.seen("counts")[0] == ("a", 4 if restarts else 2)
            for name in built.failing:
                with pytest.raises(DuckError, match=r"(totals|doubled) cannot be computed"):
                    built.seen(name)
            if restarts:
                built.end()
                built.begin()
            built.fold(of_events(("a", -(2**63) + 1)), are_due=True)
            # No record takes a row of `doubled` away.
            assert set(built.failing) == {"doubled"}
            assert built.seen("totals") == [("a", 5), ("b", 1)]
            assert built.seen("odd") == [(1, 2)]
    finally:
        built.end()


def test_a_view_with_several_rows_of_a_key_fails_alone_and_comes_back(tmp_path: Path) -> None:
    views = (
        View("counts", "select k, count(*) as n from events group by k", keys=("k",)),
        View("by_count", "select n, k from counts", keys=("n",)),
    )
    built = Built(Store(tmp_path), (EVENTS, *view_births(views, (EVENTS,))), None)
    try:
        built.fold(of_events(("a", 1)), are_due=True)
        built.fold(of_events(("b", 1)), are_due=True)
        assert built.failing == {
            "by_count": "view by_count: several rows have the keys n=1: {'n': 1, 'k': a},"
            " {'n': 1, 'k': b}"
        }
        with pytest.raises(DuckError, match="several rows have the keys n=1"):
            built.seen("by_count")
        assert built.seen("counts") == [("a", 1), ("b", 1)]
        built.fold(of_events(("b", 1)), are_due=True)
        assert not built.failing
        assert built.seen("by_count") == [(1, "a"), (2, "b")]
    finally:
        built.end()


SIZES = TableBirth("sizes", (("k", "string"), ("n", "bigint")))
EXPLODING = "select k, r, hash(k, r) as h from sizes, range(n) as t(r)"


def of_sizes(*rows: tuple[str, int]) -> dict[str, pa.Table]:
    names = [name for name, _ in SIZES.columns]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return {"sizes": pa.Table.from_pylist(found, arrow_schema(SIZES.columns))}


@pytest.fixture(params=["whole", pytest.param("touched", marks=pytest.mark.long)])
def exploding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Built]:
    """Yields a build with a view that one record can explode, in the touched rows or in all."""
    whole = f"select *, count(*) over () as rows from ({EXPLODING})"
    sql = EXPLODING if request.param == "touched" else whole
    views = (
        View("exploded", sql, by=("k",)),
        View("counts", "select k, count(*) as n from sizes group by k", keys=("k",)),
    )
    built = Built(
        Store(tmp_path),
        (SIZES, *view_births(views, (SIZES,))),
        None,
        most_spilled=16 << 20,
    )
    yield built
    built.end()


def test_a_view_that_explodes_fails_alone(exploding: Built) -> None:
    """A record with a billion rows exceeds memory and disk; the other tables continue."""
    exploding.fold(of_sizes(("a", 2), ("b", 1)), are_due=True)
    assert [row[:2] for row in exploding.seen("exploded")] == [("a", 0), ("a", 1), ("b", 0)]

    exploding.fold(of_sizes(("c", 1_000_000_000)), are_due=True)

    assert set(exploding.failing) == {"exploded"}
    assert "view exploded has too many rows" in exploding.failing["exploded"]
    assert exploding.seen("counts") == [("a", 1), ("b", 1), ("c", 1)]
    with pytest.raises(DuckError, match="view exploded"):
        exploding.seen("exploded")
    exploding.fold(of_sizes(("d", 1)), are_due=True)
    assert set(exploding.failing) == {"exploded"}
    assert len(exploding.seen("counts")) == 4


def test_a_view_that_never_ends_fails_alone(tmp_path: Path) -> None:
    """A view with few rows whose computation takes for ever is interrupted."""
    views = (
        View(
            "long",
            "select k, sum(hash(a.r, b.r) % 7)::double as h from sizes, range(n) as a(r),"
            " range(n) as b(r) group by k",
            keys=("k",),
        ),
        View("counts", "select k, count(*) as n from sizes group by k", keys=("k",)),
    )
    built = Built(Store(tmp_path), (SIZES, *view_births(views, (SIZES,))), None, slice_seconds=4.0)
    try:
        built.fold(of_sizes(("a", 2)), are_due=True)
        began = time.monotonic()
        built.fold(of_sizes(("c", 10_000_000)), are_due=True)
        assert built.failing == {
            "long": "view long takes longer than 2 s, half of engine.slice_seconds"
        }
        built.fold(of_sizes(("d", 1)), are_due=True)
        assert time.monotonic() - began < 60
        assert set(built.failing) == {"long"}
        assert len(built.seen("counts")) == 3
    finally:
        built.end()


@pytest.mark.parametrize(
    ("sql", "is_of_rows"),
    [
        ("select 'x'::int", True),
        ("select 9223372036854775807 + 1", True),
        ("select repeat('b', 1::bigint << 40)", True),
        ("select list(r) from range(100000000) t(r)", True),
        ("select regexp_matches('a', a) from (values ('(')) t(a)", True),
        ("select error('several')", True),
        ("from read_parquet('/nowhere/1.parquet')", False),
    ],
)
def test_a_view_fails_by_its_rows_unless_files_or_servers_fail(sql: str, is_of_rows: bool) -> None:
    with open_for_few_rows() as duck:
        duck.execute("set memory_limit = '100MB'; set max_temp_directory_size = '10MB'")
        with pytest.raises(DuckError) as told:
            duck.execute(sql).fetchall()

    found = view_error("v", str(told.value))
    assert isinstance(found, Unfit) == is_of_rows
    # DuckDB advises settings that only Kappa sets.
    assert "SET threads" not in str(found)


def test_a_view_that_never_suited_the_log_stops_its_build(tmp_path: Path) -> None:
    births = (EVENTS, *view_births(POISONED, (EVENTS,)))
    built = Built(Store(tmp_path), births, None)
    built.end()
    views = MaintainedViews([*built.writers.values()], built.birth, are_current=False)
    start, end = Offsets(), Offsets({"t": {0: 1}})
    mark = Mark("b", "", 1, 1, start, end)
    built.writers["events"].commit(ArrowRows(of_events(("a", 2**63 - 1), ("a", 1))["events"]), mark)
    with pytest.raises(Broken, match="view totals cannot be computed: Conversion Error"):
        views.commit(mark, cast("SparkSession", None), Stopwatch(), are_due=True)
    views.close()
