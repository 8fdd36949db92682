"""Sequences: an ordered fold that finds patterns in the rows of a key. Pure.

A *run* is a pattern that has begun in the rows of a key but has not ended yet. The state stores for
each run which part of the pattern the run has reached, the number of rows that match this part so
far, and the values that the conditions have kept. Each row may begin a run, advance a run, or be
skipped. If several runs have reached the same position in the pattern, only the run that began last
is kept. This is sufficient: the kept run ends at every row at which an earlier run would end, and
its time limit is later. So the state of a key has at most two runs for each row that a pattern
needs, however many rows the key has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import CodeType
from typing import Any

from kappa.base.errors import Broken, DeclarationError
from kappa.base.source import Source
from kappa.base.units import exact_duration, parse_duration
from kappa.declare.options import describe_value, option_text
from kappa.declare.ordered_fold import Ordered, Over, plain_columns
from kappa.declare.values.columns import PLAIN_NAME, Column, Scalar, parse_type

# Gets a row, and the values that the run has kept if the function takes two arguments.
Judge = Callable[..., Any]
Run = dict[str, Any]
_ROWS_SEEN, _WAKE_AT = "rows_seen", "wake_at"
# Readers do not see this column.
_RUNS = "_runs"
_STATE = (_ROWS_SEEN, _RUNS, _WAKE_AT)
_MOST_TIMES = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Condition:
    """A user's function that decides whether a row matches a part of a sequence.

    If `is_given_kept` is True, the function also receives the values that were kept so far.
    """

    judge: Judge
    is_given_kept: bool

    @property
    def place(self) -> tuple[str, str]:
        """Returns the module and the name of the user's function."""
        return self.judge.__module__, self.judge.__qualname__

    def __str__(self) -> str:
        return self.judge.__qualname__


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a sequence: `times` rows of a key for which a condition is true."""

    condition: Condition
    times: int = 1
    is_optional: bool = False
    is_direct: bool = False

    def __str__(self) -> str:
        times = "" if self.times == 1 else f" {self.times} times"
        return (
            f"{'directly ' if self.is_direct else ''}{self.condition}{times}"
            f"{' or not' if self.is_optional else ''}"
        )


@dataclass(frozen=True, slots=True)
class Absence:
    """Rows that must not occur between two parts of a sequence, or after its last part.

    After the last part, the absence lasts for `lasting_ms`, in milliseconds of log time. Between
    two parts, `lasting_ms` is None, and the absence ends with the next part's row.
    """

    condition: Condition
    lasting_ms: int | None = None

    def __str__(self) -> str:
        lasting = "" if self.lasting_ms is None else f" for {exact_duration(self.lasting_ms)}"
        return f"no {self.condition}{lasting}"


def follows(
    condition: Judge, *, times: int = 1, optional: bool = False, directly: bool = False
) -> Part:
    """Declares a part of a sequence: `times` rows for which `condition` is true.

    Other rows may come before and between these rows. With `directly`, each of these rows must come
    directly after the previous row of the match. An `optional` part may be missing; if its rows
    occur, they become part of the match where possible. Raises DeclarationError, with the user's
    line, if the declaration is not valid.

    Example:
        def looked(row):
            return row["page"] == "/pricing"

        def left(row):
            return row["page"] == "/goodbye"

        sequence(follows(looked, times=3), left, within="10 minutes", emits="doubters")
    """
    source = Source.of_caller()
    if type(times) is not int or not 1 <= times <= _MOST_TIMES:
        raise DeclarationError(
            f"{source}: a part of a sequence has times={option_text(times)}",
            hint=f"times is a whole number from 1 to {_MOST_TIMES}",
        )
    return Part(_condition(source, condition), times, bool(optional), bool(directly))


def absent(condition: Judge, *, lasting: str | None = None) -> Absence:
    """Declares that no row for which `condition` is true may occur at this place in a sequence.

    Between two parts, no such row may occur after the last row of the first part. At the end of a
    sequence, no such row may occur for the duration `lasting`: the match ends when this much log
    time has passed, even without a further row of the key. Raises DeclarationError, with the user's
    line, if the declaration is not valid.

    Example:
        def filled_cart(row):
            return row["page"] == "/cart"

        def paid(row):
            return row["page"] == "/paid"

        sequence(filled_cart, absent(paid, lasting="1 hour"), emits="left_carts")
    """
    source = Source.of_caller()
    lasting_ms = None if lasting is None else _duration_ms(source, "lasting", lasting)
    return Absence(_condition(source, condition), lasting_ms)


def sequence(
    *parts: Judge | Part | Absence,
    emits: str,
    within: str | None = None,
    without: Judge | None = None,
    keeps: str | None = None,
) -> Ordered:
    """Finds rows of one key that follow one another in the log, and emits a row for each match.

    The `parts` are conditions, or results of `follows` or `absent`. A condition is a function at
    the top level of a file. The function receives a row, which is a mapping, and returns True if
    the row belongs to the match. If the condition returns a mapping, the row belongs to the match
    too, and the values of that mapping are kept for the match; `keeps` declares the columns of
    these values. A condition with two parameters also receives the values kept so far. For each
    match, a row with the key and all kept values is added to the table `emits`.

    The time between the first and the last row of a match is at most `within`. No row for which
    `without` is true may be skipped between the first and the last row. A match ends as early as
    possible, and begins as late as possible. After a match, the next match begins after the last
    row of that match. All times are log times: the greatest timestamp so far in the key's
    partition. The rows must have `_log_time`, `_topic`, `_partition` and `_offset`. In addition to
    its keys, the table with this fold contains two columns: `rows_seen` is the number of the key's
    rows, and `wake_at` is the end of an absence that is in progress. Raises DeclarationError, with
    the user's line, if the declaration is not valid.

    Example:
        def looked(row):
            return row["page"] == "/pricing"

        def bought(row):
            return {"bought_at": row["_timestamp"]} if row["page"] == "/paid" else None

        Table(
            "lookers",
            keys=("visitor",),
            fold=sequence(
                follows(looked, times=3),
                bought,
                within="1 day",
                keeps="bought_at timestamp",
                emits="slow_buyers",
            ),
        )
        Table("slow_buyers", emitted="visitor string, bought_at timestamp")
    """
    source = Source.of_caller()
    steps, gaps, ending = _parts_of(source, parts)
    if not isinstance(emits, str):
        raise DeclarationError(
            f"{source}: a sequence emits {describe_value(emits)}, which is no name",
            hint='give the table of the matches by its name: emits="break_ins"',
        )
    columns = () if keeps is None else plain_columns(source, "what a sequence keeps", keeps)
    for column in columns:
        if not PLAIN_NAME.fullmatch(column.name):
            raise DeclarationError(
                f"{source}: a sequence keeps {column.name}, which is no name of a kept value",
                hint="name it by letters, digits and underscores, and rename it in a view",
            )
    fields = ", ".join(f"{column.name}: {column.type}" for column in columns)
    kept = f", kept: struct<{fields}>" if columns else ""
    runs = (
        "array<struct<part: int, times: int, is_next: boolean, began: bigint, began_ms: bigint"
        f"{kept}>>"
    )
    state = (
        Column(_ROWS_SEEN, Scalar("bigint")),
        Column(_WAKE_AT, Scalar("timestamp")),
        Column(_RUNS, parse_type(runs)),
    )
    step = SequenceStep(
        steps,
        gaps,
        None if without is None else _condition(source, without),
        None if within is None else _duration_ms(source, "within", within),
        ending,
        columns,
    )
    return SequenceFold(step, state, emits, Over.ROW, _WAKE_AT, sequence=step)


@dataclass(frozen=True)
class SequenceStep:
    """The step of a sequence, which the ordered fold calls with each row of a key.

    The step finds matches of the sequence. Its state contains the *runs* of the key: matches that
    have begun but are not complete. `gaps` contains, for each part, the absences after this part.
    `lasting_ms` is the duration of the absence at the end of the sequence, or None if there is no
    such absence.
    """

    parts: tuple[Part, ...]
    gaps: tuple[tuple[Absence, ...], ...]
    without: Condition | None
    within_ms: int | None
    lasting_ms: int | None
    kept: tuple[Column, ...]

    @property
    def declared_at(self) -> tuple[Path, int]:
        """Returns the file and the line of the sequence's first condition, for errors."""
        code: CodeType = self.parts[0].condition.judge.__code__
        return Path(code.co_filename), code.co_firstlineno

    @property
    def conditions(self) -> Iterator[Condition]:
        """Yields all conditions of the sequence."""
        yield from (part.condition for part in self.parts)
        yield from (absence.condition for gap in self.gaps for absence in gap)
        if self.without is not None:
            yield self.without

    def __str__(self) -> str:
        elements = [
            str(each)
            for part, gap in zip(self.parts, self.gaps, strict=True)
            for each in (part, *gap)
        ]
        if self.within_ms is not None:
            elements.append(f"within {exact_duration(self.within_ms)}")
        if self.without is not None:
            elements.append(f"without {self.without}")
        return ", ".join(elements)

    def __call__(self, state: dict[str, Any], row: Mapping[str, Any] | None) -> list[Run]:
        """Processes a row of a key. Returns a list with the match that ends with this row.

        The list is empty if no match ends. A match that has begun is a run: the row may begin runs,
        and may advance runs that are in `state`. `row` is None if the step is woken, because the
        absence at the end of the sequence has lasted long enough.
        """
        runs: list[Run] = state[_RUNS] or []
        if row is None:
            return self._end(state, next(filter(self._is_complete, runs)))
        state[_ROWS_SEEN] = number = (state[_ROWS_SEEN] or 0) + 1
        now = row["_log_time"]
        within = self.within_ms
        if within is not None:
            runs = [r for r in runs if now - r["began_ms"] <= within or self._is_complete(r)]
        taken = self._take(runs, row, number)
        if self.lasting_ms is None:
            ended = next(filter(self._is_complete, taken), None)
            if ended is not None:
                return self._end(state, ended)
        left = self._furthest([*self._skip(runs, row), *taken])
        state[_RUNS] = left or None
        waiting = next(filter(self._is_complete, left), None)
        if waiting is None:
            state[_WAKE_AT] = None
        elif self.lasting_ms is not None and any(waiting is each for each in taken):
            state[_WAKE_AT] = _EPOCH + timedelta(milliseconds=now + self.lasting_ms + 1)
        return []

    def _end(self, state: dict[str, Any], run: Run) -> list[Run]:
        """Returns a list with the match of a complete run, and deletes all runs of the key.

        A run is a match that has begun. All deleted runs began before the end of the match, so none
        of them can become the next match.
        """
        state[_RUNS] = state[_WAKE_AT] = None
        key = {name: value for name, value in state.items() if name not in _STATE}
        return [{**(run.get("kept") or {}), **key}]

    def _take(self, runs: Sequence[Run], row: Mapping[str, Any], number: int) -> list[Run]:
        """Returns the runs that the row begins or advances, one for each position at most.

        A run is a match that has begun, and its position is the place in the sequence that it has
        reached. Of several runs that would reach the same position, the best run is returned: the
        run that began last, or, among runs that began at the same row, the run that was furthest in
        the sequence. The result is sorted, the best run first. `number` is the number of the row
        among the rows of the key.
        """
        taken: dict[tuple[int, int], Run] = {}
        first = {"part": -1, "began": number, "began_ms": row["_log_time"]}
        best = sorted(runs, key=lambda r: (r["began"], r["part"], r["times"]), reverse=True)
        for run in (first, *best):
            for part, times in self._next_places(run):
                if (part, times) in taken or (
                    self.parts[part].is_direct and run is not first and not run["is_next"]
                ):
                    continue
                condition = self.parts[part].condition
                judged = self._judge(condition, row, run)
                if isinstance(judged, Mapping) or judged:
                    after = {**run, "part": part, "times": times, "is_next": True}
                    if self.kept:
                        after["kept"] = self._keep(condition, run, judged)
                    taken[part, times] = after
        return sorted(
            taken.values(), key=lambda r: (r["began"], r["part"], r["times"]), reverse=True
        )

    def _skip(self, runs: Sequence[Run], row: Mapping[str, Any]) -> Iterator[Run]:
        """Yields the runs (the matches that have begun) for which the row may be skipped.

        Runs for which the previous row was also skipped come first.
        """
        for run in sorted(runs, key=lambda r: r["is_next"]):
            part, is_full = run["part"], run["times"] == self.parts[run["part"]].times
            absences = [each.condition for each in self.gaps[part]] if is_full else []
            if self.without is not None:
                absences.append(self.without)
            may_wait = self._is_complete(run) or any(
                not self.parts[place].is_direct for place, _ in self._next_places(run)
            )
            if may_wait and not any(self._judge(each, row, run) for each in absences):
                yield {**run, "is_next": False}

    def _furthest(self, runs: Iterable[Run]) -> list[Run]:
        """Returns one run for each position in the sequence: the run that began last.

        A run is a match that has begun. Of several runs that began at the same row, the first one
        in `runs` is returned. Of several complete runs, the first one is returned too, because its
        absence at the end began first.
        """
        best: dict[tuple[int, int, bool], Run] = {}
        for run in runs:
            if run["is_next"] and not any(
                self.parts[part].is_direct for part, _ in self._next_places(run)
            ):
                run["is_next"] = False
            place = run["part"], run["times"], run["is_next"]
            other = best.get(place)
            if other is None or (run["began"] > other["began"] and not self._is_complete(run)):
                best[place] = run
        return list(best.values())

    def _next_places(self, run: Run) -> list[tuple[int, int]]:
        """Returns the positions in the sequence to which the next row may advance a run.

        A run is a match that has begun. A position is `(part, times)`: the number of the part, from
        0, and the number of rows that match this part once the run has advanced.
        """
        part = run["part"]
        if part >= 0 and run["times"] < self.parts[part].times:
            return [(part, run["times"] + 1)]
        places = []
        for number in range(part + 1, len(self.parts)):
            places.append((number, 1))
            if not self.parts[number].is_optional:
                break
        return places

    def _is_complete(self, run: Run) -> bool:
        last = len(self.parts) - 1
        return bool(run["part"] == last and run["times"] == self.parts[last].times)

    def _judge(self, condition: Condition, row: Mapping[str, Any], run: Run) -> Any:
        if not condition.is_given_kept:
            return condition.judge(row)
        return condition.judge(row, dict(run.get("kept") or self._kept_nothing()))

    def _kept_nothing(self) -> dict[str, Any]:
        return dict.fromkeys(column.name for column in self.kept)

    def _keep(self, condition: Condition, run: Run, judged: Any) -> dict[str, Any]:
        """Returns the values that a run keeps after a row that has matched `condition`.

        A run is a match that has begun. `judged` is what `condition` returned for the row. Raises
        Broken if `judged` contains a value that the sequence does not declare.
        """
        kept = run.get("kept") or self._kept_nothing()
        if not isinstance(judged, Mapping):
            return kept
        more = sorted(map(str, judged.keys() - kept.keys()))
        if more:
            raise Broken(
                f"the condition {condition} keeps {', '.join(more)}, which the sequence does not"
                " declare",
                hint=f'declare each with its type: sequence(..., keeps="{more[0]} string")',
            )
        return {**kept, **judged}


@dataclass(frozen=True, slots=True)
class SequenceFold(Ordered):
    """The declaration of an ordered fold whose step finds a sequence of rows."""

    sequence: SequenceStep | None = None

    @property
    def code_places(self) -> tuple[tuple[str, str], ...]:
        """Returns (module, name) for each condition of the sequence.

        The conditions are functions of the user.
        """
        assert self.sequence is not None
        return tuple(dict.fromkeys(each.place for each in self.sequence.conditions))

    def __str__(self) -> str:
        kept = ", ".join(map(str, self.sequence.kept)) if self.sequence is not None else ""
        return f"sequence({self.sequence}{kept and f', keeps {kept}'}, emits {self.emits})"


def _parts_of(
    source: Source, given: Sequence[Any]
) -> tuple[tuple[Part, ...], tuple[tuple[Absence, ...], ...], int | None]:
    """Returns the parts of a sequence, the absences after each part, and the last duration.

    The last duration is that of the absence at the end of the sequence, in milliseconds, or None if
    the sequence does not end with an absence. Raises DeclarationError if the elements do not form a
    valid sequence.
    """
    parts: list[Part] = []
    gaps: list[list[Absence]] = []
    for each in given:
        if isinstance(each, Absence):
            if not parts:
                raise DeclarationError(
                    f"{source}: a sequence begins with an absence",
                    hint="let it begin with a row: sequence(ordered, absent(paid, ...), ...)",
                )
            gaps[-1].append(each)
        else:
            parts.append(each if isinstance(each, Part) else Part(_condition(source, each)))
            gaps.append([])
    if not parts or (len(parts) == 1 and parts[0].times == 1 and not gaps[0]):
        raise DeclarationError(
            f"{source}: a sequence of fewer than two rows has no order",
            hint="give two conditions at least: sequence(failed, entered, ...)",
        )
    for part in (parts[0], parts[-1]):
        if part.is_optional:
            raise DeclarationError(
                f"{source}: {part.condition}, the first or last part of a sequence, is optional",
                hint="a match begins as late as it can and ends as early as it can, so it would"
                " never be taken: leave it out",
            )
    inner = [each for gap in gaps[:-1] for each in gap if each.lasting_ms is not None]
    if inner:
        raise DeclarationError(
            f"{source}: the absence of {inner[0].condition} has lasting, and a part follows it",
            hint="an absence between two parts ends with the next part's row: leave lasting out",
        )
    lasting = {each.lasting_ms for each in gaps[-1]}
    if None in lasting or len(lasting) > 1:
        raise DeclarationError(
            f"{source}: a sequence ends with the absence of {gaps[-1][0].condition}, and nothing"
            " says for how long: no match would end",
            hint='say one time for what is absent at the end: absent(paid, lasting="1 hour")',
        )
    return tuple(parts), tuple(map(tuple, gaps)), next(iter(lasting), None)


def _condition(source: Source, judge: Any) -> Condition:
    # Workers import a condition by its name, and the fingerprint follows that name to its code.
    if not inspect.isfunction(judge) or "." in judge.__qualname__ or judge.__name__ == "<lambda>":
        called = getattr(judge, "__qualname__", describe_value(judge))
        raise DeclarationError(
            f"{source}: {called} is not a condition of a sequence",
            hint="give a function at the top level of a file: def failed(row): ...",
        )
    count = len(inspect.signature(judge).parameters)
    if count not in {1, 2}:
        raise DeclarationError(
            f"{source}: the condition {judge.__name__} takes {count} arguments",
            hint="a condition takes a row, or a row and the values kept so far",
        )
    return Condition(judge, count == 2)


def _duration_ms(source: Source, name: str, text: object) -> int:
    found = parse_duration(text)
    if not found:
        raise DeclarationError(
            f"{source}: a sequence has {name}={option_text(text)}, which is not a duration",
            hint='a duration is "5 minutes", "1 hour" or "90s"',
        )
    return found
