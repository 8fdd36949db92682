"""Describes the changes that sinks and alerts send at a switch, before or after the switch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.base.units import count_of
from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.state.build import Birth, read_birth
from kappa.state.journal.events import Difference, GenerationMade, Receipt
from kappa.state.store import Store

if TYPE_CHECKING:
    # At run time the import would load DuckDB.
    from kappa.replay.rollout.verify.diff import Part

# No part of a table was compared.
NO_PARTS: Mapping[Part, Difference] = {}


@dataclass(frozen=True, slots=True)
class OutgoingChanges:
    """The changes that an outlet sends at a switch, as a text such as `4 deletes to carriers`.

    `kind` is `sink` or `alert`, and `name` is the sink's topic or the alert's name. `is_bound` is
    True if the number of changes is an upper bound.
    """

    kind: str
    name: str
    text: str
    is_bound: bool = False


def sending_text(store: Store, state: State, rollout: Rollout, *, most: int) -> str:
    """Returns a line for each sink and alert that sends changes at a switch.

    `most` is the setting `alerts.most`.
    """
    sends = sends_at_switch(store, state, rollout, most=most)
    return "".join(f"  sends: {each.text}\n" for each in sends)


def sends_at_switch(
    store: Store,
    state: State,
    rollout: Rollout,
    *,
    most: int,
    parts: Mapping[Part, Difference] = NO_PARTS,
) -> tuple[OutgoingChanges, ...]:
    """Returns the changes that a rollout's sinks and alerts send, or have sent, at the switch.

    There is one element per outlet. `most` is the setting `alerts.most`. `parts` are the
    differences within the parts of tables that outlets send, as far as they are known. The result
    is empty while the differences are unknown, and also if the rollout ended without a switch.
    """
    if rollout.phase in {Phase.FAILED, Phase.ABANDONED} or (
        rollout.verified is None and not rollout.switch
    ):
        return ()
    after = read_birth(store, rollout.build)
    if not after.sinks and not after.alerts:
        return ()
    receipt = _receipt_of(state, rollout)
    live = state.serving.get(rollout.pipeline) if receipt is None else receipt.live_build
    is_first = state.served_before(rollout.pipeline) is None if receipt is None else receipt.first
    # A pipeline that was retired has sent all rows before.
    before = read_birth(store, live) if live is not None else None if is_first else after
    differences = () if rollout.verified is None else rollout.verified.differences
    return tuple(outgoing_changes(after, differences, before=before, most=most, parts=parts))


def waiting_text(store: Store, state: State, *, most: int) -> str:
    """Describes each candidate that waits for an approval, and the changes that it would send."""
    return "".join(
        f"rollout {each.number} of pipeline {each.pipeline} waits for: kappa promote "
        f"{each.pipeline}\n{sending_text(store, state, each, most=most)}"
        for each in state.active_rollouts
        if each.waits
    )


def sent_in(
    store: Store, state: State, generation: int, *, most: int
) -> Mapping[int, tuple[OutgoingChanges, ...]]:
    """Returns the changes that outlets sent at the switch to a generation, by rollout id."""
    switched = next(
        (
            record.event.switched
            for record in state.served
            if isinstance(record.event, GenerationMade) and record.event.generation == generation
        ),
        (),
    )
    return {
        each.rollout: sends_at_switch(store, state, state.rollout(each.rollout), most=most)
        for each in switched
    }


def _receipt_of(state: State, rollout: Rollout) -> Receipt | None:
    record = state.served_in(rollout.id)
    if record is None or not isinstance(record.event, GenerationMade):
        return None
    return next(each.receipt for each in record.event.switched if each.rollout == rollout.id)


def outgoing_changes(
    after: Birth,
    differences: Iterable[Difference],
    *,
    before: Birth | None,
    most: int,
    parts: Mapping[Part, Difference] = NO_PARTS,
) -> Iterator[OutgoingChanges]:
    """Yields the changes of each outlet that sends changes. Pure.

    `after` is the birth certificate of the build that will serve, and `before` is that of the build
    that serves until the switch. If an outlet sends only a part of a table, the number is an upper
    bound. An alert sends at most `most` messages, and one more message about all further rows.
    """
    found = {each.table: each for each in differences}
    yield from _sent_by_sinks(after.sinks, found, () if before is None else before.sinks, parts)
    keyless = {table.name for table in after.tables if not table.keys}
    known = {} if before is None else {alert.name: alert for alert in before.alerts}
    for alert in after.alerts:
        earlier, difference = known.get(alert.name), found.get(alert.of)
        # A new alert, or an alert on another table, begins with the first change after the switch.
        if earlier is None or earlier.of != alert.of or difference is None:
            continue
        is_most = earlier != alert or alert.of in keyless
        part = parts.get(part_of(alert))
        found_changes = _message_counts(alert, difference, part, most, is_most=is_most)
        if found_changes is not None:
            yield found_changes


def part_of(outlet: SinkBirth | AlertBirth) -> Part:
    """Returns the part of a table that an outlet sends."""
    return outlet.of, outlet.columns, outlet.where


def _sent_by_sinks(
    sinks: Iterable[SinkBirth],
    found: Mapping[str, Difference],
    before: Iterable[SinkBirth],
    parts: Mapping[Part, Difference],
) -> Iterator[OutgoingChanges]:
    known = {sink.topic: sink for sink in before}
    for sink in sinks:
        difference, part = found.get(sink.of), parts.get(part_of(sink))
        if sink.topic not in known:
            rows = None if difference is None else (part or difference).rows_after
            most = "up to " if is_part(sink) and part is None else ""
            counted = "" if rows is None else f", {most}{count_of(rows, 'row')},"
            text = f"the snapshot of {sink.of}{counted} to {sink.topic}"
            yield OutgoingChanges("sink", sink.topic, text)
        elif known[sink.topic] != sink:
            text = f"what differs from its topic to {sink.topic}"
            yield OutgoingChanges("sink", sink.topic, text)
        elif difference is not None:
            yield _change_counts(sink, difference, part)


def _change_counts(sink: SinkBirth, whole: Difference, part: Difference | None) -> OutgoingChanges:
    """Returns the numbers of rows that a sink sends. `part` is the difference of its part."""

    def sends(text: str, *, is_bound: bool = False) -> OutgoingChanges:
        return OutgoingChanges("sink", sink.topic, text, is_bound)

    if not whole.compared:
        rows = whole.rows_after
        if rows is None:
            return sends(f"all that differs to {sink.topic}")
        return sends(f"up to {count_of(rows, 'row')} to {sink.topic}", is_bound=True)
    found = part or whole
    counted = (
        ("insert", found.added),
        ("update", _updated_rows(found)),
        ("delete", found.removed),
    )
    text = ", ".join(count_of(count, what) for what, count in counted if count)
    if not text:
        return sends(f"nothing to {sink.topic}")
    is_whole = is_part(sink) and part is None
    which = _bounded_text(sink) if is_whole else ""
    if is_whole or whole.unsettled:
        return sends(f"up to {text} to {sink.topic}{which}", is_bound=True)
    return sends(f"{text} to {sink.topic}")


def _message_counts(
    alert: AlertBirth, whole: Difference, part: Difference | None, most: int, *, is_most: bool
) -> OutgoingChanges | None:
    """Returns how many messages an alert sends, and how many rows the messages are about.

    Returns None if the alert sends no message. `is_most` is True if the numbers are upper bounds.
    """
    if not whole.compared:
        text = f"up to {most + 1:,} messages of alert {alert.name}"
        return OutgoingChanges("alert", alert.name, text, is_bound=True)
    found = part or whole
    counted = {"insert": found.added, "update": _updated_rows(found), "delete": found.removed}
    rows = sum(counted[op] for op in alert.on)
    if not rows:
        return None
    is_whole = is_part(alert) and part is None
    is_bound = bool(is_whole or is_most or whole.unsettled)
    most_rows = f"{'up to ' if is_whole else ''}{count_of(rows, 'row')}"
    about = f", for {most_rows}," if rows > most + 1 else ""
    messages = f"{'up to ' if is_bound else ''}{count_of(min(rows, most + 1), 'message')}"
    which = _bounded_text(alert) if is_whole else ""
    text = f"{messages}{about} of alert {alert.name}{which}"
    return OutgoingChanges("alert", alert.name, text, is_bound)


def _bounded_text(outlet: SinkBirth | AlertBirth) -> str:
    """Describes for which rows an outlet sends something, before and after a switch."""
    which = "that differ in its columns" if outlet.where is None else "that its condition selects"
    return f" (only rows {which})"


def _updated_rows(found: Difference) -> int:
    """Returns the number of updated rows.

    If the columns differ between the two builds, all rows that are not new count as updated.
    """
    if found.columns_gone or found.columns_new or found.columns_retyped:
        return (found.rows_after or 0) - found.added
    return found.changed


def is_part(outlet: SinkBirth | AlertBirth) -> bool:
    """Returns True if an outlet sends only some columns or some rows of a table."""
    return outlet.columns is not None or outlet.where is not None
