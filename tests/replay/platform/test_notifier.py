"""Notices about the platform: each fact is sent once, across deaths, to the right address."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from collecting import until
from page_world import World
from receiver import SECRET, Receiver

from kappa.base.errors import DeclarationError, KappaError
from kappa.base.sections import AlertSettings, NotifySettings
from kappa.base.settings import Settings
from kappa.declare.alert import Alert
from kappa.replay.page.open_matters import open_matters
from kappa.replay.platform import notifier as notifier_module
from kappa.replay.platform.notifier import Notifier, notices_since
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.supervisor_report import (
    Deaths,
    ReportWriter,
    read_supervisor_report,
)
from kappa.replay.status.alerts import alert_statuses, shown_alerts, shown_notices
from kappa.replay.status.status import observe_status
from kappa.serving.outlets.alerts.outbox import dead_letters
from kappa.state.build_status import ensure_not_stopped, put_stopped
from kappa.state.disk_space import RESERVE
from kappa.state.drift import Drift, DriftKind, put_drifts
from kappa.state.journal.events import Failed, PromoteAsked, Proved, Staged
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.goes_live(made.build("web-1"), 1)
    return made


def kinds(world: World, place: str | None) -> tuple[str, list[str]]:
    """Returns the place after a look, and the kinds of the facts since the place `place`."""
    now, found = notices_since(world.store, 0, place)
    return now, [each.kind for each in found]


def rollout_of(world: World, build: str) -> int:
    """Stages a build, and returns the number of the journal record."""
    world.append(Staged("web", build, "v", ("new",)))
    return max(record.number for record in world.journal.after(0))


def test_a_first_look_tells_states_and_no_past(world: World) -> None:
    world.append(Failed(rollout_of(world, "web-f"), "no"))
    world.waits("web-2", "web-1")

    place, found = kinds(world, None)

    assert found == ["rollout_waits"]
    assert kinds(world, place) == (place, [])


def test_each_fact_is_told_once(world: World) -> None:
    place, _ = kinds(world, None)
    world.append(Failed(rollout_of(world, "web-f"), "check failed", "mend it"))
    failed, (notice,) = notices_since(world.store, 0, place)
    assert (notice.pipeline, notice.build, notice.hint) == ("web", "web-f", "mend it")
    assert notice.text == "rollout 2 of pipeline web failed: check failed"

    world.waits("web-2", "web-1")
    waiting, found = kinds(world, failed)
    assert found == ["rollout_waits"]
    world.append(PromoteAsked(waiting_rollout(world)))
    promoted, found = kinds(world, waiting)
    assert found == []

    for equal in (True, False):
        world.append(Proved("web", "web-1", Offsets(), "one", 1, None, equal, 3, "hash"))
    _, found = kinds(world, promoted)
    assert found == ["proof_differs"]


def test_a_state_that_begins_anew_is_told_anew(world: World) -> None:
    place, _ = kinds(world, None)
    put_stopped(world.store, "web-1", KappaError("the topic is gone", hint="make it"))
    stopped, (notice,) = notices_since(world.store, 0, place)
    assert notice.text == "the job of build web-1 has stopped: the topic is gone"
    assert kinds(world, stopped) == (stopped, [])

    ensure_not_stopped(world.store, "web-1")
    runs, found = kinds(world, stopped)
    assert found == []
    put_stopped(world.store, "web-1", KappaError("again", hint=""))
    assert kinds(world, runs)[1] == ["build_stopped"]


def test_a_job_that_crashes_again_and_again_is_told(world: World) -> None:
    """One or two deaths cause no notice. Further deaths in a row belong to the same notice."""
    place, _ = kinds(world, None)

    def report(count: int) -> None:
        died = Deaths(count, "SIGKILL") if count else None
        writer = ReportWriter(world.store, lambda _: died, clock=time.monotonic)
        writer.report(current_state(world.store), {})

    report(2)
    assert kinds(world, place)[1] == []
    report(3)
    died, (notice,) = notices_since(world.store, 0, place)
    assert (notice.kind, notice.pipeline, notice.build) == ("build_crashes", "web", "web-1")
    assert notice.text.startswith("build web-1: its job died 3 times, last: SIGKILL")
    assert "kappa logs web-1" in notice.hint
    report(7)
    assert kinds(world, died)[1] == []
    report(0)
    well, found = kinds(world, died)
    assert found == []
    report(3)
    assert kinds(world, well)[1] == ["build_crashes"]


def test_drift_is_told_with_its_proof(world: World) -> None:
    place, _ = kinds(world, None)
    drift = Drift(DriftKind.FIELD, "visits", "user", "a field user", "visits:0:7", "{}", "then")
    put_drifts(world.store, "web-1", [drift])

    told, (notice,) = notices_since(world.store, 0, place)

    assert (notice.kind, notice.text, notice.proof) == ("drift", "a field user", "visits:0:7: {}")
    put_drifts(world.store, "web-1", [drift, drift])
    assert kinds(world, told)[1] == []


def test_a_full_disk_is_told(world: World) -> None:
    world.store.local.path(RESERVE).write_bytes(b"")
    place, _ = notices_since(world.store, 1 << 60, None)
    world.store.local.delete(RESERVE)

    _, (notice,) = notices_since(world.store, 1 << 60, place)

    assert (notice.kind, "the disk is full" in notice.text) == ("disk_full", True)


def test_pages_word_a_fact_as_its_notice_does(world: World) -> None:
    world.build("web-2")
    world.waits("web-2", "web-1")
    put_stopped(world.store, "web-1", KappaError("the topic is gone", hint="make it"))
    drift = Drift(DriftKind.FIELD, "visits", "user", "a field user", "visits:0:7", "{}", "then")
    put_drifts(world.store, "web-1", [drift])
    died = {"web-2": Deaths(3, "SIGKILL")}
    state = current_state(world.store)
    ReportWriter(world.store, died.get, clock=time.monotonic).report(state, {})

    _, notices = notices_since(world.store, 0, None)
    report = read_supervisor_report(world.store)
    status = observe_status(world.store, None, underway=report)
    matters = open_matters(status, state, datetime.now(UTC), supervised=True)

    told = {(each.kind, each.text, each.hint, each.build, each.rollout) for each in notices}
    assert told == {(each.kind, each.text, each.hint, each.build, each.rollout) for each in matters}
    kinds_told = ["build_crashes", "build_stopped", "drift", "rollout_waits"]
    assert sorted(each.kind for each in notices) == kinds_told


def waiting_rollout(world: World) -> int:
    """Returns the number of the record that began the waiting rollout."""
    (rollout,) = current_state(world.store).active_rollouts
    return rollout.id


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with made.up():
        yield made


def settings_of(world: World, to: str, **alerts: object) -> Settings:
    return Settings(
        project=world.here.settings.project,
        notify=NotifySettings(to),
        alerts=AlertSettings(secret=SECRET, **alerts),
    )


def test_a_webhook_gets_signed_notices(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new notifier continues where the one before has ended."""
    monkeypatch.setattr(notifier_module, "_LOOK_SECONDS", 0.05)
    world.waits("web-2", "web-1")
    for count, fails in ((1, False), (2, True)):
        if fails:
            world.append(Failed(waiting_rollout(world), "no"))
        each = Notifier(world.store, settings_of(world, f"{receiver.url}/ops"), say=print)
        each.start()
        until(lambda count=count: len(receiver.messages) == count, "a notice", 20)
        each.end()

    waits, failed = receiver.messages
    assert (waits["alert"], waits["op"], waits["rollout"]) == ("kappa", "rollout_waits", 2)
    assert (failed["op"], failed["build"]) == ("rollout_failed", "web-2")
    assert {"webhook-id", "webhook-signature"} <= {*receiver.requests[0].headers}
    (status,) = (each for each in alert_statuses(world.store) if each.name == "kappa")
    assert (status.of, str(status.state), status.delivered) == ("the platform", "following", 2)


def test_a_command_and_the_page_get_notices(world: World, tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read())"
    commands = {"tell": [sys.executable, "-c", program]}
    world.waits("web-2", "web-1")
    each = Notifier(world.store, settings_of(world, "command:tell", commands=commands), say=print)
    each.start()
    until(lambda: told.exists() and told.read_text().endswith("\n"), "the command", 20)
    each.end()
    assert (
        json.loads(told.read_text())["text"] == "rollout 2 of pipeline web is waiting for approval"
    )

    world.append(Failed(waiting_rollout(world), "no"))
    page = Notifier(world.store, settings_of(world, "page"), say=print)
    page.start()
    until(lambda: shown_notices(world.store, 9), "the page", 20)
    page.end()
    (shown,) = shown_notices(world.store, 9)
    assert (shown.kind, shown.text) == ("rollout_failed", "rollout 2 of pipeline web failed: no")
    assert (shown.pipeline, shown.build, shown.rollout) == ("web", "web-2", 2)
    assert not shown_alerts(world.store, ["kappa"], 9)
    assert not dead_letters(world.store, "kappa")


def test_nothing_runs_without_an_address(world: World) -> None:
    each = Notifier(world.store, settings_of(world, ""), say=print)
    each.start()
    each.end()

    assert not world.store.names("alerts/kappa")


@pytest.mark.parametrize("to", ["ops", "ftp://x", "https://u:p@host/x", "command:"])
def test_a_wrong_address_is_named(world: World, to: str) -> None:
    with pytest.raises(DeclarationError, match=r"notify\.to of kappa\.toml goes to"):
        Notifier(world.store, settings_of(world, to), say=print)


def test_no_alert_has_the_name_of_notices() -> None:
    with pytest.raises(DeclarationError, match="the name of Kappa's own messages"):
        Alert("kappa", of="page_hits", to="page")
