"""Laws of the breaker: a limit as count or share, and when a build certainly exceeds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from births import make_birth
from deltalake import write_deltalake

from kappa import Table, Topic, pipeline
from kappa.base.errors import Broken, DeclarationError
from kappa.declare.pipeline import Pipeline
from kappa.declare.reject_limit import beyond_text, is_beyond, rejected_of
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.tally import Tally
from kappa.engine.job.reject_counts import ensure_rejects_within_limit
from kappa.state.build import Birth, put_birth, read_birth, table_path
from kappa.state.files.address import delta_options
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.shape import REJECTS_BIRTH

HITS = Topic("hits", event="id string")


def declared(limit: Any) -> Pipeline:
    @pipeline(reads={"hits": HITS}, writes=[Table("t")], max_rejects=limit)
    def web(hits: Any) -> dict[str, Any]:
        return {"t": hits}

    return web


@pytest.mark.parametrize("limit", [None, 0, 100, 0.0, 0.01, 1.0])
def test_a_limit_is_a_count_or_a_share(limit: float | None) -> None:
    assert declared(limit).max_rejects == limit


@pytest.mark.parametrize("limit", [-1, 1.5, -0.1, True, "1 %", float("nan")])
def test_anything_else_is_refused_with_its_line(limit: object) -> None:
    with pytest.raises(
        DeclarationError, match=r"test_breaker.py:\d+: pipeline web has max_rejects="
    ) as refused:
        declared(limit)

    assert "max_rejects=0.01 is 1 %" in refused.value.hint


@pytest.mark.parametrize(
    ("limit", "rejected", "records", "beyond"),
    [
        (None, 9, 9, False),
        (0, 0, 0, False),
        (0, 1, 9, True),
        (1, 1, 9, False),
        (1, 2, 9, True),
        (1.0, 9, 9, False),
        (0.5, 5, 10, False),
        (0.5, 6, 10, True),
        (0.0, 1, 99, True),
    ],
)
def test_at_the_limit_is_within_it(
    limit: float | None, rejected: int, records: int, *, beyond: bool
) -> None:
    assert is_beyond(limit, rejected, records) is beyond


def test_offsets_without_records_count_as_nothing() -> None:
    one = Tally(decoded=3, duplicate=1, rejected=2, tombstone=1, absent=90)
    assert rejected_of({"a": {0: one}, "b": {1: Tally(rejected=1)}}) == (3, 8)


def test_it_is_told_in_the_words_of_the_declaration() -> None:
    assert (
        beyond_text(0.01, 120, 2300)
        == "rejected 120 of 2,300 records (5.217 %), and max_rejects is 1 %"
    )
    assert beyond_text(1000, 1001, 2300).endswith("and max_rejects is 1,000")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def born(store: Store, limit: float | None) -> Birth:
    put_birth(store, make_birth("b", (REJECTS_BIRTH,), pipeline="web", max_rejects=limit))
    return read_birth(store, "b")


@pytest.mark.parametrize("limit", [1, 1.0])
def test_a_birth_certificate_tells_a_count_of_one_from_all(store: Store, limit: float) -> None:
    assert type(born(store, limit).max_rejects) is type(limit)


def frontier(*, rejected: int, decoded: int) -> Frontier:
    at = Offsets({"hits": {0: rejected + decoded}})
    tally = {"hits": {0: Tally(decoded=decoded, rejected=rejected)}}
    return Frontier(1, "b", 1, at, {"rejects": 0}, "", tally=tally)


def put_rejects(store: Store, *reasons: str) -> None:
    of = {"topic": "hits", "partition": 0}
    rows = [
        {**of, "offset": offset, "reason": reason, "detail": f"{reason} it is"}
        for offset, reason in enumerate(reasons, 7)
    ]
    remembered = {**of, "offset": 3, "_redrives": 1, "_deleted": True}
    path = table_path(store, "b", "rejects")
    write_deltalake(
        path,
        pa.Table.from_pylist([remembered, *rows], arrow_schema(REJECTS_BIRTH.columns)),
        storage_options=delta_options(path),
    )


def test_a_candidate_that_is_beyond_it_is_stopped_with_counts_reasons_and_an_example(
    any_store: Store,
) -> None:
    store = any_store
    birth = born(store, 2)
    put_rejects(store, "wrong_type", "missing_field", "wrong_type")

    with pytest.raises(Broken) as stopped:
        ensure_rejects_within_limit(
            store, birth, frontier(rejected=3, decoded=7), Offsets({"hits": {0: 1000}})
        )

    assert stopped.value.message == (
        "pipeline web has rejected 3 of 10 records (30 %), and max_rejects is 2: "
        "wrong_type 2, missing_field 1; for example hits:0:7: wrong_type it is"
    )
    assert "kappa deploy web" in stopped.value.hint
    assert "max_rejects=" in stopped.value.hint


def test_by_a_share_it_is_stopped_only_if_nothing_planned_can_bring_it_back(
    store: Store,
) -> None:
    birth = born(store, 0.01)
    put_rejects(store, "wrong_type")

    ensure_rejects_within_limit(
        store, birth, frontier(rejected=3, decoded=0), Offsets({"hits": {0: 300}})
    )
    with pytest.raises(Broken, match="rejected 3 of 3 records"):
        ensure_rejects_within_limit(
            store, birth, frontier(rejected=3, decoded=0), Offsets({"hits": {0: 299}})
        )


def test_without_one_nothing_is_stopped(store: Store) -> None:
    ensure_rejects_within_limit(
        store, born(store, None), frontier(rejected=9, decoded=0), Offsets({"hits": {0: 9}})
    )
