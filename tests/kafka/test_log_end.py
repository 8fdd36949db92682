"""A log that lost its end is recognized by its witnesses, even if it has grown past them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pytest
from confluent_kafka import IsolationLevel
from losing import Restarted, aborted_transaction
from msgspec.structs import replace
from victims import standing_still

from kappa import Topic
from kappa.base.errors import Unreachable
from kappa.kafka import client
from kappa.kafka.client import Log
from kappa.state.offsets import Offsets
from kappa.state.witness import NO_EPOCH, LostEnd, Witness, Witnesses

pytestmark = [pytest.mark.jvm, pytest.mark.fault]


def read(kafka: Restarted, topic: str) -> tuple[Offsets, Witnesses]:
    """Returns the end of the topic, and the witnesses at that end."""
    end = kafka.log.end([topic])
    witnesses: dict[str, dict[int, Witness]] = {}
    for (name, partition), found in kafka.log.last_before(end).items():
        witnesses.setdefault(name, {})[partition] = found
    return end, witnesses


def with_witness(witnesses: Witnesses, topic: str, **changes: object) -> Witnesses:
    return {topic: {0: replace(witnesses[topic][0], **changes)}}  # type: ignore[arg-type]


@pytest.mark.long
def test_a_cut_is_found_while_the_log_is_shorter_as_long_and_longer(kafka: Restarted) -> None:
    """Each check finds the cut alone: the broker's epochs, the record's epoch, and the digest."""
    kafka.log.create(Topic("orders", event="n int", partitions=2))
    kafka.produce("orders", *"abcde")
    end, witnesses = read(kafka, "orders")
    assert end == Offsets({"orders": {0: 5, 1: 0}})
    assert witnesses["orders"].keys() == {0}

    kafka.lose("orders", batches=0)
    assert kafka.log.lost_ends(end, witnesses) == ()
    kafka.produce("orders", "f", "g", "h")
    assert kafka.log.lost_ends(end, witnesses) == ()

    end, witnesses = read(kafka, "orders")
    assert (end.at("orders", 0), witnesses["orders"][0].offset) == (8, 7)
    assert kafka.lose("orders", batches=2) == 6
    by_digest = with_witness(witnesses, "orders", epoch=NO_EPOCH)
    lost = (LostEnd("orders", 0, 6, 8),)
    assert kafka.log.lost_ends(end, witnesses) == lost
    assert kafka.log.lost_ends(end, {}) == lost
    for value in "ghi":
        kafka.produce("orders", value)
        assert kafka.log.lost_ends(end, witnesses) == lost
    assert kafka.log.lost_ends(end, by_digest) == (replace(lost[0], first=None),)
    # What the log is known to be from before the cut on stays known.
    assert kafka.log.lost_ends(*read(kafka, "orders")) == ()


def test_where_the_last_record_is_taken_away_the_epoch_decides(kafka: Restarted) -> None:
    """If the last record is aborted or compacted, readers do not find it, and its epoch decides."""
    kafka.log.create(Topic("paid", event="n int"))
    kafka.produce("paid", *"abc")
    end, witnesses = read(kafka, "paid")
    epoch = witnesses["paid"][0].epoch
    aborted_transaction(kafka, "paid")
    end = kafka.log.end(["paid"])
    gone: Witnesses = {"paid": {0: Witness(3, epoch, "of no record")}}
    assert kafka.log.lost_ends(end, gone) == ()
    # The last record is found behind the holes, which are no part of the log.
    assert read(kafka, "paid")[1] == witnesses
    assert kafka.log.lost_ends(end, witnesses) == ()

    kafka.lose("paid", batches=2)
    kafka.produce("paid", "x", "y", "z")
    assert kafka.log.lost_ends(end, gone) == (LostEnd("paid", 0, 3, 5),)
    # The witness is as it was, and a hole behind it is none any more.
    assert kafka.log.lost_ends(end, witnesses) == (LostEnd("paid", 0, None, 5),)


def test_a_log_restored_with_the_same_epochs_is_known_by_the_digest(kafka: Restarted) -> None:
    kafka.log.create(Topic("copied", event="n int"))
    kafka.produce("copied", *"abc")
    end, witnesses = read(kafka, "copied")
    kafka.produce("copied", "d")

    assert kafka.log.lost_ends(end, witnesses) == ()
    other = with_witness(witnesses, "copied", digest="0" * 16)
    assert kafka.log.lost_ends(end, other) == (LostEnd("copied", 0, None, 3),)
    # An epoch that the broker has never known: it has forgotten it.
    newer = with_witness(witnesses, "copied", epoch=99)
    assert kafka.log.lost_ends(end, newer) == (LostEnd("copied", 0, None, 3),)


def test_what_retention_has_taken_is_no_cut(kafka: Restarted) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

    kafka.log.create(Topic("old", event="n int"))
    kafka.produce("old", *"abc")
    end, witnesses = read(kafka, "old")
    admin = AdminClient({"bootstrap.servers": kafka.broker.bootstrap_servers})
    for offset in (3, 5):
        kafka.produce("old", "d", "e")
        for future in admin.delete_records([TopicPartition("old", 0, offset)]).values():
            future.result(20)
        assert kafka.log.beginning(["old"]).at("old", 0) == offset
        assert kafka.log.lost_ends(end, witnesses) == ()
        assert kafka.log.last_before(end) == {}


def test_a_leader_without_an_answer_gives_no_offset(kafka: Restarted) -> None:
    """If a missing answer counted as an offset, an intact log would seem to have lost its end."""
    kafka.log.create(Topic("unanswered", event="n int", partitions=2))
    kafka.produce("unanswered", *"ab")
    log = Log(kafka.broker.bootstrap_servers)
    log.answers.patience_seconds = 2.0
    facts = log.must_have("unanswered")
    asked = [facts], client._LATEST, IsolationLevel.READ_UNCOMMITTED
    assert log._ask(*asked) == {"unanswered": {0: 2, 1: 0}}

    with standing_still(kafka.broker.pid):
        for _ in range(2):
            with suppress(Unreachable):
                assert log._ask(*asked) is None

    assert log.high_watermark(["unanswered"]) == Offsets({"unanswered": {0: 2, 1: 0}})


def test_a_log_is_not_lost_that_is_short_for_a_moment(kafka: Restarted) -> None:
    class ComingBack(Log):
        asked = 0

        def high_watermark(self, topics: Iterable[str]) -> Offsets:
            self.asked += 1
            return Offsets() if self.asked == 1 else super().high_watermark(topics)

    kafka.log.create(Topic("returning", event="n int"))
    kafka.produce("returning", *"ab")
    end, witnesses = read(kafka, "returning")
    log = ComingBack(kafka.broker.bootstrap_servers)

    assert log.lost_ends(end, witnesses) == ()
    assert log.asked == 2
