"""The sections of kappa.toml: each setting with its default, its bounds and its use. Values."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field

from kappa.base.section.section import SECRET, Count, Duration, Positive, Seconds, Section, Size
from kappa.base.units import parse_duration


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
        "how long a sink's position is kept while no courier runs, at most 30d; after that its "
        "topic is compared with what is served",
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
