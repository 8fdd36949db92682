"""Creates the messages of an alert, one for each changed row. Pure.

If too many rows have changed, a last message contains the count of the remaining rows. The id of a
message is derived from the alert, the cursor, the operation and the key, so a receiver recognizes a
repeated message by its id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msgspec import Struct

from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.changes.change_set import ChangeCounts, ChangeSetHead


class Message(Struct, frozen=True):
    """A message to be sent: an id, and a body, which is a JSON object as text."""

    id: str
    body: str


def row_messages(
    alert: AlertBirth,
    head: ChangeSetHead,
    counts: ChangeCounts,
    lines: Iterable[str],
    *,
    most: int,
    now: float,
) -> tuple[Message, ...]:
    """Returns the messages of a change set, one for each changed row.

    Only operations that the alert declares count, such as inserts. Each of the first `most` rows
    gets a message. If there are more rows, a last message contains the count of the remaining rows.
    `lines` are the changes as JSON objects, in the order of the change set. `counts` contains the
    number of changes by operation. `now` is in seconds since 1970.
    """
    changes = (json.loads(line) for line in lines)
    sent = list(islice((each for each in changes if each["op"] in alert.on), most))
    found = tuple(_row_message(alert, head, each, now) for each in sent)
    wanted = {op: getattr(counts, op) for op in alert.on}
    more = sum(wanted.values()) - sum(each.get("times", 1) for each in sent)
    if more <= 0:
        return found
    of = {"more": more, "counts": wanted, "kind": str(head.kind), "cursor": str(head.cursor)}
    return (*found, _make_message(alert, "more", {}, of, now))


def missed_message(alert: AlertBirth, head: ChangeSetHead, *, since: float, now: float) -> Message:
    """Creates the message that an alert has missed the changes between two times.

    The two times are `since` and `now`, in seconds since 1970. `head` is the head of the first
    change set after the missed changes.
    """
    of = {"since": time_as_text(since), "until": time_as_text(now), "cursor": str(head.cursor)}
    return _make_message(alert, "missed", {}, of, now)


def time_as_text(seconds: float) -> str:
    """Formats a time, given in seconds since 1970, as text for messages and listings."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _row_message(
    alert: AlertBirth, head: ChangeSetHead, change: dict[str, Any], now: float
) -> Message:
    row = change["after"] if change["after"] is not None else change["before"]
    key = {name: row[name] for name in head.keys} if head.keys else row
    of = dict(_row_parts(head, change, key))
    return _make_message(alert, change["op"], key, of, now)


def _row_parts(
    head: ChangeSetHead, change: dict[str, Any], key: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    if head.keys:
        yield "key", key
    else:
        yield "times", change["times"]
    yield "before", change["before"]
    yield "after", change["after"]
    yield "kind", str(head.kind)
    yield "cursor", str(head.cursor)


def _make_message(
    alert: AlertBirth, op: str, key: dict[str, Any], parts: dict[str, Any], now: float
) -> Message:
    named = json.dumps([alert.name, parts["cursor"], op, key], sort_keys=True)
    id_ = f"msg_{hashlib.sha256(named.encode()).hexdigest()[:32]}"
    body = {"alert": alert.name, "id": id_, "op": op, **parts, "at": time_as_text(now)}
    return Message(id_, json.dumps(body, ensure_ascii=False))
