"""The token: the cookie that a browser keeps instead of it, and the line of wrong ones."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from serving.http.problem import HttpError

COOKIE = "kappa"
COOKIE_SECONDS = 30 * 86_400
# A request in the line has a connection, and others need some too.
_LONGEST_LINE = 256


def cookie_of(token: str, issued: float) -> str:
    """Returns what a browser keeps instead of the token, issued then (seconds since 1970).

    It opens the same doors for a while, and does not reveal the token.
    """
    at = str(int(issued))
    signed = hmac.new(token.encode(), f"kappa page {at}".encode(), hashlib.sha256).hexdigest()
    return f"{at}.{signed}"


def is_cookie_of(token: str, cookie: str, now: float) -> bool:
    """Returns True for a cookie that was issued for this token, and is not too old. Pure."""
    issued = cookie.partition(".")[0]
    if not (issued.isascii() and issued.isdecimal() and len(issued) < 16):
        return False
    return (
        hmac.compare_digest(cookie.encode(), cookie_of(token, int(issued)).encode())
        and now - int(issued) < COOKIE_SECONDS
    )


class WaitingLine:
    """The line of requests with a wrong token: one at a time is refused.

    It keeps a program with an old token from asking all the time; a right one never waits. It
    protects no token, since a guesser need not wait for the refusal: the token's length protects
    it (replay/run/serve.py).
    """

    def __init__(self, seconds: float) -> None:
        """`seconds` is what each refusal costs."""
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def wait(self) -> None:
        """Returns when it is one's turn. Raises HttpError if the line is too long."""
        if self._waiting >= _LONGEST_LINE:
            raise HttpError(
                429,
                "too many bring wrong tokens",
                hint="come back in a while; a right one is let in at any time",
                headers={"Retry-After": "60"},
            )
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.sleep(self._seconds)
        finally:
            self._waiting -= 1
