"""A step is woken at the times it asks for, between two records, wherever the log is cut.

`by_hand` computes the same result eagerly: at each record it wakes every key of the partition.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rehearsing import Rehearse, memory_log, pass_on

from kappa import Table, Topic, count, ordered, pipeline
from kappa.base.errors import Broken, DeclarationError
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import parse_type
from kappa.engine.fold.ordered_fold import OrderedFold
from kappa.state.offsets import Offsets
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal

PINGS = Topic("pings", event="who string not null, gap bigint", partitions=2, key="who")
SECOND, MINUTE = 1000, 60_000
BEGAN = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The keys of each partition.
KEYS = (("bo", "", "Ä"), ("ann", "cid"))


def doze(state: dict[str, Any], row: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Reports a key's silence `gap` microseconds after a ping, and twice more, a minute apart."""
    if row is not None:
        state["pings"], state["times"] = (state["pings"] or 0) + 1, 0
        gap = row["gap"]
        state["wake_at"] = None if gap is None else row["_timestamp"] + timedelta(microseconds=gap)
        return
    yield {name: state[name] for name in ("who", "pings", "times", "wake_at")}
    state["times"] += 1
    if state["times"] < 3:
        state["wake_at"] += timedelta(minutes=1)
    else:
        # All that it has, its key too.
        state.update(dict.fromkeys(state))


def watched_by(step: Any, state: str) -> Table:
    """Returns the table of a step that is woken at `wake_at`, and emits rows of table `told`."""
    fold = ordered(step, state=f"{state}, wake_at timestamp", emits="told", on_time="wake_at")
    return Table("watched", keys=("who",), fold=fold)


dozing = pass_on(
    PINGS,
    watched_by(doze, "pings bigint, times int"),
    Table("told", emitted="who string, pings bigint, times int, wake_at timestamp"),
)


class Ping(NamedTuple):
    """A record of a partition; a record without a key is a reject."""

    partition: int
    who: str | None
    gap: int | None
    ms: int


def by_hand(
    pings: Sequence[Ping],
) -> tuple[dict[str, tuple[int | None, int | None]], list[tuple[Any, ...]]]:
    """Returns per key the pings and the requested time, and all silences, in microseconds."""
    states: dict[str, list[Any]] = {}
    clocks: dict[int, int] = {}
    silences: list[tuple[Any, ...]] = []

    def wake(partition: int) -> None:
        for who, state in states.items():
            while (
                who in KEYS[partition]
                and state[2] is not None
                and state[2] <= clocks[partition] * 1000
            ):
                silences.append((who, *state))
                after = state[1] + 1
                state[:] = [state[0], after, state[2] + MINUTE * 1000] if after < 3 else [None] * 3

    for partition, who, gap, ms in pings:
        clocks[partition] = max(ms, clocks.get(partition, ms))
        wake(partition)
        if who is not None:
            before = states.get(who, [None])[0]
            states[who] = [(before or 0) + 1, 0, None if gap is None else ms * 1000 + gap]
        wake(partition)
    return {who: (state[0], state[2]) for who, state in states.items()}, sorted(silences)


def fold_of(declared: Any = dozing) -> OrderedFold:
    output = {name: parse_type(kind) for name, kind in declared.columns_of(PINGS)}
    births = table_births(declared, {"watched": output})
    return OrderedFold.of_pipeline(declared, {table.name: table for table in births})[0]


def in_slices(
    pings: Sequence[Ping], cuts: set[int], fold: OrderedFold | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Folds pings in slices that end at these positions. Returns states and silences."""
    fold = fold or fold_of()
    held: dict[str, Any] = {}
    silences: list[dict[str, Any]] = []
    clocks: dict[int, int] = {}
    ends = [cut for cut in sorted(cuts) if cut < len(pings)]
    for start, end in zip([0, *ends], [*ends, len(pings)], strict=True):
        rows = []
        for offset, (partition, who, gap, ms) in enumerate(pings[start:end], start):
            clocks[partition] = max(ms, clocks.get(partition, ms))
            if who is not None:
                row = {"who": who, "gap": gap, "_topic": "pings", "_partition": partition}
                at = {"_offset": offset, "_timestamp": EPOCH + timedelta(milliseconds=ms)}
                rows.append({**row, **at, "_log_time": clocks[partition]})
        made = fold.here(
            pa.Table.from_pylist(rows[::-1], arrow_schema(fold.table.steps_over)),
            pa.Table.from_pylist([*held.values()], arrow_schema(fold.table.columns)),
            {"pings": dict(clocks)},
        ).rows
        held |= {state["who"]: state for state in made["watched"].to_arrow().to_pylist()}
        silences += made["told"].to_arrow().to_pylist()
    return held, silences


def plain(
    held: Mapping[str, Any], silences: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, tuple[int | None, int | None]], list[tuple[Any, ...]]]:
    return (
        {who: (state["pings"], micros(state["wake_at"])) for who, state in held.items()},
        sorted((s["who"], s["pings"], s["times"], micros(s["wake_at"])) for s in silences),
    )


def micros(time: datetime | None) -> int | None:
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


GAPS = [None, -5_000_000, 0, 1, 999, 1000, 30_000_000, 600_000_000]
# Milliseconds; a producer's time may go back.
LEAPS = [0, 0, 1, -SECOND, 30 * SECOND, MINUTE, 60 * MINUTE]


def pings_of(drawn: Sequence[tuple[int, int, Any, int]]) -> list[Ping]:
    """Returns pings for partitions, key numbers (out of range: a reject), gaps and time steps."""
    ms, pings = BEGAN, []
    for partition, key, gap, leap in drawn:
        ms += leap
        who = KEYS[partition][key] if key < len(KEYS[partition]) else None
        pings.append(Ping(partition, who, gap, ms))
    return pings


def some_pings(count: int, seed: int) -> list[Ping]:
    draw = random.Random(seed)  # the same pings again
    return pings_of(
        [
            (draw.randrange(2), draw.randrange(4), draw.choice(GAPS), draw.choice(LEAPS))
            for _ in range(count)
        ]
    )


@pytest.mark.law
@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 3), *map(st.sampled_from, (GAPS, LEAPS))),
        max_size=30,
    ).map(pings_of),
    st.sets(st.integers(0, 30)),
)
def test_what_a_step_is_woken_for_does_not_depend_on_the_cut(
    pings: list[Ping], cuts: set[int]
) -> None:
    assert plain(*in_slices(pings, cuts)) == by_hand(pings)


def closing(state: dict[str, Any], row: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Closes a session after half an hour without a ping."""
    if row is None:
        yield {"who": state["who"], "pings": state["pings"]}
        state.update(dict.fromkeys(state))
    else:
        state["pings"] = (state["pings"] or 0) + 1
        state["wake_at"] = row["_timestamp"] + timedelta(minutes=30)


def test_the_last_session_of_a_key_closes_without_a_next_record_of_it() -> None:
    fold = replace(fold_of(), step=closing)
    pings = [
        Ping(1, "ann", None, BEGAN),
        Ping(1, "ann", None, BEGAN + 29 * MINUTE),
        # Another partition's time is not Ann's.
        Ping(0, "bo", None, BEGAN + 90 * MINUTE),
        Ping(1, "cid", None, BEGAN + 58 * MINUTE),
        # A reject: its time counts.
        Ping(1, None, None, BEGAN + 59 * MINUTE),
    ]

    for cuts in (set(), {1, 2, 3, 4}):
        assert in_slices(pings[:4], cuts, fold)[1] == []
        held, silences = in_slices(pings, cuts, fold)
        assert [(each["who"], each["pings"]) for each in silences] == [("ann", 2)]
        pings_by_key = {who: state["pings"] for who, state in held.items()}
        assert pings_by_key == {"ann": None, "bo": 1, "cid": 1}


def test_no_event_for_ten_minutes_is_told_at_the_time_it_was_asked_for() -> None:
    ten_minutes = 600_000_000
    pings = [Ping(1, "ann", ten_minutes, BEGAN), Ping(1, "cid", None, BEGAN + 10 * MINUTE - 1)]
    assert in_slices(pings, set())[1] == []

    (told,) = in_slices([*pings, Ping(1, "cid", None, BEGAN + 10 * MINUTE)], set())[1]

    found = (told["who"], told["pings"], micros(told["wake_at"]))
    assert found == ("ann", 1, BEGAN * 1000 + ten_minutes)


def test_a_key_that_is_not_due_is_not_written_again() -> None:
    fold = fold_of()
    row = {"who": "ann", "pings": 1, "times": 0, "_topic": "pings", "_partition": 1, "_offset": 7}
    held = [{**row, "wake_at": EPOCH + timedelta(milliseconds=BEGAN)}, {**row, "who": "cid"}]
    nothing = arrow_schema(fold.table.steps_over).empty_table()

    for clock, woken in ((BEGAN - 1, []), (BEGAN, ["ann"])):
        states = pa.Table.from_pylist(held, arrow_schema(fold.table.columns))
        made = fold.here(nothing, states, {"pings": {1: clock}}).rows
        assert made["watched"].to_arrow()["who"].to_pylist() == woken
        assert made["told"].to_arrow()["who"].to_pylist() == woken


def test_a_step_is_not_woken_between_the_rows_of_one_record() -> None:
    called: list[Any] = []

    def step(state: dict[str, Any], row: Mapping[str, Any] | None) -> None:
        called.append(row and row["gap"])
        state["wake_at"] = row and row["_timestamp"]

    fold = replace(fold_of(), step=step)
    row = {"who": "ann", "_topic": "pings", "_partition": 1, "_offset": 7, "_log_time": BEGAN}
    at = EPOCH + timedelta(milliseconds=BEGAN)
    rows = [{**row, "gap": gap, "_timestamp": at} for gap in (1, 2)]
    given_rows = pa.Table.from_pylist(rows, arrow_schema(fold.table.steps_over))

    nothing = arrow_schema(fold.table.columns).empty_table()
    fold.here(given_rows, nothing, {"pings": {1: BEGAN}})

    assert called == [1, 2, None]


@pytest.mark.parametrize("moved", [0, -1])
def test_a_step_that_asks_for_no_later_time_is_refused(moved: int) -> None:
    called: list[Any] = []

    def step(state: dict[str, Any], row: Mapping[str, Any] | None) -> None:
        called.append(row)
        assert len(called) < 9, "it is woken for ever"
        state["wake_at"] = (
            row["_timestamp"] if row else state["wake_at"] + timedelta(microseconds=moved)
        )

    with pytest.raises(
        Broken,
        match=r"the step of table watched was woken at 2023-11-14T22:13:20\+00:00 for key 'ann' "
        r"and leaves wake_at at 2023-11-14T22:13:\S+: it would be woken for ever",
    ):
        in_slices([Ping(1, "ann", 0, BEGAN)], set(), replace(fold_of(), step=step, notes=False))


def test_the_rows_of_a_step_that_is_woken_have_their_log_time() -> None:
    output = {name: parse_type(kind) for name, kind in dozing.columns_of(PINGS)}
    del output["_log_time"]

    with pytest.raises(DeclarationError, match="table watched needs column _log_time bigint"):
        table_births(dozing, {"watched": output})


def test_how_a_step_is_woken_is_a_part_of_its_declaration() -> None:
    plain_step = "ordered(doze, state wake_at timestamp"

    assert str(ordered(doze, state="wake_at timestamp")) == f"{plain_step})"
    woken = ordered(doze, state="wake_at timestamp", on_time="wake_at")
    assert str(woken) == f"{plain_step}, on time wake_at)"


def log_of(pings: Sequence[Ping]) -> MemoryLog:
    log = memory_log()
    for partition, who, gap, ms in pings:
        value = b"{" if who is None else json.dumps({"who": who, "gap": gap}).encode()
        log.add("pings", partition, value, key=(who or "").encode(), ms=ms)
    return log


def ends_of(pings: Sequence[Ping], cuts: Sequence[int]) -> Iterator[Offsets]:
    for cut in cuts:
        partitions = [ping.partition for ping in pings[:cut]]
        yield Offsets({"pings": {number: partitions.count(number) for number in (0, 1)}})


def served(build: Rehearsal) -> tuple[dict[str, Any], list[Any]]:
    held = {row["who"]: row for row in build.table("watched").to_pylist()}
    return plain(held, build.table("told").to_pylist())


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize(
    ("number", "cuts"),
    [(10, 0), pytest.param(60, 6, marks=pytest.mark.sweep)],
    ids=["few", "many"],
)
def test_it_holds_the_law_of_slices_by_either_way(number: int, cuts: int) -> None:
    from kappa.testing import Event, law_of_slices

    pings = some_pings(number, seed=4)
    assert len(by_hand(pings)[1]) > 3
    assert any(ping.who is None for ping in pings)
    events = [
        Event(
            b"{" if ping.who is None else {"who": ping.who, "gap": ping.gap},
            key=ping.who or "",
            partition=ping.partition,
            timestamp_ms=ping.ms,
        )
        for ping in pings
    ]
    law_of_slices(dozing, {"pings": events}, cuts=cuts)


def test_random_events_of_a_step_that_is_woken_leap_over_hours_and_days() -> None:
    from kappa.testing import some_events

    counted = pass_on(PINGS, Table("t", keys=("who",), fold={"pings": count()}))
    times, usual = (
        [event.timestamp_ms for event in some_events(each, 40, seed=1)["pings"]]
        for each in (dozing, counted)
    )

    assert max(times) - min(times) > 24 * 60 * MINUTE
    assert max(usual) - min(usual) < MINUTE


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize("driver_rows", [100, 0])
def test_a_job_that_dies_before_the_frontier_wakes_each_key_once(
    rehearse: Rehearse, driver_rows: int
) -> None:
    """Each key is woken once, even if the waking slice has only rejects, and the job dies."""
    pings = some_pings(24, seed=7)
    late = pings[-1].ms + 60 * MINUTE
    pings += [Ping(0, "bo", 1000, late), Ping(1, "cid", 30_000_000, late)]
    pings += [Ping(partition, None, None, late + MINUTE) for partition in (0, 1)]

    build = rehearse(dozing, log_of(pings), driver_rows)
    for cut, end in zip((26, 28), ends_of(pings, (26, 28)), strict=True):
        before = len(build.table("told"))
        build.die_before_the_frontier_of(end)
        build.begin(driver_rows=driver_rows)
        build.fold(end)
        assert served(build) == by_hand(pings[:cut])
        assert len(build.table("told")) > before


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
def test_a_small_slice_that_wakes_very_many_keys_is_folded_by_spark(
    rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_spark, folded_there = OrderedFold.at_spark, []

    def noted(fold: OrderedFold, *arguments: Any, **named: Any) -> Any:
        folded_there.append(fold.table.name)
        return at_spark(fold, *arguments, **named)

    monkeypatch.setattr(OrderedFold, "at_spark", noted)
    pings = [
        *(Ping(0, who, 1000, BEGAN) for who in KEYS[0]),
        # It wakes three keys, and its own key once more.
        Ping(0, "bo", -1000, BEGAN + 60 * MINUTE),
    ]
    log = log_of(pings)
    build = rehearse(dozing, log, 2)
    for end in ends_of(pings, (2, 3)):
        build.fold(end)
    assert folded_there == []

    build.fold(log.end)

    assert folded_there == ["watched"]
    assert served(build) == by_hand(pings)


def failing(state: dict[str, Any], row: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Counts pings; when it is woken, it fails in a different way for each count."""
    if row is not None:
        state["pings"] = (state["pings"] or 0) + 1
        state["wake_at"] = row["_timestamp"]
        return
    state["seen"] = [*(state["seen"] or ()), state["pings"]]
    yield {"who": state["who"], "pings": "many" if state["pings"] == 3 else state["pings"]}
    if state["pings"] == 1:
        raise ValueError("the first")
    if state["pings"] != 2:
        state["wake_at"] = None


def failing_pipeline(on_error: str) -> Any:
    """Returns a pipeline whose step fails when it is woken, except at a key's fourth ping."""

    @pipeline(
        reads={"pings": PINGS},
        writes=[
            watched_by(failing, "pings bigint, seen array<bigint>"),
            Table("told", emitted="who string, pings bigint"),
        ],
        on_error=on_error,
    )
    def failing_steps(pings: DataFrame) -> dict[str, DataFrame]:
        return {"watched": pings}

    return failing_steps


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize("driver_rows", [100, 0])
def test_a_step_that_fails_where_it_is_woken_is_told_and_goes_on_whatever_the_slices(
    rehearse: Rehearse, driver_rows: int
) -> None:
    """A failed wake is noted, and the state stays as it was before the wake.

    The key asks for no time until its next row.
    """
    pings = [Ping(0, "bo", None, BEGAN)]
    pings += [Ping(1, "ann", None, BEGAN + number * MINUTE) for number in range(4)]
    log, declared, found = log_of(pings), failing_pipeline("reject"), []
    for cuts in ([5], [1, 2, 3, 4, 5]):
        build = rehearse(declared, log, driver_rows)
        for end in ends_of(pings, cuts):
            build.fold(end)
        tally = build.publisher.newest.tally["pings"]
        counted = [(tally[each].decoded, tally[each].rejected) for each in (0, 1)]
        assert counted == [(1, 0), (4, 0)]
        states = build.table("watched").select(["who", "pings", "seen", "wake_at"]).to_pylist()
        columns = ["partition", "offset", "reason", "detail", "timestamp"]
        rejects = build.table("rejects").select(columns).to_pylist()
        found.append(
            (
                sorted(map(repr, (tuple(row.values()) for row in states))),
                build.table("told").to_pylist(),
                sorted(tuple(row.values()) for row in rejects),
            )
        )

    assert found[0] == found[1]
    states, told, rejects = found[0]
    assert states == [repr(("ann", 4, [4], None)), repr(("bo", 1, None, None))]
    assert told == [{"who": "ann", "pings": 4}]
    for (partition, who), reject in zip(((0, "bo"), (1, "ann")), rejects, strict=False):
        *place, detail, at = reject
        assert (place, micros(at)) == ([partition, 0, "wake_failed"], BEGAN * 1000)
        woken = f"woken at 2023-11-14T22:13:20+00:00 for key '{who}'"
        first = f"raised ValueError: the first (in the step of table watched, {woken})"
        assert detail.partition(": ")[2] == first
    assert [row[:3] for row in rejects[2:]] == [(1, 1, "wake_failed"), (1, 2, "wake_failed")]
    assert "it would be woken for ever" in rejects[2][3]
    assert "gives pings of table told, which is int64, what does not fit" in rejects[3][3]


@pytest.mark.jvm
@pytest.mark.usefixtures("spark_here")
@pytest.mark.parametrize("driver_rows", [100, 0])
def test_where_errors_stop_a_step_that_raises_when_it_is_woken_is_named_with_its_key(
    rehearse: Rehearse, driver_rows: int
) -> None:
    log = log_of([Ping(1, "ann", None, BEGAN)])
    with pytest.raises(
        Broken,
        match=r"test_woken_steps\.py:\d+: pipeline failing_steps raised ValueError: the first.*"
        r"; the step of table watched was woken without a row, key 'ann'",
    ):
        rehearse(failing_pipeline("stop"), log, driver_rows).fold(log.end)
