"""Alerts in the courier: a real receiver gets each change, and no secret is visible."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from changing import ChangingWorld
from delivering import applied, known, once
from receiver import SECRET, Receiver, closes, hangs, is_signed, status
from sinking import courier, wait_for

from kappa.base.sections import AlertSettings
from kappa.base.settings import Settings
from kappa.commands.app import run_command
from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.alerts.outbox import read_alert_progress, read_outbox
from kappa.serving.outlets.courier import Courier, outlet_makers
from kappa.state.store import Store

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.fault]

NOWHERE = "127.0.0.1:1"
CITIES = AlertBirth("cities", "cities", "https://canary.invalid/canary")
TOTALS = AlertBirth("totals", "totals", "page")


@contextmanager
def running(store: Store, settings: AlertSettings) -> Iterator[None]:
    """Runs a courier in this process."""
    stop = threading.Event()
    made = outlet_makers(Settings(project=store.folder, alerts=settings), store, NOWHERE)
    thread = threading.Thread(target=Courier(store, made).run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


@contextmanager
def changing(root: Path, *alerts: tuple[AlertBirth, ...]) -> Iterator[ChangingWorld]:
    made = ChangingWorld(Store(root, syncs=False), 7, alerts=alerts, now=time.time())
    try:
        yield made
    finally:
        made.close()


def began(store: Store, name: str) -> bool:
    return read_outbox(store, name) is not None


def settled(world: ChangingWorld, name: str = "cities") -> bool:
    """Returns True once an alert has the table's cursor, and all its messages are settled."""
    outbox, progress = read_outbox(world.store, name), read_alert_progress(world.store, name)
    return (outbox is not None and progress.outbox == outbox.number) and progress.settled == len(
        outbox.messages
    )


def test_a_receiver_that_fails_in_each_way_is_told_all_in_order(tmp_path: Path) -> None:
    never = threading.Event()
    with changing(tmp_path, (CITIES,)) as world, Receiver().up() as there:
        settings = AlertSettings(secret=SECRET, urls={"cities": there.url}, timeout_seconds=0.5)
        with running(world.store, settings):
            wait_for(lambda: began(world.store, "cities"))
            before = known(world.store)
            there.answers = [status(500), hangs(never), closes, status(503, retry_after="1")]
            for _ in range(4):
                world.fold()
            wait_for(
                lambda: (
                    applied(before, once(there.messages)) == known(world.store) and settled(world)
                ),
                "all messages",
            )
            world.serve(1, asked=False)
            wait_for(lambda: applied(before, once(there.messages)) == known(world.store))
        never.set()
        assert len(there.requests) >= len(once(there.messages)) + 4
        assert all(is_signed(each, b"0123456789abcdef0123456789abcdef") for each in there.requests)


def test_an_alert_that_a_version_lacks_is_mute_and_goes_on_after_an_undo(tmp_path: Path) -> None:
    with changing(tmp_path, (CITIES, TOTALS), (TOTALS,)) as world, Receiver().up() as there:
        settings = AlertSettings(secret=SECRET, urls={"cities": there.url})
        with running(world.store, settings):
            wait_for(lambda: began(world.store, "cities") and began(world.store, "totals"))
            world.serve(1, asked=False)
            for _ in range(3):
                world.fold()
            wait_for(lambda: settled(world, "totals"), "the other alert")
            assert there.requests == []
            world.serve(0, asked=True)
            wait_for(lambda: applied([], once(there.messages)) == known(world.store))
        assert {each["kind"] for each in there.messages} == {"slice"}


def test_a_courier_that_is_killed_goes_on_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root, secret = tmp_path / ".kappa", "canary-canary-canary"
    monkeypatch.setenv("KAPPA__ALERTS__SECRET", secret)
    with changing(root, (CITIES,)) as world, Receiver().up() as there:
        monkeypatch.setenv("KAPPA__ALERTS__URLS__CITIES", there.url + "?key=secret-canary")
        there.answers = [status(500)]
        with courier(tmp_path, root, NOWHERE):
            wait_for(lambda: began(world.store, "cities"))
        while len(known(world.store)) < 2:
            world.fold()
        with courier(tmp_path, root, NOWHERE, fail="alert.after_send:kill:2") as process:
            wait_for(lambda: process.poll() is not None, "its death")
            assert process.poll() == -9
        with courier(tmp_path, root, NOWHERE):
            wait_for(lambda: applied([], once(there.messages)) == known(world.store))
            wait_for(lambda: settled(world))
        assert len(there.messages) > len(once(there.messages))
        assert all(is_signed(each, secret.encode()) for each in there.requests)
    monkeypatch.chdir(tmp_path)
    for arguments in (["list"], ["list", "--dead"], ["list", "-o", "json"]):
        assert run_command(["alerts", *arguments]) == 0
    said = capfd.readouterr()
    assert "canary-canary" not in said.out + said.err
    files = [each for each in root.rglob("*") if each.is_file()]
    held = [
        each
        for each in files
        if b"secret-canary" in (text := each.read_bytes()) or secret.encode() in text
    ]
    assert len(files) > 20
    assert held == []
