"""The rows that a change adds, removes and changes, and how they are printed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.develop.row_changes import TableChange, table_change
from kappa.develop.run_text import Style, change_lines, run_lines
from kappa.develop.sample import Sample
from kappa.develop.sample_runs import PipelineRun, ProjectRun
from kappa.replay.rollout.plan.plan import Refusal

ROWS = st.lists(st.fixed_dictionaries({"k": st.integers(0, 5), "n": st.integers(0, 2)}), max_size=8)


def test_rows_of_one_key_are_one_row() -> None:
    before = [{"k": 1, "n": 1}, {"k": 2, "n": 1}, {"k": 3, "n": 1}]
    after = [{"k": 1, "n": 1}, {"k": 2, "n": 5}, {"k": 4, "n": 1}]

    change = table_change("t", before, after, ("k",))

    assert change == TableChange(
        "t", 3, (after[2],), (before[2],), ((before[1], after[1]),), ("k",)
    )


@given(ROWS, ROWS, st.booleans())
def test_a_change_leads_from_before_to_after(before, after, has_keys) -> None:
    """Applied to the rows before, the change gives the rows after.

    This also holds if the keys are not unique on one side.
    """
    change = table_change("t", before, after, ("k",) if has_keys else ())

    def counted(rows):
        return Counter(tuple(sorted(row.items())) for row in rows)

    gone = [*change.removed, *(old for old, _ in change.changed)]
    come = [*change.added, *(new for _, new in change.changed)]
    assert counted(before) - counted(gone) + counted(come) == counted(after)
    assert change.is_none == (counted(before) == counted(after))


def test_values_are_compared_as_json_has_them() -> None:
    """NaN equals NaN, a decimal equals its text in a file of rows, and lists compare by value."""
    one = [{"k": 1, "x": float("nan"), "d": Decimal("2.50"), "l": [1, None]}]
    other = [{"k": 1, "x": "NaN", "d": "2.50", "l": [1, None]}]

    assert table_change("t", one, other, ("k",)).is_none
    sums = [[{"k": 1, "x": [{"y": each}]}] for each in (0.1 + 0.2, 0.3, 0.3000001)]
    assert table_change("t", sums[0], sums[1], ("k",)).is_none
    assert not table_change("t", sums[1], sums[2], ("k",)).is_none
    assert not table_change("t", one, [{**other[0], "d": "2.5"}], ("k",)).is_none


@pytest.mark.parametrize("keys", [("k",), ("other",), ()])
def test_a_table_that_loses_its_keys_column(keys) -> None:
    change = table_change("t", [{"k": 1}], [{"j": 1}], keys)

    assert (change.added, change.removed, change.changed) == (({"j": 1},), ({"k": 1},), ())


def test_the_lines_of_a_change_in_brief() -> None:
    before = [{"page": f"/{number}", "hits": 1, "text": "x" * 80} for number in range(9)]
    after = [{"page": "/0", "hits": 2, "text": "x" * 80}, {"page": "/new", "hits": 1, "text": "y"}]
    change = table_change("pages", before, after, ("page",))

    brief, whole = ([*change_lines(change, in_full=full)] for full in (False, True))

    assert [line for _, line in brief] == [
        "  pages: 2 rows, 1 added, 8 removed, 1 changed",
        "    + page=/new hits=1 text=y",
        *(f"    - page=/{number} hits=1 text={'x' * 60}..." for number in range(1, 6)),
        "      and 3 more",
        "    ~ page=/0: hits 1 -> 2",
    ]
    assert [style for style, _ in brief[1:3]] == [Style.ADDED, Style.REMOVED]
    assert [line for _, line in whole if "x" * 80 in line] == [
        f"    - page=/{number} hits=1 text={'x' * 80}" for number in range(1, 9)
    ]


def test_a_new_table_and_one_that_goes() -> None:
    new = table_change("pages", None, [{"page": "/"}], ("page",))
    gone = TableChange("old", 0, removed=({"a": 1},), is_gone=True)

    assert [line for each in (new, gone) for _, line in change_lines(each, in_full=False)] == [
        "  pages: 1 row",
        "      page=/",
        "  old: the table goes",
        "    - a=1",
    ]


def test_data_do_not_steer_the_terminal() -> None:
    change = table_change("t", [], [{"a": "\x1b[2J\n"}])

    assert [line for _, line in change_lines(change, in_full=True)][1] == "    + a=\\x1b[2J\\n"


def test_the_lines_of_a_run() -> None:
    """A pipeline with the same code and sample gets one word, an error gets its file and line."""
    sample = Sample("visits", (("visits", 0, 0, 0, None, b"{}", ()),), "events/visits.ndjson")
    changes = (table_change("a", [], [], ()), table_change("b", [{"x": 1}], [{"x": 2}], ("x",)))
    run = ProjectRun(
        0.5,
        (
            PipelineRun("web", ("new", "readers: view v is new"), (sample,), changes),
            PipelineRun("shop", ("new",), (), (), same=True),
        ),
        (Refusal("pipelines/bad.py", "/home/p/pipelines/bad.py:3: this is not Python", "mend it"),),
        gone=("old",),
    )

    assert [*run_lines(run, Path("/home/p"))] == [
        (Style.TITLE, "web: new"),
        (Style.PLAIN, "  readers: view v is new"),
        (Style.DIM, "  sample: 1 record of events/visits.ndjson"),
        (Style.PLAIN, "  b: 1 row, 1 added, 1 removed"),
        (Style.ADDED, "    + x=2"),
        (Style.REMOVED, "    - x=1"),
        (Style.DIM, "  no row changes: a (0 rows)"),
        (Style.REMOVED, "old: gone, no file declares it; boards are checked at the next run"),
        (Style.REFUSED, "error: pipelines/bad.py:3: this is not Python"),
        (Style.PLAIN, "  hint: mend it"),
        (Style.DIM, "unchanged: shop"),
    ]
