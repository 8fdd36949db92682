"""Alerts of a process that dies anywhere: no message is lost, and repeats have the same id."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from changing import ChangingWorld
from delivering import GONE, Scripted, applied, delivery, known, once, settle
from house import HOUSE, SUPPORT
from receiver import Receiver, status

from kappa.base.failpoint import acting
from kappa.serving.outlets.alerts.outbox import ask_to_send_again, dead_letters, read_outbox
from kappa.state.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.fault]

FAILPOINTS = [
    *("alert.before_take", "alert.after_take", "alert.before_send", "alert.after_send"),
    *("alert.before_settle", "alert.after_settle"),
    *("alert.before_give_up", "alert.after_give_up"),
    *("alert.before_delete", "alert.after_delete", "alert.before_answer", "alert.after_answer"),
]


class Killed(BaseException):
    """Raised where this process is killed."""


def killing(wanted: str, passing: int) -> Callable[[str], None]:
    passed = Counter[str]()

    def act(name: str) -> None:
        passed[name] += 1
        if name == wanted and passed[name] == passing:
            raise Killed(name)

    return act


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ChangingWorld]:
    made = ChangingWorld(Store(tmp_path / "root", syncs=False), 3)
    yield made
    made.close()


def test_killed_at_any_failpoint_nothing_is_left_out(world: ChangingWorld) -> None:
    before = known(world.store)
    settle(delivery(world, Scripted()))
    came, died = list[Any](), Counter[str]()
    for place, point in enumerate((*FAILPOINTS, *FAILPOINTS[:6])):
        if place % 5 == 4:
            world.serve(1 - world.builds.index(world.live), asked=False)
        there = applied(before, came)
        while known(world.store) == there:
            world.fold()
        # The first message is refused, and is sent again when somebody asks.
        channel = Scripted([GONE])
        action = killing(point, 1 if place < len(FAILPOINTS) else 2)
        for _ in range(3):
            try:
                with acting(action):
                    alert = delivery(world, channel)
                    settle(alert)
                    for letter in dead_letters(world.store, "cities"):
                        ask_to_send_again(world.store, "cities", letter.message.id)
                    settle(alert)
            except Killed:
                died[point] += 1
        assert dead_letters(world.store, "cities") == ()
        # A dead letter comes after later messages: so the order is that of the outbox.
        outbox = read_outbox(world.store, "cities")
        assert outbox is not None
        order = [each.id for each in outbox.messages]
        sent = once(channel.received)
        assert sorted(each["id"] for each in sent) == sorted(order)
        came += sorted(sent, key=lambda each: order.index(each["id"]))
        assert applied(before, came) == known(world.store), point

    assert {*died} == {*FAILPOINTS}


@pytest.mark.long
def test_a_process_that_is_killed_for_real_goes_on(world: ChangingWorld, tmp_path: Path) -> None:
    """The first message after each change is refused, and is sent again on request."""

    def deliver(url: str, fail: str = "") -> int:
        command = [sys.executable, str(SUPPORT / "delivering.py"), str(tmp_path / "root"), url]
        environment = {
            **os.environ,
            "KAPPA_FAIL": fail and f"{fail}:kill",
            "PYTHONPATH": os.pathsep.join([str(HOUSE), str(SUPPORT)]),
        }
        return subprocess.run(command, env=environment, cwd=HOUSE, check=False).returncode

    receiver, came = Receiver(), list[Any]()
    before = known(world.store)
    with receiver.up() as there:
        assert deliver(there.url) == 0
        for point in FAILPOINTS:
            shown = known(world.store)
            while known(world.store) == shown:
                world.fold()
            begun, there.answers = len(there.requests), [status(410)]
            codes = [deliver(there.url, point)]
            # One that died behind an answer gets it again.
            if codes == [-9] and not dead_letters(world.store, "cities"):
                there.answers = [status(410)]
                codes.append(deliver(there.url))
            for letter in dead_letters(world.store, "cities"):
                ask_to_send_again(world.store, "cities", letter.message.id)
            codes += [deliver(there.url, "" if -9 in codes else point), deliver(there.url)]
            assert (codes.count(-9), codes[-1]) == (1, 0), (point, codes)
            assert dead_letters(world.store, "cities") == ()
            outbox = read_outbox(world.store, "cities")
            assert outbox is not None
            sent = {each["id"]: each for each in once(receiver.messages[begun:])}
            assert {*sent} == {each.id for each in outbox.messages}, point
            came += [sent[each.id] for each in outbox.messages]
            assert applied(before, came) == known(world.store), point
