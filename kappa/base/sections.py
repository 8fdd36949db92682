"""The sections of kappa.toml: each setting with its default, its bounds and its use. Values.

An error about a setting shows its description to the user. `repr=False` marks a secret: nothing
shows its value.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from kappa.base.units import parse_duration


class Durability(StrEnum):
    """The losses that an acknowledged record survives: of power, or of processes alone."""

    DISK = "disk"
    PROCESS = "process"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(_Section):
    """`[kafka]`: which broker, and how clients talk to it."""

    bootstrap_servers: str | None = Field(
        default=None, description="an existing cluster; none: Kappa runs its own broker"
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        description="any client setting, passed through to every client",
        # Passwords are among them.
        repr=False,
    )
    heap: str = Field(
        default="512m", description="heap of the embedded broker", pattern=r"^\d+[mg]$"
    )


class JarsSettings(_Section):
    """`[jars]`: the source of jars."""

    repository: str | None = Field(
        default=None, description="another Maven repository than the default one"
    )
    cache: Path | None = Field(default=None, description="another folder than the user's cache")


class EngineSettings(_Section):
    """`[engine]`: how a job folds."""

    memory: str = Field(default="2g", description="heap of a job's JVM", pattern=r"^\d+[mg]$")
    worker_memory: str = Field(
        default="4g",
        description="address space of each of Spark's Python workers, which run the function; "
        "one that takes more ends its job, and the slice is folded in parts after two such ends",
        pattern=r"^\d+[mg]$",
    )
    cores: int = Field(default=0, ge=0, description="cores a job may use; 0: all")
    spares: int = Field(
        default=1,
        ge=0,
        le=8,
        description=(
            "processes with Spark booted and warm that wait for the next job or command, "
            "each of half a gigabyte; 0: every start boots its own"
        ),
    )
    rest_after: float = Field(
        default=300.0,
        ge=0,
        description=(
            "seconds without a new record after which a build has no job until the next one comes; "
            "a build that is only kept for an undo folds now and then; 0: all have jobs all the "
            "time"
        ),
    )
    slice_records: int = Field(
        default=4_000_000, ge=1, description="about the most offsets in one slice of a catch-up"
    )
    tail_records: int = Field(
        default=100_000, ge=1, description="most offsets in one micro-batch of the tail"
    )
    driver_rows: int = Field(
        default=50_000,
        ge=0,
        description=(
            "slices of at most so many offsets are decoded, and contributions of so many rows "
            "committed, in the job's own process; larger ones by Spark"
        ),
    )
    merge_bytes: int = Field(
        default=32 * 2**20,
        ge=0,
        description=(
            "contributions by key are merged in the job's own process, however many, while they "
            "have at most so many bytes; more by DuckDB, which writes a table anew that is not "
            "much larger, or by Spark. A merge takes ten to forty times as much memory"
        ),
    )
    large_rows: int = Field(
        default=500_000,
        ge=0,
        description=(
            "beside a table of so many rows, contributions by key wait until they are some part "
            "of that, so that no slice costs as much as the whole table; readers fold them in"
        ),
    )
    slice_seconds: float = Field(
        default=900.0,
        gt=0,
        description=(
            "how long a slice may take: then its job ends and is started again, "
            "and a slice in which two jobs ended is folded in parts"
        ),
    )
    hung_seconds: float = Field(
        default=15.0,
        ge=3,
        description=(
            "how long a job may show no sign of life (a start has 45 s besides); then it is ended "
            "and started again"
        ),
    )
    maintenance_seconds: float = Field(
        default=30.0,
        gt=0,
        description="how often a job compacts its tables and drops what nobody needs",
    )


class RolloutSettings(_Section):
    """`[rollout]`: how a switch is made."""

    hold_seconds: float = Field(
        default=10.0,
        gt=0,
        description="how long the live job keeps its frontier still for a promote",
    )
    hold_attempts: int = Field(
        default=3, ge=1, description="how often a promote tries to get there"
    )
    lease_seconds: float = Field(
        default=60.0,
        gt=0,
        description="how long a reader's pinned versions are kept if it does not renew",
    )
    soak: str = Field(
        default="1h",
        description=(
            "how long the build that served before is kept consuming after a promote or "
            "`kappa retire`, so that it can be undone: 90s, 30m, 1h, 2d"
        ),
        pattern=r"^\d{1,12}[smhd]$",
    )

    @property
    def soak_seconds(self) -> float:
        """Returns the soak in seconds."""
        milliseconds = parse_duration(self.soak)
        assert milliseconds is not None, "its pattern allows nothing else"
        return milliseconds / 1000


class HistorySettings(_Section):
    """`[history]`: how far back a query can look."""

    every_seconds: float = Field(
        default=60.0,
        gt=0,
        description="how often the live job keeps what readers see, for kappa query --at",
    )
    keep_seconds: float = Field(
        default=3600.0,
        ge=0,
        description="how long that is kept; what was seen at a switch stays as long as its build",
    )


class ArchiveSettings(_Section):
    """`[archive]`: how topics that declare an archive are copied."""

    every_seconds: float = Field(
        default=60.0,
        gt=0,
        description="how long at most records wait to be archived; many do not wait",
    )


class PlanSettings(_Section):
    """`[plan]`: what a plan tries before it promises a replay."""

    sample_records: int = Field(
        default=20,
        ge=0,
        description=(
            "so many records at the beginning, in the middle and at the end of each partition "
            "are read to see whether a replay could; 0: none"
        ),
    )
    max_unreadable: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description=(
            "a plan refuses if more than this share of them, in all or at one place, "
            "would be rejected"
        ),
    )


class VerifySettings(_Section):
    """`[verify]`: what a verification and a diff may take."""

    memory: str = Field(
        default="1g",
        description="memory for checks and for the diff of two builds; the rest is spilled",
        pattern=r"^\d+[mg]$",
    )
    threads: int = Field(default=0, ge=0, description="threads for them; 0: one a core")
    temp: str = Field(default="tmp", description="folder for what is spilled; relative to the root")
    temp_size: str = Field(
        default="20g", description="most that may be spilled", pattern=r"^\d+[mg]$"
    )
    law_records: int = Field(
        default=200,
        ge=0,
        description=(
            "on so many records of each topic a new version is held to the law of slices "
            "before it is replayed; 0: on none"
        ),
    )
    law_seconds: float = Field(
        default=120.0,
        gt=0,
        description="how long that may take for all pipelines of a deploy;"
        " then it goes on, and says how much was tried",
    )
    timeout_seconds: float = Field(
        default=3600.0,
        gt=0,
        description=(
            "how long a verification may take; then nothing is concluded, and nothing swapped"
        ),
    )


class ServeSettings(_Section):
    """`[serve]`: the address of HTTP, and the limits of one query of a stranger."""

    listen: str = Field(
        default="127.0.0.1:8717",
        description=(
            'where kappa up serves HTTP, as HOST:PORT; nothing (`""`): nowhere; '
            "if the port is taken, at another one"
        ),
    )
    token: str = Field(
        default="",
        description="a client has to send it; needed if other machines can connect",
        repr=False,
    )
    query_memory: str = Field(
        default="512m",
        description="memory of one query over HTTP; one that needs more is ended",
        pattern=r"^\d+[mg]$",
    )
    query_seconds: float = Field(
        default=30.0, gt=0, description="how long one may take; then it is ended"
    )
    query_rows: int = Field(
        default=100_000, ge=1, description="most rows of its answer; one that is cut says so"
    )
    query_bytes: str = Field(
        default="32m", description="most bytes of its answer, likewise", pattern=r"^\d+[mg]$"
    )
    queries: int = Field(default=4, ge=1, description="how many are answered at once; others wait")
    compare_seconds: float = Field(
        default=120.0,
        gt=0,
        description=(
            "how long the page may compare two builds to show the rows that differ; "
            "then that is ended; kappa diff has no limit"
        ),
    )
