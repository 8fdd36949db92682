"""The changes that sinks send at a switch, by the differences of a verification. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kappa.declare.sink import SinkBirth
from kappa.journal.verification import Difference


def outgoing(
    sinks: Iterable[SinkBirth],
    differences: Iterable[Difference],
    *,
    before: Iterable[SinkBirth] = (),
) -> Iterator[str]:
    """Yields a line for each sink: `312 updates, 4 deletes to carrier-delays`.

    `before` are the sinks of the build that serves. Of a sink of a part of its table, the number is
    the most that is sent.
    """
    found = {each.table: each for each in differences}
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
            yield f"{_changes(sink, difference)} to {sink.topic}"


def _changes(sink: SinkBirth, found: Difference) -> str:
    if not found.compared:
        rows = found.rows_after
        return "all that differs" if rows is None else f"at most {rows:,} rows"
    counted = (
        ("inserts", found.added),
        ("updates", _updates(found)),
        ("deletes", found.removed),
    )
    text = ", ".join(f"{count:,} {what}" for what, count in counted if count)
    if not text:
        return "nothing"
    return f"at most {text}" if _is_part(sink) or found.unsettled else text


def _updates(found: Difference) -> int:
    """Returns how many rows become others: all, if the table has other columns."""
    if found.columns_gone or found.columns_new or found.columns_retyped:
        return (found.rows_after or 0) - found.added
    return found.changed


def _is_part(sink: SinkBirth) -> bool:
    return sink.columns is not None or sink.where is not None
