"""The sections of kappa.toml: each setting with its default, bounds and description.

An error about a setting shows the setting's description to the user. The word `SECRET` in a type
means that Kappa never shows the value. A secret is read from the environment or from a separate
file, but never from kappa.toml, since kappa.toml is copied with the project into images and version
histories. Credentials of a bucket come from the environment (`AWS_ACCESS_KEY_ID`, ...) or from the
other usual places that an S3 client searches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from msgspec import Meta, Struct, field

from kappa.base.errors import SettingsError
from kappa.base.units import parse_duration

# The type of a setting has the bounds, the description and, for a secret, the mark SECRET.
SECRET = object()
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
# Examples of sizes are 512m and 4g; of durations 90s, 30m, 1h and 2d.
# The description of a form stands in the error of a value without that form.
Size = Annotated[
    str, Meta(pattern=r"^\d+[mg]\Z", description="a size in m or g, such as 512m or 4g")
]
Duration = Annotated[
    str,
    Meta(
        pattern=r"^\d{1,12}[smhd]\Z",
        description="a time in s, m, h or d, such as 90s, 30m, 1h or 2d",
    ),
]
# An address to listen at; nothing: none. The port's bound is checked when the address is opened.
Address = Annotated[
    str,
    Meta(
        pattern=r"^(|\S+:\d{1,5})\Z",
        description="host and port, such as 127.0.0.1:8717",
    ),
]


class Section(Struct, frozen=True):
    """A section of kappa.toml, or the whole file."""

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Returns the type of each setting of this section, by the setting's name."""
        return get_type_hints(cls, include_extras=True)

    def __repr__(self) -> str:
        shown = [name for name, kind in self.kinds().items() if not is_secret(kind)]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def is_secret(kind: Any) -> bool:
    """Returns True if the values of settings of this type must never be shown."""
    return SECRET in get_args(kind)


def description(kind: Any) -> str:
    """Returns the description in a setting's type, or "" for the type of a section."""
    return next((each for each in get_args(kind) if isinstance(each, str)), "")


SourceTopics = Annotated[list[str], "the topics that it may send to; none: all that are collected"]


class SourceSettings(Section, frozen=True):
    """`[collect.sources.NAME]`: a program that may send events to the collector."""

    token: Annotated[str, "what it sends with each request", SECRET] = ""
    topics: SourceTopics = field(default_factory=list)
    rate: Annotated[Count, "most events a second; 0: any number"] = 0


class PullKind(StrEnum):
    """The protocols by which the collector fetches the events of a source."""

    SSE = "sse"
    WEBSOCKET = "websocket"
    POLL = "poll"
    MQTT = "mqtt"


class PullSettings(Section, frozen=True):
    """`[collect.pull.NAME]`: a source from which the collector itself fetches events."""

    url: Annotated[
        str,
        "its address: https:// or http://, of a websocket wss:// or ws://, of MQTT mqtts:// or "
        "mqtt://",
    ] = ""
    topic: Annotated[str, "the topic of its events, one of `collect.topics`"] = ""
    kind: Annotated[
        PullKind,
        "sse: server-sent events; websocket: an event a message; poll: a document that is "
        "fetched again and again; mqtt: the topics of an MQTT server",
    ] = PullKind.SSE
    every: Annotated[Duration, "how often a document is fetched"] = "30s"
    silence: Annotated[
        Duration, "a stream in which nothing comes for so long is connected to again"
    ] = "5m"
    ca: Annotated[
        Path | None,
        "an absolute path: certificates in PEM with which the server's certificate is "
        "checked, if it is not from a public authority",
    ] = None
    filters: Annotated[
        list[str], 'of MQTT: the topics whose events are taken, such as "plant/+/temperature"'
    ] = field(default_factory=list)
    topic_field: Annotated[
        str, "of MQTT: the field of an event that gets the name of its MQTT topic; nothing: none"
    ] = ""
    user: Annotated[str, "of MQTT: the user; the token is the password"] = ""
    token: Annotated[
        str,
        "sent as Authorization: Bearer TOKEN, of MQTT as the password; from the environment alone",
        SECRET,
    ] = ""
    headers: Annotated[
        dict[str, str], "sent with each request; from the environment alone", SECRET
    ] = field(default_factory=dict)


class CollectSettings(Section, frozen=True):
    """`[collect]`: the collector, which receives events from programs without a Kafka client."""

    topics: Annotated[
        list[str],
        "the topics for which the collector accepts events; none: `kappa up` runs no collector",
    ] = field(default_factory=list)
    listen: Annotated[
        Address, "the address at which the collector accepts events over HTTP, as HOST:PORT"
    ] = "127.0.0.1:8727"
    udp: Annotated[
        Address,
        "the address at which the collector accepts events by UDP, one per datagram, as "
        'HOST:PORT; nothing (`""`): none',
    ] = ""
    sources: Annotated[
        dict[str, SourceSettings],
        "by name: who may send events, with a token, topics and the number of events per "
        "second; none: every program on this machine",
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
    body_bytes: Annotated[
        Size, "maximum number of bytes of one request; larger requests are answered with 413"
    ] = "8m"
    queue_events: Annotated[
        Positive,
        "maximum number of events that wait for the broker's acknowledgement; then requests "
        "are answered with 503 at once",
    ] = 50_000
    queue_bytes: Annotated[
        Size,
        "maximum number of bytes of waiting events and of requests that arrive; then requests "
        "are answered with 503 at once",
    ] = "64m"
    wait_seconds: Annotated[
        Seconds,
        "how long an event may wait for its acknowledgement; then the answer is 503",
    ] = 30.0
    unacknowledged: Annotated[
        Positive,
        "maximum number of events of one websocket that wait for their acknowledgement; then "
        "the collector stops reading from it",
    ] = 256
    requests: Annotated[
        Positive,
        "how many requests that were answered with 202 the collector remembers; the oldest "
        "are forgotten",
    ] = 10_000
    spool: Annotated[
        Size,
        "maximum number of bytes on the disk of events that get no answer (pixels, UDP), "
        "while the broker is unavailable; further events are dropped and counted",
    ] = "256m"
    keys: Annotated[
        Count,
        "for how many events the answers are remembered by their Idempotency-Key, so that a "
        "repeat is answered and not sent",
    ] = 100_000


class Durability(StrEnum):
    """The failures that acknowledged records survive.

    DISK: power losses and the death of processes. PROCESS: only the death of processes.
    """

    DISK = "disk"
    PROCESS = "process"


def seconds_of(duration: str) -> float:
    """Converts a duration in a setting, such as "5 minutes", to seconds."""
    milliseconds = parse_duration(duration)
    assert milliseconds is not None, "its pattern allows nothing else"
    return milliseconds / 1000


class RegistrySettings(Section, frozen=True):
    """`[registry]`: the schema registry, for topics whose records refer to its schemas."""

    url: Annotated[
        str | None, "URL of a schema registry with Confluent's API; none: no registry"
    ] = None
    user: Annotated[str, "the registry's user, for basic authentication"] = ""
    password: Annotated[
        str, "the password of the registry's user; only from the environment", SECRET
    ] = ""
    token: Annotated[
        str, "a bearer token, instead of user and password; only from the environment", SECRET
    ] = ""
    ca: Annotated[
        Path | None,
        "an absolute path: certificates in PEM with which the server's certificate is "
        "checked, if it is not from a public authority",
    ] = None
    timeout_seconds: Annotated[Seconds, "how long one request may take"] = 10.0


class JarsSettings(Section, frozen=True):
    """`[jars]`: the repository and the cache of the jars."""

    repository: Annotated[str | None, "another Maven repository than the default one"] = None
    cache: Annotated[
        Path | None, "another folder than the user's cache, relative to kappa.toml"
    ] = None


class RolloutSettings(Section, frozen=True):
    """`[rollout]`: the time limits of a switch between builds, and of an undo."""

    hold_seconds: Annotated[
        Seconds, "how long the live job publishes no frontier during a promote"
    ] = 10.0
    hold_attempts: Annotated[
        Positive, "how many attempts a promote makes to reach the live build's frontier"
    ] = 3
    lease_seconds: Annotated[
        Seconds,
        "how long the versions that a reader has pinned are kept if the reader does not renew "
        "its lease",
    ] = 60.0
    soak: Annotated[
        Duration,
        "how long the build that served before continues to consume after a promote or "
        "`kappa retire`, so that you can undo: 90s, 30m, 1h, 2d",
    ] = "1h"

    @property
    def soak_seconds(self) -> float:
        """Returns the length of the soak in seconds."""
        return seconds_of(self.soak)


class HistorySettings(Section, frozen=True):
    """`[history]`: the past states that Kappa keeps for queries with `--at`."""

    every_seconds: Annotated[
        Seconds,
        "how often the live job keeps the frontier that readers see, for kappa query --at",
    ] = 60.0
    keep_seconds: Annotated[
        float,
        Meta(ge=0),
        "how long such a frontier is kept; a frontier that was seen at a switch is kept as "
        "long as its build",
    ] = 3600.0


class ArchiveSettings(Section, frozen=True):
    """`[archive]`: the copying of records to the archives of topics that declare an archive."""

    every_seconds: Annotated[
        Seconds,
        "the maximum time for which records wait to be archived; if there are many records, "
        "they do not wait",
    ] = 60.0


class ChangesSettings(Section, frozen=True):
    """`[changes]`: the time for which a follower of a served table can continue from its cursor."""

    keep_seconds: Annotated[
        Seconds,
        "how long after it was returned a cursor can be used to continue; the files that it "
        "needs are kept as long",
    ] = 60.0
    sinks_keep: Annotated[
        Duration,
        "how long the position of a sink is kept while no courier runs, at most 30d; after "
        "that the sink's topic is compared with the served table; also how long the position "
        "of an export is kept, after which its copies are rewritten",
    ] = "1d"

    @property
    def sinks_keep_seconds(self) -> float:
        """Returns the seconds for which a sink's position is kept, at most 30 days."""
        return min(seconds_of(self.sinks_keep), 30 * 86_400.0)


class PlanSettings(Section, frozen=True):
    """`[plan]`: the sample of records that a plan decodes before it offers a replay."""

    sample_records: Annotated[
        Count,
        "this number of records at the beginning, in the middle and at the end of each "
        "partition are decoded to find out whether a replay can decode the log; 0: none",
    ] = 20
    max_unreadable: Annotated[
        float,
        Meta(ge=0, le=1),
        "a plan refuses if a larger share of these records than this, in all or at one of "
        "these places, would be rejected",
    ] = 0.5


class VerifySettings(Section, frozen=True):
    """`[verify]`: the limits of memory, time and disk space of verifications and diffs."""

    memory: Annotated[
        Size,
        "memory for checks and for the diff of two builds; data beyond it are spilled to disk",
    ] = "1g"
    threads: Annotated[
        Count, "threads for checks and for the diff of two builds; 0: one per core"
    ] = 0
    temp: Annotated[str, "folder for spilled data, relative to the root"] = "tmp"
    temp_size: Annotated[
        Size,
        "maximum size of spilled data, also for a maintained view in a slice; a view that "
        "needs more cannot be read until it needs less",
    ] = "20g"
    law_records: Annotated[
        Count,
        "the number of records of each topic with which a new version is checked by the law "
        "of slices before it is replayed; 0: no check",
    ] = 200
    law_seconds: Annotated[
        Seconds,
        "how long this check may take for all pipelines of a deploy; then the deploy "
        "continues, and says how much was checked",
    ] = 120.0
    timeout_seconds: Annotated[
        Seconds,
        "how long a verification may take; then it is inconclusive, and nothing is swapped",
    ] = 3600.0


class ViewsSettings(Section, frozen=True):
    """`[views]`: the checks that compare maintained views with their queries."""

    check_rows: Annotated[
        Count,
        "a verification, and a check some slices after each deploy, compare a maintained view "
        "with its query, as DuckDB runs it over the tables: all rows if there are at most "
        "this number, otherwise a sample",
    ] = 10_000_000


class PostgresSettings(Section, frozen=True):
    """`[serve.postgres]`: the address for Postgres clients, and a certificate for TLS."""

    listen: Annotated[
        Address,
        "the address for Postgres clients, in addition to HTTP, as HOST:PORT; their password "
        'is a token; nothing (`""`): none',
    ] = ""
    certificate: Annotated[
        Path | None,
        "an absolute path: the server's certificate in PEM, for TLS; then other machines cannot "
        "connect without TLS",
    ] = None
    key: Annotated[Path | None, "an absolute path: the key of the certificate, in PEM"] = None


class ServeSettings(Section, frozen=True):
    """`[serve]`: the address for HTTP, and the limits of one query over the network."""

    listen: Annotated[
        Address,
        'the address at which kappa up serves HTTP, as HOST:PORT; nothing (`""`): no HTTP; if '
        "the port is taken, another port is used, which the project then keeps",
    ] = "127.0.0.1:8717"
    token: Annotated[
        str,
        "the token that a client has to send; needed if other machines can connect",
        SECRET,
    ] = ""
    query_memory: Annotated[
        Size,
        "memory of one query over HTTP; a query that needs more is ended",
    ] = "512m"
    query_seconds: Annotated[Seconds, "how long one query may take; then it is ended"] = 30.0
    query_rows: Annotated[
        Positive, "maximum number of rows of an answer; an answer that is cut says so"
    ] = 100_000
    query_bytes: Annotated[
        Size, "maximum number of bytes of an answer; an answer that is cut says so"
    ] = "32m"
    queries: Annotated[Positive, "maximum number of queries that run at once; others wait"] = 4
    wait_seconds: Annotated[
        Seconds,
        "how long a query may wait for a write (`Kappa-After`) before it is answered; then 504",
    ] = 30.0
    compare_seconds: Annotated[
        Seconds,
        "how long the page may compare two builds to show the rows that differ; then the "
        "comparison is ended; kappa diff has no limit",
    ] = 120.0
    postgres: PostgresSettings = PostgresSettings()


class AgentAct(StrEnum):
    """An action for which an agent needs a person's approval, unless `agents.may` lists it."""

    STAGE = "stage"
    PROMOTE = "promote"
    UNDO = "undo"
    RETIRE = "retire"
    ABANDON = "abandon"
    PAUSE = "pause"
    RESUME = "resume"


class AgentSettings(Section, frozen=True):
    """`[agents]`: the rights of agents that use the Model Context Protocol."""

    may: Annotated[
        list[AgentAct],
        "what an agent may do without a person's approval: stage (code that the agent "
        "passes), promote, undo, retire, abandon, pause, resume",
    ] = field(default_factory=list)
    http: Annotated[bool, "serve /mcp next to the HTTP API, with its tokens; needs kappa[mcp]"] = (
        False
    )


class AlertSettings(Section, frozen=True):
    """`[alerts]`: the delivery of alerts."""

    secret: Annotated[
        str,
        "the secret that signs webhooks; if there are several, separated by spaces, all of "
        "them sign",
        SECRET,
    ] = ""
    secrets: Annotated[
        dict[str, str], "by an alert's name: a secret for only this alert", SECRET
    ] = field(default_factory=dict)
    urls: Annotated[
        dict[str, str], "by an alert's name: the URL that replaces the declared URL", SECRET
    ] = field(default_factory=dict)
    commands: Annotated[
        dict[str, list[str]], 'by name: the program and arguments for `to="command:NAME"`', SECRET
    ] = field(default_factory=dict)
    timeout_seconds: Annotated[Seconds, "how long one attempt may take"] = 10.0
    patience: Annotated[
        Duration, "how long Kappa tries to send a message; then it becomes a dead letter"
    ] = "1h"
    keep: Annotated[Duration, "how long the position of an alert that cannot continue is kept"] = (
        "1d"
    )
    most: Annotated[
        Positive,
        "maximum number of messages for one change set; if it has more rows, one more message "
        "has the counts",
    ] = 100


class NotifySettings(Section, frozen=True):
    """`[notify]`: the receiver of notices, the messages about the platform itself."""

    to: Annotated[
        str,
        "the receiver of notices: the URL of a webhook, `command:NAME` of "
        '`[alerts.commands]`, or `page`; nothing (`""`): nobody',
    ] = ""


class Protocol(StrEnum):
    """The protocol between clients and the Kafka cluster, with or without TLS and a login."""

    SASL_SSL = "SASL_SSL"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"


class Mechanism(StrEnum):
    """The SASL mechanism by which a client proves its user to the Kafka cluster."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


_OF_USERS = ("user", "password", "password_file")
_OF_TOKENS = ("token_url", "client_id", "client_secret", "client_secret_file", "scope")
_OF_TLS = ("ca", "certificate", "key")


class KafkaAuth(Section, frozen=True):
    """`[kafka.auth]`: access to a secured Kafka cluster, declared once for all clients."""

    protocol: Annotated[
        Protocol | None,
        "SASL_SSL, SSL or SASL_PLAINTEXT; none: SASL_SSL if there is a mechanism, otherwise SSL",
    ] = None
    mechanism: Annotated[
        Mechanism | None,
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; none: a certificate, or no "
        "authentication",
    ] = None
    user: Annotated[str, "the user for PLAIN and SCRAM"] = ""
    password: Annotated[str, "the user's password; only from the environment", SECRET] = ""
    password_file: Annotated[
        Path | None,
        "a file that contains only the password; it is read whenever a client is created",
    ] = None
    ca: Annotated[
        Path | None, "certificates (PEM) of the trusted authorities; none: the system's"
    ] = None
    certificate: Annotated[
        Path | None, "the client's certificate and its chain (PEM), for mutual TLS"
    ] = None
    key: Annotated[Path | None, "the key of the certificate (PEM, PKCS#8, not encrypted)"] = None
    token_url: Annotated[
        str, "the address from which OAUTHBEARER gets its tokens (OIDC, client credentials)"
    ] = ""
    client_id: Annotated[str, "the id of the client that requests tokens"] = ""
    client_secret: Annotated[str, "the client's secret; only from the environment", SECRET] = ""
    client_secret_file: Annotated[Path | None, "a file that contains only the client's secret"] = (
        None
    )
    scope: Annotated[str, "the scope of a token, if the issuer needs it"] = ""

    def __post_init__(self) -> None:
        """Raises SettingsError if the given settings contradict each other."""
        wrong = self._contradiction()
        if wrong:
            raise SettingsError(wrong, hint="see docs/howto/secured-kafka.md")

    @property
    def is_declared(self) -> bool:
        """Returns True if any setting of this section is given."""
        return any(self._has(name) for name in self.kinds())

    @property
    def wire(self) -> Protocol:
        """Returns the protocol that the section declares, or else the default protocol.

        The default is SASL_SSL if a mechanism is declared, otherwise SSL.
        """
        if self.protocol is not None:
            return self.protocol
        return Protocol.SSL if self.mechanism is None else Protocol.SASL_SSL

    def _has(self, name: str) -> bool:
        return getattr(self, name) not in {"", None}

    def _contradiction(self) -> str:
        if not self.is_declared:
            return ""
        needed: tuple[str, ...] = ()
        others: tuple[str, ...] = (*_OF_USERS, *_OF_TOKENS)
        if self.mechanism is Mechanism.OAUTHBEARER:
            needed, others = _OF_TOKENS[:2], _OF_USERS
        elif self.mechanism is not None:
            needed, others = _OF_USERS[:1], _OF_TOKENS
        of = "no mechanism" if self.mechanism is None else f"mechanism {self.mechanism}"
        for name in others:
            if self._has(name):
                return f"kafka.auth has {of}, which takes no {name}"
        for name in needed:
            if not self._has(name):
                return f"kafka.auth has {of}, and no {name}"
        if (self.wire is Protocol.SSL) is not (self.mechanism is None):
            return f"kafka.auth has protocol {self.wire}, and {of}"
        for name in _OF_TLS:
            if self.wire is Protocol.SASL_PLAINTEXT and self._has(name):
                return f"kafka.auth has protocol {self.wire}, which takes no {name}"
        for one, other in (("certificate", "key"), ("key", "certificate")):
            if self._has(one) and not self._has(other):
                return f"kafka.auth has {one}, and no {other}"
        for name in ("password", "client_secret"):
            if self._has(name) and self._has(f"{name}_file"):
                return f"kafka.auth has both {name} and {name}_file"
        return ""


class KafkaSettings(Section, frozen=True):
    """`[kafka]`: the cluster, or the broker that Kappa runs, and the options of clients."""

    bootstrap_servers: Annotated[
        str | None,
        "an existing cluster; none: Kappa runs an embedded broker",
    ] = None
    options: Annotated[
        dict[str, str],
        "any client setting, which is passed to every Kafka client",
        # Options may have passwords.
        SECRET,
    ] = field(default_factory=dict)
    heap: Annotated[Size, "heap of the embedded broker"] = "512m"
    auth: KafkaAuth = KafkaAuth()

    def __post_init__(self) -> None:
        """Raises SettingsError if `auth` is given although Kappa runs its own broker.

        That broker needs no login, and only this machine can connect to it.
        """
        if self.auth.is_declared and self.bootstrap_servers is None:
            raise SettingsError(
                "kafka.auth is for a cluster, and none is named: Kappa's own broker is open, to "
                "this machine alone",
                hint="name it in kafka.bootstrap_servers, or leave [kafka.auth] out",
            )


# The most slices of a short catch-up. Workers of Spark need some seconds to start, and then fold
# three times as many offsets per second: with more slices than this, they end earlier.
_SHORT_SLICES = 6


class EngineSettings(Section, frozen=True):
    """`[engine]`: the resources and limits of jobs."""

    memory: Annotated[Size, "heap of a job's JVM"] = "2g"
    worker_memory: Annotated[
        Size,
        "address space of each of Spark's Python workers, which run the function; if a worker "
        "uses more, its job ends, and after two such ends the slice is folded in parts",
    ] = "4g"
    cores: Annotated[Count, "number of cores that a job may use; 0: all"] = 0
    spares: Annotated[
        int,
        Meta(ge=0, le=8),
        "number of processes with a warm Spark that wait for the next job or command, each of "
        "half a gigabyte; with two, a command takes one and the job that it starts takes the "
        "other, and a job that dies twice continues at once; 0: every start boots its own "
        "Spark",
    ] = 2
    rest_after: Annotated[
        float,
        Meta(ge=0),
        "seconds without a new record after which a build has no job until the next record "
        "arrives; a build that is only kept for an undo folds at intervals; 0: all builds "
        "always have jobs",
    ] = 300.0
    slice_records: Annotated[
        Positive, "approximate maximum number of offsets in one slice of a catch-up"
    ] = 4_000_000
    tail_records: Annotated[
        Positive, "maximum number of offsets in one micro-batch of the tail"
    ] = 100_000
    driver_rows: Annotated[
        Count,
        "slices with at most this number of offsets are decoded, and contributions with this "
        "number of rows are committed, in the job's own process; Spark processes larger ones. "
        "A catch-up with at most six times this number of offsets has no larger slice",
    ] = 250_000
    merge_bytes: Annotated[
        Count,
        "contributions by key are merged in the job's own process if they have at most this "
        "number of bytes. For more bytes, DuckDB rewrites the table if it is not much larger "
        "than the contributions, and otherwise Spark merges them. A merge uses ten to forty "
        "times as much memory",
    ] = 32 * 2**20
    large_rows: Annotated[
        Count,
        "if a table has at least this number of rows, contributions by key wait next to it "
        "until they are a certain part of that number, so that no slice costs as much as the "
        "whole table; readers fold them in",
    ] = 500_000
    slice_seconds: Annotated[
        Seconds,
        "how long a slice may make no progress: no record is read or given to a step, no task "
        "ends, no worker transfers a byte, and no query or commit advances. Then its job ends "
        "and is started again, and the slice is folded in parts",
    ] = 900.0
    hung_seconds: Annotated[
        float,
        Meta(ge=3),
        "how long a job may show no sign of life (45 s more while it starts); then it is "
        "ended and started again",
    ] = 15.0
    maintenance_seconds: Annotated[
        Seconds, "how often a job compacts its tables and deletes files that are no longer needed"
    ] = 30.0
    master: Annotated[
        str,
        "the Spark cluster that folds long parts of a log (catch-ups, bases of branches and "
        'proofs): spark://HOST:PORT, k8s://URL or yarn; nothing (`""`): this machine folds '
        "them",
    ] = ""
    driver_host: Annotated[
        str, "the address of this machine to which the workers of engine.master connect"
    ] = ""
    conf: Annotated[
        dict[str, str],
        "settings that are passed to Spark for the processes on engine.master",
        # Passwords are among them.
        SECRET,
    ] = field(default_factory=dict)

    @property
    def short_records(self) -> int:
        """Returns the largest number of offsets in a short catch-up.

        A short catch-up is folded in slices of at most `driver_rows` offsets, by the process that
        later folds the tail. So neither another JVM nor Python workers of Spark are started.
        """
        return _SHORT_SLICES * self.driver_rows


class Role(StrEnum):
    """The roles of network clients. A role determines the rights of a token, a person or a group.

    `serving/access/roles.py` lists the rights of each role.
    """

    READ = "read"
    COLLECT = "collect"
    STAGE = "stage"
    OPERATE = "operate"
    ADMIN = "admin"


Roles = Annotated[list[Role], "read, collect, stage, operate or admin; several in brackets"]
Tables = Annotated[
    list[str], "of the role read: the tables and views to read; none: all, and the platform's state"
]
RoleTopics = Annotated[list[str], "of the role collect: the topics to send to; none: all collected"]


class GrantSettings(Section, frozen=True):
    """`[access.people.NAME]` and `[access.groups.NAME]`: the roles of one person or one group."""

    roles: Roles = field(default_factory=list)
    tables: Tables = field(default_factory=list)
    topics: RoleTopics = field(default_factory=list)


class TokenSettings(Section, frozen=True):
    """`[access.tokens.NAME]`: a token that comes from the environment, and its roles.

    Such a token is for a machine on which only environment variables can be set.
    """

    token: Annotated[
        str, "what a client sends with each request; from the environment alone", SECRET
    ] = ""
    roles: Roles = field(default_factory=list)
    tables: Tables = field(default_factory=list)
    topics: RoleTopics = field(default_factory=list)


class OidcSettings(Section, frozen=True):
    """`[access.oidc]`: the issuer whose tokens identify people (OpenID Connect)."""

    issuer: Annotated[
        str,
        "the issuer's URL, as it stands in the issuer's tokens; nothing: people need Kappa's "
        "tokens",
    ] = ""
    audience: Annotated[str, "the audience that a token must name, such as the client's id"] = ""
    client: Annotated[
        str, "the client's id, with which people sign in on the page; nothing: only with a token"
    ] = ""
    client_secret: Annotated[
        str, "the client's secret, if it has one; only from the environment", SECRET
    ] = ""
    name: Annotated[str, "the claim that names a person"] = "email"
    groups: Annotated[str, "the claim that lists a person's groups"] = "groups"


class AccessSettings(Section, frozen=True):
    """`[access]`: the rights of network clients, in addition to the token of `[serve]`."""

    file: Annotated[
        Path | None,
        "the file of `kappa token`, which is read again when it changes; none: "
        "access/tokens.json below the root, or below `local` if the root is in a bucket",
    ] = None
    tokens: Annotated[
        dict[str, TokenSettings],
        "by name: tokens that the environment gives; `kappa token add` creates others",
        # Tokens are among them.
        SECRET,
    ] = field(default_factory=dict)
    oidc: OidcSettings = OidcSettings()
    people: Annotated[
        dict[str, GrantSettings], "by the name that the issuer gives: the roles of a person"
    ] = field(default_factory=dict)
    groups: Annotated[
        dict[str, GrantSettings], "by the name that the issuer gives: the roles of a group"
    ] = field(default_factory=dict)


_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")


class StorageSettings(Section, frozen=True):
    """`[storage]`: the S3 server of the root's bucket."""

    endpoint: Annotated[str | None, "URL of the S3 server, without a bucket; none: Amazon's"] = None
    region: Annotated[str | None, "region of the bucket; none: AWS_REGION, or us-east-1"] = None
    path_style: Annotated[
        bool, "whether the bucket is in the path of a request instead of in the host's name"
    ] = True
    cache: Annotated[
        Size,
        "maximum space on this host's disk for files of a bucket that queries over HTTP have read",
    ] = "2g"


def without_secrets(url: str) -> str:
    """Returns a URL for display, without its user name, its password, its query and its fragment.

    A password may contain slashes, so the password ends at the last `@`.
    """
    without_login = re.sub(r"(?<=://).*@", "...@", url, flags=re.DOTALL)
    return re.sub(r"[?#].*", "?...", without_login, flags=re.DOTALL)


def problems_of_storage(storage: StorageSettings) -> Iterator[tuple[str, str, str]]:
    """Yields the problems of a bucket's settings, each as (setting, problem, remedy). Pure."""
    if storage.endpoint is None:
        return
    url = _ENDPOINT.fullmatch(storage.endpoint)
    if url is None or int(url["port"] or 443) not in range(1, 1 << 16):
        # Its value is not told: a password may be in it.
        yield (
            "storage.endpoint",
            "is not the URL of a server",
            "give http://HOST:PORT or https://HOST without a path; credentials are not part of it",
        )
