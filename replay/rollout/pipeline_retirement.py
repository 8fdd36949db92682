"""Retires pipelines, and previews which tables and readers are affected.

One record retires a pipeline. The record creates a generation without the pipeline, just as a
promote creates a generation with another build. From then on the pipeline's build is idle: the
build consumes until its soak is over, and an undo is a switch to that build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kappa.base.sql import quoted
from kappa.base.units import count_of, duration, size
from kappa.declare.options import REJECTS
from kappa.replay.rollout.operator_requests import (
    append_decided,
    ensure_serves,
    refuse_switched,
    refuse_underway,
)
from kappa.replay.rollout.state import State
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import ask_snapshot
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.reader.relations import file_sizes_at
from kappa.serving.query.reader.table_sql import schema_of
from kappa.state.build import read_birth, recent_names, table_path
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import PipelineRetired
from kappa.state.journal.journal import JournalRecord
from kappa.state.lease import live_leases
from kappa.state.offsets import Offsets
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class LeavingTable:
    """A table or view that would no longer be served after a retirement.

    `rows` is None if the table or view cannot be read. A view has no files.
    """

    name: str
    kind: str
    rows: int | None
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RetirementPreview:
    """The effect of a pipeline's retirement on its tables, readers and builds.

    `readers` are the processes that pin the tables, as (user, process id, number of leases).
    `dropped` is the build that is kept for an undo of the pipeline's last switch; the retirement
    retires this build at once. `kept_seconds` is the time for which the pipeline's current build is
    kept.
    """

    pipeline: str
    build: str
    version: str
    tables: tuple[LeavingTable, ...]
    readers: tuple[tuple[str, int, int], ...]
    dropped: str | None
    kept_seconds: float


def may_retire(state: State, pipeline: str) -> bool:
    """Returns True if a pipeline can be retired, and False if it is already retired. Pure.

    Raises the errors of `ask_retire`.
    """
    if pipeline in state.retirements:
        return False
    ensure_serves(state, pipeline)
    refuse_underway(state, pipeline)
    return True


def preview_retirement(
    store: Store, state: State, pipeline: str, *, kept_seconds: float, now: float
) -> RetirementPreview:
    """Returns the effect that a retirement of the pipeline would have now.

    `kept_seconds` is the time for which the build would be kept. `now` is in seconds since 1970.
    Raises UsageError if no build serves the pipeline.
    """
    build = ensure_serves(state, pipeline)
    pinned = Counter(
        (lease.by, lease.pid)
        for lease in live_leases(store, now)
        if state.folded_by(build) in lease.pins
    )
    idle = state.idle.get(pipeline)
    tables = leaving_tables(store, pipeline, build)
    return RetirementPreview(
        pipeline,
        build,
        state.versions[build],
        tables,
        tuple((by, pid, leases) for (by, pid), leases in sorted(pinned.items())),
        None if idle == state.folded_by(build) else idle,
        kept_seconds,
    )


def retirement_text(leaving: RetirementPreview) -> str:
    """Formats the effect of a retirement for display, with one fact per line. Pure."""
    name = leaving.pipeline
    lines = [
        f"{name}: build {leaving.build} (version {leaving.version}) stops serving; these leave:",
        *(f"  {_table_text(each)}" for each in leaving.tables),
        *(
            f"  read now by {by}, process {pid} ({count_of(leases, 'lease')}): what "
            "is pinned stays until then"
            for by, pid, leases in leaving.readers
        ),
        *(
            [f"  build {leaving.dropped}, kept for an undo of the last switch, is retired at once"]
            if leaving.dropped
            else []
        ),
        (
            f"  the build is kept for {duration(leaving.kept_seconds)}: kappa undo {name} lets it "
            "serve again; then its data are deleted"
        ),
        f"  while a file declares pipeline {name}, kappa deploy brings it back: take the file away",
    ]
    return "".join(f"{line}\n" for line in lines)


def ask_retire(
    store: Store,
    pipeline: str,
    *,
    kept_seconds: float,
    seen: State | None = None,
    reason: str = "",
) -> JournalRecord | None:
    """Retires a pipeline. Returns the record, or None if the pipeline is retired already.

    `kept_seconds` is the time for which the pipeline's build is kept. `seen` is the state that the
    operator has seen, and `reason` is the operator's reason. Raises UsageError if the pipeline
    never served. Raises Conflict if a rollout of the pipeline has not ended, or if another build
    serves by now.
    """

    def decide(looked: State, state: State) -> PipelineRetired | None:
        if not may_retire(state, pipeline):
            return None
        build = ensure_serves(looked, pipeline)
        refuse_switched(state, pipeline, build)
        newest = Frontiers(store, build).newest()
        return PipelineRetired(
            pipeline,
            build,
            state.generation + 1,
            {name: each for name, each in state.serving.items() if name != pipeline},
            read_birth(store, build).public_names,
            Offsets() if newest is None else newest.offsets,
            kept_seconds,
            state.generation or None,
        )

    return append_decided(store, decide, seen, reason)


def leaving_tables(store: Store, pipeline: str, build: str) -> tuple[LeavingTable, ...]:
    """Lists the tables and views of the build that serves a pipeline, with rows and sizes.

    Returns () if `build` does not serve the pipeline any more.
    """
    return ask_snapshot(
        store,
        lambda reader, snapshot: tuple(_leaving_tables(store, reader, snapshot, pipeline, build)),
    )


def _leaving_tables(
    store: Store, reader: Reader, snapshot: Snapshot, pipeline: str, build: str
) -> Iterator[LeavingTable]:
    if snapshot.serving.get(pipeline) != build:
        # Another switch came in between: the request itself will be refused.
        return
    birth = snapshot.births[build]
    broken = {each.name for each in reader.broken if each.pipeline == pipeline}
    frontier = snapshot.frontiers[build]
    for name in (*(each.name for each in birth.tables), *birth.views):
        files = [
            file_sizes_at(
                table_path(store, birth.build, each),
                frontier.versions[each],
                frontier.file_lists.get(each),
            )
            for each in (name, *recent_names(name))
            if each in frontier.versions
        ]
        rows = (
            None
            if name in broken
            else int(
                reader.rows(
                    f"select count(*) from {quoted(schema_of(pipeline))}.{quoted(name)}"
                ).rows[0][0]
            )
        )
        yield LeavingTable(
            name,
            "view" if name in birth.views else "table",
            rows,
            sum(map(len, files)),
            sum(sum(each.values()) for each in files),
        )


def _table_text(table: LeavingTable) -> str:
    rows = "it cannot be read" if table.rows is None else count_of(table.rows, "row")
    kind = "rejects" if table.name == REJECTS else f"{table.kind} {table.name}"
    return f"{kind}: {rows}" + (
        f", {count_of(table.files, 'file')}, {size(table.bytes)}" if table.kind == "table" else ""
    )
