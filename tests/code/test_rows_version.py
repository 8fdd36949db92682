"""Laws of the rows version: views and checks leave it, all else of a version does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from overlays import born, declared

from kappa import Alert, Sink
from kappa.code.declaration import declarations, without_checks
from kappa.code.rows_version import born_rows_version
from kappa.replay.rollout.plan.facts import Declared

BEFORE = declared(views={"v": "select 1 as one"}, checks=("rows > 0",))


@pytest.mark.parametrize(
    "after",
    [
        declared(checks=("rows > 0",)),
        declared(views={"v": "select 2 as one", "w": "select 1 as one"}, checks=("rows > 0",)),
        declared(views={"v": "select 1 as one"}),
        declared(views={"v": "select 1 as one"}, checks=("rows > 1", "id <> 'keys id'")),
        declared(
            views={"v": "select 1 as one"},
            checks=("rows > 0",),
            outlets=(Sink("out", of="delays"), Alert("late", of="delays", to="page")),
        ),
    ],
    ids=["no view", "other views", "no check", "other checks", "sinks and alerts"],
)
def test_what_is_only_shown_leaves_it(after: Declared) -> None:
    assert after.version != BEFORE.version
    assert after.rows_version == BEFORE.rows_version


@pytest.mark.parametrize(
    "after",
    [declared(least=1), declared(keys=("id", "n"))],
    ids=["code", "keys"],
)
def test_what_decides_rows_changes_it(after: Declared) -> None:
    assert after.rows_version != declared().rows_version


def test_a_build_has_that_of_its_declaration() -> None:
    for each in (BEFORE, declared(), declared(least=1)):
        assert born_rows_version(born("a", each)) == each.rows_version


def test_a_build_without_kept_declarations_shares_it_with_no_other_version() -> None:
    old = replace(born("a", BEFORE), declarations={})

    assert born_rows_version(old) != BEFORE.rows_version


@given(checks=st.lists(st.text(min_size=1, alphabet="ab \n>keys1"), max_size=3))
def test_whatever_checks_say_they_leave_no_line_behind(checks: list[str]) -> None:
    table = declared(checks=tuple(checks)).pipeline

    lines = declarations(table)["table delays"]
    assert without_checks(lines, checks) == declarations(declared().pipeline)["table delays"]
