"""The lines of what a switch sends say the number that a verification found, or the most."""

from __future__ import annotations

import pytest

from kappa.declare.sink import SinkBirth
from kappa.journal.verification import Difference
from replay.rollout.outgoing import outgoing

SINK = SinkBirth("carrier-delays", "delays")
PART = SinkBirth("carrier-delays", "delays", where="n > 1")


def differs(**more: object) -> Difference:
    return Difference("delays", 100, 98, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sink", "found", "said"),
    [
        (SINK, differs(changed=312, removed=4), "312 updates, 4 deletes to carrier-delays"),
        (SINK, differs(added=2), "2 inserts to carrier-delays"),
        (SINK, differs(), "nothing to carrier-delays"),
        (PART, differs(added=2), "at most 2 inserts to carrier-delays"),
        (PART, differs(), "nothing to carrier-delays"),
        (SINK, differs(unsettled=1, added=2), "at most 2 inserts to carrier-delays"),
        (
            SINK,
            differs(columns_new=("x",), added=8, removed=10),
            "8 inserts, 90 updates, 10 deletes to carrier-delays",
        ),
        (SINK, differs(incomparable="keys"), "at most 98 rows to carrier-delays"),
    ],
)
def test_a_sink_that_served_before_sends_what_differs(
    sink: SinkBirth, found: Difference, said: str
) -> None:
    assert list(outgoing([sink], [found], before=[sink])) == [said]


def test_a_new_sink_sends_the_snapshot_and_another_one_what_its_topic_lacks() -> None:
    assert list(outgoing([SINK], [differs()])) == [
        "the snapshot of delays, 98 rows, to carrier-delays"
    ]
    assert list(outgoing([PART], [differs()])) == [
        "the snapshot of delays, at most 98 rows, to carrier-delays"
    ]
    assert list(outgoing([SINK], [])) == ["the snapshot of delays to carrier-delays"]
    assert list(outgoing([SINK], [differs(added=1)], before=[PART])) == [
        "what differs from its topic to carrier-delays"
    ]
    # The same tables: nothing differs.
    assert list(outgoing([SINK], [], before=[SINK])) == []
