"""Sources as declared in `[collect.pull.NAME]`, and the checks of the declarations."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from kappa.base.errors import SettingsError
from kappa.base.sections import CollectSettings, PullKind, PullSettings
from kappa.base.units import parse_duration, parse_memory
from kappa.serving.collect.callers import ensure_name

_SCHEMES = {
    PullKind.SSE: ("https", "http"),
    PullKind.POLL: ("https", "http"),
    PullKind.WEBSOCKET: ("wss", "ws"),
    PullKind.MQTT: ("mqtts", "mqtt"),
}
_SECURE = frozenset({"https", "wss", "mqtts"})
_PORTS = {"https": 443, "wss": 443, "mqtts": 8883, "http": 80, "ws": 80, "mqtt": 1883}
# The settings that only MQTT has, in the order of their checks.
_MQTT_SETTINGS = ("filters", "topic_field", "user")
# The longest text of MQTT, in bytes.
_LONGEST_TEXT = 65_535
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Source: RFC 9110, 5.5.
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
# Headers that the request sets itself.
_OWN = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "upgrade"}
)


class SourceAway(Exception):
    """The error that ends a connection to a source, because the source delivers no events now."""

    def __init__(self, why: str, wait_seconds: float | None = None) -> None:
        """Stores the reason, and the minimum wait before the next connection, in seconds.

        If `wait_seconds` is None, the usual wait applies.
        """
        super().__init__(why)
        self.why = why
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True)
class PulledSource:
    """A source from which the collector fetches events, as `[collect.pull.NAME]` declares it.

    `shown` is the address without its query, because the query may contain a secret.
    """

    name: str
    topic: str
    kind: PullKind
    url: str
    host: str
    port: int
    is_secure: bool
    # The file of authorities that check the certificate; None: the system's authorities.
    ca: Path | None
    shown: str
    target: str
    headers: Mapping[str, str]
    every_seconds: float
    silence_seconds: float
    largest_event: int
    largest_document: int
    # Of MQTT: the filters, the field that gets the name of an event's topic, user and password.
    filters: tuple[str, ...] = ()
    topic_field: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def digest(self) -> str:
        """Returns a digest of the source's kind and URL.

        If a stored position has another digest, it belongs to an earlier source of the same name.
        """
        return hashlib.blake2b(f"{self.kind} {self.url}".encode(), digest_size=16).hexdigest()


def sources_of(settings: CollectSettings, largest_event: int = 1 << 20) -> list[PulledSource]:
    """Returns the sources that the settings declare.

    `largest_event` is the largest number of bytes of an event. Raises SettingsError if a
    declaration is not valid.
    """
    return [
        _pulled_source(name, pull, settings, largest_event) for name, pull in settings.pull.items()
    ]


def _pulled_source(
    name: str, pull: PullSettings, settings: CollectSettings, largest_event: int
) -> PulledSource:
    here = f"collect.pull.{name}"
    ensure_name("collect.pull", name)
    if pull.topic not in settings.topics:
        raise SettingsError(
            f"{here}.topic is {pull.topic!r}, which is not collected",
            hint=f"collect.topics has {', '.join(settings.topics) or 'none'}",
        )
    schemes = _SCHEMES[pull.kind]
    variable = f"KAPPA__COLLECT__PULL__{name.upper()}__"
    try:
        parts = urlsplit(pull.url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        parts, port = urlsplit(""), 0
    is_plain = pull.url.isascii() and pull.url.isprintable() and " " not in pull.url
    if parts.scheme not in schemes or not parts.hostname or not is_plain:
        # The message leaves out the address, which may have a secret.
        raise SettingsError(
            f"{here}.url is not an address of a source of the kind {pull.kind}",
            hint=f"it begins with {schemes[0]}:// or {schemes[1]}://, and has no blanks: see "
            f"{here}.kind",
        )
    if parts.username is not None or parts.password is not None:
        raise SettingsError(
            f"{here}.url has a user or password in it",
            hint=f"take it out, and give {here}.user and {variable}TOKEN"
            if pull.kind is PullKind.MQTT
            else f"""take it out, and give {variable}HEADERS='{{"Authorization": "Basic ..."}}'""",
        )
    is_secure = parts.scheme in _SECURE
    is_mqtt = pull.kind is PullKind.MQTT
    if is_mqtt:
        _ensure_mqtt(here, pull, is_place=parts.path in {"", "/"} and not parts.query)
    for name_of_setting in () if is_mqtt else _MQTT_SETTINGS:
        if getattr(pull, name_of_setting):
            raise SettingsError(
                f"{here}.{name_of_setting} is set, and a source of the kind {pull.kind} has none",
                hint=f'take it out, or set {here}.kind to "mqtt"',
            )
    headers = {} if is_mqtt else _source_headers(here, pull)
    has_secret = bool(headers) or (is_mqtt and bool(pull.token))
    if has_secret and not is_secure and not _is_this_machine(parts.hostname):
        raise SettingsError(
            f"{here} has a token or headers, and its url is not encrypted",
            hint=f"let the url begin with {schemes[0]}://",
        )
    if pull.ca is not None and not is_secure:
        raise SettingsError(
            f"{here} has a ca, and its url is not encrypted",
            hint=f"let the url begin with {schemes[0]}://",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return PulledSource(
        name=name,
        topic=pull.topic,
        kind=pull.kind,
        url=parts._replace(fragment="").geturl(),
        host=parts.hostname,
        port=port,
        is_secure=is_secure,
        ca=pull.ca,
        shown=f"{parts.scheme}://{host}:{port}{parts.path}",
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        headers=headers,
        every_seconds=_duration_seconds(here, "every", pull.every),
        silence_seconds=_duration_seconds(here, "silence", pull.silence),
        largest_event=largest_event,
        largest_document=parse_memory(settings.body_bytes),
        filters=tuple(dict.fromkeys(pull.filters)),
        topic_field=pull.topic_field,
        user=pull.user,
        password=pull.token if is_mqtt else "",
    )


def _ensure_mqtt(here: str, pull: PullSettings, *, is_place: bool) -> None:
    """Raises SettingsError if the declaration of an MQTT source is not valid."""
    try:
        from mqtt5 import TopicFilter  # noqa: PLC0415  # an extra
    except ImportError:
        raise SettingsError(
            f"{here} needs mqtt5, which is not installed", hint="pip install 'kappa[mqtt]'"
        ) from None
    if not is_place:
        raise SettingsError(
            f"{here}.url names more than a server",
            hint=f"end it behind the port, and name topics in {here}.filters",
        )
    if pull.headers:
        raise SettingsError(
            f"{here}.headers is set, and MQTT has no headers",
            hint=f"give {here}.user, and the password as its token",
        )
    if not pull.filters:
        raise SettingsError(
            f"{here}.filters is empty, so no events would come",
            hint='name topics of the server: filters = ["plant/+/temperature"]',
        )
    for each in pull.filters:
        try:
            TopicFilter(each)
            why = "" if each else "it is empty"
        except ValueError as error:
            why = str(error)
        if why:
            raise SettingsError(
                f"{here}.filters has {each[:250]!r}, which is no filter of MQTT: {why}",
                hint='levels are between "/"; "+" stands for one level, "#" at the end for all',
            )
    for name, text in (("user", pull.user), ("token", pull.token)):
        if len(text.encode(errors="replace")) > _LONGEST_TEXT or "\0" in text:
            raise SettingsError(
                f"{here}.{name} cannot be sent", hint="it has at most 64 kB of text"
            )


def _source_headers(here: str, pull: PullSettings) -> Mapping[str, str]:
    headers = dict(pull.headers)
    if pull.token:
        headers["Authorization"] = f"Bearer {pull.token}"
    for name, value in headers.items():
        if _HEADER.fullmatch(name) is None or name.lower() in _OWN:
            raise SettingsError(
                f"{here}.headers has {name!r}, which is not a header that can be given",
                hint="""give names and values as JSON: {"X-Key": "..."}""",
            )
        if _VALUE.fullmatch(value) is None:
            raise SettingsError(
                f"{here}: the value of the header {name} cannot be sent",
                hint="it has visible characters of ASCII, and no blank at its ends",
            )
    return headers


def _duration_seconds(here: str, name: str, duration: str) -> float:
    milliseconds = parse_duration(duration)
    if not milliseconds:
        raise SettingsError(f"{here}.{name} is {duration}", hint="it is at least 1s")
    return milliseconds / 1000


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
