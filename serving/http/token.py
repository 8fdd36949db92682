"""The browser's cookie for the token, and the line in which wrong tokens wait."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from kappa.serving.http.problem import HttpError

COOKIE = "kappa"
COOKIE_SECONDS = 30 * 86_400
# Each request in the line keeps a connection, and other requests need some too.
_LONGEST_LINE = 256


def cookie_of(token: str, issued: float) -> str:
    """Returns the cookie that replaces the token in a browser.

    `issued` is in seconds since 1970. The cookie allows the same requests until it expires, and
    does not reveal the token.
    """
    at = str(int(issued))
    signed = hmac.new(token.encode(), f"kappa page {at}".encode(), hashlib.sha256).hexdigest()
    return f"{at}.{signed}"


def is_cookie_of(token: str, cookie: str, now: float) -> bool:
    """Returns True if the cookie was issued for this token, and is not too old. Pure."""
    issued = cookie.partition(".")[0]
    if not (issued.isascii() and issued.isdecimal() and len(issued) < 16):
        return False
    return (
        hmac.compare_digest(cookie.encode(), cookie_of(token, int(issued)).encode())
        and now - int(issued) < COOKIE_SECONDS
    )


class WaitingLine:
    """The line of requests with a wrong token, which are refused singly.

    The line slows a program that repeats an old token. A request with the right token never waits.
    The line does not protect the token, since a guesser need not wait for the refusal: the token's
    length protects the token (serving/http/address.py).
    """

    def __init__(self, seconds: float) -> None:
        """Makes each refusal take `seconds`."""
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def wait(self) -> None:
        """Waits for the caller's turn. Raises HttpError if the line is too long."""
        if self._waiting >= _LONGEST_LINE:
            raise HttpError(
                429,
                "too many requests bring wrong tokens",
                hint="come back in a while; a right one is let in at any time",
                headers={"Retry-After": "60"},
            )
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.sleep(self._seconds)
        finally:
            self._waiting -= 1
