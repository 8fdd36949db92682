"""Channels: the ways in which an alert reaches its receiver.

A channel is a URL, a command, or Kappa's own page. An attempt to send returns an outcome, and never
raises an error. The alert's address and the settings of the sending platform determine the channel.

A message to a URL is sent as a signed POST request. Redirects are not followed, and proxy settings
are ignored. An answer of 2xx means that the message was received. After an answer of 408, 425, 429
or 5xx, or without an answer, the message is sent again later. Any other answer means that the
receiver refuses the message permanently. Error messages show only the host of a URL. The signature
is that of Standard Webhooks (standardwebhooks.com): HMAC-SHA256 over `ID.SECONDS.BODY`. A secret of
the form `whsec_...` is decoded as base64. Any other secret is used as the key, byte by byte. A
setting may contain several secrets, with spaces between them. Each message is then signed with
every secret, so that a receiver can change from one secret to the next.

A command is a program named in the settings. The program reads one message from its standard input.
Exit code 0 means that the program has received the message. The program runs without a shell, and
is killed if it takes too long. Variables with Kappa's settings are removed from the program's
environment, because they may be secrets.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import IO, Protocol, TypeVar
from urllib.parse import urlsplit

from kappa.base.errors import SettingsError
from kappa.base.process import ensure_session_gone, start_tied
from kappa.base.sections import AlertSettings
from kappa.declare.alert import COMMAND, PAGE, AlertBirth
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import show_message
from kappa.state.store import Store

_Value = TypeVar("_Value")
_BASE64_PREFIX = "whsec_"
_TRIED_AGAIN = frozenset({408, 425, 429})
_LONGEST_WAIT_SECONDS = 86_400.0
_SETTINGS_PREFIX = "KAPPA__"
_LONGEST_REASON = 200


class Outcome(StrEnum):
    """The outcome of an attempt: received, to be tried again, or refused permanently."""

    RECEIVED = "received"
    AGAIN = "again"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Attempted:
    """The result of an attempt to send a message: the outcome and the reason.

    `wait` is the time in seconds that the receiver asks the sender to wait.
    """

    outcome: Outcome
    reason: str = ""
    wait: float = 0.0


class Channel(Protocol):
    """A way to reach the receiver of an alert's messages."""

    def send(self, message: Message) -> Attempted:
        """Tries once to send a message, within a limited time, and returns the outcome."""


@dataclass(frozen=True, slots=True)
class Unready:
    """The channel of an alert whose settings are incomplete.

    All messages wait until the settings are complete. `reason` says which setting is missing.
    """

    reason: str

    def send(self, message: Message) -> Attempted:  # noqa: ARG002  # as a channel does
        """Sends nothing, and returns the outcome that the message must be tried again later."""
        return Attempted(Outcome.AGAIN, self.reason)


RECEIVED = Attempted(Outcome.RECEIVED)


def keys_of(secret: str) -> tuple[bytes, ...]:
    """Returns the signing keys that a secret in the settings contains.

    Raises SettingsError, without showing the secret, if the secret is not valid. A key of fewer
    than 16 bytes is refused, because it could be guessed.
    """
    return tuple(_key_of(each) for each in secret.split())


def signed_headers(
    id_: str, body: bytes, *, seconds: int, keys: tuple[bytes, ...]
) -> dict[str, str]:
    """Returns the headers that sign a message.

    `id_` is the message's id, and `seconds` is the time of signing, in seconds since 1970.
    """
    signed = b"%s.%d.%s" % (id_.encode(), seconds, body)
    signatures = (
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in keys
    )
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
    }


def _key_of(secret: str) -> bytes:
    key = secret.encode()
    if secret.startswith(_BASE64_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_BASE64_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise SettingsError(
                "a secret of [alerts] begins with whsec_, and is not base64 after that",
                hint="make one: echo whsec_$(openssl rand -base64 32)",
            ) from None
    if len(key) < 16:
        raise SettingsError(
            "a secret of [alerts] is shorter than 16 bytes, so it can be guessed",
            hint="make one: echo whsec_$(openssl rand -base64 32)",
        )
    return key


class Webhook:
    """A channel that sends messages to a URL, as signed POST requests."""

    def __init__(
        self,
        url: str,
        keys: tuple[bytes, ...],
        *,
        timeout_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Parses the URL, and stores the keys that sign messages.

        Raises SettingsError if the URL is not an HTTP or HTTPS address.
        """
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts, self._host = urlsplit(""), ""
        is_plain = all(" " < letter < "\x7f" for letter in url)
        if parts.scheme not in {"http", "https"} or not self._host or not is_plain:
            raise SettingsError(
                "the URL of an alert in [alerts.urls] is not an HTTP address",
                hint="write https://HOST/PATH, in ASCII",
            )
        self._is_secure = parts.scheme == "https"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._keys = keys
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    def send(self, message: Message) -> Attempted:
        """Sends one POST request with a message, and returns the outcome."""
        body = message.body.encode()
        now = int(self._clock())
        headers = {
            "content-type": "application/json",
            "user-agent": "kappa",
            **signed_headers(message.id, body, seconds=now, keys=self._keys),
        }
        timeout = self._timeout_seconds
        connection = (
            http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=ssl.create_default_context()
            )
            if self._is_secure
            else http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        )
        # A socket's own time-out begins again with each byte that a receiver drips.
        watch = threading.Timer(timeout, _shut_connection, [connection])
        watch.daemon = True
        began = time.monotonic()
        watch.start()
        try:
            connection.request("POST", self._target, body, headers)
            response = connection.getresponse()
            return self._attempt_of_status(response.status, response.getheader("retry-after"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() - began >= timeout
            why = f"no answer within {timeout:g} s" if late else _failure_reason(error)
            return Attempted(Outcome.AGAIN, f"{self._host}: {why}")
        finally:
            watch.cancel()
            connection.close()

    def _attempt_of_status(self, status: int, retry_after: str | None) -> Attempted:
        reason = f"{self._host} answered {status}"
        if 200 <= status < 300:
            return RECEIVED
        if status in _TRIED_AGAIN or status >= 500:
            return Attempted(Outcome.AGAIN, reason, _seconds_to_wait(retry_after, self._clock()))
        if 300 <= status < 400:
            reason += ", and redirects are not followed"
        return Attempted(Outcome.REFUSED, reason)


def _shut_connection(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _seconds_to_wait(retry_after: str | None, now: float) -> float:
    """Returns the number of seconds that a `Retry-After` header asks the sender to wait.

    The header contains a number of seconds or a date. Returns 0 if there is no valid header.
    """
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_WAIT_SECONDS)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    # A date without a zone is of UTC.
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return min(max(0.0, until.timestamp() - now), _LONGEST_WAIT_SECONDS)


def _failure_reason(error: Exception) -> str:
    if isinstance(error, http.client.RemoteDisconnected | http.client.BadStatusLine):
        return "it closed the connection without an answer"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return "its answer is not HTTP"


class Program:
    """A channel that runs a program for each message.

    Call `send` from a thread that runs until this process exits, because the program is killed when
    the thread that started it ends.
    """

    def __init__(self, name: str, command: Sequence[str], *, timeout_seconds: float) -> None:
        self._name = name
        self._command = list(command)
        self._timeout_seconds = timeout_seconds

    def send(self, message: Message) -> Attempted:
        """Runs the program once for a message, and returns the outcome."""
        if shutil.which(self._command[0]) is None:
            return self._failed_attempt(f"cannot be found: {self._command[0]}")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(_SETTINGS_PREFIX)
        }
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
            given.write(message.body.encode() + b"\n")
            given.seek(0)
            try:
                child = start_tied(
                    self._command, output=output, environment=environment, source=given.fileno()
                )
            except OSError as error:
                return self._failed_attempt(f"cannot be started: {error.strerror}")
            try:
                code = child.wait(self._timeout_seconds)
            except subprocess.TimeoutExpired:
                return self._failed_attempt(f"was ended after {self._timeout_seconds:g} s")
            finally:
                # The program may have left children behind.
                ensure_session_gone(child.pid)
                child.wait()
            if code == 0:
                return RECEIVED
            last = _last_line(output)
            return self._failed_attempt(f"ended with {code}" + (f": {last}" if last else ""))

    def _failed_attempt(self, why: str) -> Attempted:
        return Attempted(Outcome.AGAIN, f"command {self._name} {why}")


def _last_line(output: IO[bytes]) -> str:
    end = output.seek(0, os.SEEK_END)
    output.seek(max(0, end - 4_096))
    lines = output.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(letter for letter in last if letter.isprintable())[:_LONGEST_REASON]


class ShownOnPage:
    """A channel that shows messages on Kappa's own page.

    A message that is sent again is shown only once.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def send(self, message: Message) -> Attempted:
        """Adds a message to the page, as the newest message, unless the page already shows it."""
        show_message(self._store, self._name, message)
        return RECEIVED


def channel_of(store: Store, settings: AlertSettings, alert: AlertBirth) -> Channel:
    """Returns the channel of an alert.

    A URL in the settings replaces the declared address, so that each environment can send to its
    own receiver. If a setting is missing or wrong, the function returns an `Unready` channel: the
    alert's messages wait, and the channel's reason names the setting.
    """
    timeout = settings.timeout_seconds
    url = _setting_of(settings.urls, alert.name)
    if url is None and alert.to == PAGE:
        return ShownOnPage(store, alert.name)
    if url is None and alert.to.startswith(COMMAND):
        name = alert.to.removeprefix(COMMAND)
        command = _setting_of(settings.commands, name)
        if not command:
            return Unready(
                f'there is no command {name}: set {name} = ["PROGRAM"] in [alerts.commands]'
            )
        return Program(name, command, timeout_seconds=timeout)
    secret = _setting_of(settings.secrets, alert.name) or settings.secret
    if not secret.strip():
        return Unready("there is no secret to sign with: set [alerts] secret in kappa.toml")
    try:
        keys = keys_of(secret)
        return Webhook(alert.to if url is None else url, keys, timeout_seconds=timeout)
    except SettingsError as error:
        return Unready(str(error))


def _setting_of(settings: Mapping[str, _Value], name: str) -> _Value | None:
    """Returns the setting with the given name, or None if there is no such setting.

    The name of an environment variable cannot contain `-`. So the function also tries the name with
    `_` instead of `-`.
    """
    return settings.get(name, settings.get(name.replace("-", "_")))
