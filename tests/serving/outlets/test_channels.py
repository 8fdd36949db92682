"""The other channels of alerts: programs, the page, and what the settings lack."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from receiver import SECRET, Receiver, is_signed

from kappa.base.sections import AlertSettings
from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.alerts.channel import Outcome
from kappa.serving.outlets.alerts.channels import channel_of
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.program import Program
from kappa.serving.outlets.alerts.shown import MOST_SHOWN, ShownOnPage, shown_messages
from kappa.state.store import Store

MESSAGE = Message("msg_1", json.dumps({"alert": "é"}))


def program(code: str, *more: str, timeout: float = 30.0) -> Program:
    return Program("it", [sys.executable, "-c", code, *more], timeout_seconds=timeout)


@pytest.mark.slow
def test_a_program_gets_the_message_and_nothing_of_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "$(told); *"
    code = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"

    assert program(code, str(file)).send(MESSAGE).outcome is Outcome.RECEIVED
    assert file.read_text(encoding="utf-8") == MESSAGE.body + "\n"


@pytest.mark.slow
def test_a_large_message_reaches_a_program_that_reads_none_of_it() -> None:
    assert program("").send(Message("msg_2", "x" * 5_000_000)).outcome is Outcome.RECEIVED


@pytest.mark.slow
def test_a_program_that_fails_is_tried_again() -> None:
    sent = program("import sys; print('one'); print('no\\x07pe'); sys.exit(3)").send(MESSAGE)

    assert (sent.outcome, sent.reason) == (Outcome.AGAIN, "command it ended with 3: nope")
    missing = Program("it", ["/nowhere/to/be/found"], timeout_seconds=30).send(MESSAGE)
    assert missing.outcome is Outcome.AGAIN
    assert "/nowhere/to/be/found" in missing.reason


@pytest.mark.slow
def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    beats = tmp_path / "beats"
    child = "import sys, time\nwhile True: open(sys.argv[1], 'a').write('.'); time.sleep(0.02)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1]])"
    began = time.monotonic()
    sent = program(code, str(beats), timeout=2.0).send(MESSAGE)

    assert (sent.outcome, sent.reason) == (Outcome.AGAIN, "command it was ended after 2 s")
    assert time.monotonic() - began < 20
    size = beats.stat().st_size if beats.exists() else 0
    time.sleep(0.2)
    assert (beats.stat().st_size if beats.exists() else 0) == size


@pytest.mark.slow
def test_no_setting_of_ours_is_in_a_programs_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAPPA__ALERTS__SECRET", "canary")
    monkeypatch.setenv("WORD", "kept")
    file = tmp_path / "seen"
    code = "import os, sys; open(sys.argv[1], 'w').write(str(dict(os.environ)))"
    program(code, str(file)).send(MESSAGE)

    assert "kept" in file.read_text()
    assert "canary" not in file.read_text()


def test_the_page_shows_the_last_messages_once_each(tmp_path: Path) -> None:
    store = Store(tmp_path, syncs=False)
    page = ShownOnPage(store, "busy")
    for number in (*range(MOST_SHOWN + 5), MOST_SHOWN + 4):
        page.send(Message(f"msg_{number}", "{}"))

    ids = [each.id for each in shown_messages(store, "busy")]
    assert ids == [f"msg_{number}" for number in reversed(range(5, MOST_SHOWN + 5))]
    assert shown_messages(store, "other") == ()


def test_an_address_of_the_settings_beats_the_declared_one(tmp_path: Path) -> None:
    store = Store(tmp_path, syncs=False)
    with Receiver().up() as there:
        settings = AlertSettings(
            secret="too-short-to-be-taken?"[:5],
            secrets={"late_carrier": SECRET},
            urls={"late-carrier": there.url},
        )
        for to in ("page", "command:it", "https://nowhere.invalid/"):
            channel = channel_of(store, settings, AlertBirth("late-carrier", "t", to))
            assert channel.send(MESSAGE).outcome is Outcome.RECEIVED
        elsewhere = channel_of(store, settings, AlertBirth("late", "t", there.url))
        assert "shorter than 16 bytes" in elsewhere.send(MESSAGE).reason
    assert all(is_signed(each, b"0123456789abcdef0123456789abcdef") for each in there.requests)
    assert len(there.requests) == 3


@pytest.mark.parametrize(
    ("to", "lacks"),
    [
        ("https://a.example/x", "there is no secret to sign with: set [alerts] secret"),
        ("command:it", 'there is no command it: set it = ["PROGRAM"] in [alerts.commands]'),
    ],
)
def test_messages_wait_while_a_setting_is_missing(tmp_path: Path, to: str, lacks: str) -> None:
    sent = channel_of(Store(tmp_path), AlertSettings(), AlertBirth("a", "t", to)).send(MESSAGE)

    assert sent.outcome is Outcome.AGAIN
    assert sent.reason.startswith(lacks)
