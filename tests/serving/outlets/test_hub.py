"""The hub: a request of one reader of a table does not end the changes for other readers."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from changing import ChangingWorld

from kappa.base.errors import UsageError
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.outlets.changes.follower_registry import ChangeHub, ChangeReader, RecordedChanges
from kappa.state.store import Store

pytestmark = pytest.mark.slow


def next_of(reader: ChangeReader, woken: threading.Event) -> RecordedChanges:
    while (found := reader.take_changes()) is None:
        assert woken.wait(20)
        woken.clear()
    return found


def test_a_filter_by_a_column_that_a_switch_drops_ends_its_reader_alone(tmp_path: Path) -> None:
    # With this seed the second build has the column `more`.
    with closing(ChangingWorld(Store(tmp_path), 0)) as world:
        for _ in range(4):
            world.fold()
        world.serve(1, asked=False)
        hub = ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None)
        woken = threading.Event(), threading.Event()
        one, other = (
            ChangeReader("events", chosen, None, wake.set)
            for chosen, wake in zip((Filter(None, "more is null"), None), woken, strict=True)
        )
        assert hub.begin_reader(one) is not None
        assert hub.begin_reader(other) is not None

        world.serve(0, asked=True)

        assert next_of(other, woken[1]).head.kind == "undo"
        with pytest.raises(UsageError, match="more"):
            next_of(one, woken[0])
        world.serve(1, asked=False)
        assert next_of(other, woken[1]).head.kind == "promote"
        hub.remove_reader(other)


def test_only_the_first_reader_of_a_table_needs_a_snapshot_to_be_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ChangingWorld(Store(tmp_path), 0)) as world:
        world.fold()
        hub = ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None)
        made, make = list[str](), hub.make_follower
        monkeypatch.setattr(hub, "make_follower", lambda *args: made.append(args[0]) or make(*args))
        chosen = Filter(None, "rows > 1")
        readers = [ChangeReader("totals", chosen, None, lambda: None) for _ in range(20)]
        hub.begin_reader(readers[0])
        first = len(made)

        for each in readers[1:]:
            hub.begin_reader(each)

        assert (first, len(made)) == (2, 2)
        with pytest.raises(UsageError, match="no column"):
            hub.begin_reader(ChangeReader("totals", Filter(("cost",)), None, lambda: None))
        for each in readers:
            hub.remove_reader(each)


def test_a_cursor_of_a_later_generation_is_waited_for_and_never_goes_back(tmp_path: Path) -> None:
    goes_on = threading.Event()
    goes_on.set()

    def clock() -> float:
        if threading.current_thread().name == "changes of totals":
            goes_on.wait(20)
        return time.time()

    with closing(ChangingWorld(Store(tmp_path), 4)) as world:
        world.fold()
        hub = ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None, clock=clock)
        first = ChangeReader("totals", None, None, lambda: None)
        assert hub.begin_reader(first) is not None
        # The same build serves again, at the same frontier, and another process was first to see.
        goes_on.clear()
        world.serve(1, asked=False)
        world.serve(0, asked=True)
        ahead = Follower(world.store, "totals")
        with ahead.next_change_set() as change_set:
            assert change_set is not None

        late = ChangeReader("totals", None, ahead.cursor, lambda: None)
        threading.Timer(0.5, goes_on.set).start()
        begun = hub.begin_reader(late)

        assert begun is None or begun.head.cursor.generation >= 3
        hub.remove_reader(late)
        hub.remove_reader(first)
