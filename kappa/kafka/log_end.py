"""Checks that a topic's log still contains the last records that were read from it.

The check has two steps for each partition. First, the broker is asked for the end offset of the
leader epoch of the last record that was read (KIP-320); librdkafka sends this request when a
position with an epoch is assigned. Second, the record that is now at the witness's offset is read
and compared with the witness (kappa/state/witness.py defines witnesses).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kappa.kafka.broker_requests import PATIENCE_SECONDS, Options
from kappa.kafka.consumers import EXACT, Part, Refuse, check_error, unreachable
from kappa.kafka.reader import LogReader, Record
from kappa.state.offsets import Offsets
from kappa.state.witness import NO_EPOCH, LostEnd, Witness, Witnesses, digest_of, is_other_record

# The reader needs one or two records, and at the log's end the broker's immediate answer.
_FEW = {"queued.min.messages": 1, "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 5}
# The factor by which the search for a partition's last record goes further back, if the last few
# offsets hold no record.
_WIDER = 16
# librdkafka's words for its finding; the offset is the end of the epoch.
_CUT = re.compile(r"log truncation detected|No epoch found")
_CUT_AT = re.compile(r"broker end offset is (\d+)")


def witness_of(record: Record) -> Witness:
    """Returns the witness of a record: its offset, its leader epoch and a digest of the record."""
    return Witness(
        record.offset,
        record.leader_epoch,
        digest_of(record.timestamp_ms, record.key, record.value),
    )


def last_before(
    options: Options, refuse: Refuse, end: Offsets, beginning: Offsets
) -> dict[Part, Witness]:
    """Returns a witness of the last committed record before `end`, for each partition.

    A partition is left out if it contains no such record, because it never had one or has lost it.
    `beginning` contains the first offset that each partition still contains.
    """
    found: dict[Part, Witness] = {}
    reach = 1
    with LogReader({**options, **_FEW}, refuse) as reader:
        while True:
            open_ = {
                (topic, partition): (max(offset - reach, beginning.at(topic, partition)), offset)
                for topic, partition, offset in end.items()
                if (topic, partition) not in found and offset > beginning.at(topic, partition)
            }
            if not open_:
                return found
            last = {
                (record.topic, record.partition): record
                for record in reader.read(
                    Offsets.of_partitions({part: start for part, (start, _) in open_.items()}),
                    Offsets.of_partitions({part: upto for part, (_, upto) in open_.items()}),
                )
            }
            found |= {part: witness_of(record) for part, record in last.items()}
            if all(start == beginning.at(*part) for part, (start, _) in open_.items()):
                return found
            reach *= _WIDER


def lost_ends(
    options: Options,
    refuse: Refuse,
    end: Offsets,
    witnesses: Witnesses,
    *,
    beginning: Offsets,
    high_watermark: Offsets,
) -> tuple[LostEnd, ...]:
    """Returns the partitions that no longer contain the records that were read up to `end`.

    `witnesses` contains the last record that was read in each partition. `beginning` and
    `high_watermark` are the current bounds of the partitions. Raises Unreachable if the broker does
    not answer.
    """
    ends = {(topic, partition): offset for topic, partition, offset in end.items()}
    cut: dict[Part, int | None] = {
        part: high_watermark.at(*part)
        for part, offset in ends.items()
        if high_watermark.at(*part) < offset
    }
    known = {
        part: witness
        for part, offset in ends.items()
        if (witness := witnesses.get(part[0], {}).get(part[1])) is not None
        and beginning.at(*part) <= witness.offset + 1 <= offset
    }
    for part, first in _cut_since(options, refuse, known).items():
        # The epoch's end is exact; a high watermark may lag behind for a moment.
        cut[part] = cut.get(part) if first is None else first
    rest = {
        part: witness
        for part, witness in known.items()
        if part not in cut and beginning.at(*part) <= witness.offset
    }
    cut |= dict.fromkeys(_changed_parts(options, refuse, rest, ends))
    return tuple(
        LostEnd(topic, partition, first, ends[topic, partition])
        for (topic, partition), first in sorted(cut.items())
    )


def _cut_since(
    options: Options, refuse: Refuse, known: Mapping[Part, Witness]
) -> dict[Part, int | None]:
    """Returns the partitions whose log was truncated at or before the record of their witness.

    Each partition is mapped to the offset at which its log was truncated, or to None if the broker
    does not report this offset.
    """
    waiting = {part for part, witness in known.items() if witness.epoch != NO_EPOCH}
    if not waiting:
        return {}
    found: dict[Part, int | None] = {}
    consumer = Consumer({**options, **_FEW, **EXACT})
    try:
        consumer.assign(
            [
                TopicPartition(*part, known[part].offset + 1, leader_epoch=known[part].epoch)
                for part in sorted(waiting)
            ]
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while waiting:
            if time.monotonic() > deadline:
                raise unreachable(
                    waiting,
                    Offsets.of_partitions({part: known[part].offset + 1 for part in waiting}),
                )
            message = consumer.poll(0.2)
            if message is None:
                continue
            part = str(message.topic()), int(message.partition() or 0)
            error = message.error()
            if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                # For any other reason the log begins later by now: there is nothing to ask.
                if _CUT.search(error.str()):
                    at = _CUT_AT.search(error.str())
                    found[part] = None if at is None else int(at[1])
            elif error is not None:
                check_error(error, part, refuse)
            waiting.discard(part)
    finally:
        consumer.close()
    return found


def _changed_parts(
    options: Options,
    refuse: Refuse,
    known: Mapping[Part, Witness],
    ends: Mapping[Part, int],
) -> list[Part]:
    """Returns the partitions in which a record at or after the witness's offset has changed.

    `known` contains the witness of each partition. The records are read again from the witness's
    offset up to the partition's offset in `ends`.
    """
    if not known:
        return []
    found: dict[Part, list[Witness]] = {part: [] for part in known}
    with LogReader({**options, **_FEW}, refuse) as reader:
        for record in reader.read(
            Offsets.of_partitions({part: witness.offset for part, witness in known.items()}),
            Offsets.of_partitions({part: ends[part] for part in known}),
        ):
            found[record.topic, record.partition].append(witness_of(record))
    return [part for part, witness in known.items() if is_other_record(witness, found[part])]
