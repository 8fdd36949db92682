"""The delivery of an alert's messages, step by step.

A step has at most one effect outside the process. A step tries to deliver the next message of the
outbox. A message that needs no further attempt is settled. When all messages are settled, a step
puts the messages of the next change set into the outbox. If the process exits at any point, the
next process continues from the stored documents. So no message is lost, and a message is sent again
if the receiver's answer was lost. While a receiver does not answer, no change set is processed.
When the receiver answers again, the next change set contains the net changes of the whole period
without an answer.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from msgspec.structs import replace

from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.base.log_lines import Level, write_log_line
from kappa.base.sections import AlertSettings, seconds_of
from kappa.base.settings import Settings
from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.alerts.channels import Attempted, Channel, Outcome, channel_of
from kappa.serving.outlets.alerts.message import Message, missed_message, row_messages, time_as_text
from kappa.serving.outlets.alerts.outbox import (
    AlertProgress,
    DeadLetter,
    Missed,
    Outbox,
    delete_dead_letter,
    delete_request_to_send_again,
    ids_to_send_again,
    put_alert_progress,
    put_dead_letter,
    put_outbox,
    read_alert_progress,
    read_dead_letter,
    read_outbox,
)
from kappa.serving.outlets.changes.change_set import ChangeCounts, ChangeSet
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.outlets.outlet import served_outlets
from kappa.serving.query.reader.reader import Limits
from kappa.state.build import read_birth
from kappa.state.store import Store

_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 300.0
# A place at which nothing had to be sent is put so often.
_PLACE_SECONDS = 5.0
# The thread looks so often for a stop, for another declaration, and for dead letters.
_LOOK_SECONDS = 0.5
_FIRST_SECONDS, _LONGEST_SECONDS = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits of the delivery of an alert.

    `patience` is the time in seconds for which Kappa tries to deliver a message. `keep` is the time
    in seconds for which the files of the alert's cursor are kept. `most` is the largest number of
    rows of a change set for which separate messages are sent.
    """

    patience: float = 3600.0
    keep: float = 86_400.0
    most: int = 100

    @classmethod
    def of(cls, settings: AlertSettings) -> Self:
        """Returns the limits that the settings contain."""
        return cls(seconds_of(settings.patience), seconds_of(settings.keep), settings.most)


def next_attempt(
    tries: int,
    *,
    first: float,
    now: float,
    asked: float,
    patience: float,
    draw: Callable[[], float],
) -> float | None:
    """Returns the time of the next attempt, or None if the message must be given up.

    `tries` is the number of attempts so far. The wait doubles from one second to five minutes. A
    random part of the wait, at most half, is subtracted, so that alerts that failed together are
    not tried again together. `draw` returns a random number between 0 and 1. `asked` is the number
    of seconds that the receiver has asked the sender to wait; a longer wait than usual is granted.
    The last attempt is made when `patience` seconds have passed since the `first` attempt. Times
    are in seconds since 1970.
    """
    end = first + patience
    if now >= end:
        return None
    # A greater power is no float any more.
    doubled = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0 ** min(tries - 1, 20))
    return min(end, now + max(asked, doubled * (0.5 + 0.5 * draw())))


class MessageDelivery(ABC):
    """The delivery of the messages of an alert, or of notices, step by step.

    The documents of the delivery are stored under `name`. Subclasses create the messages. The
    object may be used by only one process, and by one thread at a time.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        channel: Channel,
        rules: Rules,
        *,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        """Reads the stored documents under `name`, to continue from their state."""
        self._store = store
        self._name = name
        self._channel = channel
        self._rules = rules
        self._clock = clock
        self._draw = draw
        self._outbox = read_outbox(store, name)
        self._progress = read_alert_progress(store, name)

    @abstractmethod
    def take_messages(self) -> None:
        """Puts the next messages into the outbox, if there are any.

        This method is called only when no message in the outbox needs a further attempt.
        """

    def take_step(self) -> float | None:
        """Takes one step of the delivery, and returns the seconds until the next step.

        A step tries to deliver one message, or puts new messages into the outbox. Returns None if
        there is nothing to do until a change occurs, for example a new change set. Raises the
        errors of `take_messages`.
        """
        if asked := ids_to_send_again(self._store, self._name):
            self._send_dead_letter(asked[0])
            return 0.0
        messages = () if self._outbox is None else self._outbox.messages
        settled = self._settled_count()
        if settled < len(messages):
            due = self._progress.next_try_at if self._progress.tries else 0.0
            now = self._clock()
            # If the clock was set back, the message is due at once.
            if now < due <= now + self._rules.patience:
                return due - now
            self._deliver_message(messages[settled], settled)
            return 0.0
        self.take_messages()
        return 0.0 if self.unsettled_count else None

    def report_error(self, error: str) -> None:
        """Stores the reason why no messages can be delivered, for display.

        An empty text means that the delivery works again.
        """
        if error != self._progress.error:
            self._put_progress(replace(self._progress, error=error))

    @property
    def unsettled_count(self) -> int:
        """Returns the number of messages in the outbox that need a further attempt."""
        return 0 if self._outbox is None else len(self._outbox.messages) - self._settled_count()

    def _settled_count(self) -> int:
        if self._outbox is None or self._progress.outbox != self._outbox.number:
            return 0
        return self._progress.settled

    def _deliver_message(self, message: Message, settled: int) -> None:
        """Tries once to deliver a message of the outbox.

        If the message is received or must be given up, it is marked as settled: it needs no further
        attempt. A message that is given up becomes a dead letter. `settled` is the number of
        settled messages so far.
        """
        assert self._outbox is not None
        now = self._clock()
        progress = self._progress
        if progress.outbox != self._outbox.number or not progress.tries:
            progress = replace(progress, tries=0, first_tried_at=now)
        # The clock may have been set back.
        first = min(now, progress.first_tried_at)
        progress = replace(
            progress, outbox=self._outbox.number, settled=settled, first_tried_at=first
        )
        attempted = self._attempt_message(message)
        if attempted.outcome is Outcome.RECEIVED:
            self._settle_message(progress, delivered=True)
            return
        now, tries = self._clock(), progress.tries + 1
        progress = replace(progress, tries=tries, error=attempted.reason)
        again = next_attempt(
            tries,
            first=first,
            now=now,
            asked=attempted.wait,
            patience=self._rules.patience,
            draw=self._draw,
        )
        if attempted.outcome is Outcome.AGAIN and again is not None:
            self._put_progress(replace(progress, next_try_at=again))
            return
        letter = DeadLetter(message, attempted.reason, tries, time_as_text(now))
        put_dead_letter(self._store, self._name, letter)
        self._settle_message(progress, delivered=False)

    def _settle_message(self, progress: AlertProgress, *, delivered: bool) -> None:
        """Records that the next message of the outbox needs no further attempt.

        `delivered` is True if the message was received, and False if it was given up.
        """
        progress = replace(progress, settled=progress.settled + 1, tries=0)
        self._put_progress(self._with_received_message(progress) if delivered else progress)

    def _with_received_message(self, progress: AlertProgress) -> AlertProgress:
        return replace(
            progress, delivered=progress.delivered + 1, delivered_at=self._clock(), error=""
        )

    def _put_progress(self, progress: AlertProgress) -> None:
        put_alert_progress(self._store, self._name, progress)
        self._progress = progress

    def _attempt_message(self, message: Message) -> Attempted:
        failpoint("alert.before_send")
        attempted = self._channel.send(message)
        failpoint("alert.after_send")
        return attempted

    def _send_dead_letter(self, id_: str) -> None:
        """Tries once to deliver the dead letter with the given id, as an operator has requested."""
        name = self._name
        letter = read_dead_letter(self._store, name, id_)
        if letter is not None:
            attempted = self._attempt_message(letter.message)
            if attempted.outcome is Outcome.RECEIVED:
                delete_dead_letter(self._store, name, id_)
                self._put_progress(self._with_received_message(self._progress))
            else:
                tries, reason = letter.tries + 1, attempted.reason
                again = replace(letter, reason=reason, tries=tries, at=time_as_text(self._clock()))
                put_dead_letter(self._store, name, again)
        delete_request_to_send_again(self._store, name, id_)

    def put_outbox(self, outbox: Outbox) -> None:
        """Stores an outbox, which replaces the previous outbox.

        No message of the previous outbox may need a further attempt.
        """
        put_outbox(self._store, self._name, outbox)
        self._outbox = outbox


class AlertDelivery(MessageDelivery):
    """The delivery of an alert that a serving build declares.

    The object may be used by only one process, and by one thread at a time.
    """

    def __init__(
        self,
        store: Store,
        alert: AlertBirth,
        channel: Channel,
        rules: Rules,
        *,
        limits: Limits | None = None,
        is_of: Callable[[str], bool] = lambda _build: True,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Reads the stored documents of the alert, to continue from their state.

        `limits` bound the memory, disk and threads that large change sets may use. `is_of` returns
        False for a build that does not declare the alert. A change set that ends at such a build is
        ignored.
        """
        super().__init__(store, alert.name, channel, rules, clock=clock, draw=draw)
        self._alert = alert
        self._limits = limits
        self._is_of = is_of
        self._follower: Follower | None = None
        self._chosen = Filter(alert.columns, alert.where)

    def wait_for_change(self, seconds: float) -> None:
        """Waits until there may be another change set, but at most `seconds`."""
        if self._follower is None:
            time.sleep(seconds)
        else:
            self._follower.wait_for_change(seconds)

    def take_messages(self) -> None:
        """Puts the messages of the next change set into the outbox, if there is a change set.

        Raises UsageError if the alert's table is not served, or does not have all columns that the
        alert names.
        """
        follower = self._make_follower_once()
        with follower.next_change_set() as change_set:
            if change_set is None or not self._is_of(change_set.head.cursor.build):
                return
            now = self._clock()
            counts = change_set.counts(self._chosen)
            is_put = change_set.head.starts_over or counts.row_count > 0 or self._is_place_old(now)
            if is_put:
                messages, missed = self._messages_of(change_set, counts, now)
                self._take_change_set(change_set, messages, missed, now)
        if is_put:
            follower.hold_cursor(self._rules.keep)

    def _is_place_old(self, now: float) -> bool:
        return self._outbox is None or abs(now - self._outbox.at) >= _PLACE_SECONDS

    def _make_follower_once(self) -> Follower:
        if self._follower is None:
            alert, outbox = self._alert, self._outbox
            self._follower = Follower(
                self._store,
                alert.of,
                since=None if outbox is None else Cursor.parse(outbox.cursor),
                chosen=self._chosen,
                holder=f"alert-{alert.name}",
                starts_empty=True,
                limits=self._limits,
                clock=self._clock,
            )
        return self._follower

    def _messages_of(
        self, change_set: ChangeSet, counts: ChangeCounts, now: float
    ) -> tuple[tuple[Message, ...], Missed | None]:
        """Returns the messages of a change set, and a period of missed changes or None.

        `counts` contains the number of changed rows, and `now` is in seconds since 1970. If the
        alert has missed changes, because the files of its cursor are no longer kept, the only
        message reports the period.
        """
        alert, head = self._alert, change_set.head
        since = self._missed_since() if head.starts_over else None
        if since is not None:
            missed = Missed(since, now)
            return (missed_message(alert, head, since=missed.since, now=now),), missed
        if head.starts_over:
            return (), None
        lines = change_set.json_lines(self._chosen)
        return row_messages(alert, head, counts, lines, most=self._rules.most, now=now), None

    def _missed_since(self) -> float | None:
        """Returns the time since which the alert has missed changes, in seconds since 1970.

        This is the time at which the alert's last cursor was stored. Returns None if no cursor was
        stored.
        """
        if self._outbox is not None:
            return self._outbox.at
        # The outbox could not be read: its progress says roughly when it was put.
        progress = self._progress
        return max(progress.first_tried_at, progress.delivered_at or 0.0) or None

    def _take_change_set(
        self,
        change_set: ChangeSet,
        messages: tuple[Message, ...],
        missed: Missed | None,
        now: float,
    ) -> None:
        before = self._outbox
        outbox = Outbox(
            1 + (self._progress.outbox if before is None else before.number),
            str(change_set.head.cursor),
            now,
            messages,
            missed if missed is not None or before is None else before.missed,
        )
        self.put_outbox(outbox)


class AlertOutlet:
    """Delivers the messages of an alert in a thread.

    The thread runs while a serving build declares the alert.
    """

    def __init__(self, store: Store, settings: Settings, name: str) -> None:
        self._store = store
        self._settings = settings
        self._name = name
        self._told = ""

    def run(self, stop: threading.Event) -> None:
        """Delivers messages until `stop` is set, or until no serving build declares the alert."""
        while not stop.is_set():
            try:
                alert = self._declared_alert()
                if alert is None:
                    break
                self._deliver_alert(alert, stop)
            except (KappaError, OSError) as error:
                self._log_error(error)
                stop.wait(_LONGEST_SECONDS)

    def _declared_alert(self) -> AlertBirth | None:
        """Returns the alert as a serving build declares it.

        Returns None if no serving build declares the alert.
        """
        birth = served_outlets(self._store).get(f"alert {self._name}")
        alerts = () if birth is None else birth.alerts
        return next((each for each in alerts if each.name == self._name), None)

    def _deliver_alert(self, alert: AlertBirth, stop: threading.Event) -> None:
        """Delivers messages until `stop` is set or the declaration of the alert changes."""
        delivery = AlertDelivery(
            self._store,
            alert,
            channel_of(self._store, self._settings.alerts, alert),
            Rules.of(self._settings.alerts),
            limits=Limits.of(self._settings.verify, self._store),
            is_of=lambda build: alert in read_birth(self._store, build).alerts,
        )
        failures = 0
        while not stop.is_set() and self._declared_alert() == alert:
            try:
                due = delivery.take_step()
                if failures:
                    delivery.report_error("")
                failures = 0
            except (KappaError, OSError) as error:
                due = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(failures, 10))
                failures += 1
                self._log_error(error)
                # A disk that is full was just told of.
                with suppress(KappaError, OSError):
                    delivery.report_error(str(error))
                stop.wait(due)
                continue
            if due is None:
                delivery.wait_for_change(_LOOK_SECONDS)
            else:
                stop.wait(min(due, _LOOK_SECONDS))

    def _log_error(self, error: KappaError | OSError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            write_log_line(f"alert {self._name}: {error}", Level.ERROR)
