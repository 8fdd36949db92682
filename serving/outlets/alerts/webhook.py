"""The channel of URLs: a signed POST. It follows no redirect, and uses no proxy.

An answer of 2xx has received the message. One of 408, 425, 429 or 5xx, and none at all, is tried
again. Any other refuses the message for good. Nothing shows more of a URL than its host.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from kappa.base.errors import SettingsError
from kappa.serving.outlets.alerts.channel import RECEIVED, Attempted, Outcome
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.signature import signed_headers

_AGAIN = frozenset({408, 425, 429})
_LONGEST_WAIT_SECONDS = 86_400.0


class Webhook:
    """A receiver behind a URL."""

    def __init__(
        self,
        url: str,
        keys: tuple[bytes, ...],
        *,
        timeout_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Takes the URL, and the keys that sign. Raises SettingsError if it is no URL."""
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts, self._host = urlsplit(""), ""
        is_plain = all(" " < letter < "\x7f" for letter in url)
        if parts.scheme not in {"http", "https"} or not self._host or not is_plain:
            raise SettingsError(
                "the URL of an alert in [alerts.urls] is no address of HTTP",
                hint="write https://HOST/PATH, in ASCII",
            )
        self._is_secure = parts.scheme == "https"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._keys = keys
        self._timeout_seconds = timeout_seconds
        self._clock = clock

    def send(self, message: Message) -> Attempted:
        """Posts a message, once."""
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
        watch = threading.Timer(timeout, _cut, [connection])
        watch.daemon = True
        began = time.monotonic()
        watch.start()
        try:
            connection.request("POST", self._target, body, headers)
            response = connection.getresponse()
            return self._judged(response.status, response.getheader("retry-after"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() - began >= timeout
            why = f"no answer within {timeout:g} s" if late else _reason(error)
            return Attempted(Outcome.AGAIN, f"{self._host}: {why}")
        finally:
            watch.cancel()
            connection.close()

    def _judged(self, status: int, retry_after: str | None) -> Attempted:
        reason = f"{self._host} answered {status}"
        if 200 <= status < 300:
            return RECEIVED
        if status in _AGAIN or status >= 500:
            return Attempted(Outcome.AGAIN, reason, _seconds(retry_after, self._clock()))
        if 300 <= status < 400:
            reason += ", and redirects are not followed"
        return Attempted(Outcome.REFUSED, reason)


def _cut(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _seconds(retry_after: str | None, now: float) -> float:
    """Returns the wait that a header asks for, in seconds or until a date; 0: none."""
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


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.RemoteDisconnected | http.client.BadStatusLine):
        return "it closed the connection without an answer"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return "it answered something that is no HTTP"
