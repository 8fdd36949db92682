"""The facts on which a plan is based: project, journal, log, disk and earlier replays. Pure.

observe.py gathers all facts. If a fact could not be obtained, its field is None or empty, and the
plan reports the fact as unknown.
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
    """A pipeline as declared now: its version, its tables, and the files of its code.

    `doubtful` are the findings of the determinism lint in the code. `ways` maps a maintained view
    to a description of its way. `lineage` names the fields of topics from which the function
    computes the columns of its tables.
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
        """Returns the rows version: the fingerprint of the part that determines the rows."""
        return declared_rows_version(self.pipeline, self.parts)


# Views are computed at each reading, and checks, sinks and alerts only look at rows, so they decide
# no rows. A version that differs only in these is an overlay: it needs no replay and no job. The
# new build serves the tables of the live build, or, if the live build is an overlay, of the build
# below.
def has_its_rows(declared: Declared, born: Birth) -> bool:
    """Returns True if a declared pipeline has the same rows as a build, so no replay is needed.

    The rows versions and the served columns must be equal. Equal code is not sufficient: after a
    change of libraries, the same code can return other columns.
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

    For topics of sinks, only `partitions` and `configs` are known. `others` are the topics of sinks
    that contain records, although no sink of this root has sent any.

    A topic and its archive form one log. `beginning` contains the first offsets of these logs.
    `archived` contains the marks of the archives; a mark says which offsets an archive covers.
    `topics_beginning` contains the first offsets of the broker's topics alone. `hour_ago` contains
    the offset that was the end of each partition an hour ago. `configs` are the topics' current
    settings. `bytes` is the size of each partition on the broker's disk. `waiting` maps a pattern
    to the topics that match it but have not joined it. `brokers` is the number of brokers in the
    cluster. `replicas` maps a topic to the number of replicas of its partitions.
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
    """The last replay of a pipeline that caught up.

    `records` is the number of offsets that the replay read, and `seconds` is the time from the
    staging of the build until the build caught up.
    """

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The free space on the root's disk, and the size and folded offsets of each serving build.

    `free` is in bytes, or None if the root is in a bucket, which is never full. `builds` maps a
    build to (bytes, number of folded offsets).
    """

    free: int | None
    builds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """All facts on which a plan is based.

    - `names`: the names of all declared pipelines. `declared`: the described pipelines.
    - `refused`: the errors in the declarations of pipelines, by name, and in files, by path.
    - `unloadable`: the errors of the files that cannot be loaded, even if only pipelines of
      other files are described.
    - `births`: the birth certificates of the builds that are needed.
    - `snapshots`: the code files of serving builds. `libraries`: the installed packages.
    - `replays`: the last replay of each pipeline. `disk`: sizes and free space.
    - `samples`: samples of the topics to be replayed. `max_unreadable`: the largest share of a
      sample's records that may be rejected.
    - `rejected`: the number of records that each serving build has rejected.
    - `shown`: the frontiers of each build that still exist, oldest first.
    - `rows`: the number of served rows that would be sent to the topic of a new sink.
    - `subjects`: the pinned and the newest version of each pinned subject; the newest version
      is None if the registry has not answered.
    - `cores`: the number of cores that a replay may use, or 0 if unknown.
    - `law_seconds`: the longest time that the test of the law of slices takes before a replay.
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
