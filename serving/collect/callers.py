"""The programs and web pages that may send events, checked by token, site and rate.

A source is a section `[collect.sources.NAME]` of the settings. If the settings contain no source,
only programs on this machine may send: the collector listens at a loopback address, and refuses
pages of other sites that are open on this machine. If the settings contain sources, or if a token
has the role `collect` (`kappa token`), each request must contain a token. An image, a beacon or a
websocket of a browser cannot set a header, so the token may be in the URL. Everybody who sees the
page then knows the token. Therefore the token should belong to a separate source, for which a rate
is configured.
"""

from __future__ import annotations

import hmac
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from kappa.base.errors import SettingsError
from kappa.base.sections import CollectSettings, Role
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.roles import THIS_MACHINE, Act, Identity, ensure_may, identity_of, may
from kappa.serving.http.address import ensure_guarded
from kappa.serving.http.headers import place_of
from kappa.serving.http.problem import HttpError
from kappa.serving.http.token import WaitingLine

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_BEARER = "Bearer "
_NO_OTHER_SITE = frozenset({"none", "same-origin"})


class Rate:
    """A limit on the number of events per second. Pure.

    The events of one second may be sent at once. A request that exceeds the rate is still allowed.
    No further event is then allowed until enough time has passed for the excess events.
    """

    def __init__(self, per_second: int) -> None:
        """Sets the largest number of events per second. 0 means no limit."""
        self._per_second = per_second
        self._left = float(per_second)
        self._at = 0.0

    def take(self, count: int, now: float) -> float:
        """Counts `count` events at the time `now`, in seconds, and returns 0.0.

        If no event is allowed now, counts nothing, and returns the seconds to wait until events are
        allowed again.
        """
        if not self._per_second:
            return 0.0
        earned = max(0.0, now - self._at) * self._per_second
        self._left, self._at = min(float(self._per_second), self._left + earned), now
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= count
        return 0.0


@dataclass(frozen=True, slots=True)
class Caller:
    """A program or web page that may send events: its identity, and the limit on its events."""

    identity: Identity
    rate: Rate

    @property
    def name(self) -> str:
        """Returns the caller's name.

        The collector stores answers for repeated requests under this name.
        """
        return self.identity.name

    def ensure_may(self, topic: str) -> None:
        """Raises Forbidden if the caller may not send to a topic."""
        ensure_may(self.identity, Act.COLLECT, topic)

    def topics_of(self, collected: Iterable[str]) -> frozenset[str]:
        """Returns the collected topics to which the caller may send."""
        return frozenset(each for each in collected if may(self.identity, Act.COLLECT, each))

    def ensure_rate(self, count: int, now: float) -> None:
        """Raises HttpError if the caller sends more events per second than allowed."""
        seconds = self.rate.take(count, now)
        if seconds:
            raise HttpError(
                429,
                f"{self.name} sends more events a second than it may",
                hint="send them later",
                headers={"Retry-After": str(math.ceil(seconds))},
            )


class Callers:
    """All programs and pages that may send events."""

    def __init__(
        self, settings: CollectSettings, host: str, wrong: WaitingLine, accounts: Accounts
    ) -> None:
        """Creates the callers, one for each source in the settings, and checks their tokens.

        `wrong` is the queue in which requests with wrong tokens wait. `accounts` contains the named
        tokens. Raises SettingsError if the name, the token or the topics of a source are not valid,
        or if other machines could send events to `host` without a token.
        """
        self._wrong = wrong
        self._accounts = accounts
        self._had_tokens = False
        self._origins = frozenset(each.rstrip("/") for each in settings.origins)
        self._by_token: Mapping[bytes, Caller] = {}
        self._anybody = Caller(THIS_MACHINE, Rate(0))
        if not settings.sources:
            _ensure_guarded(host, None, "NAME", named=accounts.takes_events())
        for name, source in settings.sources.items():
            ensure_name("collect.sources", name)
            _ensure_guarded(host, source.token, name)
            unknown = sorted({*source.topics} - {*settings.topics})
            if unknown:
                raise SettingsError(
                    f"collect.sources.{name}.topics names {unknown[0]}, which is not collected",
                    hint=f"collect.topics has {', '.join(settings.topics) or 'none'}",
                )
            may_send = identity_of(
                f"source {name}", [Role.COLLECT], topics=source.topics or settings.topics
            )
            caller = Caller(may_send, Rate(source.rate))
            if self._by_token.setdefault(source.token.encode(), caller) is not caller:
                raise SettingsError(
                    f"collect.sources.{name} has another source's token",
                    hint="give each a token of its own: openssl rand -hex 32",
                )

    async def admitted(self, headers: Mapping[str, str], token_in_address: str | None) -> Caller:
        """Returns the caller of a request.

        `token_in_address` is the token in the request's URL, or None. Raises HttpError if the
        request contains no valid token, or comes from another machine although no token is needed.
        """
        if not self.asks_for_tokens:
            host = _host_of(headers.get("host", ""))
            if host not in _LOCAL:
                raise HttpError(
                    403,
                    f"events are taken from this machine only, and the collector was called {host}",
                    hint="call it 127.0.0.1; or name sources: [collect.sources.NAME] in kappa.toml",
                )
            return self._anybody
        caller = self.known(_token_of(headers) or token_in_address or "")
        if caller is None:
            if "authorization" in headers or token_in_address is not None:
                await self._wrong.wait()
            raise HttpError(
                401,
                "no token of a source was given, or a wrong one",
                hint="send it: Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return caller

    def admitted_at_once(self, headers: Mapping[str, str]) -> Caller | None:
        """Returns the caller of a request without waiting, or None if it may not send events.

        Raises HttpError if the `Host` header is not valid.
        """
        if not self.asks_for_tokens:
            return self._anybody if _host_of(headers.get("host", "")) in _LOCAL else None
        return self.known(_token_of(headers) or "")

    def known(self, token: str) -> Caller | None:
        """Returns the caller that a token identifies, or None if the token is unknown.

        If no tokens are needed, returns the same caller for all requests.
        """
        if not self.asks_for_tokens:
            return self._anybody
        given, found = token.encode(), None
        # All are compared, so that the time shows nothing.
        for known, caller in self._by_token.items():
            if hmac.compare_digest(known, given):
                found = caller
        if found is None and (identity := self._accounts.known(token)) is not None:
            return Caller(identity, Rate(0))
        return found

    @property
    def asks_for_tokens(self) -> bool:
        """Returns True if each request must have a token.

        If the last token is removed, requests still need a token until the collector ends.
        """
        self._had_tokens = self._had_tokens or bool(self._by_token) or self._accounts.takes_events()
        return self._had_tokens

    def origin(self, headers: Mapping[str, str]) -> str:
        """Returns the site of the page that sends the request, or "" if no page sends it.

        Raises HttpError if the site may not send events.
        """
        origin = headers.get("origin", "") or _site_of_image(headers)
        if not origin or origin in self._origins:
            return origin
        if urlsplit(origin).netloc == headers.get("host"):
            return origin
        raise HttpError(
            403,
            f"a page of {origin[:200]} sends events, and it is not among those that may",
            hint="name its site in collect.origins in kappa.toml",
        )


@lru_cache(64)
def _host_of(header: str) -> str | None:
    return place_of({"host": header}, "host").hostname


def _site_of_image(headers: Mapping[str, str]) -> str:
    """Returns the site of the page that requests an image.

    Such a request has no `Origin` header.
    """
    if headers.get("sec-fetch-site", "none") in _NO_OTHER_SITE:
        return ""
    found = urlsplit(headers.get("referer", ""))
    return f"{found.scheme}://{found.netloc}" if found.netloc else "null"


def _token_of(headers: Mapping[str, str]) -> str | None:
    given = headers.get("authorization", "")
    return given.removeprefix(_BEARER) if given.startswith(_BEARER) else None


def _ensure_guarded(host: str, token: str | None, name: str, *, named: bool = False) -> None:
    try:
        ensure_guarded(host, token, named=named)
    except SettingsError as error:
        raise SettingsError(
            f"collect: {error.message}"
            if token is None
            else f"collect.sources.{name}: {error.message}",
            hint="make a token: kappa token add NAME --role collect; or name sources: "
            "[collect.sources.NAME]; or listen at 127.0.0.1"
            if token is None
            else error.hint,
        ) from None


# A variable has the name in capitals, with two _ between the parts of a setting.
_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_LONGEST = 64


def ensure_name(section: str, name: str) -> None:
    """Raises SettingsError if a section's name cannot be part of an environment variable.

    `section` is the group of sections in the settings, such as `collect.sources`. An environment
    variable with the section's name sets the secret of the section.
    """
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST:
        raise SettingsError(
            f"{section}.{name[:_LONGEST]} is not a valid source name, since no variable of the "
            "environment could give it a token",
            hint=f"name it with 1 to {_LONGEST} small letters, digits and single _: "
            f"[{section}.{_near(name)}]",
        )


def _near(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_LONGEST] or "shop"
