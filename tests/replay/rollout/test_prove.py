"""Laws of a proof: its comparison, its hash, its limits, and its record."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from births import make_birth
from house import HOUSE
from hypothesis import given
from hypothesis import strategies as st
from journals import NOWHERE, CaughtUp, append, served, staged, state_of, verified
from msgspec import structs
from twins import FLIGHTS, PLANES, appended, folded, latest, make_build

from kappa.base.errors import NotProvable, UsageError
from kappa.base.failpoint import acting
from kappa.base.settings import Settings
from kappa.code.code_snapshot import ensure_snapshot, hash_files
from kappa.code.fingerprint import SEMANTICS
from kappa.kafka.client import TopicFacts
from kappa.replay.rollout.history import proof_records, rollout_entries
from kappa.replay.rollout.prove.proof_text import proof_line, view_lines
from kappa.replay.rollout.prove.prove import (
    Compared,
    compare_tables,
    doubts_of,
    ensure_provable,
    folding_text,
    keep_proof,
    likely_causes,
    prove_pipeline,
    why_not_provable,
)
from kappa.replay.rollout.prove.row_hash import hash_of_all, hash_sql, table_hash
from kappa.replay.rollout.prove.slice_cuts import Cutting, cut_as, parse_cutting
from kappa.replay.rollout.verify.view_texts import IS_ITS_TEXT
from kappa.replay.status.listings import history_listing
from kappa.serving.query.query import connect_pair
from kappa.serving.query.reader.reader import Reader, open_reader
from kappa.state.build import Base, Birth, TopicBirth
from kappa.state.build_status import SliceProgress
from kappa.state.journal.events import Abandoned, Check, Difference, Event, Proved
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.state.witness import LostEnd, Witness, Witnesses
from kappa.tables.parquet import duck_type

FAILPOINTS = ["journal.before_proved", "journal.after_proved"]

Rows = Iterable[Mapping[str, Any]]
vectors = st.dictionaries(
    st.sampled_from(["flights", "planes"]),
    st.dictionaries(st.integers(0, 3), st.integers(0, 5_000), min_size=1, max_size=4),
    min_size=1,
    max_size=2,
).map(Offsets)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / ".kappa")


def compared(
    store: Store,
    tables: Mapping[TableBirth, tuple[Rows, Rows]],
    *,
    unsettled: Iterable[str] | None = None,
    rejects: tuple[Rows, Rows] = ((), ()),
) -> dict[str, Compared]:
    """Returns a proof's findings about served tables and the same tables folded again.

    The tables that were folded again are in another store, on this host's disk.
    """
    again, steps = Store(store.local.path("tmp/prove-1")), list[str]()
    sides = [{table: rows[side] for table, rows in tables.items()} for side in (0, 1)]
    one = make_build(store, "b", sides[0], rejects=rejects[0])
    other = make_build(again, "b", sides[1], rejects=rejects[1])
    with connect_pair(
        store,
        (one.birth, one.frontier),
        (other.birth, other.frontier),
        limits=None,
        after_store=again,
    ) as reader:
        found = compare_tables(
            reader,
            one.birth,
            unsettled=lambda table: unsettled if table.latest else None,
            samples=5,
            on_progress=steps.append,
        )
    tables_of = one.birth.tables
    assert steps == [
        f"comparing table {table.name} ({number} of {len(tables_of)})"
        for number, table in enumerate(tables_of, 1)
    ]
    return {each.difference.table: each for each in found}


@pytest.mark.parametrize(
    ("done", "rate", "within", "says"),
    [
        (0, None, None, "starting Spark, for 1,000 records"),
        (100, 50.0, (250, "read", 100), "100 of 1,000 records (10 %), 50/s, 18 s left; {} read"),
        (250, 0.0, (250, "function", 250), "250 of 1,000 records (25 %); {} read, folding"),
        (1_000, 50.0, None, "1,000 of 1,000 records (100 %)"),
    ],
)
def test_a_proof_says_how_far_its_fold_is(
    done: int, rate: float | None, within: tuple[int, str, int] | None, says: str
) -> None:
    progress = SliceProgress(0, 0, 4, *within) if within else None
    read = f"slice 1 of 4: {'100 of ' if done == 100 else ''}250 records"
    told = f"folding the log again: {says.format(read)}"
    assert folding_text(done, 1_000, rate, progress) == told


def difference(table: Compared) -> tuple[int, int, int]:
    return table.difference.added, table.difference.removed, table.difference.changed


# Cuts of the log.


@given(
    vectors,
    vectors,
    st.sampled_from(
        [Cutting("one"), Cutting("even", 7), Cutting("random", seed=3), Cutting("random", seed=8)]
    ),
    st.integers(50, 2_000),
)
def test_slices_follow_one_another_whatever_the_cut(
    one: Offsets, other: Offsets, how: Cutting, slice_records: int
) -> None:
    """The slices follow each other from the origin to the frontier."""
    start, end = one.lowest_with(other), one.highest_with(other)

    cuts = cut_as(how, start, end, slice_records=slice_records, driver_rows=1_000)

    assert cuts.ends[-1].equals(end)
    assert all(after.covers(before) for before, after in pairwise([start, *cuts.ends]))
    assert cuts == cut_as(how, start, end, slice_records=slice_records, driver_rows=1_000)
    if how.how == "random":
        sizes = [after.distance(before) for before, after in pairwise([start, *cuts.ends])]
        # A cut moves partitions together, each rounded for itself.
        assert max(sizes) <= slice_records + len(list(end.items()))


def test_random_slices_are_computed_in_both_ways() -> None:
    """Random slices use both the driver and Spark; one slice of everything uses only Spark."""
    end = Offsets({"flights": {0: 30_000_000, 1: 30_000_000}})
    sizes = {"slice_records": 500_000, "driver_rows": 50_000}
    for seed in range(20):
        cuts = cut_as(Cutting("random", seed=seed), Offsets(), end, **sizes)
        lengths = [after.distance(before) for before, after in pairwise([Offsets(), *cuts.ends])]
        assert {length > cuts.driver_rows for length in lengths if length} == {True, False}

    whole = cut_as(Cutting("one"), Offsets(), end, **sizes)

    assert (whole.ends, whole.driver_rows) == ((end,), 0)


@pytest.mark.parametrize("slices", ["", "0", "-1", "1.5", "all", "²", "٣"])
def test_what_is_no_way_to_cut_is_a_slip(slices: str) -> None:
    with pytest.raises(UsageError, match="not a way to cut"):
        parse_cutting(slices, None)


def test_a_seed_is_drawn_for_a_random_cut_and_belongs_to_no_other() -> None:
    assert parse_cutting("random", 7).seed == 7
    assert parse_cutting("random", None).seed != parse_cutting("random", None).seed
    assert parse_cutting("one", None) == Cutting("one")
    assert parse_cutting("20", None) == Cutting("even", 20)
    with pytest.raises(UsageError, match="needs none"):
        parse_cutting("20", 7)


# The hash.

TYPES = (
    "s string, n bigint, i int, d double, f float, m decimal(12,2), b boolean, at timestamp, "
    "day date, l array<int>, o struct<x:int,y:string>"
)
# Values, and their texts in the hash.
VALUES: dict[str, tuple[Any, str | None]] = {
    "s": ("ünï:code\n", "ünï:code\n"),
    "n": (-(2**63), "-9223372036854775808"),
    "i": (None, None),
    "d": (0.1, "0.1"),
    "f": (1.5, "1.5"),
    "m": (Decimal("-12.30"), "-12.30"),
    "b": (True, "true"),
    "at": (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "-1"),
    "day": (date(2026, 1, 31), "2026-01-31"),
    "l": ([1, None], "[1,null]"),
    "o": ({"x": 1, "y": "z"}, '{"x":1,"y":"z"}'),
}
ROW = {column: value for column, (value, _) in VALUES.items()}
TEXTS = {column: text for column, (_, text) in VALUES.items()}


def hash_by_hand(rows: Iterable[Mapping[str, str | None]]) -> str:
    """Computes the hash by its definition, in plain Python, from rows of texts."""
    sums = [0, 0, 0, 0]
    for row in rows:
        text = b"".join(
            b"~" if value is None else f"{len(value.encode())}:{value}".encode()
            for _, value in sorted(row.items())
        )
        words = struct.unpack(">4Q", hashlib.sha256(text).digest())
        sums = [(one + more) % 2**64 for one, more in zip(sums, words, strict=True)]
    return "".join(f"{each:016x}" for each in sums)


def hash_of(store: Store, *rows: Mapping[str, Any]) -> str:
    table = appended("all", TYPES)
    return compared(store, {table: (rows, ())})["all"].hashes[0]


def test_anybody_can_compute_the_hash(store: Store) -> None:
    nulls = dict.fromkeys(ROW)

    assert hash_of(store, ROW, nulls, nulls) == hash_by_hand([TEXTS, nulls, nulls])
    of_all = hashlib.sha256(b"a 1 11\nb 2 22\n").hexdigest()
    assert hash_of_all([("b", 2, "22"), ("a", 1, "11")]) == of_all


def test_the_query_that_the_guarantees_tell_computes_it(store: Store) -> None:
    page = (HOUSE / "docs" / "explain" / "guarantees.md").read_text(encoding="utf-8")
    (query,) = re.findall(r"```sql\n(with rows as.*?)```", page, re.DOTALL)
    table = folded("by_item", "item string, orders bigint", keys=("item",))
    rows = [{"item": "é", "orders": 3}, {"item": None, "orders": None}]

    found = compared(store, {table: (rows, ())})["by_item"]

    values = "(values ('é', 3::bigint), (null, null)) t(item, orders)"
    with open_reader(None, served=True) as reader:
        reader.run_command(f"create view by_item as select * from {values}")
        assert reader.rows(query).rows == ((found.hashes[0],),)


@pytest.mark.slow
def test_values_change_a_hash_order_does_not(tmp_path: Path) -> None:
    other = {**ROW, "s": "b"}
    changes: list[dict[str, Any]] = [
        *({"s": text} for text in ("", "ünï:code", None)),
        *({"d": math.nan}, {"d": 0.2}, {"n": 0}, {"i": 0}, {"f": None}, {"b": False}),
        *({"m": Decimal("-12.31")}, {"at": datetime(1970, 1, 1, tzinfo=UTC)}, {"day": None}),
        *({"l": []}, {"l": None}, {"o": {"x": 1, "y": None}}),
    ]
    places = (Store(tmp_path / str(number)) for number in range(100))

    assert hash_of(next(places), ROW, other) == hash_of(next(places), other, ROW)
    hashes = [hash_of(next(places), {**ROW, **change}) for change in ({}, *changes)]
    hashes += [hash_of(next(places)), hash_of(next(places), ROW, ROW)]
    assert len(set(hashes)) == len(hashes)
    assert hash_of(next(places), {**ROW, "d": 0.0}) == hash_of(next(places), {**ROW, "d": -0.0})


def hash_of_value(reader: Reader, kind: str, sql: str) -> str:
    """Returns the hash of one row with one value of this type."""
    source = f"(select ({sql})::{duck_type(kind)} as v)"
    return table_hash(reader.rows(hash_sql([("v", kind)], source)).rows[0][1:])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamp", ["null", "'infinity'", "'-infinity'", "'294247-01-10 04:00:54.775806+00'"]),
        ("date", ["null", "'infinity'", "'-infinity'", "'9999-12-31'"]),
        ("double", ["null", "'nan'", "'inf'", "'-inf'", "'0'", "'5e-324'"]),
        ("array<timestamp>", ["null", "[]", "[null]", "['infinity']", "['-infinity']",
                              "['294247-01-10 04:00:54.775806+00']",
                              "['294247-01-10 04:00:54.775805+00']"]),
        ("array<decimal(38,6)>", [f"['12345678901234567890123456789012.{digits}']"
                                  for digits in ("345678", "345679", "000000")]),
        ("struct<m:decimal(38,18),s:string>", ["null", "{'m': null, 's': null}",
                                               "{'m': '1.000000000000000001', 's': 'a'}",
                                               "{'m': '1.000000000000000002', 's': 'a'}"]),
        ("array<double>", ["['nan']", "['inf']", "['-inf']", "[null]", "['0']"]),
        ("array<array<string>>", ["[['a', 'b']]", "[['a'], ['b']]", "[['a\",\"b']]", "[[null]]",
                                  "[null]", "[['null']]"]),
        ("array<struct<key:string,value:binary>>", ["[{'key': 'a', 'value': '\\x00'::blob}]",
                                                    "[{'key': 'a', 'value': ''::blob}]",
                                                    "[{'key': 'a', 'value': null}]"]),
    ],
)  # fmt: skip
def test_each_value_has_a_hash_of_its_own(kind: str, values: list[str]) -> None:
    with open_reader(None, served=True) as reader:
        hashes = [hash_of_value(reader, kind, each) for each in values]

    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("double", "'nan'", "'-nan'"),
        ("float", "'0.0'", "'-0.0'"),
        ("array<double>", "['nan', '0.0']", "['-nan', '-0.0']"),
        ("struct<x:float>", "{'x': 'nan'}", "{'x': '-nan'}"),
    ],
)
def test_equal_values_have_one_hash(kind: str, one: str, other: str) -> None:
    with open_reader(None, served=True) as reader:
        typed = duck_type(kind)
        assert reader.rows(f"select ({one})::{typed} = ({other})::{typed}").rows == ((True,),)
        assert hash_of_value(reader, kind, one) == hash_of_value(reader, kind, other)


def test_a_value_cannot_pass_for_two() -> None:
    columns = (("a", "string"), ("b", "string"))
    with open_reader(None, served=True) as reader:
        reader.run_command(
            "create view v as select * from (values ('a', 'bc'), ('ab', 'c'), ('1:a', "
            "'b'), ('~', null), (null, '~'), ('', 'abc')) t(a, b)"
        )
        rows = (f"(select * from v limit 1 offset {number})" for number in range(6))
        hashes = [table_hash(reader.rows(hash_sql(columns, row)).rows[0][1:]) for row in rows]

    assert len(set(hashes)) == len(hashes)


# The comparison.


def test_equal_rows_have_one_hash_and_others_are_found(any_store: Store) -> None:
    log = appended(columns="carrier string, delay int")
    row = {"carrier": "UA", "delay": 1}
    rows = [row, row, {"carrier": None, "delay": None}]
    more = structs.replace(log, name="more")
    found = compared(any_store, {log: (rows, rows[::-1]), more: (rows, rows[1:])})
    same, more = found["departures"], found["more"]

    assert same.equal
    assert same.hashes[0] == same.hashes[1]
    assert not more.equal
    assert difference(more) == (0, 1, 0)
    (sample,) = more.samples
    assert (sample.kind, sample.before, sample.times) == ("removed", rows[0], 1)


def compared_values(store: Store, fold: str, one: list[Any], other: list[Any]) -> Compared:
    """Compares the values of a column of doubles that `fold` has made."""
    table = folded(columns="carrier string, mean double")
    table = structs.replace(table, fold={"mean": (fold, "delay")})
    rows = [
        [{"carrier": f"{number}", "mean": value} for number, value in enumerate(values)]
        for values in (one, other)
    ]
    return compared(store, {table: (rows[0], rows[1])})["delays"]


def test_sums_of_doubles_are_compared_loosely(store: Store) -> None:
    """Sums of doubles are compared with tolerance, named, and left out of the hash."""
    found = compared_values(store, "sum", [1e300, 0.1 + 0.2], [1e300 * (1 + 1e-12), 0.3])

    assert found.equal
    assert found.left_out == {"mean": "a sum of doubles"}


@pytest.mark.parametrize(
    ("fold", "one", "other"),
    [
        *(("sum", 0.3, 0.3001), ("sum", math.nan, 5.0), ("sum", math.inf, 5.0)),
        *(("sum", None, 0.0), ("sum", math.inf, -math.inf)),
        # A double that no sum has made is compared to the last digit.
        ("max", 0.1 + 0.2, 0.3),
    ],
)
def test_doubles_that_are_others_differ(
    store: Store, fold: str, one: float | None, other: float | None
) -> None:
    found = compared_values(store, fold, [one], [other])

    assert difference(found) == (0, 0, 1)
    assert bool(found.left_out) == (fold == "sum")


def test_only_averages_of_whole_numbers_are_in_the_hash(store: Store) -> None:
    columns = (
        ("k", "string"),
        *(("x", "double"), ("_x_sum", "double"), ("_x_count", "bigint")),
        *(("n", "double"), ("_n_sum", "bigint"), ("_n_count", "bigint")),
    )
    table = TableBirth("t", columns, keys=("k",), fold={"x": ("avg", "x"), "n": ("avg", "n")})
    one, near = {"k": "a", "x": 0.1 + 0.2, "n": 0.5}, {"k": "a", "x": 0.3, "n": 0.5}
    apart = {**near, "n": math.nextafter(0.5, 1)}

    twin = structs.replace(table, name="u")
    found = compared(store, {table: ([one], [near]), twin: ([one], [apart])})

    assert found["t"].equal
    assert found["t"].left_out == {"x": "a sum of doubles"}
    assert difference(found["u"]) == (0, 0, 1)
    assert found["u"].hashes[0] != found["u"].hashes[1]


def test_approximate_quantiles_are_equal_within_error(store: Store) -> None:
    """Approximate quantiles are equal within their error, and are left out of the hash."""
    columns = (
        *(("k", "string"), ("p", "bigint"), ("_p_sketch", "binary")),
        *(("_p_low", "bigint"), ("_p_high", "bigint")),
    )
    options = {"p": {"rank": 0.5, "k": 200}}
    table = TableBirth("t", columns, keys=("k",), fold={"p": ("kll", "n")}, options=options)
    one, near, apart = (
        {"k": "a", "p": p, "_p_low": low, "_p_high": high}
        for p, low, high in ((5, 1, 9), (7, 2, 11), (15, 10, 19))
    )

    twin = structs.replace(table, name="u")
    found = compared(store, {table: ([one], [near]), twin: ([one], [apart])})

    assert found["t"].equal
    assert found["t"].left_out == {"p": "an approximate quantile"}
    assert difference(found["u"]) == (0, 0, 1)
    assert list(likely_causes([], (), [found["u"]])) == [
        "u.p is an approximate quantile, and differs by more than the error of its sketch"
    ]


def reject(topic: str, offset: int, reason: str = "not-json") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestamp": None,
        "key": b"\x00",
        "value": None,
        "headers": [{"key": "h", "value": b"\xff\x00"}],
        "reason": reason,
        "detail": "",
    }


def test_rejects_are_compared_row_by_row_but_for_those_of_compacted_topics(store: Store) -> None:
    kept, compacted = reject("flights", 1), reject("planes", 1)

    odd = {**kept, "headers": [{"key": "h", "value": b"\xff\x01"}]}

    found = compared(store, {}, rejects=([kept, compacted], [kept]))["rejects"]
    other = compared(Store(store.folder / "other"), {}, rejects=([kept], [odd]))["rejects"]

    assert found.equal
    assert found.difference.unsettled == 1
    assert difference(other) == (1, 1, 0)
    assert other.hashes[0] != other.hashes[1]


def test_keys_that_compaction_decides_are_set_aside_and_counted(store: Store) -> None:
    planes = latest()
    place = {"_log_time": 1, "_partition": 0, "_offset": 1, "_deleted": None}
    one, other = ({"tailnum": tailnum, "seats": 3, **place} for tailnum in ("N1", "N2"))
    rows = ([one, other], [{**one, "seats": 4}, other])

    found = compared(store, {planes: rows}, unsettled=["N1"])["planes"]

    assert found.equal
    assert (found.difference.unsettled, found.difference.rows_before) == (1, 1)


# Pipelines that cannot be proved.


WITNESS = Witness(8, 3, "d")
ORIGIN = {"flights": {"0": 5}}


def birth(**other: Any) -> Birth:
    born = make_birth("b", pipeline="web", semantics=SEMANTICS, module="pipelines.p", origin=ORIGIN)
    return structs.replace(born, topics=(FLIGHTS, PLANES), **other)


def facts(*topics: TopicBirth) -> dict[str, TopicFacts]:
    return {topic.name: TopicFacts(topic.name, topic.id, topic.partitions) for topic in topics}


THERE = facts(FLIGHTS, PLANES)
ANOTHER = facts(structs.replace(FLIGHTS, id="another"), PLANES)
LATER = "flights partition 0 begins at offset 6 now, and the build has folded it from offset 5 on"
CREATED_AGAIN = (
    "topic flights was re-created: its id is another, and the build has folded the one with id "
    "id-of-flights"
)
OLD = SEMANTICS - 1
OTHER_RULES = f"it was folded by Kappa's rules number {OLD}, and they are number {SEMANTICS} now"


@pytest.mark.parametrize(
    ("of", "there", "begins", "why"),
    [
        ({}, THERE, {"flights": {0: 5}}, None),
        # The build folded none of the lost records.
        ({}, THERE, {"planes": {0: 3}}, None),
        ({}, THERE, {"flights": {0: 6}}, LATER),
        ({}, facts(PLANES), {}, "topic flights is gone"),
        ({}, ANOTHER, {}, CREATED_AGAIN),
        ({"semantics": OLD}, THERE, {}, OTHER_RULES),
    ],
)
def test_what_is_gone_of_the_log_or_was_folded_otherwise_cannot_be_proved(
    of: dict[str, Any], there: Mapping[str, TopicFacts], begins: Any, why: str | None
) -> None:
    folded_to = Offsets({"flights": {0: 9}, "planes": {0: 0}})
    assert why_not_provable(birth(**of), folded_to, there, Offsets(begins)) == why


class NoLog:
    """A log whose topics are gone."""

    bootstrap_servers = "nowhere:1"

    def facts(self, _name: str) -> None:
        return None

    def beginning(self, _topics: Iterable[str]) -> Offsets:
        return Offsets()


@pytest.mark.parametrize(
    ("pipeline", "error", "why"),
    [
        ("flights", NotProvable, "pipeline flights is not provable: "),
        ("web", UsageError, "no pipeline web is served"),
    ],
)
def test_refused_proof_is_neither_kept_nor_begun(
    store: Store, tmp_path: Path, pipeline: str, error: type[Exception], why: str
) -> None:
    make_build(store, "a", {appended(): []})
    append(store, *SERVED)
    project = Settings(project=tmp_path)

    # `NoLog` has no keys, and these refusals need none.
    with pytest.raises(error, match=why):
        prove_pipeline(project, store, NoLog(), pipeline, Cutting("one"), on_progress=print)  # type: ignore[arg-type]

    assert state_of(store).proofs == ()
    assert store.names("leases") == store.names("tmp") == ()


class CutLog:
    """A log that lost its end since the build folded it."""

    def facts(self, name: str) -> TopicFacts:
        return facts(FLIGHTS, PLANES)[name]

    def beginning(self, _topics: Iterable[str]) -> Offsets:
        return Offsets()

    def lost_ends(self, end: Offsets, witnesses: Witnesses) -> tuple[LostEnd, ...]:
        assert (end, witnesses) == (Offsets({"flights": {0: 9}}), {"flights": {0: WITNESS}})
        return (LostEnd("flights", 0, 7, 9),)


def test_a_log_that_lost_its_end_is_named_as_the_cause(store: Store) -> None:
    log, end = CutLog(), Offsets({"flights": {0: 9}})
    with pytest.raises(NotProvable) as refused:
        ensure_provable(store, log, birth(), end, {"flights": {0: WITNESS}})  # type: ignore[arg-type]

    assert refused.value.message == (
        "pipeline web is not provable: the log has lost its end, which the build has folded: "
        "flights partition 0 was cut at offset 7 and has lost offsets 7 to 8"
    )


# Likely causes.

CLOCKED = """
from pyspark.sql import functions as F
from kappa import Table, Topic, pipeline

@pipeline(reads={"hits": Topic("hits", event="page string")}, writes=[Table("pages")])
def web(hits):
    return {"pages": hits.withColumn("seen", F.current_timestamp())}
"""


def test_a_clock_that_was_let_through_is_the_likely_cause(store: Store) -> None:
    files = {"pipelines/p.py": CLOCKED.encode()}
    ensure_snapshot(store, "b", files)
    rand = "pipelines/p.py:7 uses Spark's Rand, which gives another value each time: why not"
    of = birth(sources=hash_files(files), accepted=(rand, "hits partition 0 begins at 3"))

    found = list(doubts_of(store, of))

    clock = "pipelines/p.py:7 uses pyspark.sql.functions.current_timestamp, which reads the clock"
    assert found == [clock, rand]
    assert list(likely_causes(found, (), ())) == found


def test_libraries_and_sums_of_doubles_are_causes() -> None:
    changed = Difference("delays", 2, 2, changed=1, changed_by_column={"mean": 1})
    sums = dict.fromkeys(("mean", "other"), "a sum of doubles")
    summed = Compared(changed, (), ("1", "1"), sums)

    assert list(likely_causes([], ("a 1 to 2", "b 1 to 2", "c 1 to 2", "d 1 to 2"), [summed])) == [
        "libraries are others than at the build's birth: a 1 to 2, b 1 to 2, c 1 to 2 and 1 more",
        "delays.mean is a sum of doubles, and differs by more than 1e-09",
    ]
    (unexplained,) = likely_causes([], (), [replace(summed, left_out={})])
    assert unexplained.startswith("nothing in the code explains it")


def test_a_view_that_is_not_its_text_is_no_proof_and_named() -> None:
    checks = (
        Check("best", IS_ITS_TEXT, 4, 2),
        Check("worst", IS_ITS_TEXT, 4, 0),
        Check("odd", IS_ITS_TEXT, 0, None, "no"),
    )
    found = structs.replace(FOUND, equal=False, views=checks)

    worst, best, odd = view_lines(found)
    assert worst == "1 maintained view is its query over the tables: worst"
    assert best.startswith("view best is not its query over the tables")
    assert best.endswith(": 2 rows are stored or computed alone, of 4")
    assert odd == "view odd could not be compared with its query: no"
    (cause,) = likely_causes([], (), [], checks)
    assert cause.startswith("view best is kept by a query that does not mean")


# The journal.

SERVED: tuple[Event, ...] = (staged("a"), CaughtUp(1, NOWHERE), verified(1), served(1, 1, "a"))
FOUND = Proved(
    *("flights", "a", Offsets({"flights": {0: 9}}), "random", 4, 7),
    equal=True,
    rows=4,
    hash="ab",
    differences=(Difference("delays", 3, 3), Difference("rejects", 1, 1)),
)


# Keeps the proof that its second argument has, below the root of its first.
_KEEPER = """
import pickle, sys
from pathlib import Path
from kappa.replay.rollout.prove.prove import keep_proof
from kappa.state.store import Store
keep_proof(Store(Path(sys.argv[1])), pickle.loads(bytes.fromhex(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("point", FAILPOINTS)
def test_proof_killed_around_its_record_is_made_again(store: Store, point: str) -> None:
    """A killed proof changes nothing, and the next proof is kept."""
    before = append(store, *SERVED)

    killed = subprocess.run(
        [sys.executable, "-c", _KEEPER, str(store.folder), pickle.dumps(FOUND).hex()],
        env={**os.environ, "PYTHONPATH": str(HOUSE), "KAPPA_FAIL": f"{point}:kill"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    record = keep_proof(store, FOUND)

    state = state_of(store)
    assert state.proofs[-1] == record
    assert len(state.proofs) == (1 if "before" in point else 2)
    assert replace(state, last=before.last, proofs=()) == before


def test_a_proof_is_kept_while_others_append(store: Store) -> None:
    append(store, *SERVED, staged("b"))

    def be_first(name: str) -> None:
        waiting = state_of(store).active("flights")
        if name == "journal.before_proved" and waiting:
            append(store, Abandoned(5, "changed our mind"))

    with acting(be_first):
        record = keep_proof(store, FOUND)

    assert (record.number, state_of(store).proofs) == (7, (record,))


def test_the_history_tells_proofs_among_the_rollouts(store: Store) -> None:
    append(store, *SERVED)
    keep_proof(store, FOUND)
    state = append(store, structs.replace(FOUND, equal=False, causes=("a clock",)), staged("b"))

    rows = history_listing(rollout_entries(state), proof_records(state)).row_objects()

    assert [(row["what"], row["state"], row["version"]) for row in rows] == [
        ("replay", "served", "version-of-a"),
        ("proof", "proved", "version-of-a"),
        ("proof", "not equal", "version-of-a"),
        ("replay", "replaying", "version-of-b"),
    ]
    proved = "proved: 1 table, 3 rows and 1 reject, equal at offsets flights:0=9, in 4 random "
    assert rows[1]["why"] == f"{proved}slices (--seed 7), hash ab"
    assert rows[2]["why"].endswith("; a clock")
    assert rows[1]["proof"]["offsets"] == {"flights": {"0": 9}}
    assert (rows[1]["proof"]["seed"], rows[0]["proof"]) == (7, None)
    assert proof_line(structs.replace(FOUND, equal=False)).startswith("not equal: 1 table, 3 rows")


def test_proof_of_a_branch_counts_what_its_base_held() -> None:
    based = structs.replace(FOUND, base=Base("z", "v0", {"flights": {"0": 5}}, 3))
    proved = "proved: 1 table, 3 rows and 1 reject, what its base held among them, equal at"
    assert proof_line(based).startswith(proved)
