"""The law of slices in the form that users call (kappa/testing.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from house import HOUSE

from kappa import (
    Pipeline,
    Table,
    Topic,
    avg_,
    count,
    count_distinct,
    hll,
    kll,
    max_,
    pipeline,
    sample,
    set_,
    sum_,
    top_k,
)
from kappa.base.errors import DeclarationError, UsageError
from kappa.declare.values.tally import Tally
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

EVENTS = Topic("events", event="k string, n int, x double", partitions=2)
PEOPLE = Topic(
    "people", kind="compacted", key="id", event="id int not null, name string", partitions=2
)


def of_rows(change: Any, *, keyed: bool = True) -> Pipeline:
    """Returns a pipeline whose function applies `change` to the events."""

    @pipeline(
        reads={"events": EVENTS},
        writes=[
            Table("t", keys=("k",), fold={"rows": count(), "most": max_("n"), "x": sum_("x")})
            if keyed
            else Table("t")
        ],
    )
    def p(events: DataFrame) -> dict[str, DataFrame]:
        return {"t": change(events)}

    return p


def of_the_repository() -> Mapping[str, Pipeline]:
    from kappa.code.project import load_pipelines

    return load_pipelines(HOUSE)


@pytest.mark.sweep
@pytest.mark.usefixtures("roots")
def test_the_pipelines_of_the_repository_hold_it() -> None:
    from kappa.testing import law_of_slices, some_events

    found = of_the_repository()
    assert found
    for each in found.values():
        law_of_slices(each, some_events(each, 24), cuts=1)


@pytest.mark.parametrize(
    ("roots", "drawn", "events", "people", "cuts"),
    [
        ("disk", 39, 6, 3, 1),
        pytest.param("bucket", 39, 6, 3, 1, marks=pytest.mark.sweep),
        pytest.param("disk", 3, 40, 20, 6, marks=pytest.mark.sweep),
        pytest.param("bucket", 3, 40, 20, 6, marks=pytest.mark.sweep),
    ],
    indirect=["roots"],
)
@pytest.mark.usefixtures("roots")
def test_tables_of_each_kind_hold_the_law(drawn: int, events: int, people: int, cuts: int) -> None:
    """The law holds with rejects, tombstones, sums of doubles, sketches and an overflowing set."""
    from kappa.testing import law_of_slices, some_events

    folds = {
        "x": sum_("x"),
        "mean_n": avg_("n"),
        "mean_x": avg_("x"),
        "few": set_("n", limit=2),
        "distinct": count_distinct("n", limit=2),
        "most": top_k("n", 2, by="x"),
        "drawn": sample(["n", "x"], 2, weight="x"),
        "some": hll("n", lg_k=4),
        "half": kll("n", 0.5, k=8),
    }

    @pipeline(
        reads={"events": EVENTS, "people": PEOPLE},
        writes=[Table("t", keys=("k",), fold=folds), Table("all"), Table("people", latest=PEOPLE)],
    )
    def p(events: DataFrame) -> dict[str, DataFrame]:
        return {
            "t": events,
            "all": events.where("n > 0")
            .select("k", "_partition", "_offset")
            .withColumnsRenamed({"_partition": "p", "_offset": "o"}),
        }

    found = some_events(p, events, seed=drawn)
    some_people = found["people"][:people]
    assert any(person.value is None for person in some_people)
    law_of_slices(p, found | {"people": some_people}, cuts=cuts, seed=5)


PAID = Topic(
    "paid",
    event="id string not null, n int, at timestamp",
    partitions=2,
    key="id",
    event_time="at",
    lateness="30 seconds",
    identity="id",
    identity_horizon="1 minute",
)


@pytest.mark.long
@pytest.mark.usefixtures("roots")
def test_late_records_and_duplicates_are_the_same_by_either_way_of_decoding(
    tmp_path: Path,
) -> None:
    """Late records and duplicates are the same at any start of a job."""
    from kappa.declare.values.tally import Tally
    from kappa.engine.children.event_generator import encoded
    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal, local_pipeline
    from kappa.records.decode.decode import decode_table
    from kappa.records.decode.outcome import Fate
    from kappa.state.offsets import Offsets
    from kappa.state.slices import Slice
    from kappa.testing import some_events

    @pipeline(reads={"paid": PAID}, writes=[Table("t"), Table("newest", latest=PAID)])
    def p(paid: DataFrame) -> dict[str, DataFrame]:
        return {"t": paid.selectExpr("_partition as p", "_offset as o")}

    log = MemoryLog()
    for event in some_events(p, 60, seed=1)["paid"]:
        log.add(
            "paid",
            event.partition,
            encoded(event.value),
            key=encoded(event.key),
            ms=event.timestamp_ms,
        )
    whole = decode_table(
        log.read_records(Slice(1, 0, Offsets(), log.end)), PAID, {}, {}
    ).to_pylist()
    decoded = [row for row in whole if row["_fate"] == Fate.DECODED]
    with local_pipeline(p) as local:
        build = Rehearsal(tmp_path, local, log, driver_rows=1_000)
        for part, driver_rows in enumerate([1_000, 0, 1_000], 1):
            build.close()
            build.begin(driver_rows=driver_rows, merge_bytes=1_000_000)
            build.fold(
                Offsets({"paid": {p: end * part // 3 for p, end in log.end.next["paid"].items()}})
            )
        build.close()

    found = build.publisher.newest.tally["paid"]
    tally = sum(found.values(), Tally())
    assert {
        p: t.decoded + t.duplicate + t.rejected + t.tombstone + t.absent for p, t in found.items()
    } == log.end.next["paid"]
    assert (tally.decoded, tally.duplicate) == (
        len(decoded),
        sum(row["_fate"] == Fate.DUPLICATE for row in whole),
    )
    assert min(tally.duplicate, tally.late) > 3
    assert sorted((row["p"], row["o"]) for row in build.table("t").to_pylist()) == sorted(
        (row["_partition"], row["_offset"]) for row in decoded
    )
    assert {row["id"]: row["n"] for row in build.table("newest").to_pylist()} == {
        row["id"]: row["n"] for row in decoded
    }
    rejects = build.table("rejects").column("reason").to_pylist()
    assert (rejects.count("late"), len(rejects)) == (tally.late, tally.rejected)


def by_size(events: DataFrame) -> DataFrame:
    """Returns rows that depend on the size of their batch, and so on the slices."""
    from pyspark.sql import functions as F

    sized = F.pandas_udf(lambda values: values * 0 + len(values), "int")
    return events.withColumn("n", sized("_partition"))


@pytest.mark.parametrize("keyed", [True, False])
def test_rows_that_depend_on_the_slice_are_named_with_the_smallest_cut(keyed: bool) -> None:
    from kappa.testing import Event, LawBroken, law_of_slices

    def change(events: DataFrame) -> DataFrame:
        return by_size(events) if keyed else by_size(events).select("k", "n")

    with pytest.raises(LawBroken) as broken:
        law_of_slices(
            of_rows(change, keyed=keyed),
            {"events": [Event({"k": "Ä", "n": 1}, partition=number % 2) for number in range(3)]},
            cuts=0,
        )

    assert len(broken.value.ends) == 2
    assert (
        "pipeline p breaks the law of slices: the log in 2 slices, which end at events:"
        in broken.value.message
    )
    told = (
        "table t, key 'Ä', column most: 3 and 2"
        if keyed
        else "table t has 3 and 0 times {'k': 'Ä', 'n': 3}"
    )
    assert told in broken.value.message
    assert "nothing remembered" in broken.value.hint


def test_rows_that_differ_each_time_are_found_with_one_slice() -> None:
    from kappa.testing import Event, LawBroken, law_of_slices

    def change(events: DataFrame) -> DataFrame:
        import itertools

        from pyspark.sql import functions as F

        counter = itertools.count()
        seen = F.udf(
            lambda _: (
                (next(counter), __import__("os").getpid(), __import__("time").monotonic_ns())[2]
                % 2**31
            ),
            "int",
        )
        return events.withColumn("n", seen("k"))

    with pytest.raises(
        LawBroken,
        match="the same slice, folded once more, gives other rows than one slice of all:"
        " table t, key 'a', column most: ",
    ):
        law_of_slices(of_rows(change), {"events": [Event({"k": "a"})]}, cuts=0)


def test_what_is_no_pipeline_and_what_it_does_not_read_are_refused() -> None:
    from kappa.testing import Event, law_of_slices

    with pytest.raises(UsageError, match="pipeline p reads no topic elsewhere"):
        law_of_slices(of_rows(lambda events: events), {"elsewhere": [Event({})]})
    with pytest.raises(DeclarationError, match="drops repeated rows"):
        law_of_slices(of_rows(lambda events: events.distinct()), {"events": [Event({"k": "a"})]})
    # Nothing is tried where nothing is folded.
    with pytest.raises(UsageError, match="on no events"):
        law_of_slices(of_rows(lambda events: events), {})
    with pytest.raises(
        UsageError,
        match="none of the 3 events is valid, so nothing was held to the law:"
        " malformed_json 2, not_an_object 1",
    ):
        law_of_slices(
            of_rows(lambda events: events),
            {"events": [Event(b"{"), Event(b"{"), Event(b"[]")]},
            cuts=0,
        )


def test_a_pipeline_without_enough_time_is_not_tried_to_the_end() -> None:
    from kappa.engine.children.law_program import tried_in_time

    pages = of_rows(lambda events: events)
    request = {
        "seconds": 0.0,
        "by_spark": ["p"],
        "declared": {"p": ""},
        "records": {"p": [("events", 0, 0, None, "e30=")] * 3},
    }

    answer = dict(tried_in_time(request, {"p": pages}, lambda _: None))["p"]

    assert (answer["tried"], answer["of"]) == (0, 3)


def test_random_events_are_mostly_valid_and_the_same_each_time() -> None:
    from kappa.declare.values.reason import Rejected
    from kappa.engine.children.event_generator import encoded
    from kappa.records.record import RecordReader
    from kappa.testing import some_events

    flights = of_the_repository()["flights"]
    found = some_events(flights, 300)

    assert found == some_events(flights, 300)
    for topic in flights.topics:
        reader, valid = RecordReader(topic), 0
        for event in found[topic.name]:
            try:
                reader.read(encoded(event.key), encoded(event.value))
                valid += 1
            except Rejected:
                pass
        assert 200 < valid < 300


def redriven(of: int, *, partition: int = 0) -> list[tuple[str, bytes | None]]:
    return [("trace", b"\xff"), ("kappa-redrive", b"events:%d:%d@1700000000000" % (partition, of))]


@pytest.mark.long
@pytest.mark.parametrize("driver_rows", [1_000_000, 0])
@pytest.mark.usefixtures("roots")
def test_a_redriven_record_is_folded_once_and_only_where_what_it_names_is_a_reject(
    spark: SparkSession, tmp_path: Path, driver_rows: int
) -> None:
    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal, local_pipeline

    log = MemoryLog()
    bad, good = b'{"n": "1"}', b'{"k": "mended", "n": 1}'
    log.add("events", 0, bad)
    log.add("events", 0, b'{"k": "valid", "n": 2}')
    log.add("events", 0, bad, headers=redriven(0))
    log.add("events", 0, good, headers=redriven(2))
    log.skip("events", 0, 2)
    log.add("events", 0, good, headers=redriven(0))
    log.add("events", 0, good, headers=redriven(1))
    log.add("events", 0, good, headers=redriven(4))
    log.add("events", 0, good, headers=redriven(0, partition=1))
    log.add("events", 1, good, headers=[("trace", b"x")])

    @pipeline(reads={"events": EVENTS}, writes=[Table("t", keys=("k",), fold={"rows": count()})])
    def counted(events: DataFrame) -> dict[str, DataFrame]:
        return {"t": events}

    with local_pipeline(counted) as local:
        # Spark's slice redrives a reject of an earlier slice, and one of its own.
        for number, ends in enumerate([[10], [3, 4, 4, 8, 10]] if driver_rows else [[2, 10]]):
            built_rows = 1_000_000
            built = Rehearsal(tmp_path / str(number), local, log, driver_rows=built_rows)
            try:
                for end in ends:
                    at = Offsets({"events": {0: end, 1: int(end == 10)}})
                    built.die_before_the_frontier_of(at)
                    built.begin(driver_rows=built_rows)
                    built.fold(at)
                    built.close()
                    built.begin(driver_rows=driver_rows)
                    built_rows = driver_rows
                rows = {row["k"]: row["rows"] for row in built.table("t").to_pylist()}
                rejects = built.table("rejects").sort_by("offset").to_pylist()
                tally = built.publisher.newest.tally["events"]
            finally:
                built.close()

            assert rows == {"valid": 1, "mended": 2}
            assert [
                (row["offset"], row["reason"], row["_redrives"])
                for row in rejects
                if not row["_deleted"]
            ] == [
                (0, "wrong_type", None),
                (2, "wrong_type", 0),
                (9, "bad_redrive", None),
            ]
            assert [
                (row["offset"], row["_redrives"], row["value"])
                for row in rejects
                if row["_deleted"]
            ] == [(3, 0, None)]
            assert rejects[1]["headers"] == [
                {"key": name, "value": value} for name, value in redriven(0)
            ]
            assert rejects[0]["headers"] is None
            assert tally == {
                0: Tally(decoded=2, duplicate=3, rejected=3, absent=2),
                1: Tally(decoded=1),
            }


def test_rows_that_differ_are_shown_by_what_readers_see_of_them() -> None:
    from kappa.engine.children.law_check import differences
    from kappa.state.table import TableBirth

    columns = (("id", "bigint"), ("text", "string"), ("_deleted", "boolean"))
    view = TableBirth("limited", columns, by=("id",), view="select * from t")
    row = (("id", 2), ("text", "x" * 1_000), ("_deleted", False))

    (told,) = differences(view, {row: 1}, {})

    assert told.startswith("view limited has 1 and 0 times {'id': 2, 'text': 'xxx")
    assert told.endswith("xxx...")
    assert len(told) < 300
