"""A proof: the serving build's log, folded again in other slices, gives the same rows.

It begins at the build's recorded origin and ends exactly at a frontier of the build, which a lease
keeps meanwhile (law 15). It runs in a child process (kappa/engine/children/refold.py) and in a
folder of its own, so nothing that serves is touched. A proof that dies leaves that folder and a
lease that ends. The result is appended to the journal. If log, code or Kappa's rules are not any
more those of the build, nothing can be proved, and the reason is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kappa.base.errors import UsageError
from kappa.base.settings import Settings
from kappa.declare.topic_options import TopicKind
from kappa.replay.rollout.current import current_state
from kappa.replay.rollout.libraries import changed_libraries, installed_libraries
from kappa.replay.rollout.numbered import serving_pipeline
from kappa.replay.rollout.prove.causes import doubts_of, likely_causes
from kappa.replay.rollout.prove.cutting import Cutting, cut_as
from kappa.replay.rollout.prove.equality import Compared, compare_tables, hash_before
from kappa.replay.rollout.prove.provable import ProofLog, ensure_provable
from kappa.replay.rollout.prove.refold import folded_again
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.diff import tallied
from kappa.replay.rollout.verify.diff_listing import differing
from kappa.replay.rollout.verify.unsettled import texts_for, unsettled_keys
from kappa.replay.rollout.verify.view_texts import compare_view_texts
from kappa.serving.query.pair import connect_pair
from kappa.serving.query.pin.catalog import pin_build
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.serving.query.query import connect
from kappa.serving.query.reader.reader import Limits
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.journal.events import Proved
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.journal.verification import OutcomeCount
from kappa.state.store import Store

# Rows of each kind that are shown of a table.
_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a proof: its journal record, and each table's part in it."""

    record: JournalRecord
    birth: Birth
    tables: tuple[Compared, ...]

    @property
    def proved(self) -> Proved:
        """The Proved event of its record."""
        assert isinstance(self.record.event, Proved)
        return self.record.event


def prove(
    settings: Settings,
    store: Store,
    log: ProofLog,
    pipeline: str,
    how: Cutting,
    *,
    on_progress: Callable[[str], None],
) -> Proof:
    """Folds the log of a pipeline's serving build again, compares, and records the result.

    `pipeline` may be the number of the rollout that serves it. Raises UsageError if no such
    pipeline serves, and NotProvable with the reason if nothing can be proved. Raises Conflict if
    the build's tables were not kept to the end.
    """
    state = current_state(store)
    pipeline = serving_pipeline(state, pipeline)
    build = _served(state, pipeline)
    with pin_build(store, build, lease_seconds=settings.rollout.lease_seconds) as pinned:
        birth, frontier = pinned.snapshot.births[build], pinned.snapshot.frontiers[build]
        ensure_provable(store, log, birth, frontier.offsets, frontier.witnesses)
        cuts = cut_as(
            how,
            birth.begins,
            frontier.offsets,
            slice_records=settings.engine.slice_records,
            driver_rows=settings.engine.driver_rows,
        )
        with folded_again(settings, store, log, birth, cuts, frontier.witnesses, on_progress) as (
            anew,
            again,
        ):
            tables, counts = _compared(settings, store, log, pinned, anew, again, on_progress)
        # The log was folded again by the same rewritten queries: the texts of views are not.
        with connect(pinned.snapshot, store, limits=Limits.of(settings.verify, store)) as reader:
            views = tuple(
                compare_view_texts(reader, pipeline, birth.tables, on_progress=on_progress)
            )
        pinned.confirm()
    equal = (
        all(table.equal for table in tables)
        and not differing(counts)
        and all(view.passed for view in views)
    )
    causes = (
        ()
        if equal
        else tuple(
            likely_causes(
                doubts_of(store, birth),
                changed_libraries(birth.libraries, installed_libraries()),
                tables,
                views,
            )
        )
    )
    found = Proved(
        pipeline=pipeline,
        build=build,
        offsets=frontier.offsets,
        how=how.how,
        slices=len(cuts.ends),
        seed=how.seed,
        equal=equal,
        rows=sum(table.difference.rows_before or 0 for table in tables),
        hash=hash_before(tables),
        differences=tuple(table.difference for table in tables),
        counts=counts,
        left_out={
            f"{table.difference.table}.{column}": why
            for table in tables
            for column, why in table.left_out.items()
        },
        causes=causes,
        base=birth.base,
        views=views,
    )
    return Proof(keep_proof(store, found), birth, tables)


def keep_proof(store: Store, found: Proved) -> JournalRecord:
    """Appends the result to the journal, whatever else is being appended."""
    while True:
        record = Journal(store).append(current_state(store).last + 1, found)
        if record is not None:
            return record


def _served(state: State, pipeline: str) -> str:
    if pipeline not in state.serving:
        raise UsageError(
            f"no pipeline {pipeline} is served",
            hint=f"there are {', '.join(sorted(state.serving))}"
            if state.serving
            else "nothing is served yet: kappa deploy",
        )
    return state.serving[pipeline]


def _compared(
    settings: Settings,
    store: Store,
    log: ProofLog,
    pinned: PinnedSnapshot,
    anew: Store,
    again: Frontier,
    on_progress: Callable[[str], None],
) -> tuple[tuple[Compared, ...], tuple[OutcomeCount, ...]]:
    birth, frontier = pinned.snapshot.births[again.build], pinned.snapshot.frontiers[again.build]
    texts_of = texts_for(store, birth)
    with connect_pair(
        store,
        (birth, frontier),
        (birth, again),
        limits=Limits.of(settings.verify, store),
        after_store=anew,
    ) as reader:
        tables = compare_tables(
            reader,
            birth,
            unsettled=lambda table: unsettled_keys(log, birth, table, frontier.offsets, texts_of),
            texts_of=texts_of,
            samples=_SAMPLES,
            on_progress=on_progress,
        )
    pinned.confirm()
    # Of a compacted topic, records may be gone that existed once.
    retained = {topic.name for topic in birth.topics if topic.kind != TopicKind.COMPACTED}
    return tables, tuple(count for count in tallied(frontier, again) if count.topic in retained)
