"""How a browser brings the token: a form, and a cookie that no script sees and no other site's page can have sent."""

from __future__ import annotations

import hmac
import time
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response

from serving.http.gate import LOGIN, LOGOUT
from serving.http.stand import line_of
from serving.http.token import COOKIE, COOKIE_SECONDS, cookie_of
from serving.page.render import HEADERS, page_html

router = APIRouter(include_in_schema=False)


@router.get(LOGIN)
async def ask(request: Request, next: str = "/") -> Response:  # noqa: A002  # it is the name in the address
    """The form; who needs no token is sent on."""
    if _token(request) is None:
        return _sent_to("/")
    return _form(next, wrong=False)


@router.post(LOGIN)
async def login(request: Request) -> Response:
    """Gives the cookie for the token."""
    token = _token(request)
    if token is None:
        return _sent_to("/")
    given = parse_qs((await request.body()).decode(errors="replace"))
    meant = given.get("next", ["/"])[0]
    if not hmac.compare_digest(given.get("token", [""])[0].encode(), token.encode()):
        await line_of(request).wait()
        return _form(meant, wrong=True)
    answer = _sent_to(meant)
    # Strict: it goes with no request that a page of another site makes. Behind a proxy with TLS it goes by that alone.
    answer.set_cookie(
        COOKIE,
        cookie_of(token, time.time()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        max_age=COOKIE_SECONDS,
    )
    return answer


@router.post(LOGOUT)
async def logout() -> Response:
    """Takes the cookie back."""
    answer = _sent_to(LOGIN)
    answer.delete_cookie(COOKIE)
    return answer


def _form(meant: str, *, wrong: bool) -> Response:
    return Response(
        page_html("login", next=_here(meant), wrong=wrong),
        401 if wrong else 200,
        dict(HEADERS),
        media_type="text/html",
    )


def _sent_to(place: str) -> Response:
    return Response(status_code=303, headers={**HEADERS, "Location": _here(place)})


def _here(place: str) -> str:
    """A place of this server: what could be one of another is not gone to."""
    return (
        quote(place, safe="/?&=%+,:;@!$'()*~")
        if place.startswith("/") and not place.startswith(("//", "/\\"))
        else "/"
    )


def _token(request: Request) -> str | None:
    token: str | None = request.app.state.token
    return token
