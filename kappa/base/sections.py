"""The sections of kappa.toml: each setting with its default, its bounds and its use. Values.

An error about a setting shows its description to the user. `SECRET` marks a secret: nothing shows
its value. A secret is given by the environment or a separate file, and never in kappa.toml, which
is copied with the project, into images and histories. The credentials of a bucket are in the
environment (`AWS_ACCESS_KEY_ID`, ...), or found by the usual chain.
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


class Section(Struct, frozen=True):
    """A table of kappa.toml, or all of it."""

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """Returns the type of each setting."""
        return get_type_hints(cls, include_extras=True)

    def __repr__(self) -> str:
        shown = [name for name, kind in self.kinds().items() if not is_secret(kind)]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def is_secret(kind: Any) -> bool:
    """Returns True if nothing may show the value of a setting of this type."""
    return SECRET in get_args(kind)


def description(kind: Any) -> str:
    """Returns the description in the type of a setting; that of a section has none."""
    return next((each for each in get_args(kind) if isinstance(each, str)), "")


SourceTopics = Annotated[list[str], "the topics that it may send to; none: all that are collected"]


class SourceSettings(Section, frozen=True):
    """`[collect.sources.NAME]`: a source that may send events."""

    token: Annotated[str, "what it sends with each request", SECRET] = ""
    topics: SourceTopics = field(default_factory=list)
    rate: Annotated[Count, "most events a second; 0: any number"] = 0


class PullKind(StrEnum):
    """The ways in which a source gives its events."""

    SSE = "sse"
    WEBSOCKET = "websocket"
    POLL = "poll"
    MQTT = "mqtt"


class PullSettings(Section, frozen=True):
    """`[collect.pull.NAME]`: a source whose events the collector fetches itself."""

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
        "an absolute path: certificates in PEM that its own is checked by, if not public",
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


class Durability(StrEnum):
    """The losses that an acknowledged record survives: of power, or only of processes."""

    DISK = "disk"
    PROCESS = "process"


def seconds_of(duration: str) -> float:
    """Returns a setting that is a duration in seconds."""
    milliseconds = parse_duration(duration)
    assert milliseconds is not None, "its pattern allows nothing else"
    return milliseconds / 1000


class RegistrySettings(Section, frozen=True):
    """`[registry]`: the schema registry, for topics whose records are framed by it."""

    url: Annotated[str | None, "of its API in Confluent's dialect; none: there is no registry"] = (
        None
    )
    user: Annotated[str, "its user, for basic authentication"] = ""
    password: Annotated[str, "and its password; from the environment alone", SECRET] = ""
    token: Annotated[
        str, "a bearer token, in place of both; from the environment alone", SECRET
    ] = ""
    ca: Annotated[
        Path | None,
        "an absolute path: certificates in PEM that its own is checked by, if not public",
    ] = None
    timeout_seconds: Annotated[Seconds, "how long one request may take"] = 10.0


class JarsSettings(Section, frozen=True):
    """`[jars]`: the source of jars."""

    repository: Annotated[str | None, "another Maven repository than the default one"] = None
    cache: Annotated[
        Path | None, "another folder than the user's cache, relative to kappa.toml"
    ] = None


class RolloutSettings(Section, frozen=True):
    """`[rollout]`: how a switch is made."""

    hold_seconds: Annotated[
        Seconds, "how long the live job keeps its frontier still for a promote"
    ] = 10.0
    hold_attempts: Annotated[Positive, "how often a promote tries to get there"] = 3
    lease_seconds: Annotated[
        Seconds,
        "how long a reader's pinned versions are kept if it does not renew",
    ] = 60.0
    soak: Annotated[
        Duration,
        "how long the build that served before is kept consuming after a promote or `kappa "
        "retire`, so that it can be undone: 90s, 30m, 1h, 2d",
    ] = "1h"

    @property
    def soak_seconds(self) -> float:
        """Returns the soak in seconds."""
        return seconds_of(self.soak)


class HistorySettings(Section, frozen=True):
    """`[history]`: how far back a query can look."""

    every_seconds: Annotated[
        Seconds,
        "how often the live job keeps what readers see, for kappa query --at",
    ] = 60.0
    keep_seconds: Annotated[
        float,
        Meta(ge=0),
        "how long that is kept; what was seen at a switch stays as long as its build",
    ] = 3600.0


class ArchiveSettings(Section, frozen=True):
    """`[archive]`: how topics that declare an archive are copied."""

    every_seconds: Annotated[
        Seconds,
        "how long at most records wait to be archived; many do not wait",
    ] = 60.0


class ChangesSettings(Section, frozen=True):
    """`[changes]`: how long a follower of a served table can continue from its cursor."""

    keep_seconds: Annotated[
        Seconds,
        "how long a cursor can be gone on from after it was given out; its files are kept as long",
    ] = 60.0
    sinks_keep: Annotated[
        Duration,
        "how long the position of a sink is kept while no courier runs, at most 30d; after that "
        "its topic is compared with what is served; and how long that of an export is kept, after "
        "which its copies are written anew",
    ] = "1d"

    @property
    def sinks_keep_seconds(self) -> float:
        """Returns how long a sink's position is kept, in seconds; 30 days at most."""
        return min(seconds_of(self.sinks_keep), 30 * 86_400.0)


class PlanSettings(Section, frozen=True):
    """`[plan]`: what a plan tries before it promises a replay."""

    sample_records: Annotated[
        Count,
        "so many records at the beginning, in the middle and at the end of each partition are "
        "read to see whether a replay could; 0: none",
    ] = 20
    max_unreadable: Annotated[
        float,
        Meta(ge=0, le=1),
        "a plan refuses if more than this share of them, in all or at one place, would be rejected",
    ] = 0.5


class VerifySettings(Section, frozen=True):
    """`[verify]`: what a verification and a diff may take."""

    memory: Annotated[
        Size,
        "memory for checks and for the diff of two builds; the rest is spilled",
    ] = "1g"
    threads: Annotated[Count, "threads for them; 0: one a core"] = 0
    temp: Annotated[str, "folder for what is spilled; relative to the root"] = "tmp"
    temp_size: Annotated[
        Size,
        "most that may be spilled, by a maintained view in a slice too; a view that needs more "
        "cannot be read until it needs less",
    ] = "20g"
    law_records: Annotated[
        Count,
        "on so many records of each topic a new version is held to the law of slices before it is "
        "replayed; 0: on none",
    ] = 200
    law_seconds: Annotated[
        Seconds,
        "how long that may take for all pipelines of a deploy; then it goes on, and says how much "
        "was tried",
    ] = 120.0
    timeout_seconds: Annotated[
        Seconds,
        "how long a verification may take; then nothing is concluded, and nothing swapped",
    ] = 3600.0


class ViewsSettings(Section, frozen=True):
    """`[views]`: maintained views, which are held to their queries."""

    check_rows: Annotated[
        Count,
        "a verification, and a check some slices after each deploy, compare all rows of a "
        "maintained view with those of its query, as DuckDB runs that over the tables, if these "
        "have at most so many rows; of others a sample",
    ] = 10_000_000


class PostgresSettings(Section, frozen=True):
    """`[serve.postgres]`: the address for Postgres clients, and the server's certificate."""

    listen: Annotated[
        str,
        "where Postgres clients connect, beside HTTP, as HOST:PORT; their password is a token; "
        'nothing (`""`): nowhere',
    ] = ""
    certificate: Annotated[
        Path | None,
        "an absolute path: the server's certificate in PEM, for TLS; then other machines cannot "
        "connect without TLS",
    ] = None
    key: Annotated[Path | None, "an absolute path: the key of the certificate, in PEM"] = None


class ServeSettings(Section, frozen=True):
    """`[serve]`: the address of HTTP, and the limits of one query of a stranger."""

    listen: Annotated[
        str,
        'where kappa up serves HTTP, as HOST:PORT; nothing (`""`): nowhere; if the port is taken, '
        "at another one, which the project then keeps",
    ] = "127.0.0.1:8717"
    token: Annotated[
        str,
        "a client has to send it; needed if other machines can connect",
        SECRET,
    ] = ""
    query_memory: Annotated[
        Size,
        "memory of one query over HTTP; one that needs more is ended",
    ] = "512m"
    query_seconds: Annotated[Seconds, "how long one may take; then it is ended"] = 30.0
    query_rows: Annotated[Positive, "most rows of its answer; one that is cut says so"] = 100_000
    query_bytes: Annotated[Size, "most bytes of its answer, likewise"] = "32m"
    queries: Annotated[Positive, "how many are answered at once; others wait"] = 4
    wait_seconds: Annotated[
        Seconds,
        "how long a query may wait for a write (`Kappa-After`) before it is answered; then 504",
    ] = 30.0
    compare_seconds: Annotated[
        Seconds,
        "how long the page may compare two builds to show the rows that differ; then that is "
        "ended; kappa diff has no limit",
    ] = 120.0
    postgres: PostgresSettings = PostgresSettings()


class AgentAct(StrEnum):
    """An act of an agent that needs a person's yes, unless `agents.may` lists it."""

    STAGE = "stage"
    PROMOTE = "promote"
    UNDO = "undo"
    RETIRE = "retire"
    ABANDON = "abandon"
    PAUSE = "pause"
    RESUME = "resume"


class AgentSettings(Section, frozen=True):
    """`[agents]`: agents that speak the Model Context Protocol."""

    may: Annotated[
        list[AgentAct],
        "what an agent does without a person's yes: stage (code that the agent gives), promote, "
        "undo, retire, abandon, pause, resume",
    ] = field(default_factory=list)
    http: Annotated[bool, "serve /mcp beside the HTTP API, with its token; needs kappa[mcp]"] = (
        False
    )


class AlertSettings(Section, frozen=True):
    """`[alerts]`: how alerts are delivered."""

    secret: Annotated[str, "it signs webhooks; several, with spaces between, all sign", SECRET] = ""
    secrets: Annotated[dict[str, str], "by an alert's name: its own secret", SECRET] = field(
        default_factory=dict
    )
    urls: Annotated[dict[str, str], "by an alert's name: where to send it instead", SECRET] = field(
        default_factory=dict
    )
    commands: Annotated[
        dict[str, list[str]], 'by name: program and arguments of `to="command:NAME"`', SECRET
    ] = field(default_factory=dict)
    timeout_seconds: Annotated[Seconds, "how long one attempt may take"] = 10.0
    patience: Annotated[Duration, "how long a message is tried; then it is a dead letter"] = "1h"
    keep: Annotated[Duration, "how long the place of an alert that cannot go on is kept"] = "1d"
    most: Annotated[Positive, "most rows of a change set; of more, one message has the count"] = 100


class NotifySettings(Section, frozen=True):
    """`[notify]`: messages about the platform itself."""

    to: Annotated[
        str,
        "where they go: the URL of a webhook, `command:NAME` of `[alerts.commands]`, or `page`; "
        'nothing (`""`): nowhere',
    ] = ""


class Protocol(StrEnum):
    """The protocol between clients and the cluster: with TLS or without, as a user or not."""

    SASL_SSL = "SASL_SSL"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"


class Mechanism(StrEnum):
    """The mechanism by which a client proves its user."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


_OF_USERS = ("user", "password", "password_file")
_OF_TOKENS = ("token_url", "client_id", "client_secret", "client_secret_file", "scope")
_OF_TLS = ("ca", "certificate", "key")


class KafkaAuth(Section, frozen=True):
    """`[kafka.auth]`: access to a secured cluster, declared once for all clients."""

    protocol: Annotated[
        Protocol | None,
        "SASL_SSL, SSL or SASL_PLAINTEXT; none: SASL_SSL if there is a mechanism, else SSL",
    ] = None
    mechanism: Annotated[
        Mechanism | None,
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; none: a certificate, or nobody",
    ] = None
    user: Annotated[str, "the user of PLAIN and SCRAM"] = ""
    password: Annotated[str, "its password; from the environment alone", SECRET] = ""
    password_file: Annotated[
        Path | None, "a file with the password alone; read whenever a client is made"
    ] = None
    ca: Annotated[
        Path | None, "certificates (PEM) of the authorities that are trusted; none: the system's"
    ] = None
    certificate: Annotated[
        Path | None, "the client's certificate and its chain (PEM), for mutual TLS"
    ] = None
    key: Annotated[Path | None, "its key (PEM, PKCS#8, not encrypted)"] = None
    token_url: Annotated[str, "where OAUTHBEARER gets its tokens (OIDC, client credentials)"] = ""
    client_id: Annotated[str, "the client that asks for tokens"] = ""
    client_secret: Annotated[str, "its secret; from the environment alone", SECRET] = ""
    client_secret_file: Annotated[Path | None, "a file with the client's secret alone"] = None
    scope: Annotated[str, "the scope of a token"] = ""

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
        """Returns the protocol in force."""
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
    """`[kafka]`: which broker, and how clients talk to it."""

    bootstrap_servers: Annotated[
        str | None,
        "an existing cluster; none: Kappa runs its own broker",
    ] = None
    options: Annotated[
        dict[str, str],
        "any client setting, passed through to every client",
        # Options may have passwords.
        SECRET,
    ] = field(default_factory=dict)
    heap: Annotated[Size, "heap of the embedded broker"] = "512m"
    auth: KafkaAuth = KafkaAuth()

    def __post_init__(self) -> None:
        """Raises SettingsError if access is declared to the broker that is open."""
        if self.auth.is_declared and self.bootstrap_servers is None:
            raise SettingsError(
                "kafka.auth is for a cluster, and none is named: Kappa's own broker is open, to "
                "this machine alone",
                hint="name it in kafka.bootstrap_servers, or leave [kafka.auth] out",
            )


# The most slices of a short catch-up.
_SHORT_SLICES = 20


class EngineSettings(Section, frozen=True):
    """`[engine]`: how a job folds."""

    memory: Annotated[Size, "heap of a job's JVM"] = "2g"
    worker_memory: Annotated[
        Size,
        "address space of each of Spark's Python workers, which run the function; one that takes "
        "more ends its job, and the slice is folded in parts after two such ends",
    ] = "4g"
    cores: Annotated[Count, "cores a job may use; 0: all"] = 0
    spares: Annotated[
        int,
        Meta(ge=0, le=8),
        "processes with Spark booted and warm that wait for the next job or command, each of half "
        "a gigabyte; of two, a command takes one and the job that it starts the other, and a job "
        "that dies twice goes on at once; 0: every start boots its own",
    ] = 2
    rest_after: Annotated[
        float,
        Meta(ge=0),
        "seconds without a new record after which a build has no job until the next one comes; a "
        "build that is only kept for an undo folds now and then; 0: all have jobs all the time",
    ] = 300.0
    slice_records: Annotated[Positive, "about the most offsets in one slice of a catch-up"] = (
        4_000_000
    )
    tail_records: Annotated[Positive, "most offsets in one micro-batch of the tail"] = 100_000
    driver_rows: Annotated[
        Count,
        "slices of at most so many offsets are decoded, and contributions of so many rows "
        "committed, in the job's own process; larger ones by Spark. A catch-up of at most twenty "
        "times so many offsets has no larger slice",
    ] = 250_000
    merge_bytes: Annotated[
        Count,
        "contributions by key are merged in the job's own process, however many, while they have "
        "at most so many bytes; more by DuckDB, which writes a table anew that is not much "
        "larger, or by Spark. A merge takes ten to forty times as much memory",
    ] = 32 * 2**20
    large_rows: Annotated[
        Count,
        "beside a table of so many rows, contributions by key wait until they are some part of "
        "that, so that no slice costs as much as the whole table; readers fold them in",
    ] = 500_000
    slice_seconds: Annotated[
        Seconds,
        "how long a slice may make no progress: no record read or given to a step, no task done, "
        "no byte of a worker moved, no query and no commit further. Then its job ends and is "
        "started again, and the slice is folded in parts",
    ] = 900.0
    hung_seconds: Annotated[
        float,
        Meta(ge=3),
        "how long a job may show no sign of life (a start has 45 s besides); then it is ended and "
        "started again",
    ] = 15.0
    maintenance_seconds: Annotated[
        Seconds, "how often a job compacts its tables and drops what nobody needs"
    ] = 30.0
    master: Annotated[
        str,
        "the Spark cluster that folds long stretches of a log, catch-ups, bases of branches and "
        'proofs: spark://HOST:PORT, k8s://URL or yarn; nothing (`""`): this machine folds them',
    ] = ""
    driver_host: Annotated[
        str, "the address of this machine to which the workers of engine.master connect"
    ] = ""
    conf: Annotated[
        dict[str, str],
        "settings of Spark for what runs on engine.master, passed through",
        # Passwords are among them.
        SECRET,
    ] = field(default_factory=dict)

    @property
    def short_records(self) -> int:
        """Returns the most offsets of a short catch-up.

        A short catch-up is folded in slices of at most `driver_rows` offsets by the process that
        then folds the tail: neither another JVM nor Spark's Python workers are started.
        """
        return _SHORT_SLICES * self.driver_rows


class Role(StrEnum):
    """A role of a token, a person or a group: `serving/access/roles.py` has what each may do."""

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
    """`[access.people.NAME]` and `[access.groups.NAME]`: the roles of a person or a group."""

    roles: Roles = field(default_factory=list)
    tables: Tables = field(default_factory=list)
    topics: RoleTopics = field(default_factory=list)


class TokenSettings(Section, frozen=True):
    """`[access.tokens.NAME]`: a token with roles, for a place that has an environment only."""

    token: Annotated[
        str, "what a client sends with each request; from the environment alone", SECRET
    ] = ""
    roles: Roles = field(default_factory=list)
    tables: Tables = field(default_factory=list)
    topics: RoleTopics = field(default_factory=list)


class OidcSettings(Section, frozen=True):
    """`[access.oidc]`: the issuer whose tokens identify people (OpenID Connect)."""

    issuer: Annotated[
        str, "the issuer's URL, as its tokens have it; nothing: people need tokens of Kappa"
    ] = ""
    audience: Annotated[str, "the audience that a token must name, such as the client's id"] = ""
    client: Annotated[
        str, "the client's id, by which people sign in on the page; nothing: by a token alone"
    ] = ""
    client_secret: Annotated[
        str, "the client's secret, if it has one; from the environment alone", SECRET
    ] = ""
    name: Annotated[str, "the claim that names a person"] = "email"
    groups: Annotated[str, "the claim that lists a person's groups"] = "groups"


class AccessSettings(Section, frozen=True):
    """`[access]`: who may do what over the network, beside the token of `[serve]`."""

    file: Annotated[
        Path | None,
        "the file of `kappa token`, read anew when it changes; none: access/tokens.json below the "
        "root, or below `local` if the root is in a bucket",
    ] = None
    tokens: Annotated[
        dict[str, TokenSettings],
        "by name: tokens that are given by the environment; others are made by kappa token add",
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
    """The server of a bucket, by the S3 protocol."""

    endpoint: Annotated[str | None, "URL of the S3 server, without a bucket; none: Amazon's"] = None
    region: Annotated[str | None, "region of the bucket; none: AWS_REGION, or us-east-1"] = None
    path_style: Annotated[
        bool, "the bucket is in the path of a request, and not in the host's name"
    ] = True
    cache: Annotated[
        Size,
        "most that is kept on this host's disk of files that queries over HTTP have read",
    ] = "2g"


def without_secrets(url: str) -> str:
    """Returns a URL as it may be printed, without a login and what follows a question mark.

    A secret may have slashes in it, so the last `@` counts.
    """
    without_login = re.sub(r"(?<=://).*@", "...@", url, flags=re.DOTALL)
    return re.sub(r"[?#].*", "?...", without_login, flags=re.DOTALL)


def problems_of_storage(storage: StorageSettings) -> Iterator[tuple[str, str, str]]:
    """Yields what is wrong with a bucket's server: a setting's name, why, and what to do. Pure."""
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
