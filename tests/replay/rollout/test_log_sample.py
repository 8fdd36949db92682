"""Laws of the sample: old events are tried before a replay; unknown facts refuse nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import A_SERVES, ORDERS, birth, declared, log, observed

from kappa import Topic
from kappa.base.errors import Unreachable
from kappa.kafka.reader import Record
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.log_sample import SamplePlace, TopicSample, read_samples
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Plan
from kappa.replay.rollout.plan.plan_text import plan_document, plan_text
from kappa.state.offsets import Offsets

OLD, NEW, BAD = b'{"id": "a", "n": 1}', b'{"id": "a", "n": 2147483648}', b"{"


class Records:
    """A client of a broker with given records: values by offset, per partition of one topic."""

    def __init__(
        self, partitions: Mapping[int, Mapping[int, bytes | None]], *, away_after: int | None = None
    ) -> None:
        self.partitions = partitions
        self.given: list[tuple[int, int]] = []
        self._left = away_after

    def beginning(self, topics: Iterable[str]) -> Offsets:
        return self._at(topics, {each: min(of, default=0) for each, of in self.partitions.items()})

    def end(self, topics: Iterable[str]) -> Offsets:
        return self._at(
            topics, {each: max(of, default=-1) + 1 for each, of in self.partitions.items()}
        )

    @staticmethod
    def _at(topics: Iterable[str], offsets: dict[int, int]) -> Offsets:
        return Offsets(dict.fromkeys(topics, offsets))

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        (topic,) = topics
        for _, partition, last in end.items():
            for offset, value in sorted(self.partitions[partition].items()):
                if start.at(topic, partition) <= offset < last:
                    if self._left is not None and len(self.given) >= self._left:
                        raise Unreachable("nothing came")
                    self.given.append((partition, offset))
                    yield Record(topic, partition, offset, 0, b"a", value, ())


def sampled(
    client: Records, *, topic: Topic = ORDERS, at_each_place: int = 20
) -> TopicSample | None:
    names = [topic.name]
    start, end = client.beginning(names), client.end(names)
    found = read_samples(client, [topic], start, end, at_each_place=at_each_place)
    return found.get(topic.name)


def many(count: int, value: bytes = OLD, start: int = 0) -> dict[int, bytes | None]:
    return dict.fromkeys(range(start, start + count), value)


def planned(
    client: Records,
    *,
    most: float = 0.5,
    accepting: Allowances | None = None,
    topic: Topic = ORDERS,
) -> Plan:
    found = sampled(client, topic=topic)
    seen = replace(
        observed(declared(topic=topic), facts=log()),
        samples={} if found is None else {topic.name: found},
        max_unreadable=most,
    )
    return make_plan(seen, accepting=accepting)


def test_a_plan_says_what_it_looked_at() -> None:
    plan = planned(Records({0: many(1000), 1: many(30)}))

    assert plan.refusals == ()
    assert plan.steps[0].warnings == ()
    places = "at the beginning, in the middle and at the end of 2 partitions"
    sampled_text = f"  sampled: 90 records of topic orders, {places}: all can be read\n"
    assert sampled_text in plan_text(plan)
    document = json.loads(json.dumps(plan_document(plan)))
    counts = {"beginning": 40, "middle": 30, "end": 20}
    assert document["steps"][0]["samples"][0]["read"] == counts


def test_what_would_be_rejected_is_told_with_its_reason_and_an_example() -> None:
    plan = planned(Records({0: many(1000), 1: many(1000) | {3: BAD, 999: NEW, 998: NEW}}))

    assert plan.refusals == ()
    (warning,) = plan.steps[0].warnings
    summary, reasons = warning.split(": ", 1)
    assert summary == "of topic orders 3 of 120 sampled records would be rejected"
    large, broken = reasons.split("; ")
    place = "2 out_of_range, such as partition 1 offset 998"
    assert large == f"{place}: n is 2147483648, beyond what int holds"
    why = "not one JSON value: Expecting property name enclosed in double quotes at character 1"
    assert broken == f"1 malformed_json, such as partition 1 offset 3: {why}"
    assert "3 of them would be rejected" in plan_text(plan)


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        (many(400, NEW), "at the beginning"),
        (many(300, NEW, 450), "in the middle"),
        (many(100, NEW, 950), "at the end"),
        (many(1000, NEW), "at the beginning"),
    ],
)
def test_unreadable_events_refuse_a_plan(bad: dict[int, bytes | None], where: str) -> None:
    """Unreadable events refuse a plan until they are allowed by name."""
    client = Records({0: many(1000) | bad})

    (refusal,) = planned(client).refusals
    allowances = Allowances(allowed={"unreadable:orders": "they were a mistake"})
    let_through = planned(client, accepting=allowances)

    rejected = f"more than 50% of the records that were sampled {where} would be rejected"
    assert refusal.message == f"topic orders: {rejected}"
    assert "out_of_range" in refusal.hint
    assert "--allow 'unreadable:orders=REASON'" in refusal.hint
    assert let_through.refusals == ()
    (accepted,) = let_through.steps[0].accepted
    assert accepted == f"unreadable:orders: {refusal.message}: they were a mistake"


def test_of_many_reasons_the_most_frequent_are_shown() -> None:
    bad = many(4, BAD) | {10: b"[]", 11: b"\xff", 12: b'{"n": "1"}', 13: b'{"a": 1, "a": 1}'}
    (warning,) = planned(Records({0: many(1000) | bad})).steps[0].warnings

    assert "4 malformed_json, such as partition 0 offset 0" in warning
    assert warning.endswith("; and 2 more reasons")
    del bad[13]
    (warning,) = planned(Records({0: many(1000) | bad})).steps[0].warnings
    assert warning.endswith("; and 1 more reason")


def test_the_share_is_a_setting() -> None:
    client = Records({0: many(1000) | many(8, BAD)})

    assert planned(client, most=0.4).refusals == ()
    assert len(planned(client, most=0.3).refusals) == 1
    assert planned(Records({0: many(1000, BAD)}), most=1.0).refusals == ()


def test_what_the_serving_build_rejects_too_refuses_nothing() -> None:
    found = sampled(Records({0: many(1000, BAD)}))
    same, other = declared(code="2"), declared(code="2")
    other = replace(other, parts={**other.parts, "topic orders": "2"})

    def plan(now: Declared) -> Plan:
        seen = observed(now, journal=A_SERVES, births=(birth("a", declared()),))
        return make_plan(replace(seen, samples={"orders": found}, max_unreadable=0.5))

    assert plan(same).refusals == ()
    assert len(plan(same).steps[0].warnings) == 1
    assert [refusal.name for refusal in plan(other).refusals] == ["unreadable:orders"]


def test_a_few_records_at_one_place_are_no_share_of_it() -> None:
    assert planned(Records({0: many(40) | {40: BAD}})).refusals == ()
    assert len(planned(Records({0: {0: BAD}})).refusals) == 1


def test_a_finding_that_was_let_through_is_the_same_when_the_log_has_grown() -> None:
    accepting = Allowances(allowed={"unreadable:orders": "known"})
    then, now = (
        planned(Records({0: many(600, NEW) | many(more, OLD, 600)}), accepting=accepting)
        for more in (400, 1000)
    )

    assert then.steps[0].samples != now.steps[0].samples
    assert then.steps[0].accepted == now.steps[0].accepted


def test_a_new_declaration_that_reads_old_events_lets_the_plan_go_on() -> None:
    client = Records({0: many(30, b'{"url": "a"}') | many(30, b'{"page": "a", "n": 1}', 30)})
    strict = Topic("orders", event="page string not null, n int not null", partitions=2)

    assert len(planned(client, topic=strict).refusals) == 1
    event = "page string not null, n int not null default 0"
    lenient = Topic("orders", event=event, partitions=2, was={"page": "url"})
    assert planned(client, topic=lenient).refusals == ()


def test_behind_a_hole_the_next_records_are_taken() -> None:
    client = Records({0: {0: OLD} | many(30, OLD, 600) | {999: OLD}, 1: {}})

    found = sampled(client, at_each_place=5)

    assert found.read == {SamplePlace.BEGINNING: 1, SamplePlace.MIDDLE: 5, SamplePlace.END: 1}
    assert [offset for _, offset in client.given] == [0, *range(600, 605), 999]


def test_tombstones_and_empty_topics_are_no_trouble() -> None:
    pages = Topic("orders", event="id string not null", partitions=2, kind="compacted", key="id")
    found = sampled(Records({0: {0: None, 1: b'{"id": "a"}'}}), topic=pages)

    assert (sum(found.read.values()), found.unreadable) == (2, ())
    assert sampled(Records({0: {}, 1: {}})) is None
    assert sampled(Records({})) is None


def test_of_many_partitions_some_are_looked_into_evenly() -> None:
    found = sampled(Records({partition: many(5) for partition in range(200)}), at_each_place=1)

    assert (found.partitions, found.of_partitions) == (50, 200)
    assert "50 of 200 partitions" in found.text


def test_a_broker_that_goes_away_refuses_nothing() -> None:
    found = sampled(Records({0: many(1000, BAD)}, away_after=0))
    later = sampled(Records({0: many(1000)}, away_after=7))

    assert found.text == "nothing of topic orders: nothing came"
    assert later.text.endswith("all can be read (not all that was meant: nothing came)")
    assert planned(Records({0: many(1000, BAD)}, away_after=0)).refusals == ()


def test_large_records_end_the_sample() -> None:
    client = Records({0: many(1000, b'{"id": "a", "x": "' + b"x" * (1 << 20) + b'"}')})
    found = sampled(client)

    assert len(client.given) < 20
    assert "the records are large" in found.text


@given(
    st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, 300), max_size=60), max_size=4),
    st.integers(1, 25),
)
def test_sample_takes_records_in_order(partitions: dict[int, set[int]], at_each_place: int) -> None:
    """Each record is taken once, in order, and never more records than intended."""
    client = Records({each: dict.fromkeys(offsets, OLD) for each, offsets in partitions.items()})

    found = sampled(client, at_each_place=at_each_place)

    for partition, offsets in partitions.items():
        given_ = [offset for each, offset in client.given if each == partition]
        assert given_ == sorted(set(given_))
        assert len(given_) <= 3 * at_each_place
        assert not offsets or {min(offsets), max(offsets)} <= set(given_)
    assert (found is None) == (not any(partitions.values()))
