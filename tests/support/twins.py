"""Two builds of one pipeline on disk, made by hand: births, Delta tables and frontiers.

Everything has defaults, so that a test states only what matters to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from births import make_birth
from deltalake import write_deltalake

from kappa.declare.options import Thresholds
from kappa.declare.reject_limit import MaxRejects
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.verify.diff import Comparison, Side, compare_builds
from kappa.serving.query.query import connect_pair
from kappa.serving.query.reader.reader import Limits
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build import TopicBirth, put_birth, table_path
from kappa.state.files.address import delta_options
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.lease import Lease, Pin, ensure_lease
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import LATEST_COLUMNS, REJECTS_BIRTH

Rows = Iterable[Mapping[str, Any]]
FLIGHTS = TopicBirth("flights", "id-of-flights", "retained", 1)
PLANES = TopicBirth("planes", "id-of-planes", "compacted", 1)
BOTH = frozenset({"flights", "planes"})


def folded(
    name: str = "delays",
    columns: str = "carrier string, on_time bigint",
    *,
    keys: tuple[str, ...] = ("carrier",),
    **thresholds: float,
) -> TableBirth:
    return TableBirth(
        name,
        _columns(columns),
        keys=keys,
        fold={column: ("max", column) for column, _ in _columns(columns) if column not in keys},
        thresholds=Thresholds(**thresholds),
    )


def appended(
    name: str = "departures", columns: str = "carrier string, delay int", **thresholds: float
) -> TableBirth:
    return TableBirth(name, _columns(columns), thresholds=Thresholds(**thresholds))


def latest(
    name: str = "planes",
    columns: str = "tailnum string, seats int",
    *,
    topic: str = "planes",
    **thresholds: float,
) -> TableBirth:
    (key, _), *_ = _columns(columns)
    return TableBirth(
        name,
        (*_columns(columns), *LATEST_COLUMNS),
        keys=(key,),
        latest=topic,
        thresholds=Thresholds(**thresholds),
    )


def make_build(
    store: Store,
    build: str,
    tables: Mapping[TableBirth, Rows],
    *,
    at: int = 10,
    topics: tuple[TopicBirth, ...] = (FLIGHTS, PLANES),
    tally: Tally | None = None,
    rejects: Rows = (),
    max_rejects: MaxRejects = None,
) -> Side:
    """Makes a build whose only frontier has the same offset in every topic."""
    contents = {**tables, REJECTS_BIRTH: rejects}
    birth = make_birth(
        build,
        tuple(contents),
        topics=topics,
        pipeline="flights",
        version=f"version-of-{build}",
        module="flights",
        max_rejects=max_rejects,
    )
    put_birth(store, birth)
    for table, rows in contents.items():
        path = table_path(store, build, table.name)
        write_deltalake(
            path,
            pa.Table.from_pylist([dict(row) for row in rows], arrow_schema(table.columns)),
            storage_options=delta_options(path),
        )
    versions = {table.name: 0 for table in contents}
    offsets = Offsets({topic.name: {0: at} for topic in topics})
    known = {} if tally is None else {"flights": {0: tally}}
    frontier = Frontier(1, build, 1, offsets, versions, "then", tally=known)
    Frontiers(store, build).publish(frontier)
    return Side(birth, frontier)


def align(
    store: Store,
    candidate: str,
    live: str,
    *,
    number: int = 1,
    expires_at: float = 1e12,
    lease: str = "of-the-alignment",
    topics: Iterable[str] = BOTH,
) -> Lease:
    """Puts an alignment of two builds at their newest frontiers; returns its lease.

    The alignment is as the candidate's job would put it.
    """
    here, there = (Frontiers(store, build).newest() for build in (candidate, live))
    assert here is not None
    assert there is not None
    pins = {each.build: Pin(each.number, each.versions) for each in (here, there)}
    kept = Lease(1, "the job", expires_at, pins, id=lease)
    ensure_lease(store, kept)
    Alignments(store, candidate).put(Alignment(number, here, there, tuple(sorted(topics)), lease))
    return kept


def compared(
    store: Store,
    before: Side,
    after: Side,
    *,
    comparable: frozenset[str] = BOTH,
    unsettled: Iterable[str] | None = None,
    samples: int = 0,
    limits: Limits | None = None,
    **only: Any,
) -> Comparison:
    with connect_pair(
        store, (before.birth, before.frontier), (after.birth, after.frontier), limits=limits
    ) as reader:
        return compare_builds(
            reader,
            before,
            after,
            comparable=comparable,
            unsettled=lambda table: unsettled if table.latest else None,
            samples=samples,
            **only,
        )


def _columns(ddl: str) -> tuple[tuple[str, str], ...]:
    # At a comma that is not inside a type.
    parts, depth = [""], 0
    for letter in ddl:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple((name, kind) for name, _, kind in (part.strip().partition(" ") for part in parts))


TableBirth.__hash__ = lambda self: hash(self.name)  # type: ignore[method-assign]
