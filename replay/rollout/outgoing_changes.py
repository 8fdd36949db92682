"""The changes that sinks and alerts send at a switch, by a verification's differences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kappa.base.units import count_of
from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.state.build import Birth
from kappa.state.journal.events import Difference


def outgoing_lines(
    after: Birth, differences: Iterable[Difference], *, before: Birth | None, most: int
) -> Iterator[str]:
    """Yields a line for each outlet that sends something: `312 updates, 4 deletes to carriers`.

    `before` is the build that serves until the switch. For an outlet that takes a part of a table,
    the number is an upper bound. An alert sends at most `most` messages, and one more for the rest.
    """
    found = {each.table: each for each in differences}
    yield from _sink_lines(after.sinks, found, () if before is None else before.sinks)
    keyless = {table.name for table in after.tables if not table.keys}
    known = {} if before is None else {alert.name: alert for alert in before.alerts}
    for alert in after.alerts:
        earlier, difference = known.get(alert.name), found.get(alert.of)
        # A new alert, or an alert on another table, begins with the first change after the switch.
        if earlier is None or earlier.of != alert.of or difference is None:
            continue
        is_most = earlier != alert or alert.of in keyless
        text = _message_counts(alert, difference, most, is_most=is_most)
        if text:
            yield f"{text} of alert {alert.name}"


def _sink_lines(
    sinks: Iterable[SinkBirth], found: Mapping[str, Difference], before: Iterable[SinkBirth]
) -> Iterator[str]:
    known = {sink.topic: sink for sink in before}
    for sink in sinks:
        difference = found.get(sink.of)
        if sink.topic not in known:
            rows = None if difference is None else difference.rows_after
            most = "at most " if _is_part(sink) else ""
            counted = "" if rows is None else f", {most}{rows:,} rows,"
            yield f"the snapshot of {sink.of}{counted} to {sink.topic}"
        elif known[sink.topic] != sink:
            yield f"what differs from its topic to {sink.topic}"
        elif difference is not None:
            yield f"{_change_counts(sink, difference)} to {sink.topic}"


def _change_counts(sink: SinkBirth, found: Difference) -> str:
    if not found.compared:
        rows = found.rows_after
        return "all that differs" if rows is None else f"at most {rows:,} rows"
    counted = (
        ("inserts", found.added),
        ("updates", _updated_rows(found)),
        ("deletes", found.removed),
    )
    text = ", ".join(f"{count:,} {what}" for what, count in counted if count)
    if not text:
        return "nothing"
    return f"at most {text}" if _is_part(sink) or found.unsettled else text


def _message_counts(alert: AlertBirth, found: Difference, most: int, *, is_most: bool) -> str:
    """Returns the number of an alert's messages and rows in words; "" without messages."""
    if not found.compared:
        return f"at most {most + 1:,} messages"
    counted = {"insert": found.added, "update": _updated_rows(found), "delete": found.removed}
    rows = sum(counted[op] for op in alert.on)
    if not rows:
        return ""
    sent = min(rows, most + 1)
    bound = "at most " if is_most or _is_part(alert) or found.unsettled else ""
    text = f"{bound}{count_of(sent, 'message')}"
    return f"{text}, for {rows:,} rows," if rows > sent else text


def _updated_rows(found: Difference) -> int:
    """Returns the number of rows that change: all of them, if the table has other columns."""
    if found.columns_gone or found.columns_new or found.columns_retyped:
        return (found.rows_after or 0) - found.added
    return found.changed


def _is_part(outlet: SinkBirth | AlertBirth) -> bool:
    return outlet.columns is not None or outlet.where is not None
