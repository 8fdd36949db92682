"""Serving tables, declared by a pipeline's file. Pure.

A table is of one of five kinds: append-only (no keys), folded (keys and fold), latest, emitted, or
from a file. A latest table contains the newest value for each Kafka key of a topic. An emitted
table contains the rows that another table's ordered fold emits. The public name of a table is
stable; the data of a table belong to a single build.

A row expires when the log's clock is later than the row's time plus a duration
(kappa/state/log_clock.py). The clock depends only on the topics' logs, so rows expire in the same
way in every replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, isfunction, signature

from msgspec import Struct

from kappa.base.errors import DeclarationError, did_you_mean
from kappa.base.source import Source
from kappa.base.units import exact_duration, parse_duration
from kappa.declare.folds.fold import Fold
from kappa.declare.options import (
    Thresholds,
    check_name,
    describe_value,
    option_text,
    thresholds_of,
    words_of,
)
from kappa.declare.ordered_fold import Ordered, plain_columns
from kappa.declare.seed import SeedFile, seed_file
from kappa.declare.topic import Topic
from kappa.declare.values.columns import Column, Scalar


@dataclass(frozen=True, slots=True, init=False)
class Table:
    """A serving table. The function returns its rows under `name`, and queries use the same name.

    With `keys` and `fold`, the table contains one row per key. `fold` maps each other column to the
    fold of this column, or is `ordered(...)`, which folds all columns. Without `keys` and `fold`,
    rows are appended as the function returns them: they never change, and two equal rows remain two
    rows. With `latest=TOPIC`, the table contains the newest value for each Kafka key of that topic;
    a tombstone deletes the key. `emitted` declares, in DDL, the columns of the rows that an ordered
    fold emits. `file` is the path of a CSV file of the project, relative to the file that declares
    the table. The table then contains the rows of the CSV file at every frontier, and a changed CSV
    file is a new version. `columns` declares, in DDL, the types of the CSV file's columns; without
    `columns`, the types are inferred from the values. With `keys`, no two rows of the CSV file may
    have the same keys. The function returns no rows for latest, emitted and file tables.

    `checks` are SQL conditions. A candidate is promoted only if all checks are true for every row;
    a check that is null counts as false. Like a view, a check can use the pipeline's own tables and
    views, but no clock, no random function and no file. `max_added`, `max_removed` and
    `max_changed` are shares (0 to 1) of the live build's rows. A candidate is promoted only if, at
    equal offsets, it adds, removes and changes at most these shares of the rows.

    `expire` and `after` limit the lifetime of rows. `expire` names a timestamp column, and `after`
    is a duration: a row is removed when the log's clock is later than the timestamp by more than
    `after`. The clock is the least log time over all partitions of the retained topics that the
    pipeline reads. In a folded table, the timestamp column must be a key. A record becomes a reject
    (`expired`) if it contributes to a row that has already expired by the log time of the record's
    own partition. The rows that the function returns for the table must include `_log_time`,
    `_topic`, `_partition` and `_offset`.

    Example:
        Table(
            "page_visits",
            keys=("page",),
            fold={"visits": count(), "mean_ms": avg_("ms")},
            checks=["visits > 0"],
            max_removed=0.1,
        )
        Table("rates", file="rates.csv", keys=("currency",), columns="currency string, rate double")
        Table("slow_visits", expire="happened_at", after="7 days")
    """

    name: str
    keys: tuple[str, ...]
    fold: Mapping[str, Fold]
    ordered: Ordered | None
    latest: Topic | None
    emitted: tuple[Column, ...]
    file: SeedFile | None
    checks: tuple[str, ...]
    thresholds: Thresholds
    expiry: Expiry | None
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str,
        *,
        keys: Sequence[str] = (),
        fold: Mapping[str, Fold] | Ordered | None = None,
        latest: Topic | None = None,
        emitted: str | None = None,
        file: str | None = None,
        columns: str | None = None,
        expire: str | None = None,
        after: str | None = None,
        checks: Sequence[str] = (),
        max_added: float | None = None,
        max_removed: float | None = None,
        max_changed: float | None = None,
    ) -> None:
        source = Source.of_caller()
        check_name(source, "table", name)
        keys = words_of(f"{source}: table {name}", "keys", keys, '("id",)')
        checks = words_of(f"{source}: table {name}", "checks", checks, '["visits > 0"]')
        step = fold if isinstance(fold, Ordered) else None
        fold = (
            {} if fold is None or isinstance(fold, Ordered) else _checked_folds(source, name, fold)
        )
        if file is not None and (
            fold or step is not None or latest is not None or emitted is not None
        ):
            raise DeclarationError(
                f"{source}: table {name} has the rows of a file, and takes no others",
                hint="leave fold, latest and emitted out",
            )
        if columns is not None and file is None:
            raise DeclarationError(
                f"{source}: table {name} has columns, and no file whose columns they are",
                hint='name the file: file="rates.csv"; or leave columns out',
            )
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
                f"{source}: table {name} is the latest of {describe_value(latest)}, which is no "
                "Topic",
                hint="give a topic that has a key: latest=TOPIC",
            )
        if latest is not None and latest.key is None:
            raise DeclarationError(
                f"{source}: table {name} is the latest of topic {latest.name}, which has no key",
                hint=f"declare Topic({latest.name!r}, key=...)",
            )
        if keys and not fold and step is None and file is None:
            raise DeclarationError(
                f"{source}: table {name} has keys and no fold",
                hint='say how rows of one key are folded: fold={"rows": count()}',
            )
        if (fold or step is not None) and not keys:
            raise DeclarationError(
                f"{source}: table {name} has a fold and no keys",
                hint="say what the rows are grouped by: keys=(...)",
            )
        state = () if step is None else step.state_names
        # A sequence has a column of the platform's own, and `ordered` has checked a step's columns.
        folded = state if step is not None and step.sessions is not None else ()
        for column in (*keys, *fold, *folded):
            if not isinstance(column, str) or not column or column.startswith("_"):
                raise DeclarationError(
                    f"{source}: table {name} has a column named {describe_value(column)}",
                    hint="a leading underscore marks the platform's own columns",
                )
        served = [
            *keys,
            *fold,
            *state,
            *(column for name, how in fold.items() for column in how.extra_columns(name)),
        ]
        twice = sorted({c for c in served if served.count(c) > 1})
        if twice:
            raise DeclarationError(f"{source}: table {name} has column {twice[0]} twice")
        expiry = expiry_of(f"{source}: table {name}", expire, after)
        if expiry is not None:
            _check_expiry(source, name, expiry, keys if fold else (), latest)
        if expiry is not None and not (step is None and emitted is None and file is None):
            how = "folded by a step" if step else "of a file" if file else "emitted"
            raise DeclarationError(
                f"{source}: table {name} is {how}, and its rows cannot expire",
                hint="leave expire and after out; rows of other tables can expire",
            )
        thresholds = thresholds_of(
            f"{source}: table {name}",
            max_added,
            max_removed,
            max_changed,
            keyed=bool(keys) or latest is not None,
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
        seed = (
            None
            if file is None
            else seed_file(source, f"{source}: table {name}", file, columns, keys)
        )
        set_field(self, "file", seed)
        set_field(self, "checks", checks)
        set_field(self, "thresholds", thresholds)
        set_field(self, "expiry", expiry)
        set_field(self, "source", source)

    @property
    def is_append_only(self) -> bool:
        """Returns True if rows are only added to the table, and no fold changes or deletes them."""
        return not self.keys and self.latest is None and self.file is None

    @property
    def is_returned(self) -> bool:
        """Returns True if the pipeline's function returns the table's rows."""
        return self.latest is None and not self.emitted and self.file is None

    @property
    def by_order(self) -> bool:
        """Returns True if a fold, a step or the expiry of the table's rows needs their log time."""
        is_woken = self.ordered is not None and self.ordered.on_time is not None
        return is_woken or self.refuses_expired or any(fold.by_order for fold in self.fold.values())

    @property
    def refuses_expired(self) -> bool:
        """Returns True if the expiry of this table's rows can cause rejects.

        A record is rejected if its row in this table has already expired.
        """
        return self.expiry is not None and self.latest is None


def check_emitted(pipeline: str, tables: tuple[Table, ...]) -> None:
    """Raises DeclarationError if ordered folds and emitted tables do not match.

    Exactly one ordered fold must emit into each emitted table. An ordered fold must not emit into a
    table that is not declared, and an emitted table of sessions must not have a column that
    sessions do not have.
    """
    emitters = {
        table.name: table.ordered.emits
        for table in tables
        if table.ordered is not None and table.ordered.emits is not None
    }
    takers = {table.name: table for table in tables if table.emitted}
    for table in tables:
        if table.name in emitters and emitters[table.name] not in takers:
            raise DeclarationError(
                f"{table.source}: table {table.name} emits rows into {emitters[table.name]}, "
                f"which pipeline {pipeline} does not write so",
                hint=f'add Table({emitters[table.name]!r}, emitted="...") to writes, '
                "with the columns of what is emitted",
            )
    for name, taker in takers.items():
        found = [emitter for emitter, into in emitters.items() if into == name]
        if len(found) != 1:
            by = f"by {' and by '.join(found)}" if found else "by no ordered fold"
            raise DeclarationError(
                f"{taker.source}: table {name} is emitted {by}",
                hint=f"one fold emits into it: fold=ordered(step, state=..., emits={name!r})",
            )
    for table in tables:
        if table.ordered is not None and table.ordered.sessions is not None and table.ordered.emits:
            _check_sessions(takers[table.ordered.emits], table, table.ordered)


def _check_sessions(taker: Table, table: Table, ordered: Ordered) -> None:
    """Raises DeclarationError if a table of emitted sessions has a column that sessions lack.

    `table` is the table that receives the sessions which the ordered fold of `taker` emits.
    """
    given = (*table.keys, *ordered.state_names)
    for column in taker.emitted:
        if column.name not in given:
            raise DeclarationError(
                f"{taker.source}: table {taker.name} has column {column.name}, which sessions of "
                f"table {table.name} do not have",
                hint=f"{did_you_mean(column.name, given)} they have {', '.join(given)}".lstrip(),
            )


def _check_expiry(
    source: Source, table: str, expiry: Expiry, keys: tuple[str, ...], latest: Topic | None
) -> None:
    expires = f"{source}: table {table} has expire={expiry.column!r}"
    if keys and expiry.column not in keys:
        raise DeclarationError(
            f"{expires}, which is not one of its keys: a row's time may not change while the row is"
            " folded",
            hint="name a key that is a timestamp, as the beginning of a window is;"
            f" its keys are {', '.join(keys)}",
        )
    if latest is None:
        return
    found = next((each for each in latest.columns if each.name == expiry.column), None)
    if found is None:
        raise DeclarationError(
            f"{expires}, and topic {latest.name} has no such column",
            hint=f"its columns are {', '.join(each.name for each in latest.columns)}",
        )
    if found.type != Scalar("timestamp"):
        raise DeclarationError(
            f"{expires}, which is of type {found.type} and no timestamp",
            hint=f"declare {expiry.column} timestamp in the event of topic {latest.name}",
        )


def _checked_folds(source: Source, table: str, given: object) -> dict[str, Fold]:
    if not isinstance(given, Mapping):
        raise DeclarationError(
            f"{source}: table {table} has {describe_value(given)} for fold, which names no column",
            hint='name each folded column: fold={"rows": count()}',
        )
    for column, how in given.items():
        folds = f"{source}: table {table} folds column {column}"
        if isfunction(how) and how.__module__.startswith("kappa.declare.folds."):
            needed = [p for p in signature(how).parameters.values() if p.default is Parameter.empty]
            example = ", ".join(('"ms"', "0.5")[: len(needed)])
            raise DeclarationError(
                f"{folds} by {how.__name__}, but {how.__name__} is not called",
                hint=f"write {how.__name__}({example})",
            )
        if not isinstance(how, Fold):
            raise DeclarationError(
                f"{folds} by {describe_value(how)}, which is not a fold",
                hint=(
                    "Python's own max and min have no underscore; "
                    if isinstance(how, str) and len(how) == 1
                    else ""
                )
                + (
                    "use count(), sum_(...), avg_(...), min_(...), max_(...), and_(...), "
                    "or_(...), first(...), latest(...), set_(...), count_distinct(...), "
                    "top_k(...), sample(...), hll(...), theta(...) or kll(...)"
                ),
            )
        wrong = [each for each in how.given_columns if not isinstance(each, str)]
        if wrong:
            raise DeclarationError(
                f"{folds} by {how.kind} of {describe_value(wrong[0])}, which is not the name of a "
                "column",
                hint='give the name of a column of the rows as text, as in sum_("ms")',
            )
    return dict(given)


# Longer than any log is kept. With this limit no sum of microseconds leaves its range.
_LONGEST_DAYS = 36_500
_DAY_MS = 86_400_000
# The first time of the year 1, and the last that Spark and DuckDB have, in microseconds since 1970.
_FIRST, _LAST = -62_135_596_800_000_000, 2**63 - 2


class Expiry(Struct, frozen=True):
    """The expiry of a table's rows.

    `column` contains the time of a row. The row expires `after_ms` milliseconds after this time.
    """

    column: str
    after_ms: int

    def __str__(self) -> str:
        return f"rows are gone {exact_duration(self.after_ms)} after {self.column}"

    def least_kept(self, clock_ms: int) -> int | None:
        """Returns the earliest time that a row which has not expired can contain in `column`.

        `clock_ms` is the log's clock in milliseconds since 1970, and the result is in microseconds
        since 1970. Returns None if no row has expired, because this time would be before the year
        1.
        """
        least = min(1000 * (clock_ms - self.after_ms), _LAST)
        return None if least < _FIRST else least


def expiry_of(where: str, expire: object, after: object) -> Expiry | None:
    """Checks the options `expire` and `after`, and returns the expiry, or None if not declared.

    Raises DeclarationError, with a message that begins with `where`, if an option is not valid, or
    if only one of the two options is given.
    """
    if expire is None and after is None:
        return None
    if expire is None or after is None:
        declared, missing = (
            ("after", 'expire="happened_at"') if expire is None else ("expire", 'after="7 days"')
        )
        raise DeclarationError(f"{where} declares {declared} alone", hint=f"say both: {missing}")
    if not isinstance(expire, str) or not expire or expire.startswith("_"):
        raise DeclarationError(
            f"{where} has expire={option_text(expire)}, which is not a column of its rows",
            hint='name the column that has the time of a row: expire="happened_at"',
        )
    span = parse_duration(after)
    if span is None:
        raise DeclarationError(
            f"{where} has after={describe_value(after)}, which is not a duration",
            hint='say it like "90 minutes", "12 hours" or "7 days"',
        )
    if span > _LONGEST_DAYS * _DAY_MS:
        raise DeclarationError(
            f"{where} has after={after!r}, which is longer than a log is kept",
            hint=f"say at most {_LONGEST_DAYS} days, or leave expire and after out",
        )
    return Expiry(expire, span)
