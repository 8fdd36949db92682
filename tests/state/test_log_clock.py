"""The log's clock: no accepted record reaches a row that is gone, for any slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kappa.base.duck import open_connection
from kappa.declare.table import Expiry
from kappa.state.build import Birth, TopicBirth
from kappa.state.log_clock import log_clock, topic_clock
from kappa.state.table import TableBirth
from kappa.tables.views.served_rows_sql import gone_condition, served_condition

TOPICS = (TopicBirth("a", "1", "retained", 2), TopicBirth("b", "2", "retained", 1))
BIRTH = Birth("b", "p", "v", {}, 1, {}, "m", TOPICS, (), {}, {}, {}, "", "")
PARTS = [("a", 0), ("a", 1), ("b", 0)]
SPAN = 3


@given(st.lists(st.tuples(st.sampled_from(PARTS), st.integers(0, 20), st.integers(0, 20))))
def test_no_accepted_record_reaches_a_row_that_is_gone(
    records: list[tuple[tuple[str, int], int, int]],
) -> None:
    """Records of different partitions come in any order; each may be followed by a frontier."""
    log_time: dict[str, dict[int, int]] = {}
    gone: set[int] = set()
    for (topic, partition), timestamp, time in records:
        passed = max(log_time.get(topic, {}).get(partition, timestamp), timestamp)
        log_time.setdefault(topic, {})[partition] = passed
        accepted = time + SPAN >= passed
        assert not (accepted and time in gone)
        clock = log_clock(BIRTH, log_time)
        if clock is not None:
            gone |= {each for each in range(21) if each + SPAN < clock}
    assert not gone or all(part in log_time.get(topic, {}) for topic, part in PARTS)


def test_each_partition_of_the_retained_topics_counts_and_no_compacted_one() -> None:
    compacted = TopicBirth("c", "3", "compacted", 1)
    birth = replace(BIRTH, topics=(*TOPICS, compacted))

    assert log_clock(birth, {"a": {0: 5, 1: 7}, "b": {0: 6}}) == 5
    assert log_clock(birth, {"a": {0: 5, 1: 7}, "b": {0: 6}, "c": {0: 1}}) == 5
    assert log_clock(birth, {"a": {0: 5}, "b": {0: 6}}) is None
    assert log_clock(birth, {"a": {0: 5, 1: 7, 2: 1}, "b": {0: 6}}) == 1
    assert topic_clock(birth, "c", {"c": {0: 1}}) == 1
    assert topic_clock(birth, "c", {}) is None
    assert log_clock(replace(BIRTH, topics=(compacted,)), {"c": {0: 1}}) is None


def test_a_span_beyond_all_time_ends_no_row() -> None:
    assert Expiry("at", 36_500 * 86_400_000).least_kept(-62_135_596_800_000) is None
    assert Expiry("at", 0).least_kept(0) is not None


@pytest.mark.parametrize(
    ("least", "kept"),
    [
        ("10000-01-01 00:00:00", "10000-01-01 00:00:00.002"),
        ("30000-02-29 12:00:00.000001", "30000-02-29 12:00:00.002"),
        ("100000-12-31 23:59:59", "infinity"),
        ("9999-12-31 23:59:59.999999", "10000-01-01 00:00:01"),
        ("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00"),
    ],
)
def test_rows_are_gone_in_years_that_python_lacks(least: str, kept: str) -> None:
    """Rows with years beyond Python's are gone a millisecond after their span; later rows stay."""
    table = TableBirth("t", (("time", "timestamp"),), expiry=Expiry("time", 3_600_000))
    with open_connection() as duck:
        (clock,) = duck.execute(
            f"select (epoch_us(timestamptz '{least}') + 3600001000) // 1000"
        ).fetchone() or (0,)
        duck.execute(f"create table t as select unnest(['{least}', '{kept}'])::timestamptz as time")
        gone, shown = gone_condition(table, clock), served_condition(table, clock)
        found = duck.execute(f"select time::varchar from t where {gone}").fetchall()
        left = duck.execute(f"select count(*) from t where {shown}").fetchall()

    assert found == [(f"{least}+00",)], (gone, shown)
    assert left == [(1,)]
