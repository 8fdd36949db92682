"""Laws of the diff: each kind of difference is found and counted, and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec import structs
from twins import PLANES, appended, compared, folded, latest, make_build

from kappa import Avro, Topic
from kappa.base.errors import Broken, KappaError, UsageError
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.verify.diff import RowSample
from kappa.replay.rollout.verify.unsettled_keys import plain_texts, texts_in
from kappa.serving.query.reader.reader import Limits
from kappa.state.build import TopicBirth, table_path
from kappa.state.journal.events import Difference, OutcomeCount
from kappa.state.store import Store
from kappa.state.table import TableBirth


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "röot 1* it's #1?")


def difference_of(
    store: Store,
    old: TableBirth,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    new: TableBirth | None = None,
    **how: Any,
) -> Difference:
    sides = make_build(store, "a", {old: before}), make_build(store, "b", {new or old: after})
    (difference,) = compared(store, *sides, **how).differences
    return difference


def delays(**on_time: int | None) -> list[dict[str, Any]]:
    return [{"carrier": carrier, "on_time": count} for carrier, count in on_time.items()]


def test_equal_tables_have_no_difference(store: Store) -> None:
    difference = difference_of(store, folded(), delays(UA=3, AA=None), delays(AA=None, UA=3))

    assert difference == Difference("delays", 2, 2)
    assert difference.equal


def test_rows_are_added_removed_and_changed_by_column(any_store: Store) -> None:
    store = any_store
    table = folded(columns="carrier string, flights bigint, on_time bigint, name string")
    before = [
        {"carrier": carrier, "flights": 4, "on_time": 2, "name": "x"}
        for carrier in ("UA", "AA", "DL", "B6")
    ]
    after = [
        {"carrier": "UA", "flights": 4, "on_time": 2, "name": "x"},
        {"carrier": "AA", "flights": 5, "on_time": 1, "name": "x"},
        {"carrier": "DL", "flights": 4, "on_time": 0, "name": None},
        {"carrier": "new", "flights": 1, "on_time": 1, "name": "x"},
    ]

    difference = difference_of(store, table, before, after)

    assert (difference.rows_before, difference.rows_after) == (4, 4)
    assert (difference.added, difference.removed, difference.changed) == (1, 1, 2)
    assert difference.changed_by_column == {"flights": 1, "on_time": 2, "name": 1}
    assert difference.largest_relative_change == {"flights": 0.2, "on_time": 1.0}


def test_keys_match_null_safely_and_whatever_they_are(store: Store) -> None:
    table = folded(
        columns="carrier string, day date, n decimal(20,2), value bigint",
        keys=("carrier", "day", "n"),
    )
    keys = [
        (None, None, None),
        (None, date(2013, 1, 1), None),
        ('O\'Hare "x" 日本 \\ ;--', None, Decimal("1.10")),
        ("", date(1900, 1, 1), Decimal("-0.01")),
    ]
    rows = [{"carrier": carrier, "day": day, "n": n, "value": 1} for carrier, day, n in keys]

    assert difference_of(store, table, rows, rows[::-1]).equal


VALUES = [
    ("double", math.nan, math.nan),
    ("double", 0.0, -0.0),
    ("double", math.inf, math.inf),
    ("string", None, None),
    (
        "array<struct<x:int,y:double>>",
        [{"x": None, "y": math.nan}, None],
        [{"x": None, "y": math.nan}, None],
    ),
    (
        "struct<when:timestamp,n:decimal(38,2)>",
        {"when": datetime(2013, 1, 1, tzinfo=UTC), "n": Decimal("1e30")},
        {"when": datetime(2013, 1, 1, tzinfo=UTC), "n": Decimal("1e30")},
    ),
]


@pytest.mark.parametrize(("kind", "one", "other"), VALUES, ids=[kind for kind, *_ in VALUES])
@pytest.mark.parametrize("make", [folded, appended])
def test_a_value_equals_itself(
    store: Store, make: Any, kind: str, one: object, other: object
) -> None:
    table = make(columns=f"carrier string, value {kind}")

    assert difference_of(
        store, table, [{"carrier": "UA", "value": one}], [{"carrier": "UA", "value": other}]
    ).equal


CHANGES = [
    ("double", 1.0, 2.0, 0.5),
    ("double", -1e308, 1e308, 2.0),
    ("double", 5e-324, 0.0, 1.0),
    ("double", 1.0, math.nan, None),
    ("double", math.inf, 1.0, None),
    ("double", None, 1.0, None),
    ("bigint", 2**63 - 1, -(2**63), 2.0),
    ("decimal(38,2)", Decimal("100.00"), Decimal("100.01"), pytest.approx(0.01 / 100.01)),
    ("string", None, "null", None),
    ("string", "a", "A", None),
    ("boolean", True, False, None),
    (
        "timestamp",
        datetime(2013, 1, 1, tzinfo=UTC),
        datetime(2013, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        None,
    ),
    ("array<int>", [1, None], [1], None),
    ("struct<x:int,y:array<string>>", {"x": 1, "y": ["ü"]}, {"x": 1, "y": ["u"]}, None),
    ("struct<x:int>", {"x": None}, None, None),
]


SUMS = [
    (1.0, 1.0 + 1e-10, True),
    (1e20, 1e20 + 1e10, True),
    (0.0, -1e-12, True),
    (math.inf, math.inf, True),
    (math.nan, None, False),
    (1.0, None, False),
]
SUMS += [
    (1.0, 1.0 + 1e-8, False),
    (1e20, 1.00000001e20, False),
    (0.0, 1e-8, False),
    (math.inf, 1.0, False),
    (math.inf, -math.inf, False),
]


@pytest.mark.parametrize(("one", "other", "equal"), SUMS)
def test_sums_of_doubles_that_differ_by_order_are_equal_and_other_doubles_are_not(
    store: Store, one: float, other: float | None, equal: bool
) -> None:
    table = TableBirth(
        "t",
        (("k", "string"), ("x", "double"), ("most", "double")),
        keys=("k",),
        fold={"x": ("sum", "x"), "most": ("max", "x")},
    )

    found = difference_of(
        store, table, [{"k": "a", "x": one, "most": one}], [{"k": "a", "x": other, "most": one}]
    )

    assert found.changed_by_column == ({} if equal else {"x": 1})
    sides = [
        make_build(store, build, {table: [{"k": "a", "x": 0.0, "most": value}]})
        for build, value in (("c", one), ("d", other))
    ]
    assert compared(store, *sides).differences[0].equal == (one == other)


@pytest.mark.parametrize(("one", "other", "equal"), SUMS)
def test_averages_of_doubles_are_compared_as_their_sums_and_others_exactly(
    store: Store, one: float, other: float | None, equal: bool
) -> None:
    columns = (
        ("k", "string"),
        *(("x", "double"), ("_x_sum", "double"), ("_x_count", "bigint")),
        *(("n", "double"), ("_n_sum", "bigint"), ("_n_count", "bigint")),
    )
    table = TableBirth("t", columns, keys=("k",), fold={"x": ("avg", "x"), "n": ("avg", "n")})

    found = difference_of(
        store, table, [{"k": "a", "x": one, "n": one}], [{"k": "a", "x": other, "n": other}]
    )

    exactly = {} if one == other else {"n": 1}
    assert found.changed_by_column == ({} if equal else {"x": 1}) | exactly
    # If the fold was another one before, no tolerance is known.
    as_max = structs.replace(table, fold={**table.fold, "x": ("max", "x")})
    sides = (
        make_build(store, "e", {as_max: [{"k": "a", "x": one}]}),
        make_build(store, "f", {table: [{"k": "a", "x": other}]}),
    )
    assert compared(store, *sides).differences[0].equal == (one == other)


def test_approximate_values_are_equal_where_the_ranges_that_hold_the_true_one_meet(
    store: Store,
) -> None:
    columns = (
        ("k", "string"),
        ("p", "bigint"),
        ("_p_sketch", "binary"),
        ("_p_low", "bigint"),
        ("_p_high", "bigint"),
    )
    table = TableBirth(
        "t", columns, keys=("k",), fold={"p": ("kll", "n")}, options={"p": {"rank": 0.5, "k": 200}}
    )

    def rows(**ranges: tuple[int, int, int] | None) -> list[dict[str, Any]]:
        return [
            {"k": key, **dict(zip(("p", "_p_low", "_p_high"), found or (None,) * 3, strict=True))}
            for key, found in ranges.items()
        ]

    before = rows(
        same=(5, 1, 9),
        near=(5, 1, 9),
        touching=(5, 1, 9),
        apart=(5, 1, 9),
        none=None,
        gone=(5, 1, 9),
    )
    after = rows(
        same=(5, 1, 9),
        near=(7, 2, 11),
        touching=(12, 9, 19),
        apart=(15, 10, 19),
        none=None,
        gone=None,
    )
    found = difference_of(store, table, before, after)

    assert found.changed_by_column == {"p": 2}
    assert found.largest_relative_change == {"p": pytest.approx(2 / 3)}
    # If the fold was another one before, no tolerance is known.
    as_max = structs.replace(table, fold={"p": ("max", "n")}, options={})
    sides = make_build(store, "e", {as_max: before}), make_build(store, "f", {table: after})
    assert compared(store, *sides).differences[0].changed_by_column == {"p": 4}


@pytest.mark.parametrize(("kind", "one", "other", "change"), CHANGES)
def test_a_changed_value_is_one_changed_row_and_how_much_a_number_changed_is_told(
    store: Store, kind: str, one: object, other: object, change: object
) -> None:
    table = folded(columns=f"carrier string, value {kind}")

    difference = difference_of(
        store, table, [{"carrier": "UA", "value": one}], [{"carrier": "UA", "value": other}]
    )

    assert (
        difference.added,
        difference.removed,
        difference.changed,
        difference.changed_by_column,
    ) == (0, 0, 1, {"value": 1})
    assert difference.largest_relative_change == ({} if change is None else {"value": change})


def test_empty_tables_are_compared_on_either_side(store: Store) -> None:
    one, none = delays(UA=3), []

    for number, (before, after, found) in enumerate(
        [(none, none, (0, 0, 0)), (one, none, (0, 1, 0)), (none, one, (1, 0, 0))]
    ):
        sides = (
            make_build(store, f"a{number}", {folded(): before}),
            make_build(store, f"b{number}", {folded(): after}),
        )
        (difference,) = compared(store, *sides, samples=2).differences
        assert (difference.added, difference.removed, difference.changed) == found


def test_columns_of_one_side_and_retyped_ones_are_named_and_are_no_changed_rows(
    store: Store,
) -> None:
    old = folded(columns="carrier string, gone bigint, typed int, same bigint")
    new = folded(columns="carrier string, new bigint, typed bigint, same bigint")

    difference = difference_of(
        store,
        old,
        [{"carrier": "UA", "gone": 1, "typed": 1, "same": 1}],
        [{"carrier": "UA", "new": 1, "typed": 2, "same": 1}],
        new,
    )

    assert (difference.columns_gone, difference.columns_new, difference.columns_retyped) == (
        ("gone",),
        ("new",),
        {"typed": ("int", "bigint")},
    )
    assert (difference.changed, difference.added, difference.removed) == (0, 0, 0)
    assert not difference.equal


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            folded(columns="k int, v bigint", keys=("k",)),
            folded(columns="k bigint, v bigint", keys=("k",)),
            "its key k is bigint, and was int",
        ),
        (
            folded(columns="k int, j int, v bigint", keys=("k", "j")),
            folded(columns="k int, v bigint", keys=("k",)),
            "its keys are (k), and were (k, j)",
        ),
        (
            appended("delays", "k int"),
            folded(columns="k int, v bigint", keys=("k",)),
            "its keys are (k), and were ()",
        ),
        (appended("delays", "k int"), appended("delays", "j int"), "no column is the same in both"),
        (
            latest("delays"),
            folded(columns="tailnum string, seats bigint", keys=("tailnum",)),
            "it is folded from the function's rows, and was the latest of topic planes",
        ),
    ],
)
def test_tables_whose_rows_cannot_be_matched_are_not_compared_and_it_is_said_why(
    store: Store, old: TableBirth, new: TableBirth, why: str
) -> None:
    difference = difference_of(store, old, [], [], new)

    assert (difference.incomparable, difference.compared, difference.equal) == (why, False, False)
    assert (difference.rows_before, difference.rows_after) == (0, 0)


def test_the_order_of_keys_is_no_difference(store: Store) -> None:
    one, other = (
        folded(columns="a int, b int, v bigint", keys=keys) for keys in (("a", "b"), ("b", "a"))
    )

    assert difference_of(
        store, one, [{"a": 1, "b": 2, "v": 3}], [{"a": 1, "b": 2, "v": 3}], other
    ).equal


def test_a_table_of_one_side_is_named_with_its_rows(store: Store) -> None:
    before = make_build(store, "a", {folded("gone"): delays(UA=1), folded("kept"): []})
    after = make_build(store, "b", {folded("kept"): [], folded("new"): delays(UA=1, AA=2)})

    found = {
        difference.table: difference for difference in compared(store, before, after).differences
    }

    assert list(found) == ["kept", "new", "gone"]
    assert (
        found["gone"].rows_before,
        found["gone"].rows_after,
        found["new"].rows_before,
        found["new"].rows_after,
    ) == (1, None, None, 2)


def test_appended_rows_are_compared_as_often_as_they_stand_there(store: Store) -> None:
    def rows(**times: int) -> list[dict[str, Any]]:
        return [
            {"carrier": carrier, "delay": delay}
            for carrier, count in times.items()
            for delay in [None] * count
        ]

    sides = (
        make_build(store, "a", {appended(): rows(UA=3, AA=1, DL=2)}),
        make_build(store, "b", {appended(): rows(UA=1, AA=1, B6=2, DL=3)}),
    )
    found = compared(store, *sides, samples=5)

    (difference,) = found.differences
    assert (
        difference.rows_before,
        difference.rows_after,
        difference.added,
        difference.removed,
        difference.changed,
    ) == (6, 7, 3, 2, 0)
    assert found.samples["departures"] == (
        RowSample("added", None, {"carrier": "B6", "delay": None}, 2),
        RowSample("added", None, {"carrier": "DL", "delay": None}, 1),
        RowSample("removed", {"carrier": "UA", "delay": None}, None, 2),
    )


def test_keys_that_are_not_settled_are_set_aside_and_counted(store: Store) -> None:
    def planes(**seats: int) -> list[dict[str, Any]]:
        hidden = {"_log_time": 1, "_partition": 0, "_offset": 0, "_deleted": False}
        return [{"tailnum": tail, "seats": count, **hidden} for tail, count in seats.items()]

    sides = (
        make_build(store, "a", {latest(): planes(N1=1, N2=2, N3=3)}),
        make_build(store, "b", {latest(): planes(N1=1, N2=20, N4=4, N5=5)}),
    )
    (difference,) = compared(
        store, *sides, unsettled=["N2", "N5", "N5", "never seen", "N'\"日本"]
    ).differences

    assert difference == Difference("planes", 2, 2, added=1, removed=1, unsettled=2)
    assert (
        compared(store, *sides, unsettled=[]).differences
        == compared(store, *sides, unsettled=None).differences
    )
    assert compared(store, *sides, unsettled=[]).differences[0].changed == 1


def test_whole_numbers_as_keys_are_set_aside_by_their_text(store: Store) -> None:
    table = latest(columns="id bigint, seats int")
    hidden = {"_log_time": 1, "_partition": 0, "_offset": 0, "_deleted": False}
    before, after = (
        [{"id": number, "seats": seats, **hidden} for number in (7, -7)] for seats in (1, 2)
    )

    difference = difference_of(store, table, before, after, unsettled=["-7", "07"])

    assert (difference.changed, difference.unsettled) == (1, 1)


def test_deleted_rows_of_a_latest_table_are_no_rows(store: Store) -> None:
    hidden = {"_log_time": 1, "_partition": 0, "_offset": 0}
    gone = [{"tailnum": "N1", "seats": None, "_deleted": True, **hidden}]

    assert difference_of(store, latest(), gone, []).equal


def test_what_comes_from_a_topic_that_is_not_the_same_is_not_compared(store: Store) -> None:
    other = structs.replace(PLANES, id="another")
    before = make_build(store, "a", {folded(): delays(UA=1), latest(): []})
    after = make_build(
        store,
        "b",
        {folded(): delays(UA=2), latest(): []},
        topics=(TopicBirth("flights", "id-of-flights", "retained", 1), other),
    )

    found = compared(store, before, after, comparable=frozenset({"flights"}))

    assert found.incomparable_topics == ("planes",)
    assert [difference.incomparable for difference in found.differences] == [
        "",
        "topic planes is not the same topic for both builds",
    ]
    assert found.differences[0].changed == 1


def test_samples_are_the_first_of_each_kind_by_key_with_both_values(store: Store) -> None:
    before, after = (
        delays(**{f"k{n}": n for n in range(30)}),
        delays(**{f"k{n}": n + (n % 2) for n in range(10, 40)}),
    )
    sides = make_build(store, "a", {folded(): before}), make_build(store, "b", {folded(): after})

    found = compared(store, *sides, samples=2)

    assert found.samples["delays"] == (
        *(RowSample("added", None, {"carrier": f"k{n}", "on_time": n + n % 2}) for n in (30, 31)),
        *(RowSample("removed", {"carrier": f"k{n}", "on_time": n}, None) for n in (0, 1)),
        *(
            RowSample(
                "changed",
                {"carrier": f"k{n}", "on_time": n},
                {"carrier": f"k{n}", "on_time": n + 1},
            )
            for n in (11, 13)
        ),
    )


def test_only_the_tables_that_are_asked_for_are_compared(store: Store) -> None:
    sides = [make_build(store, build, {folded(): [], appended(): []}) for build in ("a", "b")]

    assert [
        difference.table for difference in compared(store, *sides, only=["departures"]).differences
    ] == ["departures"]
    with pytest.raises(UsageError, match="neither build has a table delay"):
        compared(store, *sides, only=["delay"])


def test_rejects_are_compared_by_their_counts_and_what_became_of_records_too(
    any_store: Store,
) -> None:
    store = any_store

    def rejected(*reasons: str) -> list[dict[str, Any]]:
        return [
            {"topic": "flights", "partition": 0, "offset": offset, "reason": reason}
            for offset, reason in enumerate(reasons)
        ]

    before = make_build(
        store,
        "a",
        {},
        tally=Tally(decoded=7, rejected=3, duplicate=1),
        rejects=rejected("bad_key", "no_json", "no_json"),
    )
    after = make_build(
        store,
        "b",
        {},
        tally=Tally(decoded=8, rejected=2),
        rejects=rejected("no_json", "missing_field"),
    )

    found = compared(store, before, after)

    assert found.differences == ()
    assert set(found.counts) == {
        OutcomeCount("flights", "duplicate", 1, 0),
        OutcomeCount("flights", "rejected", 3, 2),
        OutcomeCount("flights", "rejected as bad_key", 1, 0),
        OutcomeCount("flights", "rejected as no_json", 2, 1),
        OutcomeCount("flights", "rejected as missing_field", 0, 1),
    }


def test_a_key_that_stands_twice_is_an_error_and_no_difference(store: Store) -> None:
    sides = (
        make_build(store, "a", {folded(): delays(UA=1)}),
        make_build(store, "b", {folded(): [*delays(UA=1), *delays(UA=1)]}),
    )

    with pytest.raises(Broken, match="table delays holds a key twice"):
        compared(store, *sides)


@pytest.mark.slow
def test_what_does_not_fit_in_memory_is_spilled_within_a_limit_and_nothing_is_left(
    any_store: Store,
) -> None:
    store = any_store
    rows = [{"carrier": f"{n:0200}", "on_time": n} for n in range(150_000)]
    sides = make_build(store, "a", {folded(): rows}), make_build(store, "b", {folded(): rows})
    limits = Limits("48m", 2, store.local.path("tmp"), "1g")

    assert compared(store, *sides, limits=limits).differences[0].equal
    assert list(store.local.path("tmp").iterdir()) == []
    with pytest.raises(KappaError, match="could not be run"):
        compared(store, *sides, limits=replace(limits, size="1m"))
    assert list(store.local.path("tmp").iterdir()) == []


def test_what_a_killed_process_has_spilled_goes_with_the_next(store: Store) -> None:
    left = store.path("tmp/spill-999999999-1-0123abcd")
    left.mkdir(parents=True)
    # The user has named this folder, so it may contain files of the user's own.
    theirs = [
        store.path(f"tmp/{name}")
        for name in ("archive-2024", "not-ours", "spill-1", "spill-999999999-1-old")
    ]
    for folder in theirs:
        folder.mkdir()
    sides = [make_build(store, build, {folded(): []}) for build in ("a", "b")]

    compared(store, *sides, limits=Limits("256m", 1, store.path("tmp"), "1g"))

    assert sorted(store.path("tmp").iterdir()) == theirs


NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
DOUBLES = st.sampled_from([None, 0.0, -0.0, math.nan, math.inf, 1.5])
TEXTS = st.sampled_from([None, "", "a", "A", "'", "日"])
LISTS = st.one_of(st.none(), st.lists(NUMBERS, max_size=2))
KEYED = st.dictionaries(st.tuples(TEXTS, NUMBERS), st.tuples(NUMBERS, DOUBLES, LISTS), max_size=8)
NAMES = TEXTS.map(str)
LATEST = st.dictionaries(NAMES, st.integers(0, 2), max_size=6)
APPENDED = st.lists(st.tuples(TEXTS, DOUBLES, LISTS), max_size=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return tmp_path_factory.mktemp("any")


def same(one: object, other: object) -> bool:
    # In Python NaN is not NaN, and a list compares its elements by identity first.
    match one, other:
        case float(), float():
            return one == other or (math.isnan(one) and math.isnan(other))
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
    return one == other and (one is None) == (other is None)


@pytest.mark.slow
@pytest.mark.law
@examples(15, suppress=(HealthCheck.function_scoped_fixture,))
@given(KEYED, KEYED)
def test_a_diff_by_key_is_that_of_plain_python(
    folders: Path, before: dict[Any, Any], after: dict[Any, Any]
) -> None:
    store = Store(folders / str(len(list(folders.iterdir()))))
    table = folded(columns="a string, b int, n bigint, x double, l array<bigint>", keys=("a", "b"))
    sides = [
        make_build(
            store,
            build,
            {
                table: [
                    {"a": a, "b": b, "n": n, "x": x, "l": each}
                    for (a, b), (n, x, each) in rows.items()
                ]
            },
        )
        for build, rows in (("a", before), ("b", after))
    ]

    found = compared(store, *sides, samples=100)

    both = before.keys() & after.keys()
    changed = {
        key: [place for place in range(3) if not same(before[key][place], after[key][place])]
        for key in both
    }
    (difference,) = found.differences
    assert (difference.rows_before, difference.rows_after) == (len(before), len(after))
    assert difference.added == len(after.keys() - both)
    assert difference.removed == len(before.keys() - both)
    assert difference.changed == sum(map(bool, changed.values()))
    assert difference.changed_by_column == {
        column: count
        for place, column in enumerate("nxl")
        if (count := sum(place in places for places in changed.values()))
    }
    shown = Counter(
        (sample.kind, *((sample.after or sample.before or {})[key] for key in ("a", "b")))
        for sample in found.samples["delays"]
    )
    expected = (
        [("added", *key) for key in after.keys() - both]
        + [("removed", *key) for key in before.keys() - both]
        + [("changed", *key) for key in both if changed[key]]
    )
    assert shown == Counter(expected)
    relative = [
        abs(after[key][0] - before[key][0]) / max(abs(before[key][0]), abs(after[key][0]))
        for key in both
        if 0 in changed[key] and None not in (before[key][0], after[key][0])
    ]
    assert difference.largest_relative_change.get("n") == (
        pytest.approx(max(relative)) if relative else None
    )


def test_a_key_whose_last_record_is_a_reject_is_set_aside_if_one_side_has_no_row(
    store: Store,
) -> None:
    """Compaction removed the record before the reject for the build that read later."""
    row = {"seats": 1, "_log_time": 1, "_partition": 0, "_offset": 0, "_deleted": False}
    rejects = [
        {"topic": "planes", "partition": 0, "offset": 5, "key": key, "_deleted": False}
        for key in (b"N1", b"N2", b"\xff", None)
    ]
    rejects += [{"topic": "flights", "partition": 0, "offset": 5, "key": b"N4", "_deleted": False}]
    # The newer code rejects a record that the older one accepted.
    stricter = {"topic": "planes", "partition": 0, "offset": 0, "key": b"N5", "_deleted": False}
    before = make_build(
        store,
        "a",
        {latest(): [{"tailnum": key, **row} for key in ("N1", "N2", "N3", "N4", "N5")]},
        rejects=rejects,
    )
    after = make_build(
        store, "b", {latest(): [{"tailnum": "N2", **row, "seats": 2}]}, rejects=[*rejects, stricter]
    )

    (difference,) = compared(store, before, after, unsettled=[]).differences

    assert difference == Difference(
        "planes",
        4,
        1,
        removed=3,
        changed=1,
        changed_by_column={"seats": 1},
        unsettled=1,
        largest_relative_change=difference.largest_relative_change,
    )


FORMATTED = Topic(
    "planes", event="tailnum string", key="tailnum", key_format=Avro("tests/data/key.avsc")
)
CHANGES = Topic(
    "planes", event="tailnum string", key="tailnum", kind="compacted", format="debezium-json"
)


@pytest.mark.parametrize(
    ("key", "topic"),
    [(b"\x04N1", FORMATTED), (b'{"tailnum": "N1"}', CHANGES), (b"N1", None)],
    ids=["formatted", "changes", "plain"],
)
def test_a_rejects_key_is_known_as_its_table_has_it(
    store: Store, key: bytes, topic: Topic | None
) -> None:
    row = {"tailnum": "N1", "seats": 1, "_log_time": 1, "_partition": 0, "_offset": 0}
    rejects = [{"topic": "planes", "partition": 0, "offset": 5, "key": key, "_deleted": False}]
    before = make_build(store, "a", {latest(): [{**row, "_deleted": False}]}, rejects=rejects)
    after = make_build(store, "b", {latest(): []}, rejects=rejects)
    texts = plain_texts if topic is None else texts_in(topic)

    (difference,) = compared(
        store, before, after, unsettled=[], texts_of=lambda _table: texts
    ).differences

    assert difference == Difference("planes", 0, 0, unsettled=1)


@pytest.mark.slow
@pytest.mark.law
@examples(12, suppress=(HealthCheck.function_scoped_fixture,))
@given(LATEST, LATEST, st.lists(NAMES))
def test_a_diff_with_keys_set_aside_is_that_of_what_is_left(
    folders: Path, before: dict[str, int], after: dict[str, int], aside: list[str]
) -> None:
    store = Store(folders / str(len(list(folders.iterdir()))))
    hidden = {"_log_time": 1, "_partition": 0, "_offset": 0, "_deleted": False}
    sides = [
        make_build(
            store,
            build,
            {latest(): [{"tailnum": key, "seats": seats, **hidden} for key, seats in rows.items()]},
        )
        for build, rows in (("a", before), ("b", after))
    ]

    (difference,) = compared(store, *sides, unsettled=aside).differences

    one, other = (
        {key: seats for key, seats in rows.items() if key not in aside} for rows in (before, after)
    )
    assert (difference.rows_before, difference.rows_after) == (len(one), len(other))
    assert (difference.added, difference.removed) == (
        len(other.keys() - one.keys()),
        len(one.keys() - other.keys()),
    )
    assert difference.changed == sum(one[key] != other[key] for key in one.keys() & other.keys())
    assert difference.unsettled == len((before.keys() | after.keys()) & set(aside))


@pytest.mark.slow
@pytest.mark.law
@examples(12, suppress=(HealthCheck.function_scoped_fixture,))
@given(APPENDED, APPENDED)
def test_a_diff_of_appended_rows_is_that_of_plain_python(
    folders: Path, before: list[Any], after: list[Any]
) -> None:
    store = Store(folders / str(len(list(folders.iterdir()))))
    table = appended(columns="a string, x double, l array<bigint>")
    sides = [
        make_build(store, build, {table: [dict(zip("axl", row, strict=True)) for row in rows]})
        for build, rows in (("a", before), ("b", after))
    ]

    found = compared(store, *sides, samples=100)

    def row(values: Any) -> tuple[Any, ...]:
        text, number, each = values
        # One spelling for each value: both zeros are equal, and so are all NaN.
        return text, repr(None if number is None else number + 0.0), repr(each)

    one, other = Counter(map(row, before)), Counter(map(row, after))
    (difference,) = found.differences
    assert (difference.added, difference.removed, difference.changed) == (
        (other - one).total(),
        (one - other).total(),
        0,
    )
    shown: Counter[Any] = Counter()
    for sample in found.samples["departures"]:
        shown[sample.kind, *row((sample.after or sample.before or {}).values())] += sample.times
    assert shown == Counter(
        {("added", *key): times for key, times in (other - one).items()}
    ) + Counter({("removed", *key): times for key, times in (one - other).items()})


def test_versions_behind_the_frontier_are_not_compared(store: Store) -> None:
    sides = (
        make_build(store, "a", {folded(): delays(UA=1)}),
        make_build(store, "b", {folded(): delays(UA=1)}),
    )
    write_deltalake(
        table_path(store, "b", "delays"),
        pa.table({"carrier": ["AA"], "on_time": [1]}),
        mode="append",
    )

    assert compared(store, *sides).differences[0].equal
