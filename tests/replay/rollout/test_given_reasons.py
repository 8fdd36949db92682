"""Laws of the reasons that people give, and of an undo that reverts an undo."""

from __future__ import annotations

from pathlib import Path

import pytest
from births import make_birth
from journals import NOWHERE, append, served, staged, state_of, verified
from msgspec import structs
from plans import B_SERVES

from kappa.replay.rollout.history import rollout_entries
from kappa.replay.rollout.operator_requests import (
    abandon_rollout,
    ask_promote,
    ask_undo,
    ask_verify,
)
from kappa.replay.rollout.state import State
from kappa.replay.status.listings import history_listing
from kappa.state.build import put_birth
from kappa.state.journal.events import Abandoned, CaughtUp, Held, Served, SwitchAsked
from kappa.state.journal.journal import Journal, JournalRecord, as_document
from kappa.state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    for build in "ab":
        put_birth(store, make_birth(build, pipeline="flights"))
    return store


def columns(state: State, *names: str) -> list[tuple[object, ...]]:
    rows = history_listing(rollout_entries(state)).row_objects()
    return [tuple(row[name] for name in names) for row in rows]


def serve(store: Store, asked: JournalRecord, live: str, build: str, generation: int) -> None:
    append(store, Held(asked.number, live, 1), served(asked.number, generation, build, live=live))


@pytest.fixture
def two(store: Store) -> Store:
    """Makes build b serve after build a."""
    append(store, *B_SERVES)
    return store


def test_an_undo_of_an_undo_is_a_redo(two: Store) -> None:
    for build, live, generation in (("a", "b", 3), ("b", "a", 4), ("a", "b", 5)):
        serve(two, ask_undo(two, "flights"), live, build, generation)

    told = columns(state_of(two), "what", "why")[2:]
    assert told == [("undo", "undo"), ("redo", "redo"), ("undo", "undo")]


def test_a_deploy_of_a_kept_version_is_neither(two: Store) -> None:
    append(two, SwitchAsked("flights", "a", "version v was deployed, which this build holds"))

    assert columns(state_of(two), "what")[-1] == ("switch",)


def test_each_reason_is_kept_with_its_rollout(store: Store) -> None:
    waiting = structs.replace(staged("a"), auto_promote=False)
    append(store, waiting, reason="ticket 1")
    append(store, CaughtUp(1, NOWHERE), verified(1))
    ask_verify(store, "flights", reason="once more")
    append(store, verified(1))
    ask_promote(store, "flights", reason="looks good")

    assert state_of(store).rollouts[0].given_reasons == ("ticket 1", "once more", "looks good")
    assert columns(state_of(store), "why") == [("ticket 1; once more; looks good; new",)]


def test_a_reason_to_abandon_is_why_it_ended(store: Store) -> None:
    append(store, staged("a"))
    abandon_rollout(store, "flights", reason="wrong branch")

    assert [each.event for each in Journal(store).after(1)] == [Abandoned(1, "wrong branch")]
    append(store, staged("b"))
    abandon_rollout(store, "flights")
    assert [each.event for each in Journal(store).after(3)] == [Abandoned(3, "abandoned by hand")]


def test_a_record_of_an_older_kappa_has_no_reason(store: Store) -> None:
    """Records of an older Kappa have no field for a reason, and are read as before."""
    append(store, staged("a"))
    (record,) = Journal(store).after(0)
    older = {name: value for name, value in as_document(record).items() if name != "reason"}
    (name,) = store.names("journal")
    store.put_json(name, older)

    assert [each.reason for each in Journal(Store(store.folder)).after(0)] == [""]


def test_who_served_is_a_promote_and_no_undo(two: Store) -> None:
    last = state_of(two).last_switch("flights")

    assert (last.build, last.switch) == ("b", False)
    assert state_of(two).last_switch("trains") is None
    assert isinstance(state_of(two).served[-1].event, Served)
