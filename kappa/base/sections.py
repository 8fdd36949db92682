"""The sections of kappa.toml: each setting with its default, its bounds and its use. Values."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field

from kappa.base.section.section import (
    SECRET,
    Count,
    Duration,
    Positive,
    Seconds,
    Section,
    Size,
)
from kappa.base.units import parse_duration


class Durability(StrEnum):
    """The losses that an acknowledged record survives: of power, or of processes alone."""

    DISK = "disk"
    PROCESS = "process"


def seconds_of(duration: str) -> float:
    """Returns a setting that is a duration in seconds."""
    milliseconds = parse_duration(duration)
    assert milliseconds is not None, "its pattern allows nothing else"
    return milliseconds / 1000


class JarsSettings(Section, frozen=True):
    """`[jars]`: the source of jars."""

    repository: Annotated[str | None, "another Maven repository than the default one"] = None
    cache: Annotated[Path | None, "another folder than the user's cache"] = None


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
        "a gigabyte; 0: every start boots its own",
    ] = 1
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
        "committed, in the job's own process; larger ones by Spark",
    ] = 50_000
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
        "how long a slice may take: then its job ends and is started again, and a slice in which "
        "two jobs ended is folded in parts",
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
    """`[changes]`: how long what follows a served table can go on where it was."""

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
    temp_size: Annotated[Size, "most that may be spilled"] = "20g"
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


class ServeSettings(Section, frozen=True):
    """`[serve]`: the address of HTTP, and the limits of one query of a stranger."""

    listen: Annotated[
        str,
        'where kappa up serves HTTP, as HOST:PORT; nothing (`""`): nowhere; if the port is taken, '
        "at another one",
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
