"""The login of a browser: a form for the token, or the issuer's page, and then a cookie.

A user who signs in at the issuer returns with a code. The server then needs the state, the nonce
and the PKCE secret that it generated at the start of the sign-in. These values are stored for ten
minutes in a signed cookie, which browsers also send when another site links to this server.
Browsers send the session cookie only with requests of this server's own pages. So the sign-in ends
with a page of this server that automatically loads the next page.

No script can read the session cookie, and no page of another site can make a browser send the
session cookie.
"""

from __future__ import annotations

import hmac
import secrets
import time
from functools import partial
from urllib.parse import parse_qs, quote

import anyio
from fastapi import APIRouter, Request, Response

from kappa.serving.access.accounts import Accounts
from kappa.serving.access.oidc import Issuer, TokenRefused
from kappa.serving.http.app_state import line_of, place_of
from kappa.serving.http.page.render import HEADERS, page_html
from kappa.serving.http.problem import HttpError
from kappa.serving.http.request_checks import LOGIN, LOGOUT
from kappa.serving.http.rights import open_to_all
from kappa.serving.http.token import (
    COOKIE,
    COOKIE_SECONDS,
    SIGN_IN_COOKIE,
    SIGN_IN_SECONDS,
    SignIn,
    begun_sign_in,
    session_of_person,
    session_of_token,
    signed_sign_in,
)

SIGN_IN = f"{LOGIN}/oidc"

router = APIRouter(include_in_schema=False)


# `next` is the name in the address.
@router.get(LOGIN)
@open_to_all
async def ask(request: Request, next: str = "/") -> Response:  # noqa: A002
    """Returns the login form, or redirects to the overview page if no token is needed."""
    if not _accounts_of(request).is_guarded:
        return _sent_to("/")
    return _login_form(request, next, wrong=False)


@router.post(LOGIN)
@open_to_all
async def login(request: Request) -> Response:
    """Sets the session cookie if the token in the form is right.

    Otherwise, returns the form again, with status 401.
    """
    accounts = _accounts_of(request)
    if not accounts.is_guarded:
        return _sent_to("/")
    given = parse_qs((await request.body()).decode(errors="replace"))
    meant = given.get("next", ["/"])[0]
    cookie = session_of_token(accounts, given.get("token", [""])[0].strip(), time.time())
    if cookie is None:
        await line_of(request).wait()
        return _login_form(request, meant, wrong=True)
    answer = _sent_to(meant)
    _set_session(request, answer, cookie)
    return answer


@router.get(SIGN_IN)
@open_to_all
def sign_in(request: Request, next: str = "/") -> Response:  # noqa: A002
    """Redirects the browser to the issuer, where the user signs in."""
    accounts, issuer = _accounts_of(request), _issuer_of(request)
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    begun = SignIn(state, nonce, verifier, _local_place(next))
    url = issuer.sign_in_url(_way_back(request), state=state, nonce=nonce, verifier=verifier)
    answer = Response(status_code=303, headers={**HEADERS, "Location": url})
    answer.set_cookie(
        SIGN_IN_COOKIE,
        signed_sign_in(accounts, begun, time.time()),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
        path=SIGN_IN,
        max_age=SIGN_IN_SECONDS,
    )
    return answer


@router.get(f"{SIGN_IN}/back")
@open_to_all
async def come_back(request: Request, code: str = "", state: str = "", error: str = "") -> Response:
    """Sets the session cookie of a user who returns from the sign-in at the issuer."""
    accounts, issuer = _accounts_of(request), _issuer_of(request)
    begun = begun_sign_in(accounts, request.cookies.get(SIGN_IN_COOKIE, ""), time.time())
    try:
        begun = _ensure_begun(begun, code, state, error)
        claims = await anyio.to_thread.run_sync(
            partial(
                issuer.claims_of_code,
                code,
                _way_back(request),
                nonce=begun.nonce,
                verifier=begun.verifier,
            )
        )
        name, groups = issuer.person(claims)
    except TokenRefused:
        await line_of(request).wait()
        raise
    page = page_html("signed_in", place=place_of(request), person=name, next=begun.next)
    answer = Response(page, headers=dict(HEADERS), media_type="text/html")
    answer.delete_cookie(SIGN_IN_COOKIE, path=SIGN_IN)
    _set_session(request, answer, session_of_person(accounts, name, groups, time.time()))
    return answer


def _ensure_begun(begun: SignIn | None, code: str, state: str, error: str) -> SignIn:
    """Returns `begun` if the user may complete this sign-in.

    `begun` is the sign-in in the browser's cookie, or None. The other arguments come from the
    issuer. Raises TokenRefused if the sign-in was not begun here, or if the issuer has refused the
    sign-in.
    """
    if error:
        raise TokenRefused(
            f"the issuer let nobody in: {error[:80]}", hint="sign in again, or ask who runs it"
        )
    if begun is None or not code or not hmac.compare_digest(begun.state.encode(), state.encode()):
        raise TokenRefused(
            "this is not the end of a sign-in that was begun here within ten minutes",
            hint=f"begin anew: {LOGIN}",
        )
    return begun


@router.post(LOGOUT)
@open_to_all
async def logout() -> Response:
    """Deletes the session cookie."""
    answer = _sent_to(LOGIN)
    answer.delete_cookie(COOKIE)
    return answer


def _set_session(request: Request, answer: Response, cookie: str) -> None:
    # Strict: browsers send the cookie with no request from a page of another site.
    # Secure: behind a proxy with TLS, browsers send the cookie by TLS only.
    answer.set_cookie(
        COOKIE,
        cookie,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        max_age=COOKIE_SECONDS,
    )


def _way_back(request: Request) -> str:
    """Returns the URL of this server to which the issuer redirects a user.

    The URL must be registered with the issuer.
    """
    return str(request.base_url).rstrip("/") + f"{SIGN_IN}/back"


def _issuer_of(request: Request) -> Issuer:
    issuer = _accounts_of(request).issuer
    if issuer is None or not issuer.signs_people_in:
        raise HttpError(
            404,
            "nobody signs in at an issuer here",
            hint=f"give a token at {LOGIN}; access.oidc.client in kappa.toml names the client",
        )
    return issuer


def _login_form(request: Request, meant: str, *, wrong: bool) -> Response:
    issuer = _accounts_of(request).issuer
    return Response(
        page_html(
            "login",
            place=place_of(request),
            next=_local_place(meant),
            wrong=wrong,
            issuer="" if issuer is None or not issuer.signs_people_in else issuer.host,
            sign_in=f"{SIGN_IN}?next={quote(_local_place(meant), safe='')}",
        ),
        401 if wrong else 200,
        dict(HEADERS),
        media_type="text/html",
    )


def _sent_to(place: str) -> Response:
    return Response(status_code=303, headers={**HEADERS, "Location": _local_place(place)})


def _local_place(place: str) -> str:
    """Returns a path in escaped form, or `/` if the path could lead to another server."""
    return (
        quote(place, safe="/?&=%+,:;@!$'()*~")
        if place.startswith("/") and not place.startswith(("//", "/\\"))
        else "/"
    )


def _accounts_of(request: Request) -> Accounts:
    accounts = request.app.state.accounts
    assert isinstance(accounts, Accounts), "make_app has put it"
    return accounts
