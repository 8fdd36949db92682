"""The channels of alerts: webhooks at a real server, programs, the page, and missing settings."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from receiver import SECRET, Receiver, closes, drips, hangs, is_signed, status

from kappa.base.errors import SettingsError
from kappa.base.sections import AlertSettings
from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.alerts.channels import (
    Outcome,
    Program,
    ShownOnPage,
    Webhook,
    channel_of,
    keys_of,
    signed_headers,
)
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import MOST_SHOWN, shown_messages
from kappa.state.store import Store

MESSAGE = Message("msg_1", '{"alert": "é"}')
KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().up() as there:
        yield there


def webhook(url: str, timeout: float = 5.0) -> Webhook:
    return Webhook(url, keys_of(SECRET), timeout_seconds=timeout)


def test_a_message_is_posted_with_a_signature_that_others_can_verify(receiver: Receiver) -> None:
    sent = webhook(receiver.url + "?to=me").send(MESSAGE)

    (request,) = receiver.requests
    assert sent.outcome is Outcome.RECEIVED
    assert request.path == "/hook?to=me"
    assert request.body == MESSAGE.body.encode()
    assert request.headers["webhook-id"] == MESSAGE.id
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 10
    assert is_signed(request, KEY)
    assert not is_signed(request, KEY[:-1])


def test_the_signature_is_that_of_the_standards_own_example() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    headers = signed_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", body, seconds=1614265330, keys=keys_of(secret)
    )

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_each_of_several_secrets_signs(receiver: Receiver) -> None:
    keys = keys_of(f"{SECRET} another-secret-of-text")
    Webhook(receiver.url, keys, timeout_seconds=5).send(MESSAGE)

    assert is_signed(receiver.requests[0], KEY)
    assert is_signed(receiver.requests[0], b"another-secret-of-text")


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (200, Outcome.RECEIVED),
        (299, Outcome.RECEIVED),
        (301, Outcome.REFUSED),
        (307, Outcome.REFUSED),
        (400, Outcome.REFUSED),
        (404, Outcome.REFUSED),
        (408, Outcome.AGAIN),
        (410, Outcome.REFUSED),
        (425, Outcome.AGAIN),
        (429, Outcome.AGAIN),
        (500, Outcome.AGAIN),
        (503, Outcome.AGAIN),
    ],
)
def test_an_answer_decides_what_follows(receiver: Receiver, code: int, outcome: Outcome) -> None:
    receiver.answers = [status(code, location=receiver.url)]
    sent = webhook(receiver.url).send(MESSAGE)

    assert sent.outcome is outcome
    assert str(code) in sent.reason or outcome is Outcome.RECEIVED
    assert len(receiver.requests) == 1


def test_a_receiver_is_given_the_wait_that_it_asks_for(receiver: Receiver) -> None:
    hour = 3600
    receiver.answers = [
        status(429, retry_after="120"),
        status(503, retry_after=formatdate(time.time() + hour, usegmt=True)),
        status(503, retry_after="soon"),
        status(503, retry_after="9" * 40),
    ]
    waits = [webhook(receiver.url).send(MESSAGE).wait for _ in range(4)]

    assert waits[0] == 120
    assert hour - 10 < waits[1] <= hour
    assert waits[2:] == [0, 86_400]


@pytest.mark.slow
def test_a_silent_receiver_is_tried_again(receiver: Receiver) -> None:
    never = threading.Event()
    receiver.answers = [hangs(never), drips(never), closes]
    began = time.monotonic()
    found = [webhook(receiver.url, timeout=each).send(MESSAGE) for each in (0.3, 0.3, 5.0)]
    seconds = time.monotonic() - began
    never.set()

    assert {each.outcome for each in found} == {Outcome.AGAIN}
    assert [each.reason.partition(": ")[2] for each in found] == [
        "no answer within 0.3 s",
        "no answer within 0.3 s",
        "it closed the connection without an answer",
    ]
    assert seconds < 10


def test_a_receiver_that_is_down_or_no_http_is_tried_again(receiver: Receiver) -> None:
    def garbles(handler: object, _request: object) -> None:
        handler.wfile.write(b"\x00\x01\r\n\r\n")  # type: ignore[attr-defined]

    receiver.answers = [garbles]
    garbled = webhook(receiver.url).send(MESSAGE)
    with Receiver().up() as other:
        url = other.url
    down = webhook(url).send(MESSAGE)
    secure = webhook(receiver.url.replace("http:", "https:")).send(MESSAGE)

    assert {each.outcome for each in (garbled, down, secure)} == {Outcome.AGAIN}
    assert down.reason == "127.0.0.1: connection refused"


def test_nothing_of_a_url_but_its_host_is_in_a_reason(receiver: Receiver) -> None:
    receiver.answers = [status(500), status(404), closes]
    url = receiver.url + "/canary?key=canary"

    assert "canary" not in str([webhook(url).send(MESSAGE) for _ in range(3)])


@pytest.mark.parametrize("url", ["ftp://canary/", "canary", "http://[::1", "http://a:b/canary"])
def test_what_is_no_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        webhook(url)

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("secret", ["whsec_canary!", "canary", "whsec_Y2FuYXJ5"])
def test_a_secret_that_is_none_or_can_be_guessed_is_refused(secret: str) -> None:
    with pytest.raises(SettingsError) as caught:
        keys_of(secret)

    assert secret not in str(caught.value)


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
    assert all(is_signed(each, KEY) for each in there.requests)
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
