"""The login of a browser: a form for the token, and a cookie in the token's place.

No script can read the cookie, and no other site's page can make a browser send the cookie.
"""

from __future__ import annotations

import time
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response

from kappa.serving.access.accounts import Accounts
from kappa.serving.http.gate import LOGIN, LOGOUT
from kappa.serving.http.page.render import HEADERS, page_html
from kappa.serving.http.rights import open_to_all
from kappa.serving.http.stand import line_of, place_of
from kappa.serving.http.token import COOKIE, COOKIE_SECONDS, session_of_token

router = APIRouter(include_in_schema=False)


# `next` is the name in the address.
@router.get(LOGIN)
@open_to_all
async def ask(request: Request, next: str = "/") -> Response:  # noqa: A002
    """Answers with the form, or redirects if the server asks nobody for a token."""
    if not _accounts_of(request).is_guarded:
        return _sent_to("/")
    return _login_form(request, next, wrong=False)


@router.post(LOGIN)
@open_to_all
async def login(request: Request) -> Response:
    """Sets the cookie if the token is right."""
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
    return answer


@router.post(LOGOUT)
@open_to_all
async def logout() -> Response:
    """Deletes the cookie."""
    answer = _sent_to(LOGIN)
    answer.delete_cookie(COOKIE)
    return answer


def _login_form(request: Request, meant: str, *, wrong: bool) -> Response:
    return Response(
        page_html("login", place=place_of(request), next=_local_place(meant), wrong=wrong),
        401 if wrong else 200,
        dict(HEADERS),
        media_type="text/html",
    )


def _sent_to(place: str) -> Response:
    return Response(status_code=303, headers={**HEADERS, "Location": _local_place(place)})


def _local_place(place: str) -> str:
    """Returns the place, or `/` if the place could be on another server."""
    return (
        quote(place, safe="/?&=%+,:;@!$'()*~")
        if place.startswith("/") and not place.startswith(("//", "/\\"))
        else "/"
    )


def _accounts_of(request: Request) -> Accounts:
    accounts = request.app.state.accounts
    assert isinstance(accounts, Accounts), "make_app has put it"
    return accounts
