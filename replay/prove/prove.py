"""A proof: the log of the build that serves is folded again, in other slices, and must give the rows that stand in its tables.

It begins at the build's recorded origin and ends exactly at a frontier of the build, which a lease keeps meanwhile (law 15). It
runs in a child process (kappa/engine/children/refold.py) and into a folder of its own, so nothing that serves is touched; who dies in it
leaves that folder and a lease that ends. What it found is appended to the journal. Where the log, the code or Kappa's rules
are not any more what the build was made of, nothing can be proved, and it says why. Read next: equality.py, proof_text.py.
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal, Protocol

from kappa.base.errors import Broken, KappaError, NotProvable, UsageError
from kappa.base.process import ensure_session_gone, start_tied
from kappa.base.settings import Settings
from kappa.code.artifact import ensure_unchanged, load_snapshot, load_with_place, snapshot_sources
from kappa.code.declaration import has_identity
from kappa.code.semantics import SEMANTICS
from kappa.declare.topic import TopicKind
from kappa.engine.read.archived import Archives
from kappa.journal.journal import Count, Journal, Proved, Record
from kappa.log.client import TopicFacts
from kappa.records.tombstones import may_be_missed
from kappa.state.build import Birth
from kappa.state.cuts import Cuts, put_cuts
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.slices import cut, even_ends, random_ends
from kappa.state.stopped import read_stopped
from kappa.state.store import Store
from kappa.tables.archive import FOLDER, ArchiveMark, one_log
from kappa.tables.branch import base_frontier, begin_from
from replay.plan.observe import doubts
from replay.prove.equality import Compared, compare_tables, hash_before
from replay.rollout.fold import fold
from replay.rollout.libraries import changed_libraries, installed_libraries
from replay.rollout.state import State
from replay.verify.diff import tallied
from replay.verify.diff_listing import differing
from replay.verify.left_out import within
from replay.verify.unsettled import KeyLog, unsettled_keys
from serving.pin.catalog import PinnedSnapshot, pin_build
from serving.query.pair import connect_pair
from serving.query.reader import Limits
from serving.query.spill import PROVE, make_folder

# Others go before it: the live job keeps its freshness.
_NICE = 5
_LOOK_SECONDS = 0.2
# Of a random cut, every other slice is followed by one as small as in a quiet tail.
_SMALL = 50
# Rows of each kind that are shown of a table.
_SAMPLES = 5
_SHOWN_LIBRARIES = 3
_CODE = re.compile(r"\S+\.py:\d+ uses ")


class ProofLog(KeyLog, Protocol):
    """What is asked of Kafka (kappa/log/client.py has it)."""

    @property
    def bootstrap_servers(self) -> str: ...  # noqa: D102  # as in Log

    def beginning(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def config(self, name: str) -> Mapping[str, str]: ...  # noqa: D102  # as in Log


@dataclass(frozen=True, slots=True)
class Cutting:
    """How the log is cut: at random (from a seed), evenly in `count` slices, or not at all, one slice read and computed by Spark as a batch job."""

    how: Literal["random", "even", "one"]
    count: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found, as the journal has it, and each table's part in it."""

    record: Record
    birth: Birth
    tables: tuple[Compared, ...]

    @property
    def proved(self) -> Proved:
        """What was found."""
        assert isinstance(self.record.event, Proved)
        return self.record.event


# Each is planned before the first is folded.
_NUMBER = re.compile(r"[1-9][0-9]{0,5}|1000000")


def cutting(slices: str, seed: int | None) -> Cutting:
    """How the log shall be cut, as it was typed: `random`, `one`, or a number. Raises UsageError where it is none of them."""
    if slices == "random":
        return Cutting(
            "random", seed=random.SystemRandom().getrandbits(32) if seed is None else seed
        )
    if seed is not None:
        raise UsageError(
            f"a seed was given, and --slices {slices} needs none",
            hint="leave --seed out, or cut at random: --slices random",
        )
    if slices == "one":
        return Cutting("one")
    if _NUMBER.fullmatch(slices) is None:
        raise UsageError(
            f"--slices {slices!r} is no way to cut the log",
            hint="say random, one, or how many slices, a million at most: --slices 20",
        )
    return Cutting("even", int(slices))


def prove(
    settings: Settings,
    store: Store,
    log: ProofLog,
    pipeline: str,
    how: Cutting,
    *,
    on_progress: Callable[[str], None],
) -> Proof:
    """Folds the log of a pipeline's serving build again and compares; what it finds is in the journal when this returns.

    Raises UsageError where no such pipeline serves, NotProvable with the reason where nothing can be proved, and Conflict
    where the build's tables were not kept to the end.
    """
    build = _served(fold(Journal(store).after(0)), pipeline)
    with pin_build(store, build, lease_seconds=settings.rollout.lease_seconds) as pinned:
        birth, frontier = pinned.snapshot.births[build], pinned.snapshot.frontiers[build]
        _ensure_provable(store, log, birth, frontier.offsets)
        cuts = cut_as(
            how,
            birth.begins,
            frontier.offsets,
            slice_records=settings.engine.slice_records,
            driver_rows=settings.engine.driver_rows,
        )
        with _folded_again(settings, store, log, birth, cuts, on_progress) as (anew, again):
            on_progress("comparing")
            tables, counts = _compared(settings, store, log, pinned, anew, again)
    equal = all(table.equal for table in tables) and not differing(counts)
    causes = (
        ()
        if equal
        else tuple(
            likely_causes(
                doubts_of(store, birth),
                changed_libraries(birth.libraries, installed_libraries()),
                tables,
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
    )
    return Proof(keep_proof(store, found), birth, tables)


def cut_as(
    how: Cutting, start: Offsets, end: Offsets, *, slice_records: int, driver_rows: int
) -> Cuts:
    """Where the log is cut. At random the largest quarter of the slices, or more, is read and computed by Spark, and none is larger than `slice_records`. Pure."""
    match how.how:
        case "one":
            return Cuts((end,), 0)
        case "even":
            return Cuts(even_ends(start, end, how.count), driver_rows)
        case "random":
            drawn = random_ends(start, end, random.Random(how.seed), small=_SMALL)  # noqa: S311  # the same cuts again, and no secret
            ends = [
                after
                for one, other in pairwise([start, *drawn])
                for after in (
                    [piece.end for piece in cut(1, one, other, at_most=slice_records)] or [other]
                )
            ]
            sizes = [other.distance(one) for one, other in pairwise([start, *ends])]
            return Cuts(tuple(ends), min(driver_rows, sorted(sizes)[len(sizes) * 3 // 4]))


def why_not_provable(
    birth: Birth, upto: Offsets, facts: Mapping[str, TopicFacts | None], beginning: Offsets
) -> str | None:
    """Why what a build holds at `upto` cannot be folded again from its topics as they are now; None where it can. Pure."""
    if birth.semantics != SEMANTICS:
        return f"it was folded by Kappa's rules number {birth.semantics}, and they are number {SEMANTICS} now"
    for name, born in birth.topic_ids.items():
        found = facts.get(name)
        if found is None:
            return f"topic {name} is gone"
        if found.id != born:
            return f"topic {name} was re-created: its id is {found.id}, and the build has folded the one with id {born}"
    for topic, partition, end in upto.items():
        remembers = has_identity(birth.declarations.get(f"topic {topic}", ""))
        # What is remembered of identities follows from all that the tables hold.
        first, begun = (
            beginning.at(topic, partition),
            (birth.origin_offsets if remembers else birth.begins).at(topic, partition),
        )
        if first > begun and end > begun:
            return f"{topic} partition {partition} begins at offset {first} now, and the build has folded it from offset {begun} on"
    return None


def _base_too_old(store: Store, log: ProofLog, birth: Birth) -> str | None:
    """Why what a branch's base holds of a compacted topic cannot be gone on with any more; None where it can."""
    if birth.base is None:
        return None
    read_at, now = base_frontier(store, birth).heard, datetime.now(UTC)
    compacted = (topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED)
    return next(
        filter(None, (may_be_missed(name, read_at, log.config(name), now) for name in compacted)),
        None,
    )


def likely_causes(
    found: Iterable[str], libraries: tuple[str, ...], tables: Iterable[Compared]
) -> Iterator[str]:
    """What may explain that tables differ, likeliest first: what the lint finds in the code, libraries, the order of additions. Pure."""
    causes = list(found)
    if libraries:
        more = (
            f" and {len(libraries) - _SHOWN_LIBRARIES} more"
            if len(libraries) > _SHOWN_LIBRARIES
            else ""
        )
        causes.append(
            f"libraries are others than at the build's birth: {', '.join(libraries[:_SHOWN_LIBRARIES])}{more}"
        )
    for table in tables:
        causes += [
            f"{table.difference.table}.{column} is {why}, and differs by more than {within(why)}"
            for column, why in table.left_out.items()
            if column in table.difference.changed_by_column
        ]
    yield from causes or [
        "nothing in the code explains it: other rows were written to the tables than their job's, or Kappa has folded wrongly"
    ]


def doubts_of(store: Store, birth: Birth) -> tuple[str, ...]:
    """What the lint finds in a build's own code, and what Spark found when it was planned and was let through."""
    place, pipeline = load_with_place(store, birth)
    found = [each.message for each in doubts(pipeline, place, snapshot_sources(store, birth).find)]
    return (
        *found,
        *(
            each
            for each in birth.accepted
            if _CODE.match(each) and not any(each.startswith(message) for message in found)
        ),
    )


def keep_proof(store: Store, found: Proved) -> Record:
    """Appends what was found to the journal, whatever else is being appended."""
    journal, state = Journal(store), State()
    while True:
        state = fold(journal.after(state.last), state)
        record = journal.append(state.last + 1, found)
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


def _ensure_provable(store: Store, log: ProofLog, birth: Birth, upto: Offsets) -> None:
    facts = {name: log.facts(name) for name in birth.topic_ids}
    there = [name for name, found in facts.items() if found is not None]
    beginning = one_log(log.beginning(there), _archived(store, birth)) if there else Offsets()
    why = why_not_provable(birth, upto, facts, beginning) or _base_too_old(store, log, birth)
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


def _archived(store: Store, birth: Birth) -> tuple[ArchiveMark, ...]:
    """What the archives of a build's topics hold."""
    if not store.path(FOLDER).is_dir():
        return ()
    try:
        return Archives(store, load_snapshot(store, birth).topics, birth.topic_ids).marks()
    except Broken:
        # Why it cannot be loaded is said where that is looked at.
        return ()


@contextmanager
def _folded_again(
    settings: Settings,
    store: Store,
    log: ProofLog,
    birth: Birth,
    cuts: Cuts,
    on_progress: Callable[[str], None],
) -> Iterator[tuple[Store, Frontier]]:
    """The place and the frontier of what the log gives again; both are gone afterwards."""
    place = make_folder(store.path(settings.verify.temp), PROVE)
    try:
        anew = Store(place)
        put_cuts(anew, cuts)
        if birth.base is not None:
            begin_from(anew, birth, store, base_frontier(store, birth))
        code, said = _run(settings, anew, log.bootstrap_servers, birth, cuts, on_progress)
        stopped, reached = read_stopped(anew, birth.build), Frontiers(anew, birth.build).newest()
        # What was lost of the log meanwhile explains whatever else was said.
        _ensure_provable(store, log, birth, cuts.ends[-1])
        if stopped is not None:
            raise KappaError(
                f"the log of build {birth.build} could not be folded again: {stopped.message}",
                hint=stopped.hint,
            )
        if code != 0 or reached is None or not reached.offsets.equals(cuts.ends[-1]):
            raise KappaError(
                f"the log of build {birth.build} could not be folded again: {said or f'the process ended with {code}'}",
                hint="kappa status shows whether all is well",
            )
        yield anew, reached
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(
    settings: Settings,
    anew: Store,
    bootstrap_servers: str,
    birth: Birth,
    cuts: Cuts,
    on_progress: Callable[[str], None],
) -> tuple[int, str]:
    """Runs the child to its end; gives its exit code and its last words."""
    # -P: what lies in the user's folder must not be imported instead of a library of the same name.
    command = [
        sys.executable,
        "-P",
        "-m",
        "kappa.engine.children.refold",
        "--project",
        str(settings.project),
        "--root",
        settings.root_url,
    ]
    command += [
        "--bootstrap",
        bootstrap_servers,
        "--build",
        birth.build,
        "--folder",
        str(anew.folder),
    ]
    frontiers, total = Frontiers(anew, birth.build), cuts.ends[-1].distance(birth.begins)
    words = anew.path("said.log")
    with words.open("wb") as output:
        child = start_tied(command, output=output, nice=_NICE)
    try:
        while child.poll() is None:
            newest = frontiers.newest()
            folded = 0 if newest is None else newest.offsets.distance(birth.begins)
            on_progress(
                f"{folded:,} of {total:,} offsets folded again, in {len(cuts.ends):,} slices"
            )
            time.sleep(_LOOK_SECONDS)
    finally:
        ensure_session_gone(child.pid)
        child.wait()
    return child.returncode, (
        words.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
    )[-1]


def _compared(
    settings: Settings,
    store: Store,
    log: ProofLog,
    pinned: PinnedSnapshot,
    anew: Store,
    again: Frontier,
) -> tuple[tuple[Compared, ...], tuple[Count, ...]]:
    birth, frontier = pinned.snapshot.births[again.build], pinned.snapshot.frontiers[again.build]
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
            unsettled=lambda table: unsettled_keys(log, birth, table, frontier.offsets),
            samples=_SAMPLES,
        )
    pinned.confirm()
    # Of a compacted topic records may be gone that were there once.
    retained = {topic.name for topic in birth.topics if topic.kind != TopicKind.COMPACTED}
    return tables, tuple(count for count in tallied(frontier, again) if count.topic in retained)
