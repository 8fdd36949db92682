"""Small tables over a few slices, whose views are maintained by the engine's own queries.

The tables are in DuckDB, with one schema per frontier. So a test of a text takes milliseconds,
without files.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
from duckdb import FatalException
from text_grammar import TYPED

from kappa.base.duck import DUCKDB_ERRORS
from kappa.base.errors import DeclarationError
from kappa.base.sql import quoted, text
from kappa.declare.options import DELETED
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.views.affected_keys import ViewSource, changes_of_slice
from kappa.state.files.duckdb_access import open_exact
from kappa.state.table import NUMBER, SINCE, TableBirth
from kappa.tables.parquet import cast_sql, casts_sql, parquet_sql
from kappa.tables.views import changes
from kappa.tables.views.changes import (
    SEVERAL_ROWS,
    Unfit,
    changes_sql,
    stored_columns,
    view_error,
)
from kappa.tables.views.view_tables import births_in, make_empty
from kappa.tables.views.ways import Way, way_of

if TYPE_CHECKING:
    from kappa import View
    from kappa.base.duck import Connection
    from kappa.tables.views.served_rows_sql import Among

TABLES = tuple(
    TableBirth(name, tuple(columns.items()), keys=() if name == "bids" else ("id",))
    for name, columns in TYPED.items()
)
# Frontiers after the first.
SLICES = 2
_VALUES: dict[str, tuple[Any, ...]] = {
    "int": (None, 1, 2, -1, 3),
    "bigint": (None, 1, 2, 3, -2),
    "decimal(9,2)": (None, Decimal("1.00"), Decimal("1.50"), Decimal("-1.00"), Decimal(2)),
    "string": (None, "1", "01", "2", "1"),
    "timestamp": (
        None,
        *(datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=9 * n) for n in range(4)),
    ),
    "date": (None, *(date(2020, 1, day) for day in (1, 2))),
    "boolean": (None, True, False),
    "array<string>": (None, [], ["a"], ["1", "a"], [None, "a"]),
    "struct<w:int,kind:string>": (None, {"w": 1, "kind": "a"}, {"w": None, "kind": "1"}),
}
_CITIES = (None, "a", "A", "b", "B")
# What DuckDB cannot plan or cast, and mistakes of its own.
_NOT_OURS = ("Not implemented", "INTERNAL", "Unimplemented type for cast")


class Unlike(AssertionError):
    """Raised if a maintained view differs from its text."""


class World:
    """Tables at a few frontiers, with the contributions of each slice. Views are tried on them."""

    def __init__(self, plans: Connection, seed: int) -> None:
        """Takes a DuckDB connection from `open_plans`."""
        self._plans = plans
        # In others what tells the rows of a key that several have is left out, which takes as long
        # to plan as all the rest, and what is computed whole is looked at once.
        self.is_thorough = seed % 5 == 0
        self.duck = open_exact({"threads": 1})
        draw = random.Random(seed)
        # Of each frontier and table: the rows that the slice before it contributed.
        self.contributed: list[dict[str, pa.Table]] = []
        rows: dict[str, list[dict[str, Any]]] = {birth.name: [] for birth in TABLES}
        for number in range(SLICES + 1):
            self.duck.execute(f"create schema s{number}")
            brought = dict[str, pa.Table]()
            for birth in TABLES:
                schema = arrow_schema(birth.columns)
                count = draw.choice([3, 6] if number == 0 else [0, 1, 1, 3])
                new = [_some(draw, birth) for _ in range(count)]
                gone: list[dict[str, Any]] = []
                if birth.keys:
                    # A key comes once in a slice; its row may go.
                    new = list({row["id"]: row for row in new}.values())
                    gone = [row for row in new if number and draw.random() < 0.3]
                    keys = {row["id"] for row in new}
                    rows[birth.name] = [row for row in rows[birth.name] if row["id"] not in keys]
                rows[birth.name] += [row for row in new if row not in gone]
                if new:
                    brought[birth.name] = pa.Table.from_pylist(new, schema)
                found = pa.Table.from_pylist(rows[birth.name], schema)
                self.duck.register("_rows_of", found)
                self.duck.execute(f"create table s{number}.{birth.name} as from _rows_of")
            self.contributed.append(brought)

    def close(self) -> None:
        """Closes the DuckDB connection."""
        self.duck.close()

    def kept(self, views: Sequence[View]) -> str:
        """Maintains views over all slices; returns by which ways, or why not.

        Raises Unlike if a view differs from its text.
        """
        try:
            births = births_in(self._plans, views, TABLES)
            all_births = {birth.name: birth for birth in (*TABLES, *births)}
            ways = {birth.name: way_of(self._plans, birth, all_births) for birth in births}
        except DeclarationError as error:
            return f"refused: {error.message}"
        finally:
            for view in views:
                self._plans.execute(
                    f"drop {'table' if view.is_maintained else 'view'} if exists {view.name}"
                )
        with nullcontext() if self.is_thorough else patch.object(changes, "_unique", _unique):
            return _Keeping(self, views, births, ways).keep()


# Statements after which DuckDB plans otherwise, each with the statement that takes it back.
_OTHER_PLANS = (
    ("pragma disable_optimizer", "pragma enable_optimizer"),
    ("set disabled_optimizers = 'filter_pushdown'", "set disabled_optimizers = ''"),
)


class EndedError(Exception):
    """A database that DuckDB itself has closed, after an internal error in an earlier text."""


class _Keeping:
    def __init__(
        self,
        world: World,
        views: Sequence[View],
        births: Sequence[TableBirth],
        ways: dict[str, Way],
    ) -> None:
        self._world, self._duck = world, world.duck
        self._views, self._births, self._ways = views, births, ways
        self._is_first, self._is_once = True, False
        self.sources: dict[str, ViewSource] = {
            birth.name: _RowsInDuck(birth) for birth in (*TABLES, *births)
        }

    def keep(self) -> str:
        by_slice, before = 0, -1
        # How rows came in slices does not decide what is computed whole.
        is_once = self._is_once = not self._world.is_thorough and all(
            self._ways[birth.name].change is None
            and self._ways[birth.name].whole_after.keys() >= set(birth.reads)
            for birth in self._births
        )
        for number in [SLICES] if is_once else range(SLICES + 1):
            self._is_first = before < 0
            brought = self._world.contributed[before + 1 : number + 1]
            for source in self.sources.values():
                rows = [each[source.birth.name] for each in brought if source.birth.name in each]
                source.step(number, rows[-1] if rows else None)
            before = number
            try:
                self._duck.execute(f"set schema = 's{number}'")
            except FatalException as error:
                raise EndedError from error
            wanted = [self._meant(birth) for birth in self._births]
            if None in wanted:
                return "raises"
            for birth, rows in zip(self._births, wanted, strict=True):
                kept = self._slice(birth, number, rows)
                if isinstance(kept, str):
                    return kept
                by_slice += kept
        way = self._ways[self._births[0].name]
        if not by_slice:
            return "whole"
        return "by change" if way.change is not None else "by touched keys"

    def _meant(self, birth: TableBirth) -> Counter[Any] | None:
        """Returns the rows of a view's text as plain DuckDB computes them, or None on an error."""
        casts = casts_sql(birth.served)
        is_asof = any("asof" in view.sql for view in self._views)
        try:
            if is_asof:
                self._duck.execute("set asof_loop_join_threshold = 1000000")
            found = self._duck.execute(f"select {casts} from ({self._text(birth.name)})")
            return Counter(map(_hashable, found.fetchall()))
        except DUCKDB_ERRORS:
            return None
        finally:
            if is_asof:
                with suppress(FatalException):
                    self._duck.execute("set asof_loop_join_threshold = 0")

    def _slice(self, birth: TableBirth, number: int, wanted: Counter[Any]) -> bool | str:
        """Maintains one view over one slice; returns True unless the view was computed whole.

        Returns the reason if the view fails here, as its text does.
        """
        changed = {name for name in birth.reads if self.sources[name].has_changed}
        if not self._is_first and not changed:
            found, is_whole = None, True
        else:
            found, is_whole = None, self._is_first
            try:
                if not self._is_first:
                    kept = changes_of_slice(
                        self._duck,
                        birth,
                        self._ways[birth.name],
                        self.sources,
                        changed,
                        since=number,
                    )
                    found, is_whole = (None, True) if kept is None else (kept.rows, False)
                if found is None:
                    found = self._whole(birth, number)
            except DUCKDB_ERRORS as error:
                if SEVERAL_ROWS in str(error):
                    self._ensure_several(birth, wanted, str(error))
                    return "stops: several rows of a key"
                if not any(word in str(error) for word in _NOT_OURS):
                    try:
                        found = self._whole(birth, number)
                    except DUCKDB_ERRORS as whole:
                        if self._may_raise(birth):
                            return "raises"
                        raise Unlike(f"{whole}\n{self._told(birth)}") from whole
                else:
                    return False
        if self._is_once and found is not None and _has_twice(found, birth.keys):
            self._ensure_several(birth, wanted, SEVERAL_ROWS)
            return "stops: several rows of a key"
        stored = self.sources[birth.name].take(self._duck, found)
        if stored != wanted:
            raise Unlike(
                f"after slice {number} view {birth.name} stores {dict(stored - wanted)}, and lacks"
                f" {dict(wanted - stored)}\n{self._told(birth)}"
            )
        return not is_whole

    def _text(self, name: str) -> str:
        """Returns the text of a view. A view over a stored view reads the served types."""
        first, *others = self._views
        served = {birth.name: birth.served for birth in self._births}
        below = first.sql
        if first.name in served:
            below = f"select {casts_sql(served[first.name])} from ({below})"
        return next(
            (f"with v as ({below}) from ({each.sql})" for each in others if each.name == name),
            first.sql,
        )

    def _may_raise(self, birth: TableBirth) -> bool:
        """Returns True if DuckDB cannot compute a view's own text either, by another plan.

        The plan decides which values are converted. So a text can have rows by one plan, and an
        error by another. The plan also depends on how the tables are read: the text is tried over
        the tables as a slice reads them, too.
        """
        text = self._text(birth.name)
        read = ", ".join(f"{quoted(name)} as ({self.sources[name].sql()})" for name in birth.reads)
        tried = [*((*plan, text) for plan in _OTHER_PLANS), ("", "", f"with {read} from ({text})")]
        for plan, usual, sql in tried:
            self._duck.execute(plan)
            try:
                self._duck.execute(sql).fetchall()
            except DUCKDB_ERRORS as error:
                return isinstance(view_error(birth.name, str(error)), Unfit)
            finally:
                self._duck.execute(usual)
        return False

    def _whole(self, birth: TableBirth, number: int) -> pa.Table:
        relations = {name: self.sources[name].sql() for name in birth.reads}
        query = self._ways[birth.name].whole
        if self._is_once:
            found = _rows_sql(birth, query, relations)
        else:
            stored = self.sources[birth.name].sql(stored_columns(birth))
            found = changes_sql(birth, query, relations, stored, number)
        # As a job does: no schema has the tables.
        self._duck.execute("set schema = 'main'")
        try:
            return self._duck.execute(found).to_arrow_table()
        finally:
            self._duck.execute(f"set schema = 's{number}'")

    def _ensure_several(self, birth: TableBirth, wanted: Counter[Any], told: str) -> None:
        names = [name for name, _ in birth.served]
        places = [names.index(key) for key in birth.keys]
        keys = [tuple(row[place] for place in places) for row in wanted.elements()]
        if len(set(keys)) == len(keys):
            raise Unlike(f"{told}: its text has none\n{self._told(birth)}")

    def _told(self, birth: TableBirth) -> str:
        texts = "\n".join(f"{view.name} {view.keys or view.by}: {view.sql}" for view in self._views)
        return f"{texts}\n{self._ways[birth.name]}"


class _RowsInDuck(ViewSource):
    """A table whose rows at each frontier are in DuckDB, in a schema or as a registered table."""

    def __init__(self, birth: TableBirth) -> None:
        self.birth = birth
        self.clock = self.clock_before = None
        self._number = 0
        self._new: pa.Table | None = None
        # Of a view: its rows.
        self._rows: list[tuple[Any, ...]] = []
        # Of a view: the frontiers at which its rows have changed last, and before that.
        self._now = self._before = -1

    def step(self, number: int, rows: pa.Table | None) -> None:
        self._number, self._new = number, rows

    def take(self, duck: Connection, found: pa.Table | None) -> Counter[Any]:
        """Takes the contributions to a view; returns the view's rows as readers see them."""
        names, served = [name for name, _ in self.birth.columns], len(self.birth.served)
        self._new = found if found is not None and found.num_rows else None
        self._before, self._now = self._now, self._number if self._new is not None else self._now
        if self._new is not None:
            schema = arrow_schema(self.birth.columns)
            keys = [names.index(key) for key in self.birth.row_keys]
            columns = self._new.select(names).cast(schema).columns
            new = list(zip(*(column.to_pylist() for column in columns), strict=True))
            changed = {tuple(row[place] for place in keys) for row in new}
            deleted = names.index(DELETED)
            self._rows = [
                *(row for row in self._rows if tuple(row[k] for k in keys) not in changed),
                *(row for row in new if not row[deleted]),
            ]
            stored = [dict(zip(names, row, strict=True)) for row in self._rows]
            duck.register(f"{self.birth.name}_{self._now}", pa.Table.from_pylist(stored, schema))
        return Counter(_hashable(row[:served]) for row in self._rows)

    @property
    def has_changed(self) -> bool:
        return self._new is not None

    @property
    def is_known(self) -> bool:
        return True

    @property
    def new_rows(self) -> pa.Table | None:
        return self._new

    def passed_sql(self) -> str | None:
        return None

    def sql(
        self,
        columns: Sequence[tuple[str, str]] | None = None,
        *,
        among: Among | None = None,
        before: bool = False,
    ) -> str:
        listed = ", ".join(quoted(name) for name, _ in columns or self.birth.served)
        if self.birth.view is not None:
            at = self._before if before else self._now
            rows = (
                f"temp.{self.birth.name}_{at}"
                if at >= 0
                else f"({parquet_sql(self.birth.columns, ())})"
            )
        else:
            rows = f"s{self._number - before}.{self.birth.name}"
        sql = f"select {listed} from {rows}"
        return sql if among is None else among.of(sql)


def _rows_sql(view: TableBirth, query: str, relations: Mapping[str, str]) -> str:
    """Returns the SQL of `changes_sql` for an empty view, without the comparison with stored rows.

    This SQL takes half as long to plan.
    """
    read = ", ".join(f"{quoted(name)} as ({sql})" for name, sql in relations.items())
    own = dict(stored_columns(view))
    shown = [cast_sql(name, own[name]) for name in own if name != NUMBER]
    shown += [f"row_number() over () as {quoted(NUMBER)}"] * (NUMBER in own)
    listed = ", ".join((*shown, f"false as {quoted(DELETED)}, 0::bigint as {quoted(SINCE)}"))
    return f"{f'with {read} ' if read else ''}select {listed} from (\n{query}\n)"


def _has_twice(rows: pa.Table, keys: Sequence[str]) -> bool:
    return bool(keys) and rows.group_by([*keys]).aggregate([]).num_rows < rows.num_rows


def _unique(view: TableBirth) -> str:
    """Returns the SQL by which `changes_sql` fails on duplicate keys, without naming the rows."""
    if not view.keys:
        return ""
    keys = ", ".join(map(quoted, view.keys))
    nothing = ", ".join(f"null as {quoted(name)}" for name, _ in view.columns)
    twice = f"case when count(*) > 1 then error({text(SEVERAL_ROWS)} || count(*)) end is not null"
    found = f"select {keys} from _new group by {keys} having {twice}"
    return f"\nunion all select {nothing} from ({found})"


def _hashable(value: Any) -> Any:
    match value:
        case list() | tuple():
            return tuple(map(_hashable, value))
        case dict():
            return tuple((name, _hashable(each)) for name, each in value.items())
    return value


def _some(draw: random.Random, birth: TableBirth) -> dict[str, Any]:
    return {
        name: draw.choice(_CITIES if name == "city" else _VALUES[kind])
        for name, kind in birth.columns
    }


def open_plans() -> Connection:
    """Opens a DuckDB that has the tables, without rows."""
    plans = open_exact({"threads": 1})
    for birth in TABLES:
        make_empty(plans, birth)
    return plans
