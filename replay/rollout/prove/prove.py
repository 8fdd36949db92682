"""The proof: folds the serving build's log again in other slices, and compares the rows.

The second fold begins at the offsets at which the build began, and ends exactly at a frontier of
the build. A lease keeps that frontier during the proof. The fold runs in a child process
(kappa/engine/children/refold.py) and in a separate folder, so no served table changes. If records
of the log are gone, or if the build's code or Kappa's rules have changed since the build folded the
log, nothing can be proved, and the error contains the reason. If a proof is killed, its folder is
left behind, and its lease expires.

The comparison is that of the diff (replay/rollout/verify/diff.py), but stricter: rejects are also
compared row by row, and rows have a hash. The values of some columns may depend on the order of
folding, or on chance. The result names these columns, and the hash does not include them. Rows
whose existence depends on compaction are set aside and counted: rejects of compacted topics, and
rows whose keys were written again after the compared frontier. The result is appended to the
journal.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from kappa.base.errors import Broken, KappaError, NotProvable
from kappa.base.process import LOW_PRIORITY, ensure_session_gone, start_tied
from kappa.base.program import command_of, project_options
from kappa.base.settings import Settings
from kappa.base.sql import quoted, text
from kappa.base.temporary_folders import PROVE, make_folder
from kappa.base.units import pace_text
from kappa.code.code_snapshot import (
    ensure_unchanged,
    load_snapshot,
    load_with_place,
    snapshot_sources,
)
from kappa.code.fingerprint import SEMANTICS, has_identity
from kappa.declare.options import REJECTS
from kappa.declare.topic_options import TopicKind
from kappa.engine.read.archive_reader import Archives
from kappa.kafka.client import Log, TopicFacts
from kappa.records.tombstones import may_be_missed
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.libraries import changed_libraries, installed_libraries
from kappa.replay.rollout.plan.declared_pipelines import code_doubts
from kappa.replay.rollout.prove.row_hash import (
    hash_of_all,
    hash_sql,
    left_out_of,
    table_hash,
    tolerance_text,
)
from kappa.replay.rollout.prove.slice_cuts import Cutting, cut_as
from kappa.replay.rollout.rollout_numbers import ensure_served, serving_pipeline
from kappa.replay.rollout.supervisor_report import Pace
from kappa.replay.rollout.verify.diff import (
    Relations,
    RowSample,
    TextsOf,
    Unsettled,
    compare_appended,
    compare_keyed,
    settled_relations,
    tally_counts,
)
from kappa.replay.rollout.verify.diff_listing import differing_counts
from kappa.replay.rollout.verify.unsettled_keys import (
    plain_texts,
    texts_for,
    unsettled_keys,
)
from kappa.replay.rollout.verify.view_texts import compare_view_texts
from kappa.serving.query.pin.catalog import pin_build
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.serving.query.query import AFTER, BEFORE, connect_pair, connect_reader
from kappa.serving.query.reader.reader import Limits, Reader
from kappa.state.build import Birth
from kappa.state.build_status import SliceProgress, read_progress, read_stopped, table_step
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Check, Difference, OutcomeCount, Proved
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.offsets import Offsets
from kappa.state.slices import Cuts, put_cuts
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.state.witness import Witnesses
from kappa.tables.archive import ArchiveMark, archived_topics, one_log
from kappa.tables.branch import base_frontier, begin_from

# The number of rows of each kind that are shown of a table.
_SAMPLES = 5
_SHOWN_LIBRARIES = 3
_CODE = re.compile(r"\S+\.py:\d+ uses ")


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a proof: its journal record, and the comparison of each table."""

    record: JournalRecord
    birth: Birth
    tables: tuple[Compared, ...]

    @property
    def proved(self) -> Proved:
        """Returns the Proved event of the record."""
        assert isinstance(self.record.event, Proved)
        return self.record.event


def prove_pipeline(
    settings: Settings,
    store: Store,
    log: Log,
    pipeline: str,
    how: Cutting,
    *,
    on_progress: Callable[[str], None],
) -> Proof:
    """Folds a pipeline's log again, compares the rows with the served rows, and records the result.

    `pipeline` is a name, or the number of the rollout by which the pipeline serves. `how` is the
    way to cut the log. `on_progress` is called with a text about the progress. Raises UsageError if
    the pipeline does not serve, and NotProvable, with the reason, if nothing can be proved. Raises
    Conflict if the build's tables were deleted before the proof ended.
    """
    state = current_state(store)
    pipeline = serving_pipeline(state, pipeline)
    build = ensure_served(state, pipeline)
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
            tables, counts = _compare_with_refold(
                settings, store, log, pinned, anew, again, on_progress
            )
        # The second fold used the same rewritten queries, so the texts of views are compared apart.
        with connect_reader(
            pinned.snapshot, store, limits=Limits.of(settings.verify, store)
        ) as reader:
            views = tuple(
                compare_view_texts(reader, pipeline, birth.tables, on_progress=on_progress)
            )
        pinned.confirm_kept()
    equal = (
        all(table.equal for table in tables)
        and not differing_counts(counts)
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
    """Appends the result of a proof to the journal, and returns the record.

    If another process has used the next record number, the function tries the number after it.
    """
    while True:
        record = Journal(store).append(current_state(store).last + 1, found)
        if record is not None:
            return record


def _compare_with_refold(
    settings: Settings,
    store: Store,
    log: Log,
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
    pinned.confirm_kept()
    # Compaction may have removed records of a compacted topic.
    retained = {topic.name for topic in birth.topics if topic.kind != TopicKind.COMPACTED}
    return tables, tuple(
        count for count in tally_counts(frontier, again) if count.topic in retained
    )


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of a table: the difference, samples of rows, and the hashes of both sides.

    `left_out` maps each column that is not included in the hashes to the reason.
    """

    difference: Difference
    samples: tuple[RowSample, ...]
    hashes: tuple[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Returns True if no row differs and the hashes are equal."""
        return self.difference.equal and self.hashes[0] == self.hashes[1]


def compare_tables(
    reader: Reader,
    birth: Birth,
    *,
    unsettled: Unsettled,
    texts_of: TextsOf = lambda _table: plain_texts,
    samples: int,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> tuple[Compared, ...]:
    """Compares each table of two folds of the same build, including the table of rejects.

    `unsettled` returns the keys of a table whose rows are not compared, and `texts_of` returns the
    function that decodes the keys in a table's topic. `samples` is the number of differing rows of
    each kind to return. `on_progress` is called with a text before each table. Raises Broken if a
    key occurs twice in a table.
    """
    found = []
    for number, table in enumerate(birth.tables, 1):
        on_progress(table_step("comparing", table.name, number, len(birth.tables)))
        found.append(_compare_table(reader, birth, table, unsettled, texts_of, samples))
    return tuple(found)


def hash_before(tables: Iterable[Compared]) -> str:
    """Returns a single hash over the rows that the serving build has in all tables."""
    return hash_of_all(
        (each.difference.table, each.difference.rows_before or 0, each.hashes[0]) for each in tables
    )


def _compare_table(
    reader: Reader,
    birth: Birth,
    table: TableBirth,
    unsettled: Unsettled,
    texts_of: TextsOf,
    samples: int,
) -> Compared:
    found, common, left_out = (
        Difference(table.name, None, None),
        dict(table.served),
        left_out_of(table),
    )
    if table.keys:
        sources, aside = settled_relations(reader, table, unsettled, texts_of)
        difference, shown = compare_keyed(
            reader,
            found,
            table.keys,
            common,
            samples,
            sources=sources,
            likeness={column: table.exactness(column) for column in common},
        )
    else:
        sources, aside = _appended_relations(reader, birth, table)
        difference, shown = compare_appended(reader, found, common, samples, sources=sources)
    hashed = [(name, kind) for name, kind in table.served if name not in left_out]
    before, after = (_hash_relation(reader, hashed, source) for source in sources)
    return Compared(replace(difference, unsettled=aside), shown, (before, after), left_out)


def _appended_relations(reader: Reader, birth: Birth, table: TableBirth) -> tuple[Relations, int]:
    whole = f"{BEFORE}.{quoted(table.name)}", f"{AFTER}.{quoted(table.name)}"
    compacted = [topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED]
    if table.name != REJECTS or not compacted:
        return whole, 0
    # A reject whose key was written again may exist for one side only, by compaction.
    names = ", ".join(map(text, compacted))
    theirs = f"topic in ({names})"
    aside = max(
        int(reader.rows(f"select count(*) from {side} where {theirs}").rows[0][0]) for side in whole
    )
    before, after = (f"(select * from {side} where not {theirs})" for side in whole)
    return (before, after), aside


def _hash_relation(reader: Reader, columns: Iterable[tuple[str, str]], source: str) -> str:
    ((_, *sums),) = reader.rows(hash_sql(columns, source)).rows
    return table_hash(map(int, sums))


def likely_causes(
    found: Iterable[str],
    libraries: tuple[str, ...],
    tables: Iterable[Compared],
    views: Iterable[Check] = (),
) -> Iterator[str]:
    """Yields the likely causes of a difference between tables, the likeliest first. Pure.

    The causes are the findings `found` in the code, changed libraries, columns that depend on the
    order in which values are added, and maintained views whose stored rows differ from the rows of
    the user's query.
    """
    causes = list(found)
    if libraries:
        more = (
            f" and {len(libraries) - _SHOWN_LIBRARIES} more"
            if len(libraries) > _SHOWN_LIBRARIES
            else ""
        )
        causes.append(
            "libraries are others than at the build's birth: "
            f"{', '.join(libraries[:_SHOWN_LIBRARIES])}{more}"
        )
    for table in tables:
        causes += [
            f"{table.difference.table}.{column} is {why}, and differs by more than "
            f"{tolerance_text(why)}"
            for column, why in table.left_out.items()
            if column in table.difference.changed_by_column
        ]
    causes += [
        f"view {view.table} is kept by a query that does not mean what its text means:"
        " kappa replay computes the view whole"
        for view in views
        if view.failing
    ]
    yield from causes or [
        (
            "nothing in the code explains it: other rows were written to the tables than their "
            "job's, or Kappa has folded wrongly"
        )
    ]


def doubts_of(store: Store, birth: Birth) -> tuple[str, ...]:
    """Returns the messages of the findings in a build's code.

    These are the findings of the lint, and the findings that only Spark reported and that the
    operator accepted before the build was created.
    """
    place, pipeline = load_with_place(store, birth)
    found = [
        each.message for each in code_doubts(pipeline, place, snapshot_sources(store, birth).find)
    ]
    return (
        *found,
        *(
            each
            for each in birth.accepted
            if _CODE.match(each) and not any(each.startswith(message) for message in found)
        ),
    )


_LOOK_SECONDS = 0.2


@contextmanager
def folded_again(
    settings: Settings,
    store: Store,
    log: Log,
    birth: Birth,
    cuts: Cuts,
    witnesses: Witnesses,
    on_progress: Callable[[str], None],
) -> Iterator[tuple[Store, Frontier]]:
    """Folds a build's log again, and yields the store of the fold's folder and its last frontier.

    The folder is deleted at the end of the `with` block. `cuts` are the ends of the slices.
    `witnesses` are the log's witnesses at the last of them. Raises KappaError if the fold fails,
    and NotProvable if records of the log were lost meanwhile.
    """
    place = make_folder(store.local.path(settings.verify.temp), PROVE)
    try:
        anew = Store(place)
        put_cuts(anew, cuts)
        if birth.base is not None:
            begin_from(anew, birth, store, base_frontier(store, birth))
        code, last_line = _run_child(
            settings, anew, log.bootstrap_servers, birth, cuts, on_progress
        )
        stopped, reached = read_stopped(anew, birth.build), Frontiers(anew, birth.build).newest()
        # A loss of the log meanwhile explains any other failure.
        ensure_provable(store, log, birth, cuts.ends[-1], witnesses)
        if stopped is not None:
            raise KappaError(
                f"the log of build {birth.build} could not be folded again: {stopped.message}",
                hint=stopped.hint,
            )
        if code != 0 or reached is None or not reached.offsets.equals(cuts.ends[-1]):
            raise KappaError(
                f"the log of build {birth.build} could not be folded again: "
                f"{last_line or f'the process ended with {code}'}",
                hint="kappa status shows whether all is well",
            )
        yield anew, reached
    finally:
        shutil.rmtree(place, ignore_errors=True)


def folding_text(done: int, total: int, rate: float | None, within: SliceProgress | None) -> str:
    """Describes the progress of a proof's fold: records, rate, time left, and slice. Pure."""
    if within is None and not done:
        return f"folding the log again: starting Spark, for {total:,} records"
    text = f"folding the log again: {done:,} of {total:,} records"
    if total:
        text += f" ({100 * done // total} %)"
    pace = pace_text(done, total, rate)
    text += f", {pace}" if pace else ""
    return text if within is None else f"{text}; {within.text}"


def _run_child(
    settings: Settings,
    anew: Store,
    bootstrap_servers: str,
    birth: Birth,
    cuts: Cuts,
    on_progress: Callable[[str], None],
) -> tuple[int, str]:
    """Runs the child process that folds the log, until it exits.

    Returns the exit code of the child, and the last line of its output.
    """
    command = command_of(
        "kappa.engine.children.refold",
        *project_options(settings),
        *("--bootstrap", bootstrap_servers, "--build", birth.build, "--folder", str(anew.folder)),
    )
    frontiers, total = Frontiers(anew, birth.build), cuts.ends[-1].distance(birth.begins)
    log_file = anew.path("output.log")
    with log_file.open("wb") as output:
        # The live job keeps its freshness.
        child = start_tied(command, output=output, nice=LOW_PRIORITY)
    pace = Pace()
    try:
        while child.poll() is None:
            newest = frontiers.newest()
            folded = 0 if newest is None else newest.offsets.distance(birth.begins)
            within = read_progress(anew, birth.build, newest)
            done = folded + (0 if within is None else within.read)
            on_progress(folding_text(done, total, pace.rate(done, time.monotonic()), within))
            time.sleep(_LOOK_SECONDS)
    finally:
        ensure_session_gone(child.pid)
        child.wait()
    return child.returncode, (
        log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
    )[-1]


def why_not_provable(
    birth: Birth, upto: Offsets, facts: Mapping[str, TopicFacts | None], beginning: Offsets
) -> str | None:
    """Returns the reason why a build's log cannot be folded again up to `upto`, or None. Pure.

    `facts` are the present facts about the topics (None for a missing topic), and `beginning`
    contains the first offsets of the topics.
    """
    if birth.semantics != SEMANTICS:
        return (
            f"it was folded by Kappa's rules number {birth.semantics}, and they are number "
            f"{SEMANTICS} now"
        )
    for name, born in birth.topic_ids.items():
        found = facts.get(name)
        if found is None:
            return f"topic {name} is gone"
        if found.id != born:
            return (
                f"topic {name} was re-created: its id is {found.id}, and the build has folded "
                f"the one with id {born}"
            )
    for topic, partition, end in upto.items():
        remembers = has_identity(birth.declarations.get(f"topic {topic}", ""))
        # The memory of identities follows from all records that the tables contain.
        first, begun = (
            beginning.at(topic, partition),
            (birth.origin_offsets if remembers else birth.begins).at(topic, partition),
        )
        if first > begun and end > begun:
            return (
                f"{topic} partition {partition} begins at offset {first} now, and the build "
                f"has folded it from offset {begun} on"
            )
    return None


def _base_too_old(store: Store, log: Log, birth: Birth) -> str | None:
    """Returns the reason why the base of a branch is too old for a compacted topic, or None.

    A base is too old if Kafka may have deleted tombstones that were written after the base.
    """
    if birth.base is None:
        return None
    read_at, now = base_frontier(store, birth).heard_time, datetime.now(UTC)
    compacted = (topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED)
    return next(
        filter(None, (may_be_missed(name, read_at, log.config(name), now) for name in compacted)),
        None,
    )


def ensure_provable(
    store: Store, log: Log, birth: Birth, upto: Offsets, witnesses: Witnesses
) -> None:
    """Raises NotProvable, with the reason, if a build's log cannot be folded again up to `upto`.

    `witnesses` are the log's witnesses at the build's frontier with these offsets.
    """
    facts = {name: log.facts(name) for name in birth.topic_ids}
    there = [name for name, found in facts.items() if found is not None]
    beginning = one_log(log.beginning(there), _archive_marks(store, birth)) if there else Offsets()
    why = (
        why_not_provable(birth, upto, facts, beginning)
        or _lost_end_text(log, upto, witnesses)
        or _base_too_old(store, log, birth)
    )
    if why is None:
        try:
            ensure_unchanged(store, birth)
        except Broken as error:
            why = error.message
    if why is not None:
        raise NotProvable(
            f"pipeline {birth.pipeline} is not provable: {why}",
            hint=f"kappa replay {birth.pipeline} makes a new build, of which it can be proved",
        )


def _lost_end_text(log: Log, upto: Offsets, witnesses: Witnesses) -> str | None:
    """Returns a sentence if the log has lost records that the build has folded, otherwise None."""
    lost = ", ".join(map(str, log.lost_ends(upto, witnesses)))
    return f"the log has lost its end, which the build has folded: {lost}" if lost else None


def _archive_marks(store: Store, birth: Birth) -> tuple[ArchiveMark, ...]:
    """Returns the marks of the archives of a build's topics.

    A mark says which offsets an archive covers. Returns () if there are no archives, or if the
    build's code cannot be loaded.
    """
    if not archived_topics(store):
        return ()
    try:
        return Archives(store, load_snapshot(store, birth).topics, birth.topic_ids).marks()
    except Broken:
        # The reason is reported by `ensure_unchanged`.
        return ()
