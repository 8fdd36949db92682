"""The second fold of a build's log for a proof, and whether that fold is possible.

The fold runs in a child process (kappa/engine/children/refold.py) and in a separate folder. The
fold is possible while the build's code, rules and log still exist.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

from kappa.base.errors import Broken, KappaError, NotProvable
from kappa.base.process import LOW_PRIORITY, ensure_session_gone, start_tied
from kappa.base.program import command_of, project_options
from kappa.base.scratch import PROVE, make_folder
from kappa.base.settings import Settings
from kappa.base.units import pace_text
from kappa.code.code_snapshot import ensure_unchanged, load_snapshot
from kappa.code.declaration import has_identity
from kappa.code.fingerprint import SEMANTICS
from kappa.declare.topic_options import TopicKind
from kappa.engine.read.archived import Archives
from kappa.kafka.cluster import TopicFacts
from kappa.records.tombstones import may_be_missed
from kappa.replay.rollout.supervisor_report import Pace
from kappa.replay.rollout.verify.unsettled_keys import KeyLog
from kappa.state.build import Birth
from kappa.state.build_status import SliceProgress, read_progress, read_stopped
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.slices import Cuts, put_cuts
from kappa.state.store import Store
from kappa.state.witness import Witnesses
from kappa.tables.archive import ArchiveMark, LogEnds, archived_topics, one_log
from kappa.tables.branch import base_frontier, begin_from

_LOOK_SECONDS = 0.2


@contextmanager
def folded_again(
    settings: Settings,
    store: Store,
    log: ProofLog,
    birth: Birth,
    cuts: Cuts,
    witnesses: Witnesses,
    on_progress: Callable[[str], None],
) -> Iterator[tuple[Store, Frontier]]:
    """Yields the folder and the frontier of the second fold; both are deleted afterwards.

    `witnesses` are the log's witnesses at the last cut.
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
    """Returns the progress of the second fold: records, rate, time left, and slice. Pure."""
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
    """Runs the child to the end; returns the exit code and the last line of the log."""
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


class ProofLog(KeyLog, LogEnds, Protocol):
    """The part of Kafka's client that a proof needs (kappa/kafka/client.py)."""

    @property
    def bootstrap_servers(self) -> str: ...  # noqa: D102  # as in Log

    def beginning(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def config(self, name: str) -> Mapping[str, str]: ...  # noqa: D102  # as in Log


def why_not_provable(
    birth: Birth, upto: Offsets, facts: Mapping[str, TopicFacts | None], beginning: Offsets
) -> str | None:
    """Returns why the topics cannot give a build at `upto` again, or None. Pure."""
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


def _base_too_old(store: Store, log: ProofLog, birth: Birth) -> str | None:
    """Returns why a branch's base is too old for a compacted topic, or None."""
    if birth.base is None:
        return None
    read_at, now = base_frontier(store, birth).heard_time, datetime.now(UTC)
    compacted = (topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED)
    return next(
        filter(None, (may_be_missed(name, read_at, log.config(name), now) for name in compacted)),
        None,
    )


def ensure_provable(
    store: Store, log: ProofLog, birth: Birth, upto: Offsets, witnesses: Witnesses
) -> None:
    """Raises NotProvable, with the reason, if a build cannot be folded again up to `upto`.

    `witnesses` are the log's witnesses at the build's frontier there.
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


def _lost_end_text(log: ProofLog, upto: Offsets, witnesses: Witnesses) -> str | None:
    """Returns the ends that the log has lost since the build folded the offsets, or None."""
    lost = ", ".join(map(str, log.lost_ends(upto, witnesses)))
    return f"the log has lost its end, which the build has folded: {lost}" if lost else None


def _archive_marks(store: Store, birth: Birth) -> tuple[ArchiveMark, ...]:
    """Returns the marks of the archives of a build's topics."""
    if not archived_topics(store):
        return ()
    try:
        return Archives(store, load_snapshot(store, birth).topics, birth.topic_ids).marks()
    except Broken:
        # The reason is reported by `ensure_unchanged`.
        return ()
