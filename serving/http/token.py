"""The browser's cookie that replaces a token, and the queue of requests with wrong tokens.

The cookie for the server's own token is signed with that token. Any other cookie names a client,
and is signed with a key of the server. This cookie cannot be signed with the client's token,
because the server stores only the hash of that token, and a stored hash cannot serve as a secret
key. A cookie becomes invalid together with the token that it replaces. The roles of the cookie's
client are read at each request, so a change of the roles applies to the cookie at once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from kappa.serving.access.accounts import OWNER, Accounts
from kappa.serving.access.roles import Identity
from kappa.serving.access.tokens import find_token
from kappa.serving.http.problem import HttpError

COOKIE = "kappa"
COOKIE_SECONDS = 30 * 86_400
# An issuer may withdraw a person at any time, and is asked again after so long.
PERSON_SECONDS = 12 * 3_600
SIGN_IN_COOKIE = "kappa_sign_in"
SIGN_IN_SECONDS = 600
# Each request in the line keeps a connection, and other requests need some too.
_LONGEST_LINE = 256


def cookie_of(token: str, issued: float) -> str:
    """Returns the cookie that replaces the server's own token in a browser.

    `issued` is in seconds since 1970. Until the cookie expires, it allows the same requests as the
    token. The cookie does not reveal the token.
    """
    at = str(int(issued))
    signed = hmac.new(token.encode(), f"kappa page {at}".encode(), hashlib.sha256).hexdigest()
    return f"{at}.{signed}"


def is_cookie_of(token: str, cookie: str, now: float) -> bool:
    """Returns True if a cookie was issued for this token and has not expired. Pure."""
    issued = cookie.partition(".")[0]
    if not (issued.isascii() and issued.isdecimal() and len(issued) < 16):
        return False
    return (
        hmac.compare_digest(cookie.encode(), cookie_of(token, int(issued)).encode())
        and now - int(issued) < COOKIE_SECONDS
    )


class _Session(Struct, frozen=True, omit_defaults=True):
    """The client that a cookie names.

    The client is either a token, given by its name, or a person with groups.
    """

    token: str = ""
    person: str = ""
    groups: tuple[str, ...] = ()


def session_of_token(accounts: Accounts, token: str, issued: float) -> str | None:
    """Returns the cookie that replaces a token in a browser, or None if the token is wrong.

    `issued` is the time at which the cookie is issued, in seconds since 1970.
    """
    if accounts.known(token) is OWNER:
        return cookie_of(token, issued)
    found = find_token(accounts.named_tokens(), token)
    if found is None:
        return None
    return _signed_session(accounts, _Session(token=found.name), issued, found.sha256)


def session_of_person(accounts: Accounts, name: str, groups: Sequence[str], issued: float) -> str:
    """Returns the cookie of a person whose name and groups the issuer has confirmed.

    `issued` is the time at which the cookie is issued, in seconds since 1970.
    """
    session = _Session(person=name, groups=tuple(groups))
    return _signed_session(accounts, session, issued, _issuer_of(accounts))


def identity_of_cookie(accounts: Accounts, cookie: str, now: float) -> Identity | None:
    """Returns the client that a cookie names, or None if the cookie is not valid or has expired."""
    if accounts.token is not None and is_cookie_of(accounts.token, cookie, now):
        return OWNER
    at, _, rest = cookie.partition(".")
    if not (at.isascii() and at.isdecimal() and len(at) < 16):
        return None
    try:
        content = base64.urlsafe_b64decode(rest.partition(".")[0])
        session = msgspec.json.decode(content, type=_Session)
    except (ValueError, RecursionError):
        return None
    found = accounts.named(session.token) if session.token else None
    if session.token:
        secret = None if found is None else found.sha256
    else:
        secret = None if accounts.issuer is None else _issuer_of(accounts)
    seconds = COOKIE_SECONDS if session.token else PERSON_SECONDS
    if secret is None or now - int(at) >= seconds:
        return None
    expected = _signed_session(accounts, session, int(at), secret)
    if not hmac.compare_digest(cookie.encode(errors="replace"), expected.encode()):
        return None
    if found is not None:
        return found.identity
    assert accounts.issuer is not None, "a person's cookie has a secret only with an issuer"
    return accounts.issuer.identity_of_person(session.person, session.groups)


def _signed_session(accounts: Accounts, session: _Session, issued: float, secret: str) -> str:
    at = str(int(issued))
    content = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()
    text = f"kappa session {at} {content} {secret}"
    signed = hmac.new(accounts.page_key(), text.encode(), hashlib.sha256).hexdigest()
    return f"{at}.{content}.{signed}"


def _issuer_of(accounts: Accounts) -> str:
    return "" if accounts.issuer is None else accounts.issuer.name


class SignIn(Struct, frozen=True):
    """A sign-in that a user has begun at the issuer.

    `state`, `nonce` and `verifier` are checked when the user returns. `next` is the path of the
    page that the browser then loads.
    """

    state: str
    nonce: str
    verifier: str
    next: str


def signed_sign_in(accounts: Accounts, begun: SignIn, at: float) -> str:
    """Returns the signed cookie of a sign-in.

    `at` is the time at which the sign-in began, in seconds since 1970.
    """
    content = base64.urlsafe_b64encode(msgspec.json.encode(begun)).decode()
    text = f"kappa sign-in {int(at)} {content}"
    signed = hmac.new(accounts.page_key(), text.encode(), hashlib.sha256).hexdigest()
    return f"{int(at)}.{content}.{signed}"


def begun_sign_in(accounts: Accounts, cookie: str, now: float) -> SignIn | None:
    """Returns the sign-in in a cookie.

    Returns None if the sign-in was not begun here, or was begun too long ago.
    """
    at, _, rest = cookie.partition(".")
    if not (at.isascii() and at.isdecimal() and len(at) < 16):
        return None
    try:
        content = base64.urlsafe_b64decode(rest.partition(".")[0])
        begun = msgspec.json.decode(content, type=SignIn)
    except (ValueError, RecursionError):
        return None
    expected = signed_sign_in(accounts, begun, int(at))
    is_ours = hmac.compare_digest(cookie.encode(errors="replace"), expected.encode())
    return begun if is_ours and now - int(at) < SIGN_IN_SECONDS else None


class WaitingLine:
    """The queue of requests with wrong tokens. The requests are refused one at a time.

    The queue slows down a program that repeats an old token. A request with the right token never
    waits. The queue does not protect a token from guessing, because an attacker need not wait for
    the refusal. A token is protected by its length (serving/access/tokens.py).
    """

    def __init__(self, seconds: float) -> None:
        """Sets the number of seconds for which each refusal is delayed."""
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def wait(self) -> None:
        """Waits until all earlier requests have been refused, and then delays this refusal.

        Raises HttpError if too many requests wait.
        """
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
