"""The section `[engine]`: how a job folds, and where. Values."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from kappa.base.section.section import SECRET, Count, Positive, Seconds, Section, Size

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
