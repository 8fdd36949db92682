"""Observes the alerts of a root: their states, the waiting messages, and the dead letters.

This module changes nothing. If an alert's address is a URL, only its scheme and host are shown.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kappa.base.errors import UsageError
from kappa.declare.alert import KAPPA, AlertBirth
from kappa.records.redrive import Position, parse_position
from kappa.serving.outlets.alerts.message import time_as_text
from kappa.serving.outlets.alerts.outbox import (
    AlertProgress,
    DeadLetter,
    alert_names,
    dead_letters,
    read_alert_progress,
    read_outbox,
    shown_messages,
)
from kappa.serving.outlets.outlet import served_outlets
from kappa.serving.query.render import Listing
from kappa.state.root import why_silent

if TYPE_CHECKING:
    from kappa.state.store import Store


class AlertState(StrEnum):
    """The state of an alert."""

    # Nothing was taken yet: kappa is not up, or the table is not served.
    NEW = "new"
    FOLLOWING = "following"
    SENDING = "sending"
    RETRYING = "retrying"
    # None is sent, since the root was adopted.
    OFF = "off"
    # No serving pipeline declares the alert any more; dead letters are kept.
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """The status of an alert, with its table, its address and the numbers of its messages.

    `of` is the table, and `to` is the part of the address that may be shown. `delivered` and
    `waiting` are numbers of messages, and `dead` are the dead letters. Times are text for display.
    `missed` is the beginning and the end of the last period whose changes the alert has missed, or
    None. `where` is the condition on rows, if any, and `on` lists the kinds of changes that are
    sent. If the alert cannot send, `tried_since` is the time of the first attempt to send what
    waits.
    """

    name: str
    pipeline: str | None
    of: str | None
    to: str | None
    state: AlertState
    delivered: int
    waiting: int
    dead: tuple[DeadLetter, ...]
    delivered_at: str | None
    next_try_at: str | None
    error: str
    missed: tuple[str, str] | None
    cursor: str | None
    where: str | None = None
    on: tuple[str, ...] = ()
    tried_since: str | None = None

    @property
    def counts(self) -> tuple[int, int, int]:
        """Returns the numbers of delivered messages, of waiting messages, and of dead letters."""
        return self.delivered, self.waiting, len(self.dead)


@dataclass(frozen=True, slots=True)
class ShownAlert:
    """A message about a changed row, as an alert sent it to the page."""

    name: str
    op: str
    at: str
    key: Any
    before: Any
    after: Any
    more: int | None


@dataclass(frozen=True, slots=True)
class ShownNotice:
    """A notice about the platform, as it was sent to the page.

    `kind` is a fixed word for programs, such as `rollout_failed`. `rollout` is the number that
    people use for the rollout. `proof` is the record or the value that shows the reported fact. If
    `proof` begins with the position of a record in the log, `place` is this position, otherwise
    None.
    """

    kind: str
    at: str
    text: str
    hint: str
    pipeline: str
    build: str
    rollout: int | None
    proof: str
    place: Position | None


def alert_statuses(store: Store) -> tuple[AlertStatus, ...]:
    """Lists the alerts of the builds that serve, and then the alerts that are no longer declared.

    Both parts of the list are sorted by name.
    """
    declared: dict[str, tuple[str | None, AlertBirth]] = {
        alert.name: (birth.pipeline, alert)
        for birth in served_outlets(store).values()
        for alert in birth.alerts
    }
    there = {*alert_names(store)}
    if KAPPA in there:
        # Its address is a setting of the supervisor.
        declared[KAPPA] = None, AlertBirth(KAPPA, "the platform", "notify.to")
    there -= declared.keys()
    found = [_alert_status(store, name, *declared[name]) for name in sorted(declared)]
    if why_silent(store):
        found = [replace(each, state=AlertState.OFF) for each in found]
    return (*found, *(_alert_status(store, name, None, None) for name in sorted(there)))


def alerts_progress(store: Store) -> Hashable:
    """Returns a value that changes whenever the progress of any alert changes."""
    return tuple((name, read_alert_progress(store, name)) for name in alert_names(store))


def alerts_listing(found: Iterable[AlertStatus]) -> Listing:
    """Returns a listing with a row per alert."""
    columns = (
        *("alert", "pipeline", "of", "to", "state", "delivered", "waiting", "dead"),
        *("delivered_at", "next_try_at", "error", "missed_since", "missed_until", "cursor"),
    )
    rows = tuple(
        (
            *(each.name, each.pipeline, each.of, each.to, str(each.state)),
            *(each.delivered, each.waiting, len(each.dead)),
            *(each.delivered_at, each.next_try_at, each.error or None),
            *(each.missed or (None, None)),
            each.cursor,
        )
        for each in found
    )
    wide = frozenset({"next_try_at", "missed_since", "cursor"})
    times = frozenset({"delivered_at", "missed_until"})
    return Listing(columns, rows, wide=wide, is_report=True, times=times, empty="no alerts")


def dead_letters_listing(found: Iterable[tuple[str, DeadLetter]]) -> Listing:
    """Returns a listing with a row per dead letter, from pairs (alert name, dead letter).

    The full message is only in JSON and CSV.
    """
    columns = ("alert", "id", "op", "key", "tries", "at", "reason", "message")
    rows = []
    for name, letter in found:
        body = json.loads(letter.message.body)
        key = body.get("key")
        rows.append(
            (
                *(name, letter.message.id, body["op"]),
                None if key is None else json.dumps(key, ensure_ascii=False),
                *(letter.tries, letter.at, letter.reason, body),
            )
        )
    return Listing(
        columns,
        tuple(rows),
        wide=frozenset({"message"}),
        is_report=True,
        times=frozenset({"at"}),
        empty="no dead letters",
    )


def shown_alerts(store: Store, names: Iterable[str], most: int) -> tuple[ShownAlert, ...]:
    """Returns up to `most` messages of alerts that were sent to the page, the newest first."""
    return tuple(
        ShownAlert(
            *(body["alert"], body["op"], body["at"], body.get("key")),
            *(body.get("before"), body.get("after"), body.get("more")),
        )
        for body in _shown_bodies(store, (name for name in names if name != KAPPA), most)
    )


def shown_notices(store: Store, most: int) -> tuple[ShownNotice, ...]:
    """Returns up to `most` notices that were sent to the page, the newest first."""
    return tuple(
        ShownNotice(
            *(body["op"], body["at"], body["text"], body.get("hint", "")),
            *(body.get("pipeline", ""), body.get("build", ""), body.get("rollout")),
            body.get("proof", ""),
            _place_in(body.get("proof", "")),
        )
        for body in _shown_bodies(store, [KAPPA], most)
    )


def _shown_bodies(store: Store, names: Iterable[str], most: int) -> list[dict[str, Any]]:
    bodies = [json.loads(message.body) for name in names for message in shown_messages(store, name)]
    # A name's messages have the order in which they were sent, and equal times.
    bodies.sort(key=lambda body: str(body["at"]), reverse=True)
    return bodies[:most]


def _place_in(proof: str) -> Position | None:
    """Parses the position of a record at the beginning of a notice's `proof`.

    Returns None if `proof` does not begin with a position.
    """
    try:
        return parse_position(proof.partition(": ")[0])
    except UsageError:
        return None


def _alert_status(
    store: Store, name: str, pipeline: str | None, alert: AlertBirth | None
) -> AlertStatus:
    outbox, progress = read_outbox(store, name), read_alert_progress(store, name)
    settled = progress.settled if outbox is not None and progress.outbox == outbox.number else 0
    waiting = 0 if outbox is None else len(outbox.messages) - settled
    missed = None if outbox is None else outbox.missed
    return AlertStatus(
        name,
        pipeline,
        None if alert is None else alert.of,
        None if alert is None else _shown_address(alert.to),
        _alert_state(alert, progress, waiting, is_new=outbox is None),
        progress.delivered,
        waiting,
        dead_letters(store, name),
        None if progress.delivered_at is None else time_as_text(progress.delivered_at),
        time_as_text(progress.next_try_at) if waiting and progress.tries else None,
        progress.error,
        None if missed is None else (time_as_text(missed.since), time_as_text(missed.until)),
        None if outbox is None else outbox.cursor,
        None if alert is None else alert.where,
        () if alert is None else alert.on,
        None if (since := progress.failing_since) is None else time_as_text(since),
    )


def _alert_state(
    alert: AlertBirth | None, progress: AlertProgress, waiting: int, *, is_new: bool
) -> AlertState:
    if alert is None:
        return AlertState.REMOVED
    if is_new:
        return AlertState.NEW
    if not waiting:
        return AlertState.FOLLOWING
    return AlertState.RETRYING if progress.tries else AlertState.SENDING


def _shown_address(to: str) -> str:
    """Returns an alert's address for display: only the scheme and host if the address is a URL."""
    url = urlsplit(to)
    return f"{url.scheme}://{url.hostname}" if url.hostname else to
