"""The lines about a switch's messages have the verified number, or the largest possible one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from overlays import born, declared

from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.replay.status.outgoing_changes import outgoing_changes
from kappa.state.build import Birth
from kappa.state.journal.events import Difference
from kappa.state.table import TableBirth

SINK = SinkBirth("carrier-delays", "delays")
PART = SinkBirth("carrier-delays", "delays", where="n > 1")
ALERT = AlertBirth("late", "delays", "page")
KEYED = TableBirth("delays", (("carrier", "string"), ("n", "bigint")), keys=("carrier",))


def differs(**more: object) -> Difference:
    return Difference("delays", 100, 98, **more)  # type: ignore[arg-type]


def with_outlets(*outlets: SinkBirth | AlertBirth, table: TableBirth = KEYED) -> Birth:
    return replace(
        born("a", declared()),
        tables=(table,),
        sinks=tuple(each for each in outlets if isinstance(each, SinkBirth)),
        alerts=tuple(each for each in outlets if isinstance(each, AlertBirth)),
    )


def lines(after: Birth, *found: Difference, before: Birth | None = None) -> list[str]:
    return [each.text for each in outgoing_changes(after, found, before=before, most=100)]


@pytest.mark.parametrize(
    ("sink", "found", "said"),
    [
        (SINK, differs(changed=312, removed=4), "312 updates, 4 deletes to carrier-delays"),
        (SINK, differs(added=2), "2 inserts to carrier-delays"),
        (SINK, differs(), "nothing to carrier-delays"),
        (
            PART,
            differs(added=2),
            "up to 2 inserts to carrier-delays (only rows that its condition selects)",
        ),
        (
            replace(SINK, columns=("n",)),
            differs(changed=5),
            "up to 5 updates to carrier-delays (only rows that differ in its columns)",
        ),
        (PART, differs(), "nothing to carrier-delays"),
        (SINK, differs(unsettled=1, added=2), "up to 2 inserts to carrier-delays"),
        (
            SINK,
            differs(columns_new=("x",), added=8, removed=10),
            "8 inserts, 90 updates, 10 deletes to carrier-delays",
        ),
        (SINK, differs(incomparable="keys"), "up to 98 rows to carrier-delays"),
    ],
)
def test_old_sink_sends_what_differs(sink: SinkBirth, found: Difference, said: str) -> None:
    assert lines(with_outlets(sink), found, before=with_outlets(sink)) == [said]


def test_a_new_sink_sends_the_snapshot_and_another_one_what_its_topic_lacks() -> None:
    assert lines(with_outlets(SINK), differs()) == [
        "the snapshot of delays, 98 rows, to carrier-delays"
    ]
    assert lines(with_outlets(PART), differs(), before=with_outlets()) == [
        "the snapshot of delays, up to 98 rows, to carrier-delays"
    ]
    assert lines(with_outlets(SINK)) == ["the snapshot of delays to carrier-delays"]
    assert lines(with_outlets(SINK), differs(added=1), before=with_outlets(PART)) == [
        "what differs from its topic to carrier-delays"
    ]
    # The same tables: nothing differs.
    assert lines(with_outlets(SINK), before=with_outlets(SINK)) == []


@pytest.mark.parametrize(
    ("alert", "found", "sent"),
    [
        (ALERT, differs(changed=60, removed=4), ["64 messages of alert late"]),
        (ALERT, differs(added=1), ["1 message of alert late"]),
        (ALERT, differs(changed=100, added=1), ["101 messages of alert late"]),
        # One message has the number of all others.
        (ALERT, differs(changed=312, removed=4), ["101 messages, for 316 rows, of alert late"]),
        (ALERT, differs(), []),
        (ALERT, differs(columns_new=("x",), added=8), ["98 messages of alert late"]),
        (ALERT, differs(unsettled=3, added=2), ["up to 2 messages of alert late"]),
        (ALERT, differs(incomparable="keys"), ["up to 101 messages of alert late"]),
        (replace(ALERT, on=("delete",)), differs(changed=9), []),
        (replace(ALERT, on=("insert", "update")), differs(changed=9, removed=1), ["9 messages of"]),
        (replace(ALERT, where="n > 1"), differs(added=2), ["up to 2 messages of alert late"]),
    ],
)
def test_old_alert_sends_changes(alert: AlertBirth, found: Difference, sent: list[str]) -> None:
    """An alert that existed before sends one message for each row that differs."""
    made = lines(with_outlets(alert), found, before=with_outlets(alert))

    assert len(made) == len(sent)
    assert all(one.startswith(other) for one, other in zip(made, sent, strict=True))


def test_the_number_of_a_part_is_exact_once_the_part_is_compared() -> None:
    """An outlet without a condition sends what it sent before."""
    sink, alert = PART, replace(ALERT, where="n > 1", on=("insert", "update"))
    after, whole = with_outlets(sink, alert, replace(ALERT, name="all")), differs(changed=316)
    parts = {("delays", None, "n > 1"): differs(added=3, changed=4, removed=9)}

    def made(**more: Any) -> list[str]:
        found = outgoing_changes(after, [whole], before=after, most=100, **more)
        return [each.text for each in found]

    selected = "(only rows that its condition selects)"
    assert made()[:2] == [
        f"up to 316 updates to carrier-delays {selected}",
        f"up to 101 messages, for up to 316 rows, of alert late {selected}",
    ]
    assert made(parts=parts) == [
        "3 inserts, 4 updates, 9 deletes to carrier-delays",
        "7 messages of alert late",
        "101 messages, for 316 rows, of alert all",
    ]
    nothing = {("delays", None, "n > 1"): differs()}
    assert made(parts=nothing)[:2] == ["nothing to carrier-delays", made()[2]]


def test_an_alert_that_is_new_or_of_another_table_sends_nothing_at_the_switch() -> None:
    found, after = differs(added=2), with_outlets(ALERT)

    assert lines(after, found) == []
    assert lines(after, found, before=with_outlets()) == []
    assert lines(after, found, before=with_outlets(replace(ALERT, of="rows"))) == []
    # Of one whose other parts have changed the number is the most.
    narrow = with_outlets(replace(ALERT, where="n > 1"))
    assert lines(after, found, before=narrow) == ["up to 2 messages of alert late"]


def test_equal_rows_without_keys_may_be_in_one_message() -> None:
    bag = with_outlets(ALERT, table=replace(KEYED, keys=()))

    assert lines(bag, differs(added=2), before=bag) == ["up to 2 messages of alert late"]
