"""The delivery of alerts: at least once, in order, across deaths, switches and lost positions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from changing import ChangingWorld
from delivering import DOWN, GONE, Scripted, applied, delivery, fold_on, known, settle

from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.alerts.channels import RECEIVED
from kappa.serving.outlets.alerts.delivery import next_attempt
from kappa.serving.outlets.alerts.message import time_as_text
from kappa.serving.outlets.alerts.outbox import (
    ask_to_send_again,
    dead_letters,
    read_alert_progress,
    read_outbox,
)
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.query.query import answer_query
from kappa.state.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ChangingWorld]:
    made = ChangingWorld(Store(tmp_path, syncs=False), 7)
    yield made
    made.close()


@pytest.mark.long
def test_a_new_alert_begins_now_and_tells_each_change(world: ChangingWorld) -> None:
    for _ in range(5):
        world.fold()
    channel, before = Scripted(), known(world.store)
    alert = delivery(world, channel)
    settle(alert)
    assert before
    assert channel.tried == []

    fold_on(world, alert, 12)

    assert applied(before, channel.received) == known(world.store)
    assert {each["op"] for each in channel.received} == {"insert", "update", "delete"}
    ids = [each["id"] for each in channel.received]
    assert len(set(ids)) == len(ids)
    first = channel.received[0]
    assert list(first) == ["alert", "id", "op", "key", "before", "after", "kind", "cursor", "at"]
    assert (first["alert"], first["kind"]) == ("cities", "slice")


def test_columns_condition_and_ops_choose_the_messages(world: ChangingWorld) -> None:
    narrow = AlertBirth("n", "newest", "page", ("city",), "city = 'x'", ("insert", "delete"))
    alert = delivery(world, channel := Scripted(), narrow)
    settle(alert)
    fold_on(world, alert, 12)

    rows = [each["after"] or each["before"] for each in channel.received]
    assert {tuple(row) for row in rows} == {("id", "city")}
    assert {row["city"] for row in rows} == {"x"}
    assert {each["op"] for each in channel.received} == {"insert", "delete"}


def test_rows_without_keys_have_their_count(world: ChangingWorld) -> None:
    alert = delivery(world, channel := Scripted(), AlertBirth("e", "events", "page"))
    settle(alert)
    for _ in range(4):
        world.fold()
    settle(alert)

    counted = sum(each["times"] for each in channel.received)
    (total,) = answer_query(world.store, "select count(*) from events").rows[0]
    assert counted == total > 0


@pytest.mark.long
def test_a_receiver_that_is_down_for_ten_minutes_misses_nothing(world: ChangingWorld) -> None:
    channel, before = Scripted(usual=DOWN), known(world.store)
    alert = delivery(world, channel)
    settle(alert)
    end, tries = world.now + 600, list[float]()
    while world.now < end:
        world.fold()
        world.live.keep_up()
        tries += [world.now] * (len(channel.tried) - len(tries))
        world.now += settle(alert) or 1.0
    # Somebody kills it meanwhile.
    alert = delivery(world, channel)
    channel.usual = RECEIVED
    world.now += 300
    settle(alert)

    assert applied(before, channel.received) == known(world.store)
    assert dead_letters(world.store, "cities") == ()
    waits = [other - one for one, other in pairwise(tries[1:])]
    assert waits == sorted(waits)
    assert len(tries) < 15


def test_a_message_that_is_given_up_is_kept_and_the_next_one_goes_on(world: ChangingWorld) -> None:
    alert = delivery(world, channel := Scripted(), patience=100.0)
    settle(alert)
    while alert.unsettled_count == 0:
        world.fold()
        alert.take_step()
    channel.usual, began = DOWN, world.now
    first = read_outbox(world.store, "cities").messages[0]  # type: ignore[union-attr]
    while not dead_letters(world.store, "cities"):
        world.now += alert.take_step() or 0.0
    channel.usual = RECEIVED
    settle(alert)
    fold_on(world, alert, 5)

    (letter,) = dead_letters(world.store, "cities")
    assert (letter.message, letter.reason) == (first, "down")
    assert letter.at == time_as_text(began + 100)
    assert letter.tries == sum(each["id"] == first.id for each in channel.tried) > 3
    assert first.id not in {each["id"] for each in channel.received}
    assert channel.received
    assert read_alert_progress(world.store, "cities").delivered == len(channel.received)


def test_a_dead_letter_is_sent_again_when_somebody_asks(world: ChangingWorld) -> None:
    alert = delivery(world, channel := Scripted(usual=GONE))
    settle(alert)
    while not dead_letters(world.store, "cities"):
        world.fold()
        settle(alert)
    letters = dead_letters(world.store, "cities")
    assert {each.tries for each in letters} == {1}
    for each in letters:
        ask_to_send_again(world.store, "cities", each.message.id)
    # The first is refused again, and the rest are received.
    channel.attempts, channel.usual = [GONE], RECEIVED
    settle(alert)

    (left,) = dead_letters(world.store, "cities")
    assert left.tries == 2
    assert {each["id"] for each in channel.received} == {each.message.id for each in letters} - {
        left.message.id
    }
    ask_to_send_again(world.store, "cities", left.message.id)
    ask_to_send_again(world.store, "cities", "msg_unknown")
    settle(alert)
    assert dead_letters(world.store, "cities") == ()
    assert channel.received[-1]["id"] == left.message.id


def test_a_switch_sends_exactly_its_difference(world: ChangingWorld) -> None:
    for _ in range(5):
        world.fold()
    alert = delivery(world, channel := Scripted())
    settle(alert)
    follower = Follower(world.store, "cities", clock=lambda: world.now)
    with follower.next_change_set():
        pass
    kinds = list[str]()
    for number, asked in ((1, False), (0, True), (1, True)):
        before = known(world.store)
        world.serve(number, asked=asked)
        del channel.received[:]
        settle(alert)
        with follower.next_change_set() as change_set:
            assert change_set is not None
            assert len(channel.received) == change_set.counts().row_count
        assert applied(before, channel.received) == known(world.store)
        kinds += {each["kind"] for each in channel.received}

    assert set(kinds) == {"promote", "undo"}


def test_a_candidate_sends_nothing(world: ChangingWorld) -> None:
    alert = delivery(world, channel := Scripted())
    settle(alert)
    # Only the build that does not serve folds on.
    live = world.live
    other = next(each for each in world.builds if each is not live)
    slices, world.builds = world.builds, [other]
    for _ in range(5):
        world.slices.append(world.draw.getrandbits(30))
        world._catch_up(other, 1)
    settle(alert)
    world.builds = slices

    assert channel.tried == []


def test_what_floods_is_one_message_more(world: ChangingWorld) -> None:
    alert = delivery(world, channel := Scripted(), AlertBirth("e", "totals", "page"), most=2)
    settle(alert)
    for _ in range(4):
        world.fold()
    total = len(known(world.store, "totals"))
    settle(alert)

    assert total > 2
    assert [each["op"] for each in channel.received] == ["insert", "insert", "more"]
    assert channel.received[-1]["more"] == total - 2
    assert channel.received[-1]["counts"] == {"insert": total, "update": 0, "delete": 0}


@pytest.mark.long
def test_a_place_that_was_kept_too_short_is_told(world: ChangingWorld) -> None:
    alert = delivery(world, channel := Scripted(), keep=3600.0)
    settle(alert)
    since = world.now
    for wait in (3000.0, 4000.0):
        for _ in range(8):
            world.fold()
        world.now += wait
        world.live.keep_up()
        alert, before = delivery(world, channel, keep=3600.0), since
        del channel.received[:]
        settle(alert)
        since = world.now
        if wait == 3000.0:
            assert channel.received
            assert {each["op"] for each in channel.received} <= {"insert", "update", "delete"}

    (missed,) = channel.received
    assert missed["op"] == "missed"
    assert (missed["since"], missed["until"]) == (time_as_text(before), time_as_text(since))
    outbox = read_outbox(world.store, "cities")
    assert outbox is not None
    assert outbox.missed is not None
    assert (outbox.missed.since, outbox.missed.until) == (before, since)


def test_a_place_that_cannot_be_read_is_moved_aside_and_told(
    world: ChangingWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = delivery(world, channel := Scripted())
    settle(alert)
    while not channel.received:
        world.fold()
        settle(alert)
    sent, world.now = world.now, world.now + 60
    world.store.put("alerts/cities/outbox.json", b"{")
    settle(alert := delivery(world, channel))

    missed = channel.received[-1]
    assert (missed["op"], missed["since"]) == ("missed", time_as_text(sent))
    assert "it was moved to" in capsys.readouterr().err
    before, number = known(world.store), len(channel.received)
    while len(channel.received) == number:
        world.fold()
        settle(alert)
    assert applied(before, channel.received[number:]) == known(world.store)


def test_waits_double_to_five_minutes_and_end_with_patience() -> None:
    def waits(draw: float, asked: float = 0.0) -> list[float]:
        now, tries, found = 0.0, 0, list[float]()
        while True:
            tries += 1
            due = next_attempt(
                tries, first=0.0, now=now, asked=asked, patience=3600.0, draw=lambda: draw
            )
            if due is None:
                return found
            found.append(due - now)
            now = due

    assert waits(1.0)[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert waits(0.0)[:3] == [0.5, 1, 2]
    for draw in (0.0, 0.3, 1.0):
        assert sum(waits(draw)) == pytest.approx(3600)
    assert waits(1.0, asked=2000.0) == [2000, 1600]
