"""Maintained views are their queries (I11), by each way, on a disk and in a bucket alike."""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any

import pytest
from changing import SOURCES, FoldedBuild, some_rows

from kappa import View
from kappa.engine.views.maintained import MaintainedViews
from kappa.serving.query.query import answer
from kappa.serving.query.reader import reader as reader_module
from kappa.state.journal.events import Served
from kappa.state.journal.journal import Journal
from kappa.state.journal.receipt import Receipt
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.views.births import view_births

pytestmark = pytest.mark.slow

QUERIES = {
    "by_change": "select city, count(*) as n from newest group by city",
    "by_keys": "select e.k, e.n, t.rows from events e join totals t using (k)",
    "whole": "select k, rank() over (order by rows, k) as place from totals",
}
VIEWS = view_births(
    (
        View("by_change", QUERIES["by_change"], keys=["city"]),
        View("by_keys", QUERIES["by_keys"], by=["k"]),
        View("whole", QUERIES["whole"], keys=["k"]),
    ),
    SOURCES,
)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names the views that were computed for what a slice touched, and so not whole."""
    found = set[str]()
    compute = MaintainedViews._of_slice

    def noted(views: MaintainedViews, writer: Any, *rest: Any) -> Any:
        rows = compute(views, writer, *rest)
        found.update(() if rows is None else (writer.birth.name,))
        return rows

    monkeypatch.setattr(MaintainedViews, "_of_slice", noted)
    return found


def test_a_view_is_its_query_by_each_way(any_store: Store, apart: set[str]) -> None:
    reader_module._idle.clear()
    draw, seen = random.Random(5), 0
    tables = (*SOURCES, *VIEWS, REJECTS_BIRTH)
    with closing(FoldedBuild(any_store, "b", tables, lambda: 1_000.0)) as built:
        receipt = Receipt("p", "b", "v", Offsets(), None, None)
        assert Journal(any_store).append(1, Served(1, 1, {"p": "b"}, receipt))
        for place in range(5):
            built.fold(some_rows(draw, place, built.writers), log_time=1_000 * place)

            for name, query in QUERIES.items():
                rows = answer(any_store, f"from {name} order by all").rows
                assert rows == answer(any_store, f"from ({query}) order by all").rows, name
                seen += len(rows)

    assert seen
    assert apart == {"by_change", "by_keys"}
