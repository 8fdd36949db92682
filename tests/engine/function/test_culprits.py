"""If a function fails on a record, the record is named or set aside, however the log is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rehearsing import memory_log

from kappa import Pipeline, Table, Topic, count, latest, pipeline
from kappa.base.errors import Broken, KappaError
from kappa.declare.values.tally import Tally
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

EVENTS = Topic("events", event="k string, n int, text string", partitions=2, key="k")
Change = Callable[["DataFrame"], "DataFrame"]


def of(change: Change, on_error: str = "reject") -> Pipeline:
    """Returns a pipeline with a table of each kind; one table takes the rows of `change`."""

    @pipeline(
        reads={"events": EVENTS},
        writes=[
            Table("all"),
            Table("changed", keys=("k",), fold={"rows": count(), "n": latest("n")}),
            Table("newest", latest=EVENTS),
        ],
        on_error=on_error,
    )
    def p(events: DataFrame) -> dict[str, DataFrame]:
        return {"all": events.select("k", "n"), "changed": change(events)}

    return p


def inverted(events: DataFrame) -> DataFrame:
    """Raises an error of Python if n is 0."""
    from pyspark.sql import functions as F

    return events.withColumn("n", F.udf(lambda n: None if n is None else 12 // n, "int")("n"))


def hoarding(events: DataFrame) -> DataFrame:
    """Uses more memory than a worker may, if n is 0."""
    from pyspark.sql import functions as F

    return events.withColumn("n", F.udf(lambda n: len(bytearray(n or 1 << 33)) % 2, "int")("n"))


def cast(events: DataFrame) -> DataFrame:
    """Raises an error of Spark if the text is not a number."""
    from pyspark.sql import functions as F

    return events.withColumn("n", F.col("text").cast("int"))


def filled(*events: dict[str, Any]) -> MemoryLog:
    log = memory_log()
    for number, event in enumerate(events):
        log.skip("events", number % 2, 1)
        value = json.dumps(event, ensure_ascii=False).encode()
        log.add("events", number % 2, value, key=event["k"].encode())
    return log


def events(count: int, **at: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns `count` events that do not fail; `_3={...}` changes the event with number 3."""
    return [
        {"k": f"k{number % 3}", "n": 1 + number, "text": str(number)} | at.get(f"_{number}", {})
        for number in range(count)
    ]


@pytest.fixture
def build(spark: SparkSession, tmp_path: Path) -> Callable[..., Rehearsal]:
    from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
    from kappa.declare.values.columns import Scalar
    from kappa.engine.children.rehearsal import LocalPipeline, Rehearsal

    columns = {"k": Scalar("string"), "n": Scalar("int")}
    order = {name: Scalar(kind) for name, kind in FOLD_ORDER_COLUMNS}
    outputs = {"all": columns, "changed": columns | order}
    return lambda made, log, driver_rows=10_000: Rehearsal(
        tmp_path, LocalPipeline(made, spark, outputs), log, driver_rows=driver_rows
    )


# Of more than three offsets, a slice is large.
@pytest.mark.parametrize("driver_rows", [10_000, 3])
def test_the_job_stops_with_the_first_record_that_the_function_fails_on(
    build: Callable[..., Rehearsal], driver_rows: int
) -> None:
    log = filled(*events(6, _3={"n": 0, "text": "\u00e4" * 1000}, _5={"n": 0}))
    built = build(of(inverted, "stop"), log, driver_rows)

    with pytest.raises(Broken) as stopped:
        built.fold(log.end)

    said = stopped.value.message
    text = Path(__file__).read_text()
    line = text[: text.index("12 // n")].count("\n") + 1
    assert said.startswith(
        f"{__file__}:{line}: pipeline p raised ZeroDivisionError: integer division or modulo by"
        " zero, on events partition 1 offset 3: key k0, value"
    )
    assert '{"k": "k0", "n": 0, "text": "\u00e4\u00e4' in said
    assert len(said) < 800
    assert 'without on_error="stop"' in stopped.value.hint
    assert built.publisher.newest.offsets.distance(built.birth.origin_offsets) == 0


def test_a_function_that_takes_all_memory_is_named_and_its_slice_tried_again(
    build: Callable[..., Rehearsal],
) -> None:
    built = build(of(hoarding), filled(*events(6, _3={"n": 0})))

    with pytest.raises(KappaError, match="pipeline p took more memory than a worker may") as ended:
        built.fold(Offsets({"events": {0: 6, 1: 6}}))
    assert not isinstance(ended.value, Broken)
    assert ended.value.message.startswith("slice 1/0 (")
    assert f"is not folded: {__file__}:" in ended.value.message
    assert "engine.worker_memory" in ended.value.hint


# A large slice is folded as if no record failed, and once more if one does.
@pytest.mark.parametrize("driver_rows", [10_000, 3])
def test_records_that_fail_are_rejects_of_all_tables_and_all_others_are_folded(
    build: Callable[..., Rehearsal], driver_rows: int
) -> None:
    log = filled(
        *events(12, _4={"text": "four"}, _5={"text": ""}, _11={"text": "\U0001f600"}),
        {"k": "k0", "n": "1"},
    )
    built = build(of(cast), log, driver_rows)

    built.fold(log.end)

    def kept(table: str, column: str) -> dict[str, int]:
        return {row["k"]: row[column] for row in built.table(table).to_pylist()}

    numbers = sorted(built.table("all")["n"].to_pylist())
    assert numbers == [1, 2, 3, 4, 7, 8, 9, 10, 11]
    assert kept("changed", "rows") == {"k0": 4, "k1": 3, "k2": 2}
    assert kept("newest", "n") == {"k0": 10, "k1": 8, "k2": 9}
    rejects = {(row["partition"], row["offset"]): row for row in built.table("rejects").to_pylist()}
    assert {place: row["reason"] for place, row in rejects.items()} == {
        **dict.fromkeys(((0, 5), (1, 5), (1, 11)), "function_failed"),
        (0, 13): "wrong_type",
    }
    last = rejects[1, 11]
    assert (last["topic"], last["key"]) == ("events", b"k2")
    assert json.loads(last["value"]) == {"k": "k2", "n": 12, "text": "\U0001f600"}
    assert last["detail"].startswith("function/test_culprits.py:")
    assert "failed on a row: [CAST_INVALID_INPUT]" in last["detail"]
    tallies = [Tally(decoded=5, rejected=2, absent=7), Tally(decoded=4, rejected=2, absent=6)]
    assert built.publisher.newest.tally == {"events": dict(enumerate(tallies))}


@pytest.mark.long
@pytest.mark.parametrize(("wrongs", "cuts"), [(1, 0), pytest.param(2, 6, marks=pytest.mark.sweep)])
def test_the_law_of_slices_holds_where_records_are_rejected(
    spark: SparkSession, wrongs: int, cuts: int
) -> None:
    from kappa.testing import Event, law_of_slices

    assert spark.getActiveSession()
    # Both tables fail on the first, each with an error of its own. In `make faults` it is sent
    # again, still wrong; then it is corrected.
    wrong, mended = events(2, _0={"n": 0, "text": "one"})
    again = [("kappa-redrive", b"events:0:0@1700000000000")]
    given = [
        Event(wrong, key="k0"),
        *[Event(wrong, key="k0", headers=again)] * (wrongs - 1),
        Event(mended, key="k1", headers=again),
    ]

    @pipeline(
        reads={"events": EVENTS},
        writes=[Table("all"), Table("changed", keys=("k",), fold={"rows": count()})],
    )
    def p(events: DataFrame) -> dict[str, DataFrame]:
        return {
            "all": inverted(events).select("k", "n"),
            "changed": cast(events).where("n >= 0").select("k"),
        }

    law_of_slices(p, {"events": given}, cuts=cuts)


def test_a_crash_between_the_rejects_and_the_tables_is_made_good(
    build: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(*events(6, _3={"text": "three"}))
    built = build(of(cast), log)
    built.slices.writers = tuple(
        writer for writer in built.slices.writers if writer.birth.name == "rejects"
    )
    monkeypatch.setattr(built.publisher, "publish", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        built.fold(log.end)

    built.begin(driver_rows=3)
    built.fold(log.end)

    (reject,) = built.table("rejects").to_pylist()
    assert (reject["partition"], reject["offset"]) == (1, 3)
    assert sorted(row["n"] for row in built.table("all").to_pylist()) == [1, 2, 3, 5, 6]


@pytest.mark.long
@pytest.mark.parametrize(("on_error", "driver_rows"), [("stop", 10_000), ("reject", 3)])
def test_what_fails_on_no_record_alone_is_blamed_on_none(
    build: Callable[..., Rehearsal], on_error: str, driver_rows: int
) -> None:
    def crowded(events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return events.withColumn(
            "n", F.pandas_udf(lambda values: values // (len(values) < 2 or 1 // 0), "int")("n")
        )

    def wrong(events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return events.withColumn("n", (F.lit(1) / F.lit(0)).cast("int"))

    log = filled(*events(4))
    together = "raised ZeroDivisionError: .*, on many records together and on none of them alone"
    with pytest.raises(Broken, match=together):
        build(of(crowded, on_error), log, driver_rows).fold(log.end)
    divided = r"test_culprits\.py:\d+: pipeline p failed on a row: \[DIVIDE_BY_ZERO\]"
    with pytest.raises(Broken, match=divided) as own:
        build(of(wrong, on_error), log, driver_rows).fold(log.end)
    assert "partition" not in own.value.message


def test_where_most_records_fail_each_of_them_is_a_reject(build: Callable[..., Rehearsal]) -> None:
    log = filled(*events(120, **{f"_{n}": {"text": "?"} for n in range(120) if n % 40}))
    built = build(of(cast), log)

    built.fold(log.end)

    assert built.table("rejects").num_rows == 117
    assert sorted(row["n"] for row in built.table("all").to_pylist()) == [1, 41, 81]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "wrong", "many"),
    [
        (cast, {"text": "?"}, 4_000),
        (inverted, {"n": 0}, 200),
        pytest.param(
            *(cast, {"text": "?"}, 200_000), marks=[pytest.mark.sweep, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_a_flood_of_records_that_fail_costs_time_and_stops_nothing(
    build: Callable[..., Rehearsal],
    change: Change,
    wrong: dict[str, Any],
    many: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slice is split, so that only a few keys, values and errors are in memory together."""
    monkeypatch.setattr("kappa.engine.function.failing_records.MOST_FAILING", many // 4)
    log = filled(*(each | (wrong if each["n"] % 1_000 else {}) for each in events(many)))
    built = build(of(change), log, driver_rows=1_000)

    built.fold(log.end)

    rejects = built.table("rejects")
    assert rejects.num_rows == many - many // 1_000
    assert set(rejects["reason"].to_pylist()) == {"function_failed"}
    assert built.table("all").num_rows == many // 1_000
    tally = built.publisher.newest.tally["events"]
    assert [each.decoded + each.rejected for each in tally.values()] == [many // 2] * 2
    assert built.slices.splits._split is not None


def test_a_worker_that_dies_is_no_failure_of_a_record(build: Callable[..., Rehearsal]) -> None:
    def deadly(events: DataFrame) -> DataFrame:
        import os

        from pyspark.sql import functions as F

        return events.withColumn("n", F.udf(lambda n: n or os._exit(9), "int")("n"))

    log = filled(*events(4, _2={"n": 0}))
    built = build(of(deadly, "reject"), log)

    with pytest.raises(KappaError, match="Spark failed") as died:
        built.fold(log.end)
    # It is started again, and in the end folds the slice in pieces (law 12).
    assert not isinstance(died.value, Broken)
    assert built.table("rejects").num_rows == 0


def test_the_line_is_told_of_a_record_that_an_archive_alone_has() -> None:
    from kappa.engine.function.failing_records import Culprit, Culprits
    from kappa.engine.function.failure import Failure

    def lost(_piece: Slice) -> Any:
        raise Broken("the log no longer has it")

    blamed = Culprits(of(inverted), lambda: None, None)._blamed(
        Culprit("events", 1, 7, Failure("p.py:3", "raised ZeroDivisionError", "mend it")), lost
    )  # type: ignore[arg-type, return-value]

    assert (
        "p.py:3: pipeline p raised ZeroDivisionError, on events partition 1 offset 7,"
        " which the topic has lost since" in blamed.message
    )
