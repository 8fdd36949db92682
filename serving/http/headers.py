"""Functions that read a request's headers: cookies, bearer token, the page's site. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import SplitResult, urlsplit

from kappa.serving.http.problem import HttpError
from kappa.serving.http.token import COOKIE


def has_body(headers: dict[str, str]) -> bool:
    """Returns True if the headers say that the request has a body."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Returns the values of headers by the headers' names in lower case. Pure.

    If a header is repeated, its values are joined. Source: RFC 9110, 5.3; RFC 9113, 8.2.3.
    """
    found: dict[str, str] = {}
    for raw, value in headers:
        name = raw.decode("latin-1").lower()
        between = "; " if name == "cookie" else ", "
        found[name] = (
            f"{found[name]}{between}{value.decode('latin-1')}"
            if name in found
            else value.decode("latin-1")
        )
    return found


def cookies(headers: dict[str, str]) -> Iterator[str]:
    """Yields the values of Kappa's cookies in a request's headers.

    The header `Cookie` is not parsed strictly: if another cookie of the same host is malformed, a
    strict parser would find no cookies at all.
    """
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            yield value.strip('"')


def bearer_of(headers: Mapping[str, str]) -> str:
    """Returns the token in a request's `Authorization` header, or "" (RFC 6750, 2.1)."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def place_of(headers: dict[str, str], name: str) -> SplitResult:
    """Parses the address in the header `name`. Raises HttpError if the value is not an address."""
    value = headers.get(name, "")
    try:
        found = urlsplit(value if name == "origin" else f"//{value}")
        _ = found.hostname
    except ValueError:
        raise HttpError(
            400,
            f"{value[:80]!r} is not a valid {name.capitalize()}",
            hint="call the server by its name or address, and port",
        ) from None
    return found


def is_from_here(headers: dict[str, str]) -> bool:
    """Returns True if a page of this server has sent the request.

    Browsers report in `Sec-Fetch-Site` whether a page has the same origin as the server
    (https://www.w3.org/TR/fetch-metadata/). Older browsers send only the page's site, in `Origin`.
    The function compares this site with the `Host` header, which a proxy may have changed.
    """
    return headers.get("sec-fetch-site") == "same-origin" or (
        "origin" in headers and place_of(headers, "origin").netloc == headers.get("host")
    )
