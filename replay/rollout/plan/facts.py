"""The facts of a plan: project, journal, log, disk and earlier replays. Pure.

A fact that could not be obtained is absent, and a plan calls the fact unknown. observe.py gathers
all facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kappa.base.errors import DeclarationError
from kappa.code.fingerprint import born_rows_version, declared_rows_version
from kappa.declare.options import REJECTS
from kappa.declare.pipeline import Pipeline
from kappa.replay.rollout.plan.finding import Finding
from kappa.replay.rollout.plan.log_sample import TopicSample
from kappa.replay.rollout.state import State
from kappa.state.build import Birth, Lineage
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.table import TableBirth
from kappa.tables.archive import ArchiveMark


@dataclass(frozen=True, slots=True)
class Declared:
    """A pipeline as declared now: the version, the tables, and the files of the code.

    `doubtful` are the lint's findings in the code (determinism.py). `ways` says how each maintained
    view is kept (kappa/tables/views/ways.py). `lineage` has the fields of topics from which the
    function computes the columns of its tables.
    """

    pipeline: Pipeline
    module: str
    version: str
    parts: Mapping[str, str]
    tables: tuple[TableBirth, ...]
    files: Mapping[str, bytes] = field(repr=False)
    doubtful: tuple[Finding, ...] = ()
    ways: Mapping[str, str] = field(default_factory=dict)
    lineage: Lineage = field(default_factory=dict)

    @property
    def rows_version(self) -> str:
        """Returns the part of the version that decides rows."""
        return declared_rows_version(self.pipeline, self.parts)


# Views are computed at each reading, and checks, sinks and alerts only look at rows, so they decide
# no rows. A version that differs only in these is an overlay: it needs no replay and no job. The
# new build serves the tables of the live build, or, if the live build is an overlay, of the build
# below.
def has_its_rows(declared: Declared, born: Birth) -> bool:
    """Returns True if a declared pipeline has the rows of a build, so that no replay is needed.

    A replay is needed if libraries have made other columns of the same code since the birth.
    """
    return declared.rows_version == born_rows_version(born) and _served_columns(
        declared.tables
    ) == _served_columns(born.tables)


def _served_columns(tables: Iterable[TableBirth]) -> dict[str, tuple[tuple[str, str], ...]]:
    # The rejects table has more columns in newer versions of Kappa, and is not the user's.
    return {table.name: table.served for table in tables if table.name != REJECTS}


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The broker's facts about the declared topics that exist.

    For topics of sinks only `partitions` and `configs` are known. `others` are sinks' topics with
    records that no sink of this root has sent.

    `beginning` is the beginning of the log that topics and their archives form together. `archived`
    are the marks of these archives. `topics_beginning` is where the broker's topics begin.
    `hour_ago` is where each partition ended an hour ago. `configs` are the settings in force.
    `bytes` is the size of a partition on the broker's disk. `waiting` are the topics that match a
    pattern and have not joined. `replicas` is the smallest number of the cluster's `brokers` that
    keep a partition.
    """

    ids: Mapping[str, str]
    partitions: Mapping[str, int]
    beginning: Offsets
    end: Offsets
    hour_ago: Offsets | None = None
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bytes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    archived: tuple[ArchiveMark, ...] = ()
    topics_beginning: Offsets = field(default_factory=Offsets)
    others: frozenset[str] = frozenset()
    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    brokers: int = 1
    replicas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The last replay of a pipeline that caught up: offsets, and seconds since staging."""

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The free space of the root's disk, and bytes and offsets of each serving build.

    `free` is None if the root is in a bucket, which is never full.
    """

    free: int | None
    builds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """All facts of a plan. `names` are all declared pipelines, `declared` the described pipelines.

    `refused` has the errors of pipelines that the project's files refuse, and of files, by path.
    `unloadable` has the errors of the files that cannot be loaded, also where some pipelines of
    other files are described.
    `snapshots` are the files of serving builds, `replays` the last replay of each pipeline,
    `libraries` the installed packages. `samples` are samples of the topics to be replayed; of a
    sample, at most the share `max_unreadable` may be rejected. `rejected` is the number of records
    that each serving build has rejected. `shown` are a build's frontiers that still exist, the
    newest last. `rows` is the number of served rows that a sink's topic would have. `subjects` are
    the pinned subjects, each with the pinned and the newest version; None if the registry has not
    answered. `cores` is the number of cores that a replay may use; 0 if unknown. `law_seconds` is
    the most that the law of slices takes before a replay.
    """

    names: frozenset[str]
    declared: Mapping[str, Declared]
    state: State
    births: Mapping[str, Birth]
    log: LogFacts
    refused: Mapping[str, DeclarationError] = field(default_factory=dict)
    snapshots: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict, repr=False)
    replays: Mapping[str, Replayed] = field(default_factory=dict)
    disk: DiskFacts | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, TopicSample] = field(default_factory=dict)
    max_unreadable: float = 1.0
    rejected: Mapping[str, int] = field(default_factory=dict)
    shown: Mapping[str, tuple[Frontier, ...]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    subjects: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    cores: int = 0
    law_seconds: float = 0.0
    unloadable: Mapping[str, DeclarationError] = field(default_factory=dict)
