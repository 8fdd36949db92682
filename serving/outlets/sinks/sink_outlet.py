"""A running sink: sends each change set of the table to the topic as one transaction.

A transaction contains rows and the position after the rows, and Kafka commits either the whole
transaction or nothing. So when a courier has exited, the next courier continues from the position.
If that is not possible, the topic is compared with the served table, and only the rows that differ
are sent. If there are two couriers, the later courier writes, and Kafka fences the earlier courier.
Kafka also fences a courier whose transaction has taken too long, so a fenced sink checks whether
another process has sent records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.errors import KappaError
from kappa.base.log_lines import Level, write_log_line
from kappa.declare.sink import SinkBirth, row_writer
from kappa.kafka.client import Log
from kappa.kafka.transactions import Fenced, TooLarge, Transactions
from kappa.serving.outlets.changes.change_set import ChangeKind, ChangeSet
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.outlets.outlet import served_outlets
from kappa.serving.outlets.sinks.sink_position import SinkLease, SinkPosition, hash_of_part
from kappa.serving.outlets.sinks.sink_status import Sent, SinkState, put_sink_state, read_sink_state
from kappa.serving.outlets.sinks.sink_topic import (
    CURSOR,
    Message,
    differing_rows,
    digests_of_rows,
    ensure_topic,
    is_topic_allowed,
    reporting_broker_outage,
)
from kappa.serving.query.reader.reader import Limits
from kappa.state.build import Birth, is_born, read_birth
from kappa.state.store import Store

_LOOK_SECONDS = 0.25
_FIRST_SECONDS, _LONGEST_SECONDS = 0.5, 30.0
# How often a position without rows is sent: the last position leads to the same rows.
_POSITION_SECONDS = 60.0
_ID_SECONDS = 1.0
_STATE_SECONDS = 0.5
_RENEW_SECONDS = 30.0
# Time for another platform to compare the topic and to send its position.
_FENCED_SECONDS = 60.0
_SWITCHES = frozenset({ChangeKind.PROMOTE, ChangeKind.UNDO})


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The objects and limits that a sink needs.

    `store` and `log` are the project's store and the client of the broker. `keep_seconds` is the
    time for which the files of a cursor are kept. `writer` is the name under which the sinks of
    this root write. `before` contains the writer names from which this root may take over a topic:
    a copied root that was adopted may take over the topics of the original root.
    """

    store: Store
    log: Log
    keep_seconds: float
    limits: Limits | None = None
    clock: Callable[[], float] = time.time
    writer: str = ""
    before: frozenset[str] = frozenset()


class _CompareAnew(Exception):  # no error: the sink begins again with a comparison
    """The signal that the topic must be compared with the served table again.

    The reason is that the topic or the sink's declaration has changed, or that no position is
    known.
    """


class SinkOutlet:
    """Delivers the rows of a sink's table, in a thread."""

    def __init__(self, means: SinkContext, topic: str) -> None:
        self._means = means
        self._topic = topic
        self._lease = SinkLease(
            means.store, topic, keep_seconds=means.keep_seconds, clock=means.clock
        )
        self._state = SinkState(topic, "", "", "starts")
        self._position: SinkPosition | None = None
        self._is_compared = False
        self._put_at = self._sent_at = self._asked_at = self._renewed_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Delivers served rows until `stop` is set, or until no serving build declares the sink.

        While another root's sink writes to the topic, nothing is sent.
        """
        self._state = read_sink_state(self._means.store, self._topic) or self._state
        failures, fenced = 0, None
        while not stop.is_set():
            try:
                declared = self._declared_sink()
                if declared is None:
                    self._put_state("ended")
                    return
                if fenced is not None and not self._is_topic_free():
                    self._wait_fenced(fenced, stop)
                    continue
                fenced = None
                self._follow_table(*declared, stop)
                failures = 0
            except _CompareAnew:
                self._is_compared = True
            except Fenced as error:
                fenced = error
                self._wait_fenced(error, stop)
            except (KappaError, OSError) as error:
                self._put_failure(error, "retries")
                stop.wait(min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(failures, 10)))
                failures += 1

    def _wait_fenced(self, error: Fenced, stop: threading.Event) -> None:
        self._put_failure(error, "fenced")
        stop.wait(_FENCED_SECONDS)

    def _is_topic_free(self) -> bool:
        """Returns True if no other root has sent records to the topic.

        The function finds this out from the last position in the topic: no other root has sent
        records if the position belongs to this root, or if there is no position. No other process
        sends the rows of this root, because this courier has the root's lock. So if the result is
        True, Kafka has fenced this sink because of a courier that has exited, or because the sink's
        last transaction took too long.
        """
        with self._open_transactions() as transactions:
            position = SinkPosition.parse(transactions.position())
        if position is None or str(position.cursor) == self._state.cursor:
            return True
        # A copy of this root has the same builds, and another name.
        return position.writer == self._means.writer and is_born(
            self._means.store, position.cursor.build
        )

    def _open_transactions(self) -> Transactions:
        return self._means.log.transactions(self._topic, self._means.writer)

    def _fence_other_root(self, other: str, birth: Birth) -> None:
        """Makes Kafka fence the sink of another root, which has sent records so far.

        `other` is the name under which that root writes. Raises KappaError if this root may not
        take the topic over.
        """
        if other not in self._means.before and not is_topic_allowed(birth, self._topic):
            raise KappaError(
                f"topic {self._topic} is written by another root, {other or 'the first one'}",
                hint="give the sink a topic of its own; or, once that root sends no more, let it "
                f"have this one: kappa deploy --allow 'sink:{self._topic}=REASON'",
            )
        with self._means.log.transactions(self._topic, other) as transactions:
            transactions.begin()

    def _declared_sink(self) -> tuple[Birth, SinkBirth] | None:
        """Returns the birth certificate of the serving build that declares the sink, and the sink.

        Returns None if no serving build declares this sink.
        """
        birth = served_outlets(self._means.store).get(f"sink {self._topic}")
        sink = None if birth is None else self._sink_in(birth)
        return None if birth is None or sink is None else (birth, sink)

    def _sink_in(self, birth: Birth) -> SinkBirth | None:
        return next((sink for sink in birth.sinks if sink.topic == self._topic), None)

    def _follow_table(self, birth: Birth, sink: SinkBirth, stop: threading.Event) -> None:
        """Sends the table's changes until `stop` is set or no serving build declares the sink."""
        self._state = replace(self._state, table=sink.of, pipeline=birth.pipeline, state="starts")
        topic_id = ensure_topic(self._means.log, birth, sink)
        self._means.store.control.ensure_mine()
        with self._open_transactions() as transactions:
            position = SinkPosition.parse(transactions.begin())
            if position is not None and position.writer != self._means.writer:
                self._fence_other_root(position.writer, birth)
                # The other root may have sent more meanwhile: the topic is compared.
                position = None
            if position is None or position.topic_id != topic_id or self._is_compared:
                position = None
            else:
                self._lease.resume_cursor(position.cursor)
            self._lease.release_other_cursors(None if position is None else position.cursor)
            self._position = position
            follower = Follower(
                self._means.store,
                sink.of,
                since=None if position is None else position.cursor,
                limits=self._means.limits,
                clock=self._means.clock,
            )
            self._asked_at = self._sent_at = time.monotonic()
            while not stop.is_set() and self._send_next_change_set(
                follower, sink, transactions, topic_id
            ):
                follower.wait_for_change(_LOOK_SECONDS)

    def _send_next_change_set(
        self, follower: Follower, sink: SinkBirth, transactions: Transactions, topic_id: str
    ) -> bool:
        """Sends the next change set of the table, if there is a change set.

        Returns False if no serving build declares the sink any more.
        """
        looked_at = self._means.clock()
        with follower.next_change_set() as change_set:
            if change_set is not None:
                birth = read_birth(self._means.store, change_set.head.cursor.build)
                found = self._sink_in(birth)
                if found is None:
                    # The version that serves now lacks this sink: the change set is for others.
                    return False
                if found.of != sink.of:
                    raise _CompareAnew
                self._send_change_set(change_set, found, birth, transactions, topic_id)
        if not follower.is_served:
            return False
        # The topic has all rows that were served then.
        self._state = replace(self._state, current_at=looked_at)
        self._maintain_position(topic_id)
        return True

    def _send_change_set(
        self,
        change_set: ChangeSet,
        sink: SinkBirth,
        birth: Birth,
        transactions: Transactions,
        topic_id: str,
    ) -> None:
        head = change_set.head
        if not head.keys:
            raise KappaError(
                f"{sink.of} has no keys in build {head.cursor.build}, and a compacted topic has a "
                "record for each key",
                hint=f"give {sink.of} its keys again, or take sink {self._topic} out",
            )
        part = hash_of_part(sink, head.keys)
        known = self._position
        is_compared = head.starts_over or known is None or known.part != part
        if is_compared and not head.starts_over:
            raise _CompareAnew
        chosen = Filter(sink.columns, sink.where)
        written = row_writer(sink.format, chosen.shown_columns(head.columns, head.keys))
        rows: Iterable[Message] = (
            (key.encode(), None if value is None else written(value))
            for key, value in change_set.key_and_row_messages(chosen)
        )
        if is_compared:
            there, foreign = digests_of_rows(
                self._means.log, self._topic, take_over=is_topic_allowed(birth, self._topic)
            )
            if foreign:
                write_log_line(
                    f"sink {self._topic}: {foreign} rows that no sink has written are made good"
                )
            rows = differing_rows(there, rows)
        messages = iter(rows)
        first = next(messages, None)
        waited = time.monotonic() - self._sent_at
        is_due = is_compared or head.kind in _SWITCHES or waited > _POSITION_SECONDS
        if first is None and not is_due:
            return
        self._lease.keep_cursor(head.cursor)
        counted = _CountedMessages(chain(() if first is None else (first,), messages))
        position = SinkPosition(head.cursor, part, topic_id, self._means.writer)
        with reporting_broker_outage(self._means.log, partial(self._put_failure, state="retries")):
            try:
                transactions.send(counted, {CURSOR: str(head.cursor).encode()}, str(position))
            except TooLarge as error:
                raise KappaError(f"table {sink.of}: {error.message}", hint=error.hint) from None
        self._position, self._sent_at = position, time.monotonic()
        self._is_compared = False
        if known is not None and known.cursor != head.cursor:
            self._lease.release_cursor(known.cursor)
        # A long transaction may have outlasted the follower's own lease.
        self._lease.resume_cursor(head.cursor)
        self._note_sent(change_set, counted)

    def _maintain_position(self, topic_id: str) -> None:
        """Renews the lease on the position, and records the state of the sink.

        Raises _CompareAnew if the topic was deleted or created again.
        """
        at = time.monotonic()
        if self._position is not None and at - self._renewed_at > min(
            _RENEW_SECONDS, self._means.keep_seconds / 3
        ):
            self._lease.renew_cursor(self._position.cursor)
            self._renewed_at = at
        if at - self._asked_at > _ID_SECONDS:
            facts = self._means.log.facts(self._topic)
            self._asked_at = at
            if facts is None or facts.id != topic_id:
                raise _CompareAnew
        if at - self._put_at > _STATE_SECONDS or self._state.error:
            self._put_state("follows")

    def _note_sent(self, change_set: ChangeSet, counted: _CountedMessages) -> None:
        head = change_set.head
        sent = Sent(
            str(head.kind),
            head.cursor.generation,
            str(head.cursor),
            counted.written,
            counted.deleted,
            now(),
        )
        self._state = replace(
            self._state,
            cursor=str(head.cursor),
            written=self._state.written + counted.written,
            deleted=self._state.deleted + counted.deleted,
            last=sent,
            switch=sent if head.kind in _SWITCHES else self._state.switch,
        )
        if head.kind in _SWITCHES:
            self._put_state("follows")

    def _put_state(self, state: str) -> None:
        self._put_at = time.monotonic()
        self._state = replace(self._state, state=state, error="", hint="", error_at="")
        put_sink_state(self._means.store, self._state)

    def _put_failure(self, error: KappaError | OSError, state: str) -> None:
        told = error if isinstance(error, KappaError) else KappaError(str(error))
        if (told.message, state) != (self._state.error, self._state.state):
            write_log_line(f"sink {self._topic}: {told}", Level.WARN)
        self._state = replace(
            self._state, state=state, error=told.message, hint=told.hint, error_at=now()
        )
        try:
            put_sink_state(self._means.store, self._state)
        except (KappaError, OSError) as also:
            # A full disk, which was just told of.
            write_log_line(f"sink {self._topic}: its state cannot be written: {also}", Level.WARN)


class _CountedMessages:
    """An iterator over messages that counts them."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = messages
        self.written = self.deleted = 0

    def __iter__(self) -> Iterator[Message]:
        for message in self._messages:
            if message[1] is None:
                self.deleted += 1
            else:
                self.written += 1
            yield message
