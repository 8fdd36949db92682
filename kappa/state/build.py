"""A build: one attempt to make a version real. Its birth certificate, and where its things lie. Pure but for the store.

A birth certificate is put once and never changed; all who serve, verify or run a build read it, so that none of them
needs the user's code or Spark to know what tables it has.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from kappa.base.errors import Damaged
from kappa.base.failpoint import failpoint
from kappa.declare.breaker import MaxRejects
from kappa.declare.table import Thresholds
from kappa.folds.exactness import Exactness
from kappa.folds.fold import Fold, Option
from kappa.folds.kinds import fold_of
from kappa.state.documents import Documents
from kappa.state.offsets import Offsets
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class TableBirth:
    """A table as a build makes it. Columns are (name, Spark's simple type), hidden ones (leading underscore) included."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...] = ()
    # Served column -> (fold kind, input column).
    fold: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    latest: str | None = None
    checks: tuple[str, ...] = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    # Of a table that is folded by a step: the columns of the rows that the step gets.
    steps_over: tuple[tuple[str, str], ...] = ()
    # Served column -> the fold's options, where it has any.
    options: Mapping[str, Mapping[str, Option]] = field(default_factory=dict)
    # Served column -> the type of the values that a sketch was made of, which its own type does not tell.
    sketched: Mapping[str, str] = field(default_factory=dict)

    @property
    def served(self) -> tuple[tuple[str, str], ...]:
        """The columns that readers see."""
        return tuple(column for column in self.columns if not column[0].startswith("_"))

    @property
    def hides_rows(self) -> bool:
        """True where it may hold rows that readers do not see: those that are marked as `_deleted`."""
        return any(name == "_deleted" for name, _ in self.columns)

    @property
    def folds(self) -> dict[str, Fold]:
        """Returns the fold of each served column that has one."""
        return {
            name: fold_of(kind, column, self.options.get(name, {}))
            for name, (kind, column) in self.fold.items()
        }

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """The served columns, and the hidden ones that tell how far apart approximate values may be."""
        beside = {each for name, fold in self.folds.items() for each in fold.compared(name)}
        return tuple(
            column for column in self.columns if column in self.served or column[0] in beside
        )

    @property
    def is_combined(self) -> bool:
        """True if one of its folds cannot be expressed by a merge."""
        return any(fold.is_combined for fold in self.folds.values())

    def exactness(self, column: str) -> Exactness:
        """Returns how near a served column's values are; what no fold has made is exact."""
        fold = self.folds.get(column)
        return Exactness.EXACT if fold is None else fold.exactness(column, dict(self.columns))


@dataclass(frozen=True, slots=True)
class TopicBirth:
    """A topic as it was when the build was born; a topic re-created under the same name has another id."""

    name: str
    id: str
    kind: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Base:
    """What a branch stands on: up to `offsets` its rows are those of another build, of that version.

    `frontier` is the number of that build's frontier whose tables it was begun with; what lies between there and `offsets` is
    folded by the other build's code. None: it was begun with empty tables, at the other build's origin. `start` is where that
    frontier stood; a branch that was born before this was kept has none.
    """

    build: str
    version: str
    offsets: Mapping[str, Mapping[str, int]]
    frontier: int | None = None
    start: Mapping[str, Mapping[str, int]] | None = None

    def __str__(self) -> str:
        return f"a branch of build {self.build} (version {self.version}) at {Offsets.parse(self.offsets)}"


@dataclass(frozen=True, slots=True)
class Birth:
    """What a build is made of.

    `parts` are the fingerprints that make up the version (`function pipelines/flights.py:on_time` -> hash);
    `sources` the files of its code snapshot and their SHA-256; `origin` the offsets its first slice begins at;
    `accepted` what stood in the way and was let through, and why; `declarations` its topics, tables and views in words
    (`table delays` -> lines), by which a later plan shows what changed; `max_rejects` how many records, or what share of
    them, it may reject while it is a candidate; `base` what it stands on where it is a branch, whose origin is that of its base.
    """

    build: str
    pipeline: str
    version: str
    parts: Mapping[str, str]
    semantics: int
    sources: Mapping[str, str]
    module: str
    topics: tuple[TopicBirth, ...]
    tables: tuple[TableBirth, ...]
    views: Mapping[str, str]
    origin: Mapping[str, Mapping[str, int]]
    libraries: Mapping[str, str]
    born_at: str
    by: str
    format: int = 1
    accepted: tuple[str, ...] = ()
    declarations: Mapping[str, str] = field(default_factory=dict)
    max_rejects: MaxRejects = None
    base: Base | None = None

    @property
    def topic_ids(self) -> dict[str, str]:
        """Topic name -> id at birth."""
        return {topic.name: topic.id for topic in self.topics}

    @property
    def origin_offsets(self) -> Offsets:
        """Where the first slice of what its tables hold begins."""
        return Offsets.parse(self.origin)

    @property
    def begins(self) -> Offsets:
        """Where its own code begins to fold: its origin, or what its branch stands on."""
        return self.origin_offsets if self.base is None else Offsets.parse(self.base.offsets)

    @property
    def reads_from(self) -> Offsets:
        """Where its job begins to read: its origin, or where its tables were taken from another build."""
        return (
            self.origin_offsets
            if self.base is None or self.base.start is None
            else Offsets.parse(self.base.start)
        )

    @property
    def code_sha256(self) -> str:
        """One hash of the names and hashes of all its sources: equal code is equal text."""
        listed = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.sources.items()))
        return hashlib.sha256(listed.encode()).hexdigest()

    def table(self, name: str) -> TableBirth:
        """The table of that name; KeyError where the build has none."""
        return {table.name: table for table in self.tables}[name]


_BIRTH = Documents(Birth)
# Bytes; what is longer is the name of no folder.
_LONGEST_NAME = 200


def comparable_topics(one: Birth, other: Birth) -> frozenset[str]:
    """The topics that both builds read: same name and same id. Offsets of others say nothing of one another."""
    return frozenset(
        name for name, topic_id in one.topic_ids.items() if other.topic_ids.get(name) == topic_id
    )


def new_build_id(pipeline: str) -> str:
    """A name for a new build, never used before: the pipeline's, and random letters."""
    return f"{pipeline}-{secrets.token_hex(3)}"


def folder(build: str) -> str:
    """Where all of a build lies, below the root."""
    return f"builds/{build}"


def table_path(store: Store, build: str, table: str) -> str:
    """Where a build's Delta table lies."""
    return str(store.path(f"{folder(build)}/tables/{table}"))


def recent_names(table: str) -> tuple[str, str]:
    """The names, in frontiers and folders, of the two tables that hold a table's recent rows (engine/write/recent.py): none that a user's table could have."""
    return f"{table}.recent-1", f"{table}.recent-2"


def put_birth(store: Store, birth: Birth) -> bool:
    """Puts a birth certificate; False where the build has one already."""
    failpoint("birth.before_put")
    put = _BIRTH.put_new(store, f"{folder(birth.build)}/birth.json", birth)
    failpoint("birth.after_put")
    return put


def is_born(store: Store, build: str) -> bool:
    """True where a build of that name, which somebody may have typed, was ever born."""
    return (
        re.fullmatch(r"\w[\w.-]*", build) is not None
        and len(build.encode()) <= _LONGEST_NAME
        and store.get(f"{folder(build)}/birth.json") is not None
    )


def read_birth(store: Store, build: str) -> Birth:
    """A build's birth certificate. Raises Damaged where there is none, or it cannot be read."""
    birth = _BIRTH.get(
        store, f"{folder(build)}/birth.json", f"the birth certificate of build {build}"
    )
    if birth is None:
        raise Damaged(
            f"build {build} has no birth certificate",
            hint="kappa history shows the builds there are",
        )
    return birth
