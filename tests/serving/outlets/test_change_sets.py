"""The sum of a table's change sets is the table, whatever happens in between (I12).

The keys of a sink's records are in the form that Kappa reads, and no two rows have the same key.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from changing import FOLLOWED, ChangingWorld, Consumer
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from kappa.serving.outlets.changes.change_set import ChangeKind
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.query.query import answer_query
from kappa.state.store import Store

if TYPE_CHECKING:
    from object_store import ObjectStore


import json

from kappa.base.duck import open_connection
from kappa.serving.outlets.changes.change_set import key_sql


def served_rows(store: Store, table: str) -> Counter[tuple[Any, ...]]:
    found = answer_query(store, f"from {table}")
    return Counter(tuple(zip(found.columns, row, strict=True)) for row in found.rows)


def ensure_sums_hold(store: Store, seed: int, *, steps: int = 25) -> Counter[ChangeKind]:
    """Follows all tables across slices, maintenance, switches, restarts and lost leases."""
    world = ChangingWorld(store, seed)
    draw = world.draw
    kinds: Counter[ChangeKind] = Counter()

    def follower(table: str, since: Cursor | None = None) -> Follower:
        return Follower(store, table, since=since, clock=lambda: world.now)

    followers = {table: follower(table) for table in FOLLOWED}
    consumers = {table: Consumer() for table in FOLLOWED}
    try:
        for _ in range(steps):
            what = world.step()
            if what == "restart":
                followers = {name: follower(name, each.cursor) for name, each in followers.items()}
            for table in FOLLOWED:
                if draw.random() < 0.4:
                    continue
                with followers[table].next_change_set() as change_set:
                    if change_set is not None:
                        kinds[change_set.head.kind] += 1
                        consumers[table].apply(change_set)
                assert consumers[table].rows == served_rows(store, table), (table, what)
    finally:
        world.close()
    return kinds


@pytest.mark.slow
@pytest.mark.law
@examples(2, suppress=(HealthCheck.function_scoped_fixture,))
@given(st.integers(0, 10_000_000))
def test_change_sets_sum_up_to_the_table(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    ensure_sums_hold(Store(tmp_path_factory.mktemp("changes")), seed, steps=15)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "seed"),
    [
        ("upkeep deletes a row that a slice has hidden, before the reader looks", 24),
        ("two come with a cursor after its lease has ended and its files are gone", 3628801),
    ],
)
def test_what_was_found_once(tmp_path: Path, what: str, seed: int) -> None:
    ensure_sums_hold(Store(tmp_path), seed)


@pytest.mark.slow
@pytest.mark.long
def test_over_a_switch_in_a_bucket_they_sum_up_as_well(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path)

    kinds = ensure_sums_hold(store, 3, steps=6)

    assert kinds.keys() >= {ChangeKind.SLICE, ChangeKind.PROMOTE}


def key_of(row: str) -> str:
    duck = open_connection()
    kind = duck.query(f"select {row}").types[0]
    ((key,),) = duck.execute(f"select {key_sql(row, kind)}").fetchall()
    return str(key)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("'AA'", "AA"),
        ("''", ""),
        ("42::bigint", "42"),
        ("null::varchar", '{"k":null}'),
        ("'{\"k\":null}'", '{"k":"{\\"k\\":null}"}'),
        ("1.5::double", '{"k":1.5}'),
        ("'2026-01-02'::date", '{"k":"2026-01-02"}'),
    ],
)
def test_one_text_or_whole_number_is_itself_and_any_other_key_is_an_object(
    value: str, key: str
) -> None:
    assert key_of(f"struct_pack(k := {value})") == key


def test_a_key_of_several_columns_is_an_object_in_their_order() -> None:
    row = "struct_pack(a := 'x', b := 1::bigint)"

    key = key_of(row)
    assert list(json.loads(key).items()) == [("a", "x"), ("b", 1)]
