"""The computation of a slice's mark, the metadata that each commit of the slice stores. Pure.

A mark contains the log times and the counts of records (tallies) up to the slice's end.
"""

from __future__ import annotations

from types import MappingProxyType

from msgspec.structs import replace

from kappa.base.errors import Broken
from kappa.declare.values.tally import Tally
from kappa.engine.slice_rows import CountsOf
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.log_clock import LogTimes, log_clock
from kappa.state.mark import Mark
from kappa.state.slices import Slice
from kappa.state.witness import Witnesses, witnesses_after_slice

_NONE: Witnesses = MappingProxyType({})


def next_mark(
    birth: Birth, last: Frontier, piece: Slice, seen: CountsOf, witnesses: Witnesses = _NONE
) -> Mark:
    """Returns the mark of the slice `piece`, the metadata that each commit of the slice stores.

    The mark's tallies are the sums of the counts in `seen` and the tallies of the frontier `last`.
    `witnesses` contains the witnesses of the last records in this slice.

    An offset without a record is counted as absent: its record was removed by compaction or belongs
    to an aborted transaction, or the offset belongs to a transaction marker. So in each partition
    the sum of the counts equals the number of folded offsets. Raises Broken if a partition has more
    records than offsets. Raises Broken if the log's clock would go back, since the clock decides
    which rows have expired.
    """
    log_time = {topic: dict(parts) for topic, parts in last.log_time.items()}
    tally = {topic: dict(parts) for topic, parts in last.tally.items()}
    for topic, partition, end in piece.end.items():
        span = end - piece.start.at(topic, partition)
        if span == 0:
            continue
        one = seen.get(topic, {}).get(partition)
        more = (
            Tally(one.decoded, one.duplicate, one.rejected, one.tombstone, late=one.late)
            if one
            else Tally()
        )
        absent = span - more.decoded - more.duplicate - more.rejected - more.tombstone
        if absent < 0:
            raise Broken(
                f"{topic} partition {partition} gave {-absent} more records than the slice "
                f"{piece.start} to {piece.end} has offsets",
                hint="this is a mistake in Kappa; kappa logs has the slice",
            )
        tally.setdefault(topic, {})[partition] = tally.get(topic, {}).get(
            partition, Tally()
        ) + replace(more, absent=absent)
        if one:
            log_time.setdefault(topic, {})[partition] = one.log_time
    _ensure_clock_rises(birth, last.log_time, log_time)
    return Mark(
        birth.build,
        "",
        piece.leg,
        piece.number,
        piece.start,
        piece.end,
        log_time,
        tally,
        witnesses_after_slice(last.witnesses, witnesses, piece.start, piece.end),
    )


def _ensure_clock_rises(birth: Birth, before: LogTimes, after: LogTimes) -> None:
    """Raises Broken if the log's clock would go back, so that expired rows could be changed again.

    The clock can go back only if a partition was added to a topic, and the partition's first record
    has an early time.
    """
    clock, now = log_clock(birth, before), log_clock(birth, after)
    if clock is None or now is None or now >= clock or not any(t.expiry for t in birth.tables):
        return
    topic, partition = next(
        (topic, partition)
        for topic, parts in after.items()
        for partition, time in parts.items()
        if time == now and partition not in before.get(topic, {})
    )
    raise Broken(
        f"{topic} partition {partition} was added to the topic, and its first record is of a time "
        f"before the log's clock, by which rows of build {birth.build} are gone",
        hint=f"kappa replay {birth.pipeline} makes a new build, which counts that partition from"
        " the log's beginning",
    )
