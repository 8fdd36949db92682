"""Checks that the topics of a build are unchanged, and that the build misses no record.

The topics must have the same ids as at the build's birth. They must still contain the last records
that the build has folded, and the next records that the build will read. Also, the build must not
have missed a deletion: a compacted topic keeps a tombstone only for a limited time, so a build that
was stopped for longer may have missed the deletion of a key.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from kappa.base.clock import now
from kappa.base.errors import Broken
from kappa.declare.topic_options import TopicKind
from kappa.engine.read.archive_reader import Archives
from kappa.kafka.client import Log
from kappa.records.tombstones import may_be_missed
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.kept_frontiers import parse_moment
from kappa.state.offsets import Offsets, lost_ranges
from kappa.state.witness import LogCutError, LostEnd, Witnesses, leader_changed, offsets_before_cut
from kappa.tables.archive import one_log

# The ends of compacted topics are asked for at most this often.
_HEARD_SECONDS = 60.0


class TopicGuard:
    """The checks of one build's topics: the topics' ids, their records, and missed deletions."""

    def __init__(
        self,
        birth: Birth,
        log: Log,
        archives: Archives,
        *,
        heard_seconds: float = _HEARD_SECONDS,
    ) -> None:
        """Stores the build, the log and the archives.

        The ends of compacted topics are requested at most once in `heard_seconds` seconds.
        """
        self._birth = birth
        self._log = log
        self._archives = archives
        self._heard_seconds = heard_seconds
        self._compacted = sorted(
            topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED
        )
        # Ends of the compacted topics that are not read yet, with the time of each end, the oldest
        # first.
        self._to_hear: deque[tuple[str, Offsets]] = deque()
        self._asked_at = -math.inf

    def check_topics(self) -> None:
        """Raises Broken if a topic does not exist, or has another id than at the build's birth.

        A topic that was created again has another id.
        """
        for name, born in self._birth.topic_ids.items():
            facts = self._log.facts(name)
            if facts is None or facts.id != born:
                what = "is gone" if facts is None else f"was re-created: its id is {facts.id}"
                raise Broken(
                    f"topic {name} {what}, and build {self._birth.build} has folded the one with "
                    f"id {born}",
                    hint=f"kappa replay {self._birth.pipeline} makes a new build from the topic "
                    "that is there",
                )

    def check_kept(self, start: Offsets) -> None:
        """Raises Broken if records after `start` are lost.

        A record is lost if neither the topic nor an archive contains it any more, because retention
        has deleted it before the build has read it.
        """
        lost = self.lost_by_topics(start) and lost_ranges(
            start, one_log(self._beginning(), self._archives.marks())
        )
        if lost:
            raise Broken(
                f"the log no longer has what build {self._birth.build} was about to read: "
                f"{', '.join(lost)}",
                hint=f"kappa replay {self._birth.pipeline} --accept-gap makes a new build from "
                "what is there; a longer retention.ms keeps it",
            )

    def check_end(self, last: Frontier) -> None:
        """Raises LogCutError if the log has lost records before the frontier `last`.

        The build has already folded these records. Other records may since have got the same
        offsets, so the build cannot continue.
        """
        lost = self._log.lost_ends(last.offsets, last.witnesses)
        if lost:
            raise log_cut(self._birth, last.offsets, lost)

    def witnessed(self, last: Frontier, found: Witnesses) -> Witnesses:
        """Checks the log if a partition has a new leader, and returns the witnesses `found`.

        `found` contains the witnesses of the slice after the frontier `last`. A partition loses its
        last records only when its leader changes, so the log is read only if the slice has records
        of another leader. Raises LogCutError if the log has lost records before the frontier
        `last`.
        """
        if leader_changed(last.witnesses, found):
            self.check_end(last)
        return found

    def explain(self, last: Frontier) -> None:
        """Raises the cause of a reader's error, if the cause is a loss of records.

        Raises LogCutError if the log has lost records before the frontier `last`, and Broken if
        records after that frontier are lost.
        """
        if last.witnesses:
            self.check_end(last)
        self.check_kept(last.offsets)

    def lost_by_topics(self, start: Offsets) -> tuple[str, ...]:
        """Returns a text for each partition in which the topic has lost offsets after `start`.

        Offsets that an archive still contains also count as lost.
        """
        return lost_ranges(start, self._beginning())

    def wants_archive(self, start: Offsets) -> bool:
        """Returns True if the next records after `start` are only in archives.

        A tail cannot read these records.
        """
        return bool(self._archives.marks() and self.lost_by_topics(start))

    def check_heard(self, last: Frontier | None, now: datetime) -> None:
        """Raises Broken if the build may have missed deletions in a compacted topic.

        The build may have missed deletions if it was stopped for too long, or if it reads too
        slowly. If the build has read all records of a topic, it has missed no deletion in this
        topic. `last` is the build's newest frontier, or None before the first slice; then nothing
        is checked.
        """
        if last is None:
            return
        for name in (
            name
            for name in self._compacted
            if self._log.end([name]).distance(last.offsets.only({name})) > 0
        ):
            missed = may_be_missed(name, last.heard_time, self._log.config(name), now)
            if missed is not None:
                raise Broken(
                    f"build {self._birth.build} was away for too long, or reads too slowly: "
                    f"{missed}",
                    hint=f"kappa replay {self._birth.pipeline} makes a new build from the log's "
                    "beginning; a longer delete.retention.ms keeps tombstones",
                )

    def check_still_heard(self, last: Frontier, now: datetime) -> None:
        """Calls `check_heard`, unless the build has recently read all deletions.

        This method is called before each micro-batch, since the broker may have delayed the
        micro-batch. If the frontier `last` shows that the build has recently read all deletions, no
        request is sent to the broker.
        """
        behind = (now - parse_moment(last.heard_time)).total_seconds()
        if self._compacted and behind >= 2 * self._heard_seconds:
            self.check_heard(last, now)

    def heard_with(self, last: Frontier, read: Offsets) -> str | None:
        """Returns a time up to which the build has read all records of its compacted topics.

        `read` contains the offsets that the build reaches with the current slice. They cover all
        records that were in these topics at the returned time. Returns None if no later time is
        known than the time in the frontier `last`.
        """
        heard: str | None = None
        if (
            self._compacted
            and time.monotonic() - self._asked_at >= self._heard_seconds
            and (datetime.now(UTC) - parse_moment(last.heard_time)).total_seconds()
            >= self._heard_seconds
        ):
            self._asked_at = time.monotonic()
            # While records keep arriving no build is ever at the newest end, but a build is past
            # many older ends.
            self._to_hear.append((now(), self._log.end(self._compacted)))
        while self._to_hear and read.covers(self._to_hear[0][1]):
            heard, _ = self._to_hear.popleft()
        return heard

    def _beginning(self) -> Offsets:
        return self._log.beginning([topic.name for topic in self._birth.topics])


def log_cut(birth: Birth, end: Offsets, lost: Sequence[LostEnd]) -> LogCutError:
    """Returns the error for a build whose log has lost records that the build has folded.

    The build has folded the log up to `end`. `lost` describes each partition with lost records.
    """
    same = offsets_before_cut(end, lost)
    branch = (
        ""
        if same is None
        else f"; kappa branch {birth.pipeline} --from {','.join(str(same).split())} keeps what was "
        "folded before"
    )
    return LogCutError(
        f"the log has lost its end, which build {birth.build} has folded: "
        f"{', '.join(map(str, lost))}",
        hint=f"kappa replay {birth.pipeline} makes a new build from the log that is there{branch}",
        topics=(each.topic for each in lost),
    )
