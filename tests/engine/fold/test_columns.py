"""A step over columns of many keys makes the same rows as a step over rows (laws 1 and 4).

The result is the same for any slices. Kappa's own step for sessions is compared with a step over
rows that uses `session`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import (
    Table,
    Topic,
    count,
    first,
    latest,
    max_,
    min_,
    ordered,
    pipeline,
    session,
    sessions,
    sum_,
)
from kappa.base.errors import Broken, DeclarationError
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import parse_type
from kappa.engine.fold.ordered_fold import OrderedFold
from kappa.engine.fold.step_loop import Judging
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GAP = "30 minutes"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
HITS = Topic(
    "hits",
    event="who string not null, at timestamp, n bigint, x double, d decimal(10,2), word string",
    partitions=3,
    key="who",
)
STATE = (
    "since timestamp, last timestamp, hits bigint, worded bigint, total bigint, mass double, "
    "paid decimal(20,2), least double, most string, entry string, exit bigint"
)
FOLDS = {
    "hits": count(),
    "worded": count("word"),
    "total": sum_("n"),
    "mass": sum_("x"),
    "paid": sum_("d"),
    "least": min_("x"),
    "most": max_("word"),
    "entry": first("word"),
    "exit": latest("n"),
}


def follow(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Does in Python, row by row, what `sessions` declares."""
    ended = session(state, row["at"], GAP)
    if ended is not None:
        yield {"who": row["who"], **ended}
    if row["at"] is None:
        return
    x = None if row["x"] is None or math.isnan(row["x"]) else row["x"] + 0.0
    state["hits"] = (state["hits"] or 0) + 1
    state["worded"] = (state["worded"] or 0) + (row["word"] is not None)
    for name, value in (("total", row["n"]), ("mass", x), ("paid", row["d"])):
        if value is not None:
            state[name] = value if state[name] is None else state[name] + value
    if x is not None:
        state["least"] = x if state["least"] is None else min(state["least"], x)
    if row["word"] is not None:
        state["most"] = max(state["most"] or "", row["word"])
        state["entry"] = row["word"] if state["entry"] is None else state["entry"]
    state["exit"] = state["exit"] if row["n"] is None else row["n"]


def add(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Keeps a running total, fails on seven, and emits a row each time it passes a ten."""
    if row["n"] == 7:
        raise ValueError("seven")
    before = state["total"] or 0
    state["total"] = before + (row["n"] or 0)
    if state["total"] // 10 > before // 10:
        yield {"who": row["who"], "total": state["total"]}


def add_columns(states: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Does the same as `add`, in whole columns."""
    if pc.any(pc.equal(rows["n"], 7)).as_py():
        raise ValueError("seven")
    of, n = rows["_state"].to_numpy(), pc.fill_null(rows["n"], 0).to_numpy()
    begun = pc.fill_null(states["total"], 0).to_numpy()
    running = np.cumsum(n)
    first_of = np.searchsorted(of, np.arange(states.num_rows))
    after = begun[of] + running - (running - n)[first_of][of]
    passes = after // 10 > (after - n) // 10
    emitted = pa.table({"who": rows["who"].filter(pa.array(passes)), "total": after[passes]})
    ends = np.searchsorted(of, np.arange(states.num_rows), side="right") - 1
    return pa.table({"total": after[ends]}), emitted


def hit_pipeline(fold: Any, emitted: str, *, on_error: str = "reject") -> Any:
    @pipeline(
        reads={"hits": HITS},
        writes=[Table("open", keys=("who",), fold=fold), Table("ended", emitted=emitted)],
        on_error=on_error,
    )
    def hit(hits: DataFrame) -> dict[str, DataFrame]:
        return {"open": hits}

    return hit


def fold_of(declared: Any) -> OrderedFold:
    output = {name: parse_type(kind) for name, kind in declared.columns_of(HITS)}
    tables = table_births(declared, {table.name: output for table in declared.function_tables})
    return OrderedFold.of_pipeline(declared, {table.name: table for table in tables})[0]


ROWS = fold_of(hit_pipeline(ordered(follow, state=STATE, emits="ended"), f"who string, {STATE}"))
COLUMNS = fold_of(hit_pipeline(sessions("at", GAP, FOLDS, emits="ended"), f"who string, {STATE}"))
TOTALS = "who string, total bigint"
ADDED = fold_of(hit_pipeline(ordered(add, state="total bigint", emits="ended"), TOTALS))
ADDED_BY_COLUMNS = fold_of(
    hit_pipeline(ordered(add_columns, state="total bigint", emits="ended", over="keys"), TOTALS)
)

HIT = st.fixed_dictionaries(
    {
        "who": st.sampled_from(["ann", "bob", None]),
        "at": st.none()
        | st.sampled_from([0, 0, 10, 29, 30, 31, 61, 90, 300]).map(
            lambda minutes: BEGAN + timedelta(minutes=minutes)
        )
        | st.sampled_from(
            [
                datetime(1, 1, 1, tzinfo=UTC),
                datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            ]
        ),
        "n": st.none() | st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63), 2**62]),
        "x": st.none()
        | st.sampled_from([0.1, 0.2, 0.3, -0.0, 1e300, -1e16, math.nan, math.inf, -math.inf]),
        "d": st.none() | st.sampled_from([Decimal("0.01"), Decimal("-99999999.99")]),
        "word": st.none() | st.sampled_from(["", "a", "b", "Ä" * 9]),
        # Not each row is of a record of its own.
        "_step": st.sampled_from([0, 1, 1, 1]),
    }
)


def rows_of(hits: Sequence[Mapping[str, Any]], partitions: Sequence[int]) -> list[dict[str, Any]]:
    """Returns rows of the function, at rising offsets. Rows of one record have the same key."""
    rows: list[dict[str, Any]] = []
    for number, (hit, partition) in enumerate(zip(hits, partitions, strict=True)):
        before = next((row for row in reversed(rows) if row["_partition"] == partition), None)
        is_same = before is not None and hit["_step"] == 0
        rows.append(
            {
                **hit,
                "who": before["who"] if before is not None and is_same else hit["who"],
                "_topic": "hits",
                "_partition": partition,
                "_offset": before["_offset"] if before is not None and is_same else number,
                "_timestamp": BEGAN,
                "_key": None,
            }
        )
    return rows


def is_between_records(rows: Sequence[Mapping[str, Any]], cut: int) -> bool:
    before, after = ({row["_offset"] for row in some} for some in (rows[:cut], rows[cut:]))
    return before.isdisjoint(after)


def in_slices(
    fold: OrderedFold, rows: Sequence[Mapping[str, Any]], cuts: set[int]
) -> dict[str, list[str]]:
    """Folds rows in slices; returns the states, emitted rows and noted records, as text.

    A record on which the step fails is left out, as the slice's runner leaves it out.
    """
    held: dict[Any, dict[str, Any]] = {}
    found: dict[str, list[str]] = {"ended": [], "noted": [], "failed": []}
    ends = [cut for cut in sorted(cuts) if cut < len(rows) and is_between_records(rows, cut)]
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        given_rows = pa.Table.from_pylist(
            rows[start:end][::-1], arrow_schema(fold.table.steps_over)
        )
        states = pa.Table.from_pylist([*held.values()], arrow_schema(fold.table.columns))
        made = fold.here(given_rows, states, {})
        if made.failed or made.is_unsure:
            failed = {tuple(each[:3]): each for each in made.failed}
            judged = fold.here(
                given_rows, states, {}, Judging(one_by_one=True, without=frozenset())
            )
            failed = {tuple(each[:3]): each for each in judged.failed}
            made = fold.here(
                given_rows, states, {}, Judging(one_by_one=True, without=frozenset(failed))
            )
            found["failed"] += [f"{each.partition} {each.offset}" for each in failed.values()]
        for state in made.rows["open"].to_arrow().to_pylist():
            held[state["who"], state["_partition"]] = state
        found["ended"] += map(str, made.rows["ended"].to_arrow().to_pylist())
        found["noted"] += map(str, made.noted)
    return {
        "open": sorted(map(str, held.values())),
        **{name: sorted(each) for name, each in found.items()},
    }


CASE = st.lists(st.tuples(HIT, st.sampled_from([1, 1, 1, 1, 0, 2])), max_size=24)


@pytest.mark.law
@examples(80)
@given(CASE, st.sets(st.integers(0, 24)))
def test_sessions_are_those_of_a_row_step(
    hits: list[tuple[dict[str, Any], int]], cuts: set[int]
) -> None:
    """The rows have null keys and times, equal times, extremes, overflows, and split keys."""
    rows = rows_of([hit for hit, _ in hits], [partition for _, partition in hits])

    wanted = in_slices(ROWS, rows, set())

    assert in_slices(COLUMNS, rows, cuts) == wanted
    assert in_slices(COLUMNS, rows, set()) == wanted


@pytest.mark.law
@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.none() | st.integers(0, 8)),
        max_size=24,
    ),
    st.sets(st.integers(0, 24)),
)
def test_keys_at_once_give_the_rows_of_each(numbers: list[tuple[Any, Any]], cuts: set[int]) -> None:
    """The step fails on seven: each record with a seven is a reject, and no other record is."""
    hits = [
        {"who": who, "n": n, "at": None, "x": None, "d": None, "word": None, "_step": 1}
        for who, n in numbers
    ]
    rows = rows_of(hits, [1] * len(hits))

    wanted = in_slices(ADDED, rows, set())

    assert in_slices(ADDED_BY_COLUMNS, rows, cuts) == wanted
    assert len(wanted["failed"]) == sum(n == 7 for _, n in numbers)


def batches_of(
    fold: OrderedFold,
    rows: Sequence[Mapping[str, Any]],
    held: Sequence[Mapping[str, Any]],
    size: int,
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a Spark task: a key's states, then its rows in order."""
    row_type = pa.struct([*arrow_schema(fold.table.steps_over)])
    state_type = pa.struct([*arrow_schema(fold.table.columns)])
    schema = pa.schema([("who", pa.string()), ("state", state_type), ("row", row_type)])
    together = [
        *({"who": state["who"], "state": state, "row": None} for state in held),
        *({"who": row["who"], "state": None, "row": row} for row in rows),
    ]
    together.sort(
        key=lambda each: (
            each["who"] is not None,
            each["who"] or "",
            each["row"] is not None,
            *(
                (0, 0)
                if each["row"] is None
                else (each["row"]["_partition"], each["row"]["_offset"])
            ),
        )
    )
    for begin in range(0, len(together), size):
        yield pa.RecordBatch.from_pylist(together[begin : begin + size], schema=schema)


@pytest.mark.law
@examples(60)
@given(CASE, st.integers(0, 24), st.integers(1, 7), st.integers(1, 12))
def test_a_task_folds_large_keys_in_parts(
    hits: list[tuple[dict[str, Any], int]], cut: int, size: int, part_rows: int
) -> None:
    """A part ends between two keys, or between two records of a key with very many records."""
    rows = [
        {**row, "n": None}
        for row in rows_of([hit for hit, _ in hits], [partition for _, partition in hits])
    ]
    wanted = in_slices(COLUMNS, rows, set())
    cut = min(cut, len(rows))
    cut = next(end for end in range(cut, -1, -1) if is_between_records(rows, end))
    held: dict[Any, dict[str, Any]] = {}
    found: dict[str, list[str]] = {"ended": [], "noted": []}
    with pytest.MonkeyPatch.context() as small:
        small.setattr("kappa.engine.fold.ordered_fold._PART_ROWS", part_rows)
        for some in (rows[:cut], rows[cut:]):
            written = set()
            batches = batches_of(COLUMNS, some, [*held.values()], size)
            for part in COLUMNS.parts(batches, {}, Judging()):
                states = part.rows["open"].to_arrow().to_pylist()
                assert not written & {(state["who"], state["_partition"]) for state in states}
                written |= {(state["who"], state["_partition"]) for state in states}
                held |= {(state["who"], state["_partition"]): state for state in states}
                found["ended"] += map(str, part.rows["ended"].to_arrow().to_pylist())
                found["noted"] += map(str, part.noted)

    assert sorted(map(str, held.values())) == wanted["open"]
    assert {name: sorted(each) for name, each in found.items()} == {
        name: wanted[name] for name in found
    }


def one_row(fold: OrderedFold, **columns: Any) -> pa.Table:
    hit = {"who": "ann", "at": BEGAN, "n": 1, "x": None, "d": None, "word": None, "_step": 1}
    return pa.Table.from_pylist(
        rows_of([{**hit, **columns}], [1]), arrow_schema(fold.table.steps_over)
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda *_: None, "returns no table for 1 keys"),
        (lambda states, _: states.slice(1), "returns 0 states with who, total for 1 keys"),
        (lambda *_: pa.table({"sum": [1]}), "returns 1 states with sum for 1 keys"),
        (lambda *_: pa.table({"total": ["one"]}), "gives total of table open, which is int64"),
        (lambda states, _: (states, pa.table({"whom": [1]})), "the step of table open emits whom"),
        (lambda states, _: (states, 3), "the step of table open emits int"),
    ],
)
def test_a_wrong_result_of_many_keys_is_told(step: Any, message: str) -> None:
    fold = replace(ADDED_BY_COLUMNS, step=step, notes=False)

    with pytest.raises(Broken, match=message):
        fold.here(one_row(fold), arrow_schema(fold.table.columns).empty_table(), {})


def test_failing_with_many_keys_only_is_told() -> None:
    def fail_together(states: pa.Table, _rows: pa.Table) -> pa.Table:
        if states.num_rows > 1:
            raise IndexError("out of bounds")
        return states

    fold = replace(ADDED_BY_COLUMNS, step=fail_together)
    rows = pa.concat_tables([one_row(fold), one_row(fold, who="bob")])

    with pytest.raises(Broken, match=r"with those of no single key: IndexError: out of bounds"):
        fold.here(rows, arrow_schema(fold.table.columns).empty_table(), {})


def test_a_sum_that_does_not_fit_has_a_line() -> None:
    rows = pa.concat_tables(
        [one_row(COLUMNS, n=2**63 - 1), one_row(COLUMNS, n=1, at=BEGAN + timedelta(minutes=1))]
    )
    rows = rows.set_column(rows.column_names.index("_offset"), "_offset", pa.array([0, 1]))
    nothing = arrow_schema(COLUMNS.table.columns).empty_table()

    made = COLUMNS.here(rows, nothing, {}, Judging(one_by_one=True, without=frozenset()))

    ((_, _, offset, line, error, _),) = made.failed
    assert offset == 1
    assert line.startswith("fold/test_columns.py:")
    assert "the sum total of a session does not fit its type bigint" in error


@pytest.mark.parametrize(
    ("fold", "emitted", "said"),
    [
        (lambda: sessions("n", GAP, emits="ended"), "who string", "by n, which is of type bigint"),
        (lambda: sessions("at", "soon", emits="ended"), "who string", "gap is 'soon'"),
        (lambda: sessions("when", GAP, emits="ended"), "who string", "needs column when"),
        (
            lambda: sessions("at", GAP, {"hits": count()}, emits="ended"),
            "hit bigint",
            "has column hit, which sessions of table open do not have",
        ),
        (
            lambda: sessions("at", GAP, {"hits": count()}, emits="ended"),
            "hits int",
            "has column hits of type int, and sessions of table open have bigint",
        ),
        (
            lambda: sessions("at", GAP, {"last": count()}, emits="ended"),
            "who string",
            "fold column last, which is a time of the session",
        ),
        (
            lambda: sessions("at", GAP, {"hits": 3}, emits="ended"),  # type: ignore[dict-item]
            "who string",
            "sessions fold column hits by an int",
        ),
    ],
)
def test_sessions_that_cannot_be_are_refused(fold: Any, emitted: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        fold_of(hit_pipeline(fold(), emitted))


def test_sessions_are_a_part_of_the_version() -> None:
    texts = {
        str(each)
        for each in (
            sessions("at", GAP),
            sessions("at", "31 minutes"),
            sessions("at", GAP, {"hits": count()}),
            sessions("at", GAP, {"hits": count("n")}),
            sessions("at", GAP, emits="ended"),
        )
    }
    assert len(texts) == 5
