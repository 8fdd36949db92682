"""An ordered fold runs its step over each key's rows in the order of the log (laws 1 and 4).

The result is the same for any slices.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields
from rehearsing import Rehearse, memory_log, pass_on

from kappa import Table, Topic, View, count, ordered, pipeline, sessions
from kappa.base.errors import Broken
from kappa.declare.ordered_fold import Over
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import parse_type
from kappa.engine.fold.ordered_fold import OrderedFold, Stepped
from kappa.engine.fold.step_loop import Judging
from kappa.engine.job.ordered_steps import judged_records
from kappa.state.offsets import Offsets
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa import Pipeline
    from kappa.engine.children.rehearsal import MemoryLog

GAP = 30
LOGINS = Topic("logins", event="who string not null, ok boolean, n int", partitions=2, key="who")


def watch(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Emits a row for a success after three failures, and keeps a balance of at least 0."""
    if row["ok"]:
        if (state["failed"] or 0) >= 3:
            yield {"who": row["who"], "failed": state["failed"], "at": row["_offset"]}
        state["failed"] = 0
    else:
        state["failed"] = (state["failed"] or 0) + 1
    after = (state["balance"] or 0) + (row["n"] or 0)
    state["balance"] = after if after >= 0 else state["balance"]


def visit(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Emits sessions, in minutes: a row more than GAP after the last one begins a new session."""
    if state["last"] is not None and row["n"] - state["last"] > GAP:
        yield {"who": row["who"], "first": state["first"], "last": state["last"]}
        state["first"] = None
    state["first"] = row["n"] if state["first"] is None else state["first"]
    state["last"] = row["n"]


def watch_tables(state: dict[str, Any], rows: pa.Table) -> pa.Table:
    """Does the same as `watch`, on Arrow batches."""
    return pa.Table.from_pylist(
        [emitted for row in rows.to_pylist() for emitted in watch(state, row)]
    )


def visit_frames(state: dict[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
    """Does the same as `visit`, with pandas on a whole batch at once."""
    at = rows["n"]
    before = at.shift(1)
    before.iloc[0] = state["last"]
    begins = (at - before > GAP).fillna(value=False)
    firsts = at.where(begins)
    firsts.iloc[0] = at.iloc[0] if begins.iloc[0] or state["first"] is None else state["first"]
    firsts = firsts.ffill()
    ended = pd.DataFrame(
        {"who": rows["who"], "first": firsts.shift(1, fill_value=state["first"]), "last": before}
    )[begins]
    state["first"], state["last"] = firsts.iloc[-1], at.iloc[-1]
    return ended


def watch_columns(states: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Does the same as `watch`, on the rows of many keys."""
    after = states.to_pylist()
    emitted = [each for row in rows.to_pylist() for each in watch(after[row["_state"]], row)]
    return pa.Table.from_pylist(after, schema=states.schema), pa.Table.from_pylist(emitted)


def visit_columns(states: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Does the same as `visit`, on the rows of many keys."""
    after = states.to_pylist()
    emitted = [each for row in rows.to_pylist() for each in visit(after[row["_state"]], row)]
    return pa.Table.from_pylist(after, schema=states.schema), pa.Table.from_pylist(emitted)


def invert(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    state["inverse"] = 1 // row["n"]


def watching(step: Any, state: str, emitted: str, *more: Any, **options: Any) -> Any:
    """Declares the table `watched` for a step's states, and `told` for the rows that it emits."""
    fold = ordered(step, state=state, emits="told", **options)
    watched = Table("watched", keys=("who",), fold=fold)
    return pass_on(LOGINS, watched, Table("told", emitted=emitted), *more)


WATCHED = ("failed int, balance bigint", "who string, failed int, at bigint")
SESSION = "first int, last int"
safe = watching(watch, *WATCHED)
safe_by_keys = watching(watch_columns, *WATCHED, over="keys")


@pipeline(
    reads={"logins": LOGINS},
    writes=[
        Table("visits", keys=("who",), fold=ordered(visit, state=SESSION, emits="sessions")),
        Table("sessions", emitted=f"who string, {SESSION}"),
        Table(
            "framed",
            keys=("who",),
            fold=ordered(visit_frames, state=SESSION, emits="frames", over="pandas"),
        ),
        Table("frames", emitted=f"who string, {SESSION}"),
        Table(
            "open_sessions",
            keys=("who",),
            fold=sessions("at", f"{GAP} minutes", {"hits": count()}, emits="ended"),
        ),
        Table("ended", emitted="who string, since timestamp, last timestamp, hits bigint"),
    ],
)
def visited(logins: DataFrame) -> dict[str, DataFrame]:
    timed = logins.selectExpr("*", "timestamp_seconds(60 * n) as at")
    return {**dict.fromkeys(("visits", "framed"), logins), "open_sessions": timed}


def total(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Fails on ten, and if the total leaves 0 to 100; the row emitted for eleven fits no table."""
    if row["n"] == 10:
        raise ValueError("ten")
    state["total"] = (state["total"] or 0) + row["n"]
    if not 0 <= state["total"] <= 100:
        raise OverflowError(state["total"])
    yield {"who": row["who"], "n": "eleven" if row["n"] == 11 else row["n"]}


def total_tables(state: dict[str, Any], rows: pa.Table) -> list[dict[str, Any]]:
    """Does the same as `total`, on batches."""
    return [emitted for row in rows.to_pylist() for emitted in total(state, row)]


def total_columns(states: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Does the same as `total`, on the rows of many keys."""
    after = states.to_pylist()
    emitted = [each for row in rows.to_pylist() for each in total(after[row["_state"]], row)]
    return pa.Table.from_pylist(after, schema=states.schema), pa.Table.from_pylist(emitted)


def total_pipeline(step: Any, over: str) -> Any:
    fold = ordered(step, state="total int", emits="added", over=over)

    @pipeline(
        reads={"logins": LOGINS},
        writes=[
            Table("totals", keys=("who",), fold=fold),
            Table("added", emitted="who string, n int"),
            Table("all"),
            Table("newest", latest=LOGINS),
        ],
    )
    def totals(logins: DataFrame) -> dict[str, DataFrame]:
        return {"totals": logins, "all": logins.select("who", "n")}

    return totals


def fold_of(declared: Any = safe) -> OrderedFold:
    output = {name: parse_type(kind) for name, kind in declared.columns_of(LOGINS)}
    outputs = {table.name: output for table in declared.function_tables}
    if "open_sessions" in outputs:
        outputs["open_sessions"] = {**output, "at": parse_type("timestamp")}
    tables = table_births(declared, outputs)
    return OrderedFold.of_pipeline(declared, {table.name: table for table in tables})[0]


def rows_of(events: Sequence[tuple[Any, Any, Any]]) -> list[dict[str, Any]]:
    """Returns the function's rows for (who, ok, n), at offsets 0, 1, 2 ... of partition 1."""
    return [
        {"who": who, "ok": ok, "n": n, "_topic": "logins", "_partition": 1, "_offset": at}
        for at, (who, ok, n) in enumerate(events)
    ]


def nothing_of(fold: OrderedFold) -> pa.Table:
    """Returns the empty states of a fold."""
    return arrow_schema(fold.table.columns).empty_table()


def folded(
    fold: OrderedFold, rows: list[dict[str, Any]], held: pa.Table | None = None
) -> Mapping[str, Any]:
    given = pa.Table.from_pylist(rows, schema=arrow_schema(fold.table.steps_over))
    made = fold.here(given, nothing_of(fold) if held is None else held, {})
    assert not made.failed, made.failed[0].error
    return {name: rows.to_arrow() for name, rows in made.rows.items()}


def by_hand(
    events: Sequence[tuple[Any, Any, Any]],
) -> tuple[dict[Any, tuple[int, int | None]], list[tuple[Any, int, int]]]:
    """Computes per key the failures since the last success, and the balance, in another way.

    Returns the states, and then the break-ins.
    """
    found, states = [], {}
    for who in {who for who, _, _ in events}:
        failed, balance = 0, None
        for at, (_, ok, n) in ((at, event) for at, event in enumerate(events) if event[0] == who):
            if ok and failed > 2:
                found.append((who, failed, at))
            failed = 0 if ok else failed + 1
            balance = balance if (balance or 0) + (n or 0) < 0 else (balance or 0) + (n or 0)
        states[who] = failed, balance
    return states, found


EVENT = st.tuples(
    st.sampled_from(["ann", "bob", None]),
    st.sampled_from([True, False, False, False, None]),
    st.none() | st.integers(-5, 5),
)


def in_slices(
    fold: OrderedFold, rows: list[dict[str, Any]], cuts: set[int]
) -> tuple[dict[Any, dict[str, Any]], list[dict[str, Any]]]:
    """Folds rows in slices. Returns the state of each key, and all emitted rows."""
    held: dict[Any, dict[str, Any]] = {}
    emitted: list[dict[str, Any]] = []
    assert fold.emitted is not None
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        states = pa.Table.from_pylist([*held.values()], schema=arrow_schema(fold.table.columns))
        # Whatever their order in the slice.
        made = folded(fold, rows[start:end][::-1], states)
        held |= {state["who"]: state for state in made[fold.table.name].to_pylist()}
        emitted += made[fold.emitted.name].to_pylist()
    return held, emitted


@pytest.mark.law
@examples(40)
@given(
    st.lists(EVENT, max_size=30),
    st.sets(st.integers(0, 30)),
    st.sampled_from([(watch, Over.ROW), (watch_tables, Over.ARROW), (watch_columns, Over.KEYS)]),
)
def test_states_and_what_is_emitted_do_not_depend_on_the_cut(
    events: list[tuple[Any, Any, Any]], cuts: set[int], called: tuple[Any, Over]
) -> None:
    rows = rows_of(events)
    held, emitted = in_slices(replace(fold_of(), step=called[0], over=called[1]), rows, cuts)

    states, found = by_hand(events)
    assert {who: (state["failed"], state["balance"]) for who, state in held.items()} == states
    told = sorted((row["at"], row["who"], row["failed"]) for row in emitted)
    assert told == sorted((at, who, failed) for who, failed, at in found)
    places = {
        who: (state["_topic"], state["_partition"], state["_offset"]) for who, state in held.items()
    }
    assert places == {row["who"]: ("logins", 1, row["_offset"]) for row in rows}


@pytest.mark.law
@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 2 * GAP)), max_size=30),
    st.sets(st.integers(0, 30)),
    st.sampled_from([(visit, Over.ROW), (visit_frames, Over.PANDAS), (visit_columns, Over.KEYS)]),
)
def test_sessions_end_with_a_gap_wherever_the_log_is_cut(
    steps: list[tuple[str, int]], cuts: set[int], called: tuple[Any, Over]
) -> None:
    times = list(itertools.accumulate(minutes for _, minutes in steps))
    visits = [(who, True, at) for (who, _), at in zip(steps, times, strict=True)]

    fold = replace(fold_of(visited), step=called[0], over=called[1])
    held, emitted = in_slices(fold, rows_of(visits), cuts)

    sessions: dict[str, list[list[int]]] = {}
    for who, _, at in visits:
        own = sessions.setdefault(who, [[at]])
        if at - own[-1][-1] > GAP:
            own.append([])
        own[-1].append(at)
    told = {who: [(own[0], own[-1]) for own in each] for who, each in sessions.items()}
    assert {who: (state["first"], state["last"]) for who, state in held.items()} == {
        who: each[-1] for who, each in told.items()
    }
    assert sorted((row["who"], row["first"], row["last"]) for row in emitted) == sorted(
        (who, *own) for who, each in told.items() for own in each[:-1]
    )


def test_rows_of_one_record_come_in_the_order_of_their_values() -> None:
    fold = fold_of()
    rows = [{**row, "_offset": 7} for row in rows_of([("ann", False, n) for n in (3, -2, -1)])]

    balances = {
        folded(fold, order)["watched"].to_pylist()[0]["balance"] for order in (rows, rows[::-1])
    }

    assert len(balances) == 1


def test_a_batch_has_all_rows_of_a_key_in_order_and_very_many_are_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kappa.engine.fold.step_loop._BATCH_ROWS", 3)
    given: list[pa.Table] = []
    fold = replace(fold_of(), step=lambda _, rows: given.append(rows), over=Over.ARROW)

    folded(fold, rows_of([("ann", None, n) for n in range(7)])[::-1])

    assert [table.column("_offset").to_pylist() for table in given] == [[0, 1, 2], [3, 4, 5], [6]]
    assert {table.schema for table in given} == {arrow_schema(fold.table.steps_over)}


def test_the_state_is_the_same_where_a_batch_ends_as_where_a_slice_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def step(state: dict[str, Any], rows: pd.DataFrame) -> list[dict[str, Any]]:
        was, state["balance"], state["failed"] = state["balance"], pd.NA, rows["_offset"].max()
        told = {"failed": None if was is None else 1, "at": int(state["failed"])}
        return [{"who": rows["who"].iloc[0], **told}]

    fold, rows = replace(fold_of(), step=step, over=Over.PANDAS), rows_of([("ann", True, 1)] * 6)
    by_slice = in_slices(fold, rows, {2, 4})
    monkeypatch.setattr("kappa.engine.fold.step_loop._BATCH_ROWS", 2)

    assert in_slices(fold, rows, set()) == by_slice
    assert [row["at"] for row in by_slice[1]] == [1, 3, 5]


def test_what_pandas_has_for_nulls_and_numbers_is_kept_exactly() -> None:
    def step(state: dict[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
        state["failed"], state["balance"] = rows["ok"].iloc[0], rows["_offset"].max()
        return rows[["who"]].assign(failed=rows["n"], at=rows["_offset"])

    fold = replace(fold_of(), step=step, over=Over.PANDAS)
    rows = rows_of([("ann", None, None), ("ann", None, 2)])
    made = folded(fold, [{**row, "_offset": 2**60 + row["_offset"]} for row in rows])

    (state,) = made["watched"].to_pylist()
    assert (state["failed"], state["balance"]) == (None, 2**60 + 1)
    assert made["told"].to_pylist() == [
        {"who": "ann", "failed": n, "at": 2**60 + at} for at, n in enumerate((None, 2))
    ]


def summed(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Keeps Python values that come back from columns of these types in another form."""
    state["total"] = (state["total"] or 0.0) + 0.1
    state["seen"] = {*(state["seen"] or ()), row["n"]}
    # A step may well return times without a zone.
    began = datetime(2026, 1, 1)  # noqa: DTZ001
    state["at"] = (began if state["at"] is None else state["at"]) + timedelta(minutes=1)
    state["exact"] = Decimal(str(state["exact"] or 0)) + 1
    at = state["at"].isoformat()[:16]
    yield {"told": repr((state["total"], sorted(state["seen"]), at, str(state["exact"])))}


@pytest.mark.parametrize("over", [Over.ROW, Over.ARROW])
def test_between_rows_the_state_is_what_the_table_would_give_back(
    over: Over, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.engine.fold.step_loop._BATCH_ROWS", 1)

    def step(state: dict[str, Any], rows: Any) -> list[dict[str, Any]]:
        return list(summed(state, rows if over is Over.ROW else rows.to_pylist()[0]))

    kept = "total float, seen array<int>, at timestamp, exact decimal(12,2)"
    fold = replace(fold_of(watching(summed, kept, "told string")), step=step, over=over)
    rows = rows_of([("ann", True, n) for n in range(4)])

    assert in_slices(fold, rows, set()) == in_slices(fold, rows, {1, 2, 3})


def overflown(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    state["n"] = (state["n"] or 2**31 - 3) + row["n"]


def halved(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    state["text"] = "\ud83d" if row["n"] == 3 else "é"


def late(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    state["at"] = datetime(9999, 12, 31, 22, tzinfo=timezone(timedelta(hours=-row["n"])))


@pytest.mark.parametrize(
    ("step", "state"),
    [(overflown, "n int"), (halved, "text string"), (late, "at timestamp")],
)
def test_what_does_not_fit_after_a_row_stops_it_though_a_later_row_would_mend_it(
    step: Any, state: str
) -> None:
    fold = fold_of(watching(step, state, "told string"))
    rows = rows_of([("ann", True, n) for n in (1, 3, -9)])

    in_slices(fold, rows[:1], set())
    for cuts in (set(), {1, 2}):
        with pytest.raises(
            AssertionError, match="step of table watched gives .* what does not fit"
        ):
            in_slices(fold, rows, cuts)


def given_back(state: dict[str, Any], row: Mapping[str, Any]) -> list[dict[str, Any]]:
    state["seen"] = [*(state["seen"] or ()), row["n"]]
    return [state]


def grown(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    state["seen"] = state["seen"] or []
    state["seen"].append(row["n"])
    yield {"seen": state["seen"]}
    if len(state["seen"]) == 3:
        state["seen"].clear()


@pytest.mark.parametrize(
    ("step", "emitted"),
    [(given_back, [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]), (grown, [[0], [0, 1], [0, 1, 2], [3]])],
)
def test_what_a_step_emits_is_what_it_was_when_it_was_emitted(
    step: Any, emitted: list[list[int]]
) -> None:
    fold = fold_of(watching(step, "seen array<int>", "seen array<int>"))

    for cuts in (set(), {1, 2, 3}):
        found = in_slices(fold, rows_of([("ann", True, n) for n in range(4)]), cuts)
        assert [row["seen"] for row in found[1]] == emitted


def test_a_key_in_two_partitions_has_no_order() -> None:
    """A key in two partitions stops the job with on_error="stop", or with one state per key."""
    fold = fold_of()
    older = with_fields(fold.table, columns=fold.table.columns[:-2])
    rows = rows_of([("ann", True, 1), ("ann", True, 1)])

    for one, hint in (
        (OrderedFold(fold.table, fold.emitted, watch), "produce each key to one partition"),
        (OrderedFold(older, fold.emitted, watch, notes=True), "kappa replay makes a new build"),
    ):
        held = folded(one, rows[:1])["watched"]
        for given_rows, before in (
            ([rows[0], {**rows[1], "_partition": 0}], None),
            ([{**rows[1], "_partition": 0}], held),
        ):
            unordered = (
                "table watched .* rows of key 'ann' lie in partition . and in partition .,"
                " which have no order"
            )
            with pytest.raises(Broken, match=unordered) as stopped:
                folded(one, given_rows, before)
            assert hint in stopped.value.hint


def in_slices_of_partitions(
    fold: OrderedFold, events: Sequence[tuple[int, Any, Any, Any]], cuts: Sequence[Sequence[int]]
) -> tuple[dict[Any, Any], list[Any], list[tuple[Any, ...]]]:
    """Folds (partition, who, ok, n) in slices; `cuts` has the end of each slice per partition.

    Returns the rows that readers see by key, the emitted rows, and the noted records.
    """
    rows = [
        {"who": who, "ok": ok, "n": n, "_topic": "logins", "_partition": partition, "_offset": at}
        for at, (partition, who, ok, n) in enumerate(events)
    ]
    held: dict[Any, dict[str, Any]] = {}
    emitted, noted = [], []
    done = [0] * 3
    for ends in [*cuts, [len(rows)] * 3]:
        here = [row for row in rows if done[row["_partition"]] <= row["_offset"]]
        here = [row for row in here if row["_offset"] < ends[row["_partition"]]]
        done = [max(each) for each in zip(done, ends, strict=True)]
        touched = [state for state in held.values() if state["who"] in {row["who"] for row in here}]
        made = fold.here(
            pa.Table.from_pylist(here, arrow_schema(fold.table.steps_over)),
            pa.Table.from_pylist(touched, arrow_schema(fold.table.columns)),
            {},
        )
        states = made.rows[fold.table.name].to_arrow().to_pylist()
        held |= {(state["who"], state["_partition"]): state for state in states}
        emitted += made.rows["told"].to_arrow().to_pylist()
        noted += [(each.partition, each.offset, each.error) for each in made.noted]
    shown = [state for state in held.values() if not state["_deleted"]]
    assert len({state["who"] for state in shown}) == len(shown)
    return (
        {state["who"]: (state["_partition"], state["failed"], state["balance"]) for state in shown},
        sorted((row["at"], row["failed"]) for row in emitted),
        sorted(noted),
    )


@pytest.mark.law
@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), EVENT).map(lambda each: (each[0], *each[1])), max_size=20
    ),
    st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), max_size=6),
)
def test_a_split_key_is_folded_alike_whichever_partition_is_read_first(
    events: list[tuple[int, Any, Any, Any]], cuts: list[list[int]]
) -> None:
    """A key has a state for each partition; readers see the state of the lowest partition."""
    shown, emitted, noted = in_slices_of_partitions(fold_of(), events, cuts)

    parts: dict[tuple[Any, int], list[tuple[int, tuple[Any, Any, Any]]]] = {}
    for at, (partition, *event) in enumerate(events):
        parts.setdefault((event[0], partition), []).append((at, (event[0], event[1], event[2])))
    least = {who: min(p for other, p in parts if other == who) for who, _ in parts}
    by_part = {part: by_hand([event for _, event in each]) for part, each in parts.items()}
    assert shown == {who: (p, *by_part[who, p][0][who]) for who, p in least.items()}
    assert emitted == sorted(
        (parts[part][at][0], failed)
        for part, (_, found) in by_part.items()
        for _, failed, at in found
    )
    assert [each[:2] for each in noted] == sorted(
        (p, each[0][0]) for (who, p), each in parts.items() if p != least[who]
    )
    assert all("lie in a lower partition, too" in error for _, _, error in noted)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda *_: [{"whom": "ann"}], r"the step of table watched emits \{'whom': 'ann'\}"),
        (lambda *_: "ann", "emits 'a'"),
        (lambda state, *_: state.pop("failed") and None, "leaves the state of key 'ann' with bal"),
        (
            lambda state, *_: state.update(failed="three"),
            "gives failed of table watched, which is int32, what does not fit",
        ),
        (
            lambda state, *_: state.update(balance=2**63),
            "gives balance of table watched, which is int64, what does not fit",
        ),
        (
            lambda *_: [{"who": "ann", "at": "soon"}],
            "gives at of table told, which is int64, what does not fit",
        ),
    ],
)
def test_what_a_step_may_not_do_is_said(step: Any, message: str) -> None:
    fold = fold_of()
    wrong = OrderedFold(fold.table, fold.emitted, step)

    with pytest.raises(Broken, match=message):
        folded(wrong, rows_of([("ann", False, 1)]))


def bounded(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Adds n; fails if the sum leaves 0 to 9; the row emitted for seven does not fit."""
    state["failed"] = (state["failed"] or 0) + row["n"]
    if not 0 <= state["failed"] <= 9:
        raise OverflowError(state["failed"])
    yield {"who": row["who"], "failed": "seven" if row["n"] == 7 else row["n"]}


def refused_by_hand(records: Sequence[Sequence[tuple[str, int]]]) -> list[int]:
    """Returns the numbers of records that make a sum leave 0 to 9, or that have a seven.

    Each record consists of rows of keys.
    """
    sums: dict[str, int] = {}
    refused = []
    for number, rows in enumerate(records):
        after = dict(sums)
        fits = True
        for who, n in sorted(rows, key=lambda row: (row[0], row[1])):
            after[who] = after.get(who, 0) + n
            fits &= 0 <= after[who] <= 9 and n != 7
        if fits:
            sums = after
        else:
            refused.append(number)
    return refused


KEY_AND_NUMBER = st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from([-4, -1, 1, 3, 7]))


@pytest.mark.law
@examples(40)
@given(st.lists(st.lists(KEY_AND_NUMBER, min_size=1, max_size=2, unique_by=itemgetter(0))))
def test_records_that_fail_are_found_together_also_where_they_reach_several_keys(
    records: list[list[tuple[str, int]]],
) -> None:
    fold = replace(fold_of(), step=bounded, notes=True)
    rows = [
        {"who": who, "n": n, "_topic": "logins", "_partition": 1, "_offset": at}
        for at, of_record in enumerate(records)
        for who, n in of_record
    ]
    given_rows = pa.Table.from_pylist(rows, schema=arrow_schema(fold.table.steps_over))
    tries = []

    def fold_once(judging: Judging) -> Stepped:
        tries.append(judging)
        return fold.here(given_rows, nothing_of(fold), {}, judging)

    judged, wakes = judged_records(fold_once)

    refused = refused_by_hand(records)
    found = sorted(each.offset for each in judged)
    if wakes is None:
        # It was too tangled: what is found is right, up to some record.
        assert found == refused[: len(found)]
    else:
        assert found == refused
    if all(len(of_record) == 1 for of_record in records):
        assert (wakes, len(tries)) == ([], 1 + bool(refused))
    # The first try alone, which undoes nothing, finds whether there is any.
    assert bool(fold_once(Judging()).failed) == bool(refused)


def hoard(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    """Keeps more and more; a zero empties the state."""
    state["seen"] = [*(state["seen"] or ()), *range(row["n"])] if row["n"] else None


hoarding = pass_on(
    LOGINS, Table("hoards", keys=("who",), fold=ordered(hoard, state="seen array<int>"))
)


@pytest.mark.law
@examples(40)
@given(st.lists(st.integers(0, 9), max_size=20), st.sets(st.integers(0, 20)))
def test_a_record_that_makes_a_state_too_large_is_a_reject_for_any_slices(
    numbers: list[int], cuts: set[int]
) -> None:
    fold = fold_of(hoarding)
    rows, held = rows_of([("ann", True, n) for n in numbers]), nothing_of(fold)
    failed: list[int] = []
    ends = [cut for cut in sorted(cuts) if cut < len(rows)]
    with pytest.MonkeyPatch.context() as small:
        small.setattr("kappa.engine.fold.step_loop.MOST_BYTES", 100)
        for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
            here = pa.Table.from_pylist(rows[start:end], arrow_schema(fold.table.steps_over))
            made = fold.here(here, held, {}, Judging(without=frozenset()))
            failed += [each.offset for each in made.failed]
            states = made.rows["hoards"].to_arrow()
            held = states if states.num_rows else held

    kept: list[int] | None = None
    refused = []
    for at, n in enumerate(numbers):
        more = [*(kept or ()), *range(n)] if n else None
        if more and pa.array([more], pa.list_(pa.int32())).nbytes > 100:
            refused.append(at)
        else:
            kept = more
    assert failed == refused
    assert [row["seen"] for row in held.to_pylist()] == ([kept] if len(refused) < len(rows) else [])


def log_of(events: Sequence[tuple[str, Any, Any]]) -> MemoryLog:
    log = memory_log()
    for who, ok, n in events:
        value = json.dumps({"who": who, "ok": ok, "n": n}).encode()
        log.add("logins", len(who) % 2, value, key=who.encode())
    return log


_WHO = ["ann", "bo", "", "Ä"]


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here", "roots")
@pytest.mark.parametrize(
    ("logins", "visits", "cuts"),
    [
        (
            [("ann", False), ("bo", False), ("ann", False), ("ann", False), ("ann", True)],
            [("ann", 0), ("bo", 7), ("bo", 42)],
            0,
        ),
        pytest.param(
            [(_WHO[number * number % 4], number % 8 == 6) for number in range(24)],
            [
                (_WHO[number % 4], at)
                for number, at in enumerate(itertools.accumulate(7 * n % 40 for n in range(16)))
            ],
            3,
            marks=pytest.mark.sweep,
        ),
    ],
    ids=["few", "many"],
)
def test_it_holds_the_law_of_slices_by_either_way(
    logins: list[tuple[str, bool]], visits: list[tuple[str, int]], cuts: int
) -> None:
    """The law of slices holds while rows are emitted: Ann succeeds, and a visit of Bo ends."""
    from kappa.testing import Event, law_of_slices

    def event(who: str, ok: Any, n: int) -> Event:
        return Event({"who": who, "ok": ok, "n": n}, key=who, partition=len(who) % 2)

    tried = [event(who, ok, number % 7 - 3) for number, (who, ok) in enumerate(logins)]
    law_of_slices(safe, {"logins": tried}, cuts=cuts)
    timed = [(who, True, at) for who, at in visits]
    law_of_slices(visited, {"logins": [event(*each) for each in timed]}, cuts=cuts)


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize(
    ("driver_rows", "slicings"),
    [
        (100, [[], [(0, 2), (0, 3), (1, 4)], [(1, 0), (2, 0), (2, 2)]]),
        # Spark folds the slices.
        pytest.param(0, [[(0, 2)]], marks=pytest.mark.long),
    ],
)
def test_a_producer_stops_no_build_by_a_split_key(
    rehearse: Rehearse, driver_rows: int, slicings: list[list[tuple[int, int]]]
) -> None:
    """Ann has records in both partitions. Rows, rejects and a view are equal for any slices."""
    from kappa.engine.children.rehearsal import served_rows, unlike_queries

    log = memory_log()
    for partition, who in [(1, "ann"), (1, "ann"), (0, "bo"), (0, "ann"), (1, "ann"), (1, "cid")]:
        value = json.dumps({"who": who, "ok": False, "n": 1 + partition}).encode()
        log.add("logins", partition, value, key=who.encode())
    by_balance = "select balance, count(*) as n from watched group by balance"
    seen = watching(watch, *WATCHED, View("by_balance", by_balance, keys=("balance",)))
    found = []
    for ends in slicings:
        build = rehearse(seen, log, driver_rows)
        for zero, one in [*ends, (2, 4)]:
            build.fold(Offsets({"logins": {0: zero, 1: one}}))
            assert unlike_queries(build) == []
        found.append(served_rows(build))
        tally = build.publisher.newest.tally["logins"]
        counted = [(tally[part].decoded, tally[part].rejected) for part in (0, 1)]
        assert counted == [(2, 0), (4, 0)]
    assert all(each == found[0] for each in found)
    assert found[0]["watched"] == [
        {"who": who, "failed": 1, "balance": balance}
        for who, balance in (("ann", 1), ("bo", 1), ("cid", 2))
    ]
    assert found[0]["by_balance"] == [{"balance": 1, "n": 2}, {"balance": 2, "n": 1}]
    (told,) = found[0]["rejects"]
    assert (told["partition"], told["offset"], told["reason"]) == (1, 0, "split_key")
    assert "rows of key 'ann' lie in a lower partition, too" in told["detail"]


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here", "roots")
@pytest.mark.parametrize("declared", [safe, safe_by_keys], ids=["row", "keys"])
@pytest.mark.parametrize("lost", ["told", "watched"])
def test_what_was_lost_between_both_commits_is_emitted_from_the_state_before(
    lost: str, declared: Pipeline, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kappa.engine.write.commit import TableWriter

    log = log_of([("ann", number == 7, number) for number in range(10)])
    commit = TableWriter.commit

    def cut_short(writer: TableWriter, rows: Any, mark: Any) -> str:
        if writer.birth.name == lost:
            raise ConnectionAbortedError
        return commit(writer, rows, mark)

    build = rehearse(declared, log, 100)
    build.fold(Offsets({"logins": {0: 0, 1: 5}}))
    with monkeypatch.context() as broken:
        broken.setattr(TableWriter, "commit", cut_short)
        with pytest.raises(ConnectionAbortedError):
            build.fold(log.end)
    build.close()
    build.begin(driver_rows=100)
    build.fold(log.end)

    # A state that had the slice would not have emitted its lost rows again.
    states = build.table("watched").select(["who", "failed", "balance"]).to_pylist()
    assert states == [{"who": "ann", "failed": 2, "balance": 45}]
    told = build.table("told").select(["who", "failed", "at"]).to_pylist()
    assert told == [{"who": "ann", "failed": 7, "at": 7}]


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize(
    ("over", "driver_rows"),
    [
        ("row", 100),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (("arrow", 100), ("keys", 100), ("row", 0), ("arrow", 0), ("keys", 0))
        ),
    ],
)
def test_records_that_a_step_fails_on_are_rejects_whatever_the_slices(
    rehearse: Rehearse, over: str, driver_rows: int
) -> None:
    # One of `eve` fails by what those before it have left, and not by one that is a reject.
    numbers = {"ann": [1, 10, 2, 11, 3], "eve": [90, 10, 20, 5, -96, 1]}
    log = log_of([(who, True, n) for who, each in numbers.items() for n in each])
    step = {"row": total, "arrow": total_tables, "keys": total_columns}[over]
    declared = total_pipeline(step, over)
    for ends in ([[5, 6]], [[2, 1], [4, 3], [5, 6]]):
        build = rehearse(declared, log, driver_rows)
        for eve, ann in ends:
            build.fold(Offsets({"logins": {0: 0, 1: eve + ann}}))
        rows = build.table("all").to_pylist()
        kept = [*(("ann", n) for n in (1, 2, 3)), *(("eve", n) for n in (1, 5, 90))]
        assert sorted((row["who"], row["n"]) for row in rows) == kept
        assert sorted(map(str, build.table("added").to_pylist())) == sorted(map(str, rows))
        totals = {row["who"]: row["total"] for row in build.table("totals").to_pylist()}
        assert totals == {"ann": 6, "eve": 96}
        rejects = build.table("rejects").to_pylist()
        assert {row["reason"] for row in rejects} == {"function_failed"}
        assert sorted(json.loads(row["value"])["n"] for row in rejects) == [-96, 10, 10, 11, 20]
        details = {json.loads(row["value"])["n"]: row["detail"] for row in rejects}
        assert re.fullmatch(
            r"fold/test_ordered\.py:\d+: raised ValueError: ten \(in the step of .* totals\)",
            details[10],
        )
        assert "the step of table totals gives n of table added, which is int32" in details[11]
        tally = build.publisher.newest.tally["logins"][1]
        assert (tally.decoded, tally.rejected) == (6, 5)


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
def test_a_new_build_goes_on_where_a_step_fails_on_very_many_records(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many records fail, the slice is folded only once more, without them."""
    from kappa.engine.slice import SliceRunner

    fold, folded_slices = SliceRunner._fold_once, []

    def noted(self: SliceRunner, *arguments: Any, **named: Any) -> Any:
        folded_slices.append(arguments)
        return fold(self, *arguments, **named)

    monkeypatch.setattr(SliceRunner, "_fold_once", noted)
    log = log_of([("ann", True, 10 if number % 2 else 0) for number in range(600)])
    build = rehearse(total_pipeline(total, "row"), log, 1_000)
    build.fold(log.end)

    assert build.table("rejects").num_rows == build.table("all").num_rows == 300
    assert len(folded_slices) == 2


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize("driver_rows", [100, 0])
def test_a_step_that_raises_is_named_with_its_line_and_the_record(
    rehearse: Rehearse, driver_rows: int
) -> None:
    @pipeline(
        reads={"logins": LOGINS},
        writes=[Table("inverses", keys=("who",), fold=ordered(invert, state="inverse int"))],
        on_error="stop",
    )
    def inverting(logins: DataFrame) -> dict[str, DataFrame]:
        return {"inverses": logins}

    log = log_of([("ann", True, 2 - number) for number in range(4)])
    with pytest.raises(
        Broken,
        match=r"test_ordered\.py:\d+: pipeline inverting raised ZeroDivisionError: .*; "
        r"the step of table inverses was at logins partition 1 offset 2, key 'ann'",
    ):
        rehearse(inverting, log, driver_rows).fold(log.end)


SEEN: list[object] = []
SIGNS: list[Callable[[], object]] = []


def look(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    state["last"] = row["n"]
    SEEN.append(SIGNS[0]())


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
def test_each_row_that_a_step_here_is_given_is_a_sign_of_progress(rehearse: Rehearse) -> None:
    """A slow slice is not ended while its step advances from row to row."""
    log = log_of([(who, True, 1) for who in ("ann", "ann", "ann", "bob")])
    looking = pass_on(LOGINS, Table("looks", keys=("who",), fold=ordered(look, state="last int")))
    build = rehearse(looking, log, 100)
    SIGNS[:] = [lambda: build.slices._steps.given]
    SEEN.clear()
    build.fold(log.end)

    # A row is taken before the step returns from the one before it.
    assert len(SEEN) == 4
    assert len(set(SEEN)) >= 3
