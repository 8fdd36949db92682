"""The section `[collect]`: which events are taken over the network, and from whom. Values."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import field

from kappa.base.section.section import SECRET, Count, Duration, Positive, Seconds, Section, Size

Topics = Annotated[list[str], "the topics that it may send to; none: all that are collected"]


class SourceSettings(Section, frozen=True):
    """`[collect.sources.NAME]`: a source that may send events."""

    token: Annotated[str, "what it sends with each request", SECRET] = ""
    topics: Topics = field(default_factory=list)
    rate: Annotated[Count, "most events a second; 0: any number"] = 0


class PullKind(StrEnum):
    """The ways in which a source gives its events."""

    SSE = "sse"
    WEBSOCKET = "websocket"
    POLL = "poll"


class PullSettings(Section, frozen=True):
    """`[collect.pull.NAME]`: a source whose events the collector fetches itself."""

    url: Annotated[str, "its address: https:// or http://, of a websocket wss:// or ws://"] = ""
    topic: Annotated[str, "the topic of its events, one of `collect.topics`"] = ""
    kind: Annotated[
        PullKind,
        "sse: server-sent events; websocket: an event a message; poll: a document that is "
        "fetched again and again",
    ] = PullKind.SSE
    every: Annotated[Duration, "how often a document is fetched"] = "30s"
    silence: Annotated[
        Duration, "a stream in which nothing comes for so long is connected to again"
    ] = "5m"
    ca: Annotated[
        Path | None,
        "an absolute path: certificates in PEM that its own is checked by, if not public",
    ] = None
    token: Annotated[
        str, "sent as Authorization: Bearer TOKEN; from the environment alone", SECRET
    ] = ""
    headers: Annotated[
        dict[str, str], "sent with each request; from the environment alone", SECRET
    ] = field(default_factory=dict)


class CollectSettings(Section, frozen=True):
    """`[collect]`: the collector, which takes events from programs without a Kafka client."""

    topics: Annotated[
        list[str],
        "the topics that events are taken for; none: `kappa up` runs no collector",
    ] = field(default_factory=list)
    listen: Annotated[str, "where events are taken over HTTP, as HOST:PORT"] = "127.0.0.1:8727"
    udp: Annotated[
        str, 'where events are taken by UDP, one a datagram, as HOST:PORT; nothing (`""`): nowhere'
    ] = ""
    sources: Annotated[
        dict[str, SourceSettings],
        "by name: who may send events, by its token, which topics and how many a second; none: "
        "every program of this machine",
        # Tokens are among them.
        SECRET,
    ] = field(default_factory=dict)
    pull: Annotated[
        dict[str, PullSettings],
        "by name: the sources whose events the collector fetches itself",
        # Tokens are among them.
        SECRET,
    ] = field(default_factory=dict)
    origins: Annotated[
        list[str],
        "the sites whose pages may send events from a browser, as https://shop.example",
    ] = field(default_factory=list)
    body_bytes: Annotated[Size, "most bytes of one request; then 413"] = "8m"
    queue_events: Annotated[
        Positive,
        "most events that wait for the broker's acknowledgement; then 503 at once",
    ] = 50_000
    queue_bytes: Annotated[Size, "most bytes of them, and of requests that arrive; likewise"] = (
        "64m"
    )
    wait_seconds: Annotated[
        Seconds,
        "how long an event may wait for its acknowledgement; then 503",
    ] = 30.0
    unacknowledged: Annotated[
        Positive,
        "most events of one websocket that wait for their acknowledgement; then it is not read",
    ] = 256
    requests: Annotated[
        Positive,
        "how many requests that were answered 202 can be asked for; the oldest are forgotten",
    ] = 10_000
    spool: Annotated[
        Size,
        "most bytes on the disk of events that get no answer (pixels, UDP), while the broker is "
        "away; beyond it they are dropped and counted",
    ] = "256m"
    keys: Annotated[
        Count,
        "how many events' answers are remembered by their Idempotency-Key, so that a repeat is "
        "answered and not sent",
    ] = 100_000
