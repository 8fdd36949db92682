"""Alerts as commands, API and page show them; dead letters can be sent again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from page_world import ALERTS, EVIL, World

from kappa.commands.app import run_command
from kappa.serving.outlets.alerts.channels import RECEIVED, Attempted
from kappa.serving.outlets.alerts.delivery import AlertDelivery, Rules
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import (
    AlertProgress,
    dead_letters,
    ids_to_send_again,
    put_alert_progress,
)
from kappa.state.root import Root, place_of, put_root

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    made.lives()
    monkeypatch.chdir(tmp_path)
    return made


def typed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run_command([*arguments, "-o", "json"]) == code
    said = capsys.readouterr()
    return json.loads(said.out) if code == 0 else said.err


@pytest.mark.usefixtures("world")
def test_alerts_are_listed_with_what_waits_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    busy, late = typed(capsys, "alerts", "list")

    assert (busy["alert"], busy["state"], busy["to"]) == ("busy", "new", "page")
    assert (late["state"], late["pipeline"], late["of"]) == ("retrying", "web", "page_hits")
    assert (late["delivered"], late["waiting"], late["dead"]) == (5, 1, 1)
    assert late["error"] == "canary answered 500"
    assert late["to"] == "https://canary"
    assert late["next_try_at"] > late["delivered_at"]
    assert late["missed_since"] < late["missed_until"]
    (letter,) = typed(capsys, "alerts", "list", "--dead")
    assert (letter["alert"], letter["id"], letter["op"]) == ("late", "msg_1", "delete")
    assert letter["tries"] == 3
    assert letter["message"]["key"] == {"page": EVIL}
    assert "canary:1/canary" not in str((busy, late))


def test_alerts_of_adopted_copy_are_off(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The alerts of an adopted copy are off until the copy may send."""
    copy = Root("copy", "then", place_of(world.store), adopted_from="first", sends=False)
    for root, states in ((copy, ["off", "off"]), (replace(copy, sends=True), ["new", "retrying"])):
        put_root(world.store, root)
        assert [each["state"] for each in typed(capsys, "alerts", "list")] == states


def test_dead_letters_are_sent_by_sender(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    class Channel:
        def send(self, message: Message) -> Attempted:
            sent.append(message.id)
            return RECEIVED

    sent = list[str]()
    for arguments in (("retry",), ("retry", "late"), ("retry", "--id", "msg_1")):
        (letter,) = typed(capsys, "alerts", *arguments)
        assert letter["id"] == "msg_1"
        assert ids_to_send_again(world.store, "late") == ("msg_1",)
    assert typed(capsys, "alerts", "retry", "busy") == []
    AlertDelivery(world.store, ALERTS[1], Channel(), Rules(), clock=time.time).take_step()

    assert sent == ["msg_1"]
    assert dead_letters(world.store, "late") == ()
    assert typed(capsys, "alerts", "retry") == []


def test_the_page_asks_again_when_an_alert_has_moved_on(world: World) -> None:
    before = world.desk.change_marker()
    put_alert_progress(world.store, "busy", AlertProgress(delivered=1))

    assert world.desk.change_marker() != before


def test_retry_says_that_nobody_sends(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["alerts", "retry"]) == 0
    assert "they are sent when it is" in capsys.readouterr().err
    world.be_up()
    assert run_command(["alerts", "retry"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("lat",), "error: there is no alert lat\nhint: did you mean late?\n"),
        (("late", "--id", "msg_2"), "error: there is no dead letter msg_2 of alert late\n"),
        (("--id", "../x"), "error: there is no dead letter ../x\n"),
    ],
)
def test_what_is_not_there_cannot_be_sent_again(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert typed(capsys, "alerts", "retry", *arguments, code=2).startswith(told)
