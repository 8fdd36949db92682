"""Laws of the diff: each kind of difference is found and counted, and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
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
from twins import FLIGHTS, PLANES, appended, compared, folded, latest, make_build

from kappa import Avro, Topic
from kappa.base.errors import Broken, KappaError, UsageError
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.verify.diff import RowSample, Side
from kappa.replay.rollout.verify.unsettled_keys import plain_texts, texts_in
from kappa.serving.query.reader.reader import Limits
from kappa.state.build import table_path
from kappa.state.journal.events import Difference, OutcomeCount
from kappa.state.store import Store
from kappa.state.table import TableBirth

Rows = list[dict[str, Any]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "röot 1* it's #1?")


def difference_of(
    store: Store,
    old: TableBirth,
    before: Rows,
    after: Rows,
    new: TableBirth | None = None,
    **how: Any,
) -> Difference:
    sides = sides_of(store, old, before, after, new)
    (difference,) = compared(store, *sides, **how).differences
    return difference


def sides_of(
    store: Store, old: TableBirth, before: Rows, after: Rows, new: TableBirth | None = None
) -> tuple[Side, Side]:
    """Makes two builds of one table, with the rows `before` and `after`."""
    return make_build(store, "a", {old: before}), make_build(store, "b", {new or old: after})


def changed_value(store: Store, table: TableBirth, one: object, other: object) -> Difference:
    """Compares tables whose only row has the value `one` in one build and `other` in the other."""
    rows = ([{"carrier": "UA", "value": value}] for value in (one, other))
    return difference_of(store, table, *rows)


def delays(**on_time: int | None) -> Rows:
    return [{"carrier": carrier, "on_time": count} for carrier, count in on_time.items()]


def test_equal_tables_have_no_difference(store: Store) -> None:
    difference = difference_of(store, folded(), delays(UA=3, AA=None), delays(AA=None, UA=3))

    assert difference == Difference("delays", 2, 2)
    assert difference.equal


def test_rows_are_added_removed_and_changed_by_column(any_store: Store) -> None:
    store = any_store
    table = folded(columns="carrier string, flights bigint, on_time bigint, name string")
    same = {"flights": 4, "on_time": 2, "name": "x"}
    before = [{"carrier": carrier, **same} for carrier in ("UA", "AA", "DL", "B6")]
    after = [
        {"carrier": "UA", **same},
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
    keys_of = ("carrier", "day", "n")
    table = folded(columns="carrier string, day date, n decimal(20,2), value bigint", keys=keys_of)
    keys = [
        (None, None, None),
        (None, date(2013, 1, 1), None),
        ('O\'Hare "x" 日本 \\ ;--', None, Decimal("1.10")),
        ("", date(1900, 1, 1), Decimal("-0.01")),
    ]
    rows = [{"carrier": carrier, "day": day, "n": n, "value": 1} for carrier, day, n in keys]

    assert difference_of(store, table, rows, rows[::-1]).equal


DAY = datetime(2013, 1, 1, tzinfo=UTC)
LISTED = [{"x": None, "y": math.nan}, None]
NESTED = {"when": DAY, "n": Decimal("1e30")}
VALUES = [
    ("double", math.nan, math.nan),
    ("double", 0.0, -0.0),
    ("double", math.inf, math.inf),
    ("string", None, None),
    ("array<struct<x:int,y:double>>", LISTED, [*LISTED]),
    ("struct<when:timestamp,n:decimal(38,2)>", NESTED, {**NESTED}),
]


@pytest.mark.parametrize(("kind", "one", "other"), VALUES, ids=[kind for kind, *_ in VALUES])
@pytest.mark.parametrize("make", [folded, appended])
def test_a_value_equals_itself(
    store: Store, make: Any, kind: str, one: object, other: object
) -> None:
    assert changed_value(store, make(columns=f"carrier string, value {kind}"), one, other).equal


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
    ("timestamp", DAY, DAY.replace(microsecond=1), None),
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
    *((1.0, 1.0 + 1e-8, False), (1e20, 1.00000001e20, False), (0.0, 1e-8, False)),
    *((math.inf, 1.0, False), (math.inf, -math.inf, False)),
]


@pytest.mark.parametrize(("one", "other", "equal"), SUMS)
def test_sums_of_doubles_are_equal_in_any_order(
    store: Store, one: float, other: float | None, equal: bool
) -> None:
    """Sums of doubles may differ by rounding; other doubles are equal only if identical."""
    columns = (("k", "string"), ("x", "double"), ("most", "double"))
    fold = {"x": ("sum", "x"), "most": ("max", "x")}
    table = TableBirth("t", columns, keys=("k",), fold=fold)

    def found(store: Store, **changes: tuple[float, float | None]) -> Difference:
        rows = {"k": ("a", "a"), "x": (0.0, 0.0), "most": (one, one), **changes}
        sides = [{column: values[side] for column, values in rows.items()} for side in (0, 1)]
        return difference_of(store, table, *([each] for each in sides))

    assert found(store, x=(one, other)).changed_by_column == ({} if equal else {"x": 1})
    most = found(Store(store.folder / "most"), most=(one, other))
    assert most.equal == (one == other)


@pytest.mark.parametrize(("one", "other", "equal"), SUMS)
def test_averages_of_doubles_are_compared_as_sums(
    store: Store, one: float, other: float | None, equal: bool
) -> None:
    """Averages of doubles may differ by rounding; averages of integers are compared exactly."""
    columns = (
        ("k", "string"),
        *(("x", "double"), ("_x_sum", "double"), ("_x_count", "bigint")),
        *(("n", "double"), ("_n_sum", "bigint"), ("_n_count", "bigint")),
    )
    table = TableBirth("t", columns, keys=("k",), fold={"x": ("avg", "x"), "n": ("avg", "n")})

    rows = ([{"k": "a", "x": value, "n": value}] for value in (one, other))
    found = difference_of(store, table, *rows)

    exactly = {} if one == other else {"n": 1}
    assert found.changed_by_column == ({} if equal else {"x": 1}) | exactly
    # If the fold was another one before, no tolerance is known.
    as_max = structs.replace(table, fold={**table.fold, "x": ("max", "x")})
    rows = ([{"k": "a", "x": value}] for value in (one, other))
    assert difference_of(Store(store.folder / "max"), as_max, *rows, table).equal == (one == other)


def test_approximations_are_equal_where_ranges_meet(store: Store) -> None:
    """Approximations are equal if their ranges meet, because the ranges contain the true value."""
    columns = (
        *(("k", "string"), ("p", "bigint"), ("_p_sketch", "binary")),
        *(("_p_low", "bigint"), ("_p_high", "bigint")),
    )
    options = {"p": {"rank": 0.5, "k": 200}}
    table = TableBirth("t", columns, keys=("k",), fold={"p": ("kll", "n")}, options=options)

    def rows(**ranges: tuple[int | None, ...]) -> Rows:
        names = ("k", "p", "_p_low", "_p_high")
        return [dict(zip(names, (key, *found), strict=True)) for key, found in ranges.items()]

    one, none = (5, 1, 9), (None, None, None)
    before = rows(same=one, near=one, touching=one, apart=one, none=none, gone=one)
    after = rows(
        same=one, near=(7, 2, 11), touching=(12, 9, 19), apart=(15, 10, 19), none=none, gone=none
    )
    found = difference_of(store, table, before, after)

    assert found.changed_by_column == {"p": 2}
    assert found.largest_relative_change == {"p": pytest.approx(2 / 3)}
    # If the fold was another one before, no tolerance is known.
    as_max = structs.replace(table, fold={"p": ("max", "n")}, options={})
    known = difference_of(Store(store.folder / "max"), as_max, before, after, table)
    assert known.changed_by_column == {"p": 4}


@pytest.mark.parametrize(("kind", "one", "other", "change"), CHANGES)
def test_changed_value_is_one_changed_row(
    store: Store, kind: str, one: object, other: object, change: object
) -> None:
    """The diff reports one changed row, and by how much a number changed."""
    table = folded(columns=f"carrier string, value {kind}")
    difference = changed_value(store, table, one, other)

    assert (difference.added, difference.removed, difference.changed) == (0, 0, 1)
    assert difference.changed_by_column == {"value": 1}
    assert difference.largest_relative_change == ({} if change is None else {"value": change})


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [([], [], (0, 0, 0)), (delays(UA=3), [], (0, 1, 0)), ([], delays(UA=3), (1, 0, 0))],
)
def test_empty_tables_are_compared_on_either_side(
    store: Store, before: Rows, after: Rows, found: tuple[int, int, int]
) -> None:
    difference = difference_of(store, folded(), before, after, samples=2)
    assert (difference.added, difference.removed, difference.changed) == found


def test_columns_of_one_side_are_no_changed_rows(store: Store) -> None:
    """Columns that only one side has change no rows; they and retyped columns are named."""
    old = folded(columns="carrier string, gone bigint, typed int, same bigint")
    new = folded(columns="carrier string, new bigint, typed bigint, same bigint")
    before = {"carrier": "UA", "gone": 1, "typed": 1, "same": 1}
    after = {"carrier": "UA", "new": 1, "typed": 2, "same": 1}

    difference = difference_of(store, old, [before], [after], new)

    assert (difference.columns_gone, difference.columns_new) == (("gone",), ("new",))
    assert difference.columns_retyped == {"typed": ("int", "bigint")}
    assert (difference.changed, difference.added, difference.removed) == (0, 0, 0)
    assert not difference.equal


KEYED_BY_K = folded(columns="k int, v bigint", keys=("k",))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            *(KEYED_BY_K, folded(columns="k bigint, v bigint", keys=("k",))),
            "its key k is bigint, and was int",
        ),
        (
            *(folded(columns="k int, j int, v bigint", keys=("k", "j")), KEYED_BY_K),
            "its keys are (k), and were (k, j)",
        ),
        (appended("delays", "k int"), KEYED_BY_K, "its keys are (k), and were ()"),
        (appended("delays", "k int"), appended("delays", "j int"), "no column is the same in both"),
        (
            *(latest("delays"), folded(columns="tailnum string, n bigint", keys=("tailnum",))),
            "it is folded from the function's rows, and was the latest of topic planes",
        ),
    ],
)
def test_tables_without_common_rows_are_not_compared(
    store: Store, old: TableBirth, new: TableBirth, why: str
) -> None:
    """The diff names the reason why the tables are not compared."""
    difference = difference_of(store, old, [], [], new)

    assert (difference.incomparable, difference.compared, difference.equal) == (why, False, False)
    assert (difference.rows_before, difference.rows_after) == (0, 0)


def test_the_order_of_keys_is_no_difference(store: Store) -> None:
    keys, row = (("a", "b"), ("b", "a")), {"a": 1, "b": 2, "v": 3}
    one, other = (folded(columns="a int, b int, v bigint", keys=each) for each in keys)

    assert difference_of(store, one, [row], [row], other).equal


def test_a_table_of_one_side_is_named_with_its_rows(store: Store) -> None:
    before = make_build(store, "a", {folded("gone"): delays(UA=1), folded("kept"): []})
    after = make_build(store, "b", {folded("kept"): [], folded("new"): delays(UA=1, AA=2)})

    found = {each.table: each for each in compared(store, before, after).differences}

    assert list(found) == ["kept", "new", "gone"]
    assert (found["gone"].rows_before, found["gone"].rows_after) == (1, None)
    assert (found["new"].rows_before, found["new"].rows_after) == (None, 2)


def test_appended_rows_are_compared_as_often_as_they_stand_there(store: Store) -> None:
    def rows(**times: int) -> Rows:
        carriers = [carrier for carrier, count in times.items() for _ in range(count)]
        return [{"carrier": carrier, "delay": None} for carrier in carriers]

    before, after = rows(UA=3, AA=1, DL=2), rows(UA=1, AA=1, B6=2, DL=3)
    found = compared(store, *sides_of(store, appended(), before, after), samples=5)

    (difference,) = found.differences
    assert difference == Difference("departures", 6, 7, added=3, removed=2)
    assert found.samples["departures"] == (
        RowSample("added", None, {"carrier": "B6", "delay": None}, 2),
        RowSample("added", None, {"carrier": "DL", "delay": None}, 1),
        RowSample("removed", {"carrier": "UA", "delay": None}, None, 2),
    )


HIDDEN = {"_log_time": 1, "_partition": 0, "_offset": 0, "_deleted": False}


def planes(**seats: int) -> Rows:
    return [{"tailnum": tail, "seats": count, **HIDDEN} for tail, count in seats.items()]


def test_keys_that_are_not_settled_are_set_aside_and_counted(store: Store) -> None:
    before, after = planes(N1=1, N2=2, N3=3), planes(N1=1, N2=20, N4=4, N5=5)
    sides = sides_of(store, latest(), before, after)
    aside = ["N2", "N5", "N5", "never seen", "N'\"日本"]
    (difference,) = compared(store, *sides, unsettled=aside).differences

    assert difference == Difference("planes", 2, 2, added=1, removed=1, unsettled=2)
    none, unknown = (compared(store, *sides, unsettled=each).differences for each in ([], None))
    assert none == unknown
    assert none[0].changed == 1


def test_whole_numbers_as_keys_are_set_aside_by_their_text(store: Store) -> None:
    table = latest(columns="id bigint, seats int")
    before, after = ([{"id": id_, "seats": n, **HIDDEN} for id_ in (7, -7)] for n in (1, 2))

    difference = difference_of(store, table, before, after, unsettled=["-7", "07"])

    assert (difference.changed, difference.unsettled) == (1, 1)


def test_deleted_rows_of_a_latest_table_are_no_rows(store: Store) -> None:
    gone = [{"tailnum": "N1", "seats": None, **HIDDEN, "_deleted": True}]

    assert difference_of(store, latest(), gone, []).equal


def test_what_comes_from_a_topic_that_is_not_the_same_is_not_compared(store: Store) -> None:
    topics = (FLIGHTS, structs.replace(PLANES, id="another"))
    before = make_build(store, "a", {folded(): delays(UA=1), latest(): []})
    after = make_build(store, "b", {folded(): delays(UA=2), latest(): []}, topics=topics)

    found = compared(store, before, after, comparable=frozenset({"flights"}))

    assert found.incomparable_topics == ("planes",)
    planes_of_another = "topic planes is not the same topic for both builds"
    assert [each.incomparable for each in found.differences] == ["", planes_of_another]
    assert found.differences[0].changed == 1


def test_samples_are_the_largest_of_each_kind_with_both_values(store: Store) -> None:
    before = delays(**{f"k{n}": n for n in range(30)})
    after = delays(**{f"k{n}": n + n % 2 for n in range(10, 40)})

    found = compared(store, *sides_of(store, folded(), before, after), samples=2)

    def row(number: int, more: int = 0) -> dict[str, Any]:
        return {"carrier": f"k{number}", "on_time": number + more}

    assert found.samples["delays"] == (
        *(RowSample("added", None, row(n, n % 2)) for n in (39, 37)),
        *(RowSample("removed", row(n), None) for n in (9, 8)),
        *(RowSample("changed", row(n), row(n, 1)) for n in (11, 13)),
    )


def test_rows_in_which_a_number_differs_most_come_first(store: Store) -> None:
    """Null counts like zero; NaN and infinity come first, changes of other values last."""
    table = folded(columns="k string, n bigint, x double, t string", keys=("k",))
    changes: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
        "g": ((1, None, "a"), (1, 2.5, "a")),
        "h": ((1, 1.5, "a"), (1, math.nan, "b")),
        "i": ((1, math.inf, "a"), (1, 1.5, "a")),
        "f": ((4, 1.0, "a"), (1, 2.0, "a")),
        "d": ((2, 1.0, "a"), (1, 1.0, "a")),
        "e": ((1, 1.0, "a"), (2, 1.0, "b")),
        "c": ((-3, 1.0, "a"), (-4, 1.0, "a")),
        "a": ((9, 1.0, "a"), (9, 1.0, "b")),
        "b": ((9, 1.0, None), (9, 1.0, "b")),
    }
    sides = sides_of(
        store,
        table,
        *(
            [
                dict(zip("knxt", (key, *change[side]), strict=True))
                for key, change in sorted(changes.items())
            ]
            for side in (0, 1)
        ),
    )

    for count in (3, len(changes)):
        shown = compared(store, *sides, samples=count).samples["delays"]
        assert "".join((sample.after or {})["k"] for sample in shown) == "hifgcdeab"[:count]


def test_columns_of_exact_numbers_in_which_rows_differ_have_sums(store: Store) -> None:
    """Doubles, decimals of many digits, keys, and columns that are equal in all rows have none."""
    table = folded(
        columns="k bigint, n bigint, same bigint, d decimal(28,2), wide decimal(29,0), x double",
        keys=("k",),
    )

    def row(key: int, n: int | None, cents: int) -> dict[str, Any]:
        exact = {"d": Decimal(cents) / 100, "wide": Decimal(cents)}
        return {"k": key, "n": n, "same": 1, **exact, "x": cents / 3}

    most = 2**63 - 1
    before, after = [row(1, most, 10), row(2, most, 5)], [row(1, 3, 20), row(2, None, -5)]
    sides = sides_of(store, table, before, after)

    sums = compared(store, *sides, samples=1).sums
    assert sums == {
        "delays": {"n": (2 * most, 3), "d": (Decimal("0.15"), Decimal("0.15"))},
    }
    assert compared(store, *sides).sums == {}
    assert compared(store, sides[0], sides[0], samples=1).sums == {}
    other = make_build(store, "c", {table: before[:1]})
    (removed,) = compared(store, sides[0], other, samples=1).sums.values()
    assert removed == {
        "n": (2 * most, most),
        "same": (2, 1),
        "d": (Decimal("0.15"), Decimal("0.10")),
    }


def test_only_the_tables_that_are_asked_for_are_compared(store: Store) -> None:
    sides = [make_build(store, build, {folded(): [], appended(): []}) for build in ("a", "b")]

    found = compared(store, *sides, only=["departures"]).differences
    assert [difference.table for difference in found] == ["departures"]
    with pytest.raises(UsageError, match="neither build has a table delay"):
        compared(store, *sides, only=["delay"])


def test_rejects_are_compared_by_counts(any_store: Store) -> None:
    """Rejects, duplicates and other outcomes of records are compared by counts."""
    store = any_store

    def made(build: str, tally: Tally, *reasons: str) -> Side:
        rejects = [
            {"topic": "flights", "partition": 0, "offset": offset, "reason": reason}
            for offset, reason in enumerate(reasons)
        ]
        return make_build(store, build, {}, tally=tally, rejects=rejects)

    tallies = Tally(decoded=7, rejected=3, duplicate=1), Tally(decoded=8, rejected=2)
    before = made("a", tallies[0], "bad_key", "no_json", "no_json")
    after = made("b", tallies[1], "no_json", "missing_field")

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
    with pytest.raises(Broken, match="table delays holds a key twice"):
        difference_of(store, folded(), delays(UA=1), delays(UA=1) * 2)


@pytest.mark.slow
def test_spill_has_a_limit_and_leaves_nothing(any_store: Store) -> None:
    store = any_store
    rows = [{"carrier": f"{n:0200}", "on_time": n} for n in range(150_000)]
    sides = sides_of(store, folded(), rows, rows)
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
    names = ("archive-2024", "not-ours", "spill-1", "spill-999999999-1-old")
    theirs = [store.path(f"tmp/{name}") for name in names]
    for folder in theirs:
        folder.mkdir()
    sides = sides_of(store, folded(), [], [])

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
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Store]:
    """Returns a function that makes a new store for each example."""
    return lambda: Store(tmp_path_factory.mktemp("any"))


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
    folders: Callable[[], Store], before: dict[Any, Any], after: dict[Any, Any]
) -> None:
    table = folded(columns="a string, b int, n bigint, x double, l array<bigint>", keys=("a", "b"))
    rows = (
        [dict(zip("abnxl", (*key, *values), strict=True)) for key, values in each.items()]
        for each in (before, after)
    )
    store = folders()
    sides = sides_of(store, table, *rows)

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
    kinds = {"added": after.keys() - both, "removed": before.keys() - both}
    kinds["changed"] = {key for key in both if changed[key]}
    assert shown == Counter((kind, *key) for kind, keys in kinds.items() for key in keys)
    relative = [
        abs(after[key][0] - before[key][0]) / max(abs(before[key][0]), abs(after[key][0]))
        for key in both
        if 0 in changed[key] and None not in (before[key][0], after[key][0])
    ]
    largest = pytest.approx(max(relative)) if relative else None
    assert difference.largest_relative_change.get("n") == largest
    summed = tuple(sum(n or 0 for n, *_ in each.values()) for each in (before, after))
    differs = difference.added or difference.removed or "n" in difference.changed_by_column
    assert found.sums == ({"delays": {"n": summed}} if differs else {})


def test_key_last_rejected_is_set_aside(store: Store) -> None:
    """A key is set aside if its last record is a reject.

    For the build that read later, compaction has removed the record before the reject.
    """

    def reject(key: bytes | None, topic: str = "planes", offset: int = 5) -> dict[str, Any]:
        return {"topic": topic, "partition": 0, "offset": offset, "key": key, "_deleted": False}

    rejects = [*map(reject, (b"N1", b"N2", b"\xff", None)), reject(b"N4", "flights")]
    # The newer code rejects a record that the older one accepted.
    stricter = reject(b"N5", offset=0)
    rows = planes(N1=1, N2=1, N3=1, N4=1, N5=1)
    before = make_build(store, "a", {latest(): rows}, rejects=rejects)
    after = make_build(store, "b", {latest(): planes(N2=2)}, rejects=[*rejects, stricter])

    (difference,) = compared(store, before, after, unsettled=[]).differences

    assert difference == Difference(
        *("planes", 4, 1),
        removed=3,
        changed=1,
        changed_by_column={"seats": 1},
        unsettled=1,
        largest_relative_change=difference.largest_relative_change,
    )


PLANE = {"event": "tailnum string", "key": "tailnum"}
FORMATTED = Topic("planes", **PLANE, key_format=Avro("tests/data/key.avsc"))
CHANGES = Topic("planes", **PLANE, kind="compacted", format="debezium-json")


@pytest.mark.parametrize(
    ("key", "topic"),
    [(b"\x04N1", FORMATTED), (b'{"tailnum": "N1"}', CHANGES), (b"N1", None)],
    ids=["formatted", "changes", "plain"],
)
def test_rejects_key_is_as_in_its_table(store: Store, key: bytes, topic: Topic | None) -> None:
    rejects = [{"topic": "planes", "partition": 0, "offset": 5, "key": key, "_deleted": False}]
    before = make_build(store, "a", {latest(): planes(N1=1)}, rejects=rejects)
    after = make_build(store, "b", {latest(): []}, rejects=rejects)
    texts = plain_texts if topic is None else texts_in(topic)

    found = compared(store, before, after, unsettled=[], texts_of=lambda _table: texts)
    (difference,) = found.differences

    assert difference == Difference("planes", 0, 0, unsettled=1)


@pytest.mark.slow
@pytest.mark.law
@examples(12, suppress=(HealthCheck.function_scoped_fixture,))
@given(LATEST, LATEST, st.lists(NAMES))
def test_a_diff_with_keys_set_aside_is_that_of_what_is_left(
    folders: Callable[[], Store], before: dict[str, int], after: dict[str, int], aside: list[str]
) -> None:
    store = folders()
    sides = sides_of(store, latest(), planes(**before), planes(**after))

    (difference,) = compared(store, *sides, unsettled=aside).differences

    one, other = (
        {key: seats for key, seats in rows.items() if key not in aside} for rows in (before, after)
    )
    assert (difference.rows_before, difference.rows_after) == (len(one), len(other))
    assert difference.added == len(other.keys() - one.keys())
    assert difference.removed == len(one.keys() - other.keys())
    assert difference.changed == sum(one[key] != other[key] for key in one.keys() & other.keys())
    assert difference.unsettled == len((before.keys() | after.keys()) & set(aside))


@pytest.mark.slow
@pytest.mark.law
@examples(12, suppress=(HealthCheck.function_scoped_fixture,))
@given(APPENDED, APPENDED)
def test_diff_of_appended_is_pythons(
    folders: Callable[[], Store], before: list[Any], after: list[Any]
) -> None:
    store = folders()
    table = appended(columns="a string, x double, l array<bigint>")
    rows = ([dict(zip("axl", row, strict=True)) for row in each] for each in (before, after))
    sides = sides_of(store, table, *rows)

    found = compared(store, *sides, samples=100)

    def row(values: Any) -> tuple[Any, ...]:
        text, number, each = values
        # One spelling for each value: both zeros are equal, and so are all NaN.
        return text, repr(None if number is None else number + 0.0), repr(each)

    one, other = Counter(map(row, before)), Counter(map(row, after))
    (difference,) = found.differences
    assert difference.added == (other - one).total()
    assert difference.removed == (one - other).total()
    assert difference.changed == 0
    shown: Counter[Any] = Counter()
    for sample in found.samples["departures"]:
        shown[sample.kind, *row((sample.after or sample.before or {}).values())] += sample.times
    kinds = {"added": other - one, "removed": one - other}
    assert shown == Counter(
        {(kind, *key): times for kind, rows in kinds.items() for key, times in rows.items()}
    )


def test_versions_behind_the_frontier_are_not_compared(store: Store) -> None:
    sides = sides_of(store, folded(), delays(UA=1), delays(UA=1))
    more = pa.table({"carrier": ["AA"], "on_time": [1]})
    write_deltalake(table_path(store, "b", "delays"), more, mode="append")

    assert compared(store, *sides).differences[0].equal
