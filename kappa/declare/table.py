"""Serving tables and views, as a pipeline's file declares them: name, keys, folds, checks. Pure.

A table takes its rows in one of four ways: appended (no keys), folded (keys and fold), the latest value per Kafka key of
a topic (latest), or emitted by another table's ordered fold (emitted). Public names are stable; the data belong to one build.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kappa.base.errors import DeclarationError
from kappa.declare.ordered import Ordered, plain_columns
from kappa.declare.source import Source
from kappa.declare.topic import Topic
from kappa.values.columns import Column

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Every build has this table; nobody else may take the name.
REJECTS = "rejects"
# The order of the log (law 4), and Spark's types: the broker's clock first, then what tells two records of one millisecond apart.
ORDER_COLUMNS = (("_log_time", "bigint"), ("_partition", "int"), ("_offset", "bigint"))
# A function may bring rows of several topics together, and only their names tell two records of one millisecond, partition and offset apart.
FOLD_ORDER_COLUMNS = (
    ("_log_time", "bigint"),
    ("_topic", "string"),
    ("_partition", "int"),
    ("_offset", "bigint"),
)

# Sums of doubles depend on the order in which they are added, in their last digits: how far apart equal ones may be, relative to
# the larger one, or as it is where both are less than 1.
CLOSE = 1e-9


class FoldKind(StrEnum):
    """How the rows of one key become one value."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    FIRST = "first"
    LATEST = "latest"
    SET = "set"
    TOP_K = "top_k"
    HLL = "hll"
    THETA = "theta"
    KLL = "kll"

    @property
    def by_order(self) -> bool:
        """True where the log's order decides which value is kept."""
        return self in {FoldKind.FIRST, FoldKind.LATEST, FoldKind.TOP_K}

    @property
    def is_combined(self) -> bool:
        """True where no merge can say it, and so the rows of the touched keys are read, and folded with what a slice contributes (engine/fold/combine.py)."""
        return self in {FoldKind.SET, FoldKind.TOP_K, FoldKind.HLL, FoldKind.THETA, FoldKind.KLL}

    def exactness(self, kind: str) -> Exactness:
        """What may be said of its values, which are served as this type."""
        match self:
            case FoldKind.SUM if kind == "double":
                return Exactness.ROUNDED
            case FoldKind.HLL | FoldKind.THETA:
                return Exactness.ESTIMATED
            case FoldKind.KLL:
                return Exactness.APPROXIMATE
            case _:
                return Exactness.EXACT


class Exactness(StrEnum):
    """What may be said of a fold's values: how near they are, and whether other slices of the same log give the same (law 8).

    Exact values and estimates are the same whatever the slices, and are compared so. Rounded ones, sums of doubles, differ in
    their last digits with the order in which they are added: those within `CLOSE` of one another count as equal. Approximate
    ones are random: they count as equal where the ranges that hold the true value meet.
    """

    EXACT = "exact"
    ESTIMATED = "estimated"
    ROUNDED = "rounded"
    APPROXIMATE = "approximate"


Option = str | int | float


@dataclass(frozen=True, slots=True)
class Fold:
    """How one served column is folded: the kind, the input column it reads (None: rows are counted), and the kind's options by name."""

    kind: FoldKind
    column: str | None = None
    options: tuple[tuple[str, Option], ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return tuple(
            str(column)
            for column in (self.column, dict(self.options).get("by"))
            if column is not None
        )

    def __str__(self) -> str:
        return f"{self.kind}({', '.join([self.column or '', *(f'{name}={value}' for name, value in self.options)])})"


def count(column: str | None = None) -> Fold:
    """Counts rows, or with a column its values that are not null. Exact; bigint."""
    return Fold(FoldKind.COUNT, column)


def sum_(column: str) -> Fold:
    """Adds a numeric column, nulls ignored. Exact for whole numbers (bigint; overflow stops the job) and decimals; doubles depend on order."""
    return Fold(FoldKind.SUM, column)


def min_(column: str) -> Fold:
    """Keeps the least value, nulls ignored. Exact."""
    return Fold(FoldKind.MIN, column)


def max_(column: str) -> Fold:
    """Keeps the greatest value, nulls ignored. Exact."""
    return Fold(FoldKind.MAX, column)


def and_(column: str) -> Fold:
    """True where all values of a boolean column are true, nulls ignored. Exact."""
    return Fold(FoldKind.AND, column)


def or_(column: str) -> Fold:
    """True where any value of a boolean column is true, nulls ignored. Exact."""
    return Fold(FoldKind.OR, column)


def first(column: str) -> Fold:
    """Keeps the value that came first, nulls ignored: least by log time, topic, partition and offset. Of several rows of one record the least value counts. Exact."""
    return Fold(FoldKind.FIRST, column)


def latest(column: str) -> Fold:
    """Keeps the value that came last, nulls ignored: greatest by log time, topic, partition and offset. Of several rows of one record the greatest value counts. Exact."""
    return Fold(FoldKind.LATEST, column)


def set_(column: str, *, limit: int = 1000) -> Fold:
    """Keeps the distinct values, nulls ignored, as a sorted array; of none, an empty one. Exact, up to `limit` values.

    Of more than that the `limit` least by hash are kept, a sample that is the same whatever the slices, and the boolean column
    beside it, `<name>_overflow`, is true.
    """
    return Fold(
        FoldKind.SET,
        column,
        (("limit", _whole(Source.of_caller(), "set_", "limit", limit, 1, 100_000)),),
    )


def top_k(column: str, k: int = 10, *, by: str | None = None) -> Fold:
    """Keeps the values of the `k` rows in which `by` is greatest (without it: the `k` greatest values), as an array, greatest first. Exact.

    Of equals the later one stands first, by log time, topic, partition and offset. Rows in which the value or `by` is null are
    ignored; a value that comes twice stands there twice. A struct as the column keeps several values of a row.
    """
    options: tuple[tuple[str, Option], ...] = (
        ("k", _whole(Source.of_caller(), "top_k", "k", k, 1, 10_000)),
    )
    return Fold(FoldKind.TOP_K, column, options if by is None else (*options, ("by", by)))


def hll(column: str, *, lg_k: int = 12) -> Fold:
    """Estimates how many distinct values there are, nulls ignored, by a HyperLogLog sketch of 2^`lg_k` bytes at most; bigint.

    The standard error is 1.04 / sqrt(2^lg_k): 1.6 % as it is. The same records give the same estimate, whatever the slices.
    """
    return Fold(
        FoldKind.HLL, column, (("lg_k", _whole(Source.of_caller(), "hll", "lg_k", lg_k, 4, 21)),)
    )


def theta(column: str, *, lg_k: int = 12) -> Fold:
    """Estimates how many distinct values there are, nulls ignored, by a theta sketch; bigint. Exact up to 2^`lg_k` of them, each of which takes 8 bytes.

    Beyond, the standard error is 1 / sqrt(2^lg_k): 1.6 % as it is. The same records give the same estimate, whatever the slices.
    """
    return Fold(
        FoldKind.THETA,
        column,
        (("lg_k", _whole(Source.of_caller(), "theta", "lg_k", lg_k, 4, 26)),),
    )


def kll(column: str, rank: float, *, k: int = 200) -> Fold:
    """Estimates a quantile of a numeric column, nulls ignored: `kll("latency", 0.99)`; bigint of whole numbers, else double.

    It is a value that came, whose rank is within 2.3 / k^0.97 of the one asked for in 99 of 100 cases: 1.3 % as it is. Approximate: a
    KLL sketch throws dice, so the same records may give another value. Ranks 0 and 1 are the least and the greatest, and exact.
    """
    source = Source.of_caller()
    if not isinstance(rank, int | float) or isinstance(rank, bool) or not 0 <= rank <= 1:
        raise DeclarationError(
            f"{source}: kll has rank={rank!r}, which is no number from 0 to 1",
            hint='the median is kll("...", 0.5)',
        )
    return Fold(
        FoldKind.KLL,
        column,
        (("rank", float(rank)), ("k", _whole(source, "kll", "k", k, 8, 65_535))),
    )


def overflow_column(column: str) -> str:
    """Where a table says of a set that it has more values than are kept."""
    return f"{column}_overflow"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much of a table may differ between the build that serves and a candidate, as shares of the old rows; None is no limit."""

    max_added: float | None = None
    max_removed: float | None = None
    max_changed: float | None = None


@dataclass(frozen=True, slots=True, init=False)
class Table:
    """A serving table.

    `keys` and `fold` belong together: one row per key, each other column folded, or all of them by `ordered(...)`. With
    neither, rows are appended as the function returns them. `latest=TOPIC` keeps the newest value per Kafka key of that
    topic (a tombstone deletes), and `emitted` declares, in DDL, the columns of rows that an ordered fold emits; both take
    nothing from the function. `checks` are SQL conditions that must be true of every row before a candidate is
    promoted; null counts as false. `max_added`, `max_removed` and `max_changed` are the largest shares (0 to 1) of the rows
    that serve which a candidate may add, remove and change at equal offsets, and still be promoted.
    """

    name: str
    keys: tuple[str, ...]
    fold: Mapping[str, Fold]
    ordered: Ordered | None
    latest: Topic | None
    emitted: tuple[Column, ...]
    checks: tuple[str, ...]
    thresholds: Thresholds
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str,
        *,
        keys: Sequence[str] = (),
        fold: Mapping[str, Fold] | Ordered | None = None,
        latest: Topic | None = None,
        emitted: str | None = None,
        checks: Sequence[str] = (),
        max_added: float | None = None,
        max_removed: float | None = None,
        max_changed: float | None = None,
    ) -> None:
        source = Source.of_caller()
        _check_name(source, "table", name)
        keys = _words(source, name, "keys", keys)
        checks = _words(source, name, "checks", checks)
        step = fold if isinstance(fold, Ordered) else None
        fold = {} if fold is None or isinstance(fold, Ordered) else dict(fold)
        if emitted is not None and (keys or fold or step is not None or latest is not None):
            raise DeclarationError(
                f"{source}: table {name} is emitted, and its rows are appended as they come",
                hint="leave keys, fold and latest out",
            )
        if latest is not None and (keys or fold or step is not None):
            raise DeclarationError(
                f"{source}: table {name} has both latest and {'keys' if keys else 'fold'}",
                hint="latest takes its key from the topic: leave keys and fold out",
            )
        if latest is not None and not isinstance(latest, Topic):
            raise DeclarationError(
                f"{source}: table {name} is the latest of {latest!r}, which is no Topic"
            )
        if latest is not None and latest.key is None:
            raise DeclarationError(
                f"{source}: table {name} is the latest of topic {latest.name}, which has no key",
                hint=f"declare Topic({latest.name!r}, key=...)",
            )
        if keys and not fold and step is None:
            raise DeclarationError(
                f"{source}: table {name} has keys and no fold",
                hint='say how rows of one key are folded: fold={"rows": count()}',
            )
        if (fold or step is not None) and not keys:
            raise DeclarationError(
                f"{source}: table {name} has a fold and no keys",
                hint="say what the rows are grouped by: keys=(...)",
            )
        for column, how in fold.items():
            if not isinstance(how, Fold):
                raise DeclarationError(
                    f"{source}: table {name} folds column {column} by {how!r}, which is no fold",
                    hint="use count(), sum_(...), min_(...), max_(...), and_(...), or_(...), first(...), latest(...), set_(...), top_k(...), hll(...), theta(...) or kll(...)",
                )
        state = [] if step is None else [column.name for column in step.state]
        for column in (*keys, *fold, *state):
            if not isinstance(column, str) or not column or column.startswith("_"):
                raise DeclarationError(
                    f"{source}: table {name} has a column named {column!r}",
                    hint="a leading underscore marks the platform's own columns",
                )
        served = [
            *keys,
            *fold,
            *state,
            *(overflow_column(column) for column, how in fold.items() if how.kind is FoldKind.SET),
        ]
        twice = sorted({c for c in served if served.count(c) > 1})
        if twice:
            raise DeclarationError(f"{source}: table {name} has column {twice[0]} twice")
        for threshold, share in (
            ("max_added", max_added),
            ("max_removed", max_removed),
            ("max_changed", max_changed),
        ):
            _check_share(source, name, threshold, share)
        if max_changed is not None and not keys and latest is None:
            raise DeclarationError(
                f"{source}: table {name} has max_changed and no keys, so no row of it is ever the changed one of another",
                hint="use max_added and max_removed",
            )
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "keys", keys)
        set_field(self, "fold", fold)
        set_field(self, "ordered", step)
        set_field(self, "latest", latest)
        set_field(
            self,
            "emitted",
            () if emitted is None else plain_columns(source, f"table {name}", emitted),
        )
        set_field(self, "checks", checks)
        set_field(self, "thresholds", Thresholds(max_added, max_removed, max_changed))
        set_field(self, "source", source)

    @property
    def appends(self) -> bool:
        """True where rows are only ever added."""
        return not self.keys and self.latest is None

    @property
    def by_order(self) -> bool:
        """True where a fold of it goes by the log's order."""
        return any(fold.kind.by_order for fold in self.fold.values())


@dataclass(frozen=True, slots=True, init=False)
class View:
    """A named SQL query (DuckDB's) over the pipeline's own tables, computed at reading: joins and averages belong here."""

    name: str
    sql: str
    source: Source = field(compare=False)

    def __init__(self, name: str, sql: str) -> None:
        source = Source.of_caller()
        _check_name(source, "view", name)
        if not isinstance(sql, str) or not sql.strip():
            raise DeclarationError(f"{source}: view {name} has no query")
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "sql", sql.strip().rstrip(";"))
        set_field(self, "source", source)


def _check_name(source: Source, what: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(
            f"{source}: {name!r} is no name of a {what}",
            hint="use lower case letters, digits and underscores, a letter first",
        )
    if name == REJECTS:
        raise DeclarationError(
            f"{source}: the name {REJECTS} belongs to the platform",
            hint=f"choose another name for the {what}",
        )


def _check_share(source: Source, table: str, threshold: str, share: object) -> None:
    if share is None:
        return
    # True is a number to Python; NaN is between no two numbers, and would never be exceeded.
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise DeclarationError(
            f"{source}: table {table} has {threshold}={share!r}, which is no share of its rows",
            hint=f"give a number from 0 to 1: {threshold}=0.05 is 5 %",
        )


def _whole(source: Source, fold: str, option: str, number: object, least: int, most: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise DeclarationError(
            f"{source}: {fold} has {option}={number!r}",
            hint=f"give a whole number from {least} to {most}",
        )
    return number


def _words(source: Source, table: str, what: str, words: Sequence[str]) -> tuple[str, ...]:
    # A lone string is a sequence of letters: the commonest slip with tuples of one.
    if isinstance(words, str):
        raise DeclarationError(
            f"{source}: table {table} has {what}={words!r}", hint=f"write {what}=({words!r},)"
        )
    return tuple(words)
