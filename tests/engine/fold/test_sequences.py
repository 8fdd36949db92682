"""A sequence finds the matches of its pattern, wherever the log is cut.

`matches_by_hand` looks at all rows of a key at once. It tries every choice of rows, and shares no
code with the step.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rehearsing import Rehearse, memory_log, pass_on

from kappa import Table, Topic, absent, follows, sequence
from kappa.base.errors import Broken
from kappa.declare.sequence import Absence, Part
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import parse_type
from kappa.engine.fold.ordered_fold import OrderedFold, Stepped
from kappa.state.offsets import Offsets
from kappa.tables.shape import table_births

SIGNS = Topic(
    "signs", partitions=1, event="who string not null, id int, sign string, n int", key="who"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGAN = 1_700_000_000_000
SECOND = 1000


def is_a(row: Any, kept: Any) -> Any:
    return keep_path(row, kept) if "a" in row["sign"] else None


def is_b(row: Any, kept: Any) -> Any:
    return keep_path(row, kept) if "b" in row["sign"] else None


def is_c(row: Any, kept: Any) -> Any:
    return keep_path(row, kept) if "c" in row["sign"] else None


def is_x(row: Any) -> bool:
    return "x" in row["sign"]


def keep_path(row: Any, kept: Any) -> dict[str, Any]:
    return {"path": [*(kept["path"] or ()), row["id"]]}


LETTERS = {"is_a": "a", "is_b": "b", "is_c": "c", "is_x": "x"}


class Sign(NamedTuple):
    """A row of the only key. If `sign` is None, it is a record of another key."""

    sign: str | None
    ms: int


@dataclass(frozen=True)
class Pattern:
    """The elements of a sequence, with durations in seconds."""

    elements: tuple[Any, ...]
    within: int | None = None
    without: bool = False

    @property
    def parts(self) -> list[Part]:
        return [
            each if isinstance(each, Part) else follows(each)
            for each in self.elements
            if not isinstance(each, Absence)
        ]

    @property
    def absences(self) -> list[str]:
        """Lists for each part the letters that must not follow it."""
        letters: list[str] = []
        for each in self.elements:
            if isinstance(each, Absence):
                letters[-1] += LETTERS[str(each.condition)]
            else:
                letters.append("")
        return letters

    @property
    def lasting_ms(self) -> int | None:
        last = self.elements[-1]
        return last.lasting_ms if isinstance(last, Absence) else None

    def pipeline(self) -> Any:
        fold = sequence(
            *self.elements,
            within=None if self.within is None else f"{self.within} seconds",
            without=is_x if self.without else None,
            keeps="path array<int>",
            emits="matches",
        )
        return pass_on(
            SIGNS,
            Table("watched", keys=("who",), fold=fold),
            Table("matches", emitted="who string, path array<int>"),
        )


PATTERNS = [
    Pattern((is_a, is_b), within=3),
    Pattern((is_a, is_b)),
    Pattern((follows(is_a, times=3), is_b), within=5),
    Pattern((is_a, follows(is_b, directly=True), is_c), within=6),
    Pattern((follows(is_a, times=2, directly=True), follows(is_b, directly=True)), within=4),
    Pattern((is_a, follows(is_b, optional=True), is_c), within=5),
    Pattern((is_a, follows(is_b, optional=True), follows(is_c, directly=True)), within=5),
    Pattern((is_a, follows(is_b, optional=True, times=2), follows(is_a, optional=True), is_c)),
    Pattern((is_a, absent(is_x), is_b), within=6),
    Pattern((is_a, is_b, is_c), within=6, without=True),
    Pattern((is_a, absent(is_b, lasting="3 seconds"))),
    Pattern((is_a, is_b, absent(is_c, lasting="2 seconds")), within=4),
    Pattern((is_a, absent(is_a, lasting="2 seconds")), without=True),
    Pattern((follows(is_a, times=2), absent(is_x), follows(is_b, times=2, directly=True))),
    Pattern((follows(is_a, times=4),), within=3),
]


def fold_of(pattern: Pattern) -> OrderedFold:
    declared = pattern.pipeline()
    output = {name: parse_type(kind) for name, kind in declared.columns_of(SIGNS)}
    births = table_births(declared, {"watched": output})
    return OrderedFold.of_pipeline(declared, {table.name: table for table in births})[0]


def in_slices(signs: Sequence[Sign], cuts: set[int], fold: OrderedFold) -> list[list[int]]:
    """Folds rows in slices that end at these places. Returns the paths of the matches."""
    held: dict[str, Any] = {}
    found: list[list[int]] = []
    clock = BEGAN
    ends = [cut for cut in sorted(cuts) if cut < len(signs)]
    for start, end in zip([0, *ends], [*ends, len(signs)], strict=True):
        rows = []
        for offset, (sign, ms) in enumerate(signs[start:end], start):
            clock = max(clock, ms)
            if sign is not None:
                place = {"_topic": "signs", "_partition": 0, "_offset": offset}
                times = {"_timestamp": EPOCH + timedelta(milliseconds=ms), "_log_time": clock}
                rows.append({"who": "ann", "id": offset, "sign": sign, **place, **times})
        made = fold.here(
            pa.Table.from_pylist(rows, arrow_schema(fold.table.steps_over)),
            pa.Table.from_pylist([*held.values()], arrow_schema(fold.table.columns)),
            {"signs": {0: clock}},
        ).rows
        held |= {state["who"]: state for state in made["watched"].to_arrow().to_pylist()}
        # No state grows with the log.
        assert all(len(state["_runs"] or ()) <= 12 for state in held.values())
        found += [row["path"] for row in made["matches"].to_arrow().to_pylist()]
    return found


def choices(pattern: Pattern, rows: Sequence[tuple[int, str, int]]) -> Iterator[list[int]]:
    """Yields each choice of rows (as positions) that matches, without the last absence."""
    needed = [
        (number, part, time)
        for number, part in enumerate(pattern.parts)
        for time in range(part.times)
    ]
    optional = [number for number, part in enumerate(pattern.parts) if part.is_optional]
    absences = pattern.absences
    always = "x" if pattern.without else ""

    def extend(path: list[int], rest: list[Any], banned: str) -> Iterator[list[int]]:
        if not rest:
            yield path
            return
        number, part, time = rest[0]
        for place in range(path[-1] + 1 if path else 0, len(rows)):
            _, sign, ms = rows[place]
            began = rows[path[0]][2] if path else ms
            if pattern.within is not None and ms - began > pattern.within * SECOND:
                return
            if LETTERS[str(part.condition)] in sign:
                after = absences[number] if time == part.times - 1 else ""
                yield from extend([*path, place], rest[1:], after + always)
            if path and (part.is_direct or any(each in sign for each in banned)):
                return

    for left in range(1 << len(optional)):
        out = {number for bit, number in enumerate(optional) if left >> bit & 1}
        yield from extend([], [each for each in needed if each[0] not in out], "")


def matches_by_hand(signs: Sequence[Sign], pattern: Pattern) -> Iterator[tuple[set[Any], Any]]:
    """Yields the match that ends first and begins last, after the match before.

    A match consists of all choices of rows that are allowed for it.
    """
    clock, rows = BEGAN, []
    for offset, (sign, ms) in enumerate(signs):
        clock = max(clock, ms)
        if sign is not None:
            rows.append((offset, sign, clock))
    lasting = pattern.lasting_ms
    banned = (pattern.absences[-1] if lasting is not None else "") + "x" * pattern.without
    while True:
        ends: dict[Any, set[Any]] = {}
        for path in choices(pattern, rows):
            end = rows[path[-1]][2] + (lasting or 0)
            if lasting is not None:
                until = [sign for _, sign, ms in rows[path[-1] + 1 :] if ms <= end]
                if clock <= end or any(each in sign for sign in until for each in banned):
                    continue
            best = (end, path[-1], -path[0])
            ends.setdefault(best, set()).add(tuple(rows[place][0] for place in path))
        if not ends:
            return
        end, last, _ = min(ends)
        yield ends[min(ends)], end
        rows = rows[last + 1 :] if lasting is None else [each for each in rows if each[2] > end]


def signs_of(drawn: Sequence[tuple[str | None, int]]) -> list[Sign]:
    ms, signs = BEGAN, []
    for sign, leap in drawn:
        ms += leap
        signs.append(Sign(sign, ms))
    return signs


SOME_SIGNS = ["a", "b", "c", "x", "ab", "bc", "ac", "abc", "cx", "", None]
# Milliseconds; a producer's time may go back.
SOME_LEAPS = [0, 1, 999, 1000, 1001, -500, 3000]
LOGS = st.lists(
    st.tuples(st.sampled_from(SOME_SIGNS), st.sampled_from(SOME_LEAPS)), max_size=14
).map(signs_of)


def assert_found(found: list[list[int]], signs: Sequence[Sign], pattern: Pattern) -> None:
    wanted = [choices for choices, _ in matches_by_hand(signs, pattern)]
    assert len(found) == len(wanted)
    for path, among in zip(found, wanted, strict=True):
        assert tuple(path) in among


@pytest.mark.law
@examples(15)
@pytest.mark.parametrize("pattern", PATTERNS, ids=range(len(PATTERNS)))
@given(LOGS, st.sets(st.integers(0, 14)))
def test_matches_are_those_of_all_choices_of_rows(
    pattern: Pattern, signs: list[Sign], cuts: set[int]
) -> None:
    fold = fold_of(pattern)
    whole = in_slices(signs, set(), fold)

    assert in_slices(signs, cuts, fold) == whole
    assert_found(whole, signs, pattern)


@pytest.mark.parametrize("pattern", PATTERNS, ids=range(len(PATTERNS)))
def test_each_pattern_has_matches_in_a_long_log(pattern: Pattern) -> None:
    draw = random.Random(7)  # the same rows again
    signs = signs_of([(draw.choice(SOME_SIGNS), draw.choice(SOME_LEAPS)) for _ in range(60)])

    found = in_slices(signs, {*range(60)}, fold_of(pattern))
    assert found
    assert_found(found, signs, pattern)


def paths(pattern: Pattern, *signs: str, seconds: Sequence[int] | None = None) -> list[list[int]]:
    times = seconds or range(len(signs))
    log = [Sign(sign, BEGAN + at * SECOND) for sign, at in zip(signs, times, strict=True)]
    return in_slices(log, {*range(len(log))}, fold_of(pattern))


def test_a_match_begins_late_and_takes_the_first_row_that_fits() -> None:
    assert paths(Pattern((is_a, is_b, is_c)), *"aabbc") == [[1, 2, 4]]
    assert paths(Pattern((is_a, follows(is_b, optional=True), is_c)), *"abc") == [[0, 1, 2]]
    assert paths(Pattern((follows(is_a, times=3), is_b)), *"aaaaabb") == [[2, 3, 4, 5]]


def test_the_bounds_of_within_and_lasting_belong_to_the_time() -> None:
    assert paths(Pattern((is_a, is_b), within=3), "a", "b", seconds=[0, 3]) == [[0, 1]]
    assert paths(Pattern((is_a, is_b), within=2), "a", "b", seconds=[0, 3]) == []
    waiting = Pattern((is_a, absent(is_b, lasting="3 seconds")))
    assert paths(waiting, "a", "b", seconds=[0, 3]) == []
    assert paths(waiting, "a", "b", seconds=[0, 4]) == [[0]]
    assert paths(waiting, "a", "c", seconds=[0, 3]) == []


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize("driver_rows", [1000, 0])
def test_workers_of_spark_find_the_same_matches(rehearse: Rehearse, driver_rows: int) -> None:
    """Spark workers get the conditions by name; the matches are the same after a job has died."""
    pattern = Pattern((is_a, is_b, absent(is_c, lasting="2 seconds")))
    draw = random.Random(3)  # the same rows again
    signs = signs_of([(draw.choice(["a", "b", "c"]), draw.choice(SOME_LEAPS)) for _ in range(30)])
    log = memory_log()
    for offset, (sign, ms) in enumerate(signs):
        event = json.dumps({"who": "ann", "id": offset, "sign": sign}).encode()
        log.add("signs", 0, event, key=b"ann", ms=ms)

    build = rehearse(pattern.pipeline(), log, driver_rows)
    build.fold(Offsets({"signs": {0: 11}}))
    build.die_before_the_frontier_of(Offsets({"signs": {0: 23}}))
    build.begin(driver_rows=driver_rows)
    build.fold(log.end)

    found = [row["path"] for row in build.table("matches").to_pylist()]
    assert sorted(found) == in_slices(signs, set(), fold_of(pattern)) != []


def cheaper(row: Any, kept: Any) -> Any:
    return {"n": row["n"]} if kept["n"] is None or row["n"] < kept["n"] else None


def dearer(row: Any, kept: Any) -> Any:
    return {"rose_to": row["n"]} if row["n"] > kept["n"] else None


def wrong(row: Any) -> Mapping[str, Any]:
    return {"m": row["n"]}


def failing(row: Any) -> bool:
    return bool(row["price"])


def fold_prices(prices: Sequence[int], parts: Sequence[Any], on_error: str) -> Stepped:
    fold = sequence(*parts, keeps="n int, rose_to int", emits="matches")
    declared = pass_on(
        SIGNS,
        Table("watched", keys=("who",), fold=fold),
        Table("matches", emitted="who string, n int, rose_to int"),
        on_error=on_error,
    )
    output = {name: parse_type(kind) for name, kind in declared.columns_of(SIGNS)}
    births = table_births(declared, {"watched": output})
    made = OrderedFold.of_pipeline(declared, {table.name: table for table in births})[0]
    rows = [
        {"who": "ann", "id": at, "sign": "", "n": n, "_topic": "signs", "_partition": 0}
        | {"_offset": at, "_timestamp": EPOCH, "_log_time": 0}
        for at, n in enumerate(prices)
    ]
    held = pa.Table.from_pylist([], arrow_schema(made.table.columns))
    given = pa.Table.from_pylist(rows, arrow_schema(made.table.steps_over))
    return made.here(given, held, {"signs": {0: 0}})


def priced(*prices: int, parts: Sequence[Any]) -> list[Any]:
    return list(fold_prices(prices, parts, "stop").rows["matches"].to_arrow().to_pylist())


def test_a_condition_is_given_the_values_kept_before() -> None:
    falls = follows(cheaper, times=3, directly=True)
    parts = (falls, follows(dearer, directly=True))

    assert priced(9, 7, 5, 8, 4, 3, 9, parts=parts) == [{"who": "ann", "n": 5, "rose_to": 8}]
    assert priced(9, 7, 8, 5, 6, parts=parts) == []


def test_a_condition_that_keeps_what_is_not_declared_is_named() -> None:
    with pytest.raises(Broken, match="wrong keeps m, which the sequence does not declare"):
        priced(1, parts=(wrong, dearer))


def test_the_conditions_are_a_part_of_the_version() -> None:
    declared = Pattern((is_a, absent(is_x), is_b), without=True).pipeline()

    assert declared.code_roots("m", "p")[1:] == tuple(
        (__name__, name) for name in ("is_a", "is_b", "is_x")
    )
    assert str(declared.tables[0].ordered) == (
        "sequence(is_a, no is_x, is_b, without is_x, keeps path array<int>, emits matches)"
    )


def test_a_condition_that_raises_is_named_with_its_line() -> None:
    (failed,) = fold_prices([1], (failing, dearer), "reject").failed

    line = failing.__code__.co_firstlineno + 1
    assert (failed.offset, failed.line) == (0, f"fold/test_sequences.py:{line}")
    assert failed.error == "raised KeyError: 'price' (in the step of table watched)"
