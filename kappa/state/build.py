"""A build: one attempt to make a version real. Its birth certificate and its folders.

A birth certificate is put once and never changed. All processes that serve, verify or run a build
read the certificate. So none of these processes needs the user's code or Spark to know the build's
tables. Pure, except for the store.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from kappa.base.errors import Damaged
from kappa.base.failpoint import failpoint
from kappa.declare.alert import AlertBirth
from kappa.declare.breaker import MaxRejects
from kappa.declare.folds.registry import ensure_known
from kappa.declare.options import REJECTS
from kappa.declare.sink import SinkBirth
from kappa.state.documents import Documents
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

# By table and column, the fields of topics: (topic or its pattern, field).
Lineage = Mapping[str, Mapping[str, tuple[tuple[str, str], ...]]]


class TopicBirth(Struct, frozen=True, omit_defaults=True):
    """A topic as it was when the build was born; `pattern` is a pattern that the topic had joined.

    A topic that is created again under the same name has another id.
    """

    name: str
    id: str
    kind: str
    partitions: int
    pattern: str | None = None


class Base(Struct, frozen=True):
    """The base of a branch: up to `offsets`, another build and version made the rows.

    `frontier` is the number of that build's frontier whose tables the branch began with. The range
    from there to `offsets` is folded by the other build's code. If it is None, the branch began
    with empty tables, at the other build's origin. `start` has the offsets of that frontier. A
    branch that was born before `start` was recorded has none.
    """

    build: str
    version: str
    offsets: Mapping[str, Mapping[str, int]]
    frontier: int | None = None
    start: Mapping[str, Mapping[str, int]] | None = None

    def __str__(self) -> str:
        at = Offsets.parse(self.offsets)
        return f"a branch of build {self.build} (version {self.version}) at {at}"


class Birth(Struct, frozen=True):
    """The parts that a build is made of.

    `parts` are the fingerprints that make up the version (`function pipelines/flights.py:on_time`
    -> hash). `sources` are the files of the code snapshot and their SHA-256. `origin` has the
    offsets at which the first slice begins. `accepted` lists the obstacles that were let through,
    and why.

    `declarations` are the topics, tables, views, sinks and alerts in words (`table delays` ->
    lines). A later plan uses them to show changes. `max_rejects` is the number or share of records
    that the build may reject while it is a candidate. `base` is the base of a branch, whose origin
    is that of the base. `tables_of` is the build below an overlay, and is never itself an overlay.
    `lineage` has the fields of topics from which the function computes the columns of its tables;
    a build that an older Kappa has made has none.
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
    tables_of: str | None = None
    sinks: tuple[SinkBirth, ...] = ()
    alerts: tuple[AlertBirth, ...] = ()
    lineage: Lineage = field(default_factory=dict)

    @property
    def folded_by(self) -> str:
        """Returns the build that has the tables and folds: this build, or the overlaid build."""
        return self.tables_of or self.build

    @property
    def topic_ids(self) -> dict[str, str]:
        """Returns topic name -> id at birth."""
        return {topic.name: topic.id for topic in self.topics}

    @property
    def origin_offsets(self) -> Offsets:
        """Returns the offsets at which the first slice of the tables' contents begins."""
        return Offsets.parse(self.origin)

    @property
    def begins(self) -> Offsets:
        """Returns the offsets at which the build's own code begins to fold.

        These are the origin, or the offsets of the branch's base.
        """
        return self.origin_offsets if self.base is None else Offsets.parse(self.base.offsets)

    @property
    def reads_from(self) -> Offsets:
        """Returns the offsets at which the build's job begins to read.

        These are the origin, or the offsets where the tables were taken from another build.
        """
        start = None if self.base is None else self.base.start
        return self.origin_offsets if start is None else Offsets.parse(start)

    @property
    def code_sha256(self) -> str:
        """Returns one hash of the names and hashes of all sources: equal code means equal text."""
        listed = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.sources.items()))
        return hashlib.sha256(listed.encode()).hexdigest()

    @property
    def public_names(self) -> tuple[str, ...]:
        """Lists the tables and views whose names no other pipeline may serve."""
        return (*(each.name for each in self.tables if each.name != REJECTS), *self.views)

    def table(self, name: str) -> TableBirth:
        """Returns the table of that name. Raises KeyError if the build has none."""
        return {table.name: table for table in self.tables}[name]


_BIRTH = Documents(Birth)
# By build. A birth certificate never changes.
_FOLDED_BY: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()
_MEND = "kappa down, then kappa doctor --repair: it puts the copy of the certificate back"
# Bytes; a longer name can be no folder's.
_LONGEST_NAME = 200


def comparable_topics(one: Birth, other: Birth) -> frozenset[str]:
    """Returns the topics that both builds read: same name and same id.

    Offsets of other topics cannot be compared.
    """
    return frozenset(
        name for name, topic_id in one.topic_ids.items() if other.topic_ids.get(name) == topic_id
    )


def new_build_id(pipeline: str) -> str:
    """Returns a new, unused name of a build: the pipeline's name, and random letters."""
    return f"{pipeline}-{secrets.token_hex(3)}"


def folder_of_build(build: str) -> str:
    """Returns the folder of a build, below the root."""
    return f"builds/{build}"


def folded_by(store: Store, build: str) -> str:
    """Returns the build that folds the tables of a served build: itself, or the overlaid build.

    A build that is not born (yet) folds its own tables.
    """
    known = _FOLDED_BY.setdefault(store, {})
    if build not in known:
        if (birth := _find_birth(store, build)) is None:
            return build
        known[build] = birth.folded_by
    return known[build]


def tables_folder(store: Store, build: str) -> str:
    """Returns the folder with the tables and frontiers that a build serves, below the root."""
    return folder_of_build(folded_by(store, build))


def table_path(store: Store, build: str, table: str) -> str:
    """Returns the path or URL of a Delta table that a build serves."""
    return store.address(f"{tables_folder(store, build)}/tables/{table}")


def recent_names(table: str) -> tuple[str, str]:
    """Returns the names, in frontiers and folders, of the two tables of a table's recent rows.

    No user's table can have these names. engine/write/recent.py fills both tables.
    """
    return f"{table}.recent-1", f"{table}.recent-2"


def slice_scratch(store: Store, build: str, elsewhere: str) -> str:
    """Returns the path or URL of the files that a job keeps of the slice being folded.

    The files are on this host. If workers are elsewhere, the files are in the root, in a folder of
    the job's own.
    """
    own = f"{folder_of_build(build)}/slice"
    return store.address(f"{own}/{elsewhere}") if elsewhere else store.local.address(own)


def put_birth(store: Store, birth: Birth) -> bool:
    """Puts a birth certificate. Returns False if the build already has a certificate."""
    failpoint("birth.before_put")
    put = _BIRTH.put_new(store, birth_name(birth.build), birth)
    if put:
        failpoint("birth.before_copy")
        _BIRTH.put(store, birth_copy(birth.build), birth)
    failpoint("birth.after_put")
    return put


def birth_name(build: str) -> str:
    """Returns the name of a build's birth certificate below the root."""
    return f"{folder_of_build(build)}/birth.json"


def birth_copy(build: str) -> str:
    """Returns the name of the copy that takes a damaged certificate's place (kappa doctor)."""
    return f"{folder_of_build(build)}/birth_copy.json"


def has_copy(store: Store, build: str) -> bool:
    """Returns True if the copy of a build's birth certificate is intact."""
    try:
        return _BIRTH.get(store, birth_copy(build), "the copy") is not None
    except Damaged:
        return False


def is_born(store: Store, build: str) -> bool:
    """Returns True if a build of that name was ever born; the name may be a user's typing."""
    return (
        re.fullmatch(r"\w[\w.-]*", build) is not None
        and len(build.encode()) <= _LONGEST_NAME
        and store.get(birth_name(build)) is not None
    )


def read_birth(store: Store, build: str) -> Birth:
    """Reads a build's birth certificate. Raises Damaged if it is missing or cannot be read."""
    birth = _find_birth(store, build)
    if birth is None:
        raise Damaged(
            f"build {build} has no birth certificate: {store.address(birth_name(build))} is gone",
            hint=_MEND,
        )
    for table in birth.tables:
        ensure_known(build, table.name, table.fold, birth.libraries.get("kappa"))
    return birth


def _find_birth(store: Store, build: str) -> Birth | None:
    return _BIRTH.get(
        store,
        birth_name(build),
        f"the birth certificate of build {build}",
        hint=_MEND,
    )
