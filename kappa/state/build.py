"""A build, one attempt to make a version real: its birth certificate and its folders.

A birth certificate describes a build: its code, topics and tables. The certificate is stored once
and never changed. All processes that serve, verify or run a build read the certificate. So they
need neither the user's code nor Spark to know the build's tables. Only the functions with a
parameter `store` do I/O.
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
from kappa.declare.folds.registry import ensure_known
from kappa.declare.options import REJECTS
from kappa.declare.reject_limit import MaxRejects
from kappa.declare.sink import SinkBirth
from kappa.state.documents import Documents
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

# By table and column, the fields of topics: (topic or its pattern, field).
Lineage = Mapping[str, Mapping[str, tuple[tuple[str, str], ...]]]


class TopicBirth(Struct, frozen=True, omit_defaults=True):
    """A topic as it was when the build was created.

    If a topic is deleted and created again under the same name, the broker gives it another `id`.
    `pattern` is the pattern that the topic had joined, or None.
    """

    name: str
    id: str
    kind: str
    partitions: int
    pattern: str | None = None


class Base(Struct, frozen=True):
    """The base of a branch: another build, whose code computed the branch's rows up to `offsets`.

    `build` and `version` identify the other build. The branch began with the tables of the other
    build at the other build's frontier number `frontier`, whose offsets are `start`. If `frontier`
    is None, the branch began with empty tables, at the origin of the other build. From `start` up
    to `offsets`, the code of the other build folds the records. `start` is None for branches that
    an older Kappa has created.
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
    """The birth certificate of a build: the stored description of the build, which never changes.

    `parts` maps the parts of the version to their fingerprints (`function
    pipelines/flights.py:on_time` -> hash). `sources` maps the files of the code snapshot to their
    SHA-256. `origin` contains the offsets at which the first slice begins. `accepted` lists the
    findings of the plan that a person allowed, with the reasons.

    `declarations` contains the topics, tables, views, sinks and alerts as text (`table delays` ->
    lines); a later plan uses this text to show changes. `max_rejects` is the number or share of
    records that the build may reject while it is a candidate. `base` is the base of a branch; a
    branch has the same origin as the build with whose state it began. `tables_of` is the build
    below an overlay; that build is never itself an overlay. `lineage` maps each column of a table
    to the topics' fields from which the pipeline's function computes the column. `lineage` is empty
    for a build that an older Kappa has created.
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
        """Returns the id of the build whose job folds this build's tables.

        For an overlay, this is the build below the overlay. For any other build, it is the build
        itself.
        """
        return self.tables_of or self.build

    @property
    def topic_ids(self) -> dict[str, str]:
        """Returns the id that each topic had when the build was created, by the topic's name."""
        return {topic.name: topic.id for topic in self.topics}

    @property
    def origin_offsets(self) -> Offsets:
        """Returns the offsets of the first records that the tables contain."""
        return Offsets.parse(self.origin)

    @property
    def begins(self) -> Offsets:
        """Returns the offsets from which the build's own code folds records.

        For a branch, these are the `offsets` of its base. For any other build, they are the origin.
        """
        return self.origin_offsets if self.base is None else Offsets.parse(self.base.offsets)

    @property
    def reads_from(self) -> Offsets:
        """Returns the offsets at which the build's job begins to read.

        For a branch, these are the offsets of the tables with which the branch began (`start` of
        its base), if `start` is stored. Otherwise they are the origin.
        """
        start = None if self.base is None else self.base.start
        return self.origin_offsets if start is None else Offsets.parse(start)

    @property
    def code_sha256(self) -> str:
        """Returns one hash of the names and hashes of all source files.

        If two builds have the same source files, they have the same hash.
        """
        listed = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.sources.items()))
        return hashlib.sha256(listed.encode()).hexdigest()

    @property
    def public_names(self) -> tuple[str, ...]:
        """Returns the names of the build's tables and views. No other pipeline may use these names.

        The name of the table of rejects is left out.
        """
        return (*(each.name for each in self.tables if each.name != REJECTS), *self.views)

    def table(self, name: str) -> TableBirth:
        """Returns the table with that name. Raises KeyError if the build has no such table."""
        return {table.name: table for table in self.tables}[name]


_BIRTH = Documents(Birth)
# By build. A birth certificate never changes.
_FOLDED_BY: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()
_MEND = "kappa down, then kappa doctor --repair: it puts the copy of the certificate back"
# Bytes; a longer name can be no folder's.
_LONGEST_NAME = 200


def comparable_topics(one: Birth, other: Birth) -> frozenset[str]:
    """Returns the names of the topics that both builds read and that have the same topic id.

    The offsets of other topics cannot be compared between the builds.
    """
    return frozenset(
        name for name, topic_id in one.topic_ids.items() if other.topic_ids.get(name) == topic_id
    )


def new_build_id(pipeline: str) -> str:
    """Returns a new build id: the pipeline's name and six random hexadecimal digits."""
    return f"{pipeline}-{secrets.token_hex(3)}"


def folder_of_build(build: str) -> str:
    """Returns the name of a build's folder, relative to the root."""
    return f"builds/{build}"


def folded_by(store: Store, build: str) -> str:
    """Returns the id of the build whose job folds the tables of the build `build`.

    This is `build` itself, or the build below an overlay. If no birth certificate of `build`
    exists, returns `build`.
    """
    known = _FOLDED_BY.setdefault(store, {})
    if build not in known:
        if (birth := _find_birth(store, build)) is None:
            return build
        known[build] = birth.folded_by
    return known[build]


def tables_folder(store: Store, build: str) -> str:
    """Returns the folder of the tables and frontiers of a build, relative to the root.

    For an overlay, this is the folder of the build below it.
    """
    return folder_of_build(folded_by(store, build))


def table_path(store: Store, build: str, table: str) -> str:
    """Returns the path or URL of a build's Delta table `table`."""
    return store.address(f"{tables_folder(store, build)}/tables/{table}")


def recent_names(table: str) -> tuple[str, str]:
    """Returns the names of the two small tables that contain the recent rows of a large table.

    A frontier lists the two tables under these names, and the folders of the two tables have these
    names. No table of a user can have such a name. kappa/engine/write/recent_rows.py writes both
    tables.
    """
    return f"{table}.recent-1", f"{table}.recent-2"


def slice_scratch(store: Store, build: str, elsewhere: str) -> str:
    """Returns the path or URL of the folder with a job's temporary files for its present slice.

    If `elsewhere` is "", the folder is on this host. If Spark workers run on other hosts, the
    folder is in the root; in this case, `elsewhere` is a folder name that only this job uses.
    """
    own = f"{folder_of_build(build)}/slice"
    return store.address(f"{own}/{elsewhere}") if elsewhere else store.local.address(own)


def put_birth(store: Store, birth: Birth) -> bool:
    """Stores the birth certificate of a build, and a copy of the certificate.

    Returns False, and changes nothing, if the build already has a birth certificate.
    """
    failpoint("birth.before_put")
    put = _BIRTH.put_new(store, birth_name(birth.build), birth)
    if put:
        failpoint("birth.before_copy")
        _BIRTH.put(store, birth_copy(birth.build), birth)
    failpoint("birth.after_put")
    return put


def birth_name(build: str) -> str:
    """Returns the name of a build's birth certificate, relative to the root."""
    return f"{folder_of_build(build)}/birth.json"


def birth_copy(build: str) -> str:
    """Returns the name of the copy of a build's birth certificate, relative to the root.

    `kappa doctor --repair` replaces a damaged certificate with this copy.
    """
    return f"{folder_of_build(build)}/birth_copy.json"


def has_copy(store: Store, build: str) -> bool:
    """Returns True if the copy of a build's birth certificate exists and is intact."""
    try:
        return _BIRTH.get(store, birth_copy(build), "the copy") is not None
    except Damaged:
        return False


def is_born(store: Store, build: str) -> bool:
    """Returns True if the build `build` was ever created, that is, if it has a birth certificate.

    `build` may be any text that a user has typed.
    """
    return (
        re.fullmatch(r"\w[\w.-]*", build) is not None
        and len(build.encode()) <= _LONGEST_NAME
        and store.get(birth_name(build)) is not None
    )


def read_birth(store: Store, build: str) -> Birth:
    """Reads the birth certificate of a build.

    Raises Damaged if the certificate is missing or cannot be read.
    """
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
