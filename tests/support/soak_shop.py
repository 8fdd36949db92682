"""The shop of a soak: archived, late, repeated and invalid records, and the right tables."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from e2e_shop import ASKED, V1, V2, expected, item, order
from msgspec.structs import replace
from reading import served
from testbed import Testbed

from kappa.code.fingerprint import born_rows_version
from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record
from kappa.state.build import folded_by, read_birth
from kappa.state.offsets import Offsets

TOPICS = ["orders", "items", "clicks"]
_LATE_MS = 3_600_000
# Of hundred records of a turn; each turn is two seconds.
_GOOD, _CLICKS = 84, 8
_CHANGES = (
    ('Topic("orders", ', 'Topic("orders", archive=True, event_time="at", lateness="1 hour", '),
    (
        "ITEMS = ",
        (
            'CLICKS = Topic("clicks", partitions=2, identity="id", '
            'event="id string not null, page string not null")\nITEMS = '
        ),
    ),
    ('reads={"orders": ORDERS, ', 'reads={"orders": ORDERS, "clicks": CLICKS, '),
    (
        'Table("order_log"),',
        'Table("order_log"),\n        Table("by_page", keys=("page",), fold={"clicks": count()}),',
    ),
    ("def shop(orders):", "def shop(orders, clicks):"),
    ("return {", 'return {"by_page": clicks, '),
)


def _soaked(text: str) -> str:
    for before, after in _CHANGES:
        assert before in text, before
        text = text.replace(before, after, 1)
    return text


SOAK_1 = _soaked(V1)
SOAK_2 = _soaked(V2)
# The same rows; as long as a build of them serves, this is an overlay of it.
VIEWS = tuple(
    text.replace("as orders from", "as orders, max(orders) as most from", 1)
    for text in (SOAK_1, SOAK_2)
)
_ASKED = {**ASKED, "by_page": "select page, clicks from by_page order by page"}


class Records:
    """The records of a producer, turn by turn. Of a hundred records, 84 are orders that count."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._ids = 0

    def __call__(self, turn: int) -> Iterator[tuple[str, ProducedRecord]]:
        now = int(time.time() * 1000)
        for number in range(_GOOD * turn, _GOOD * turn + _GOOD):
            yield "orders", order_at(number, now)
        for number in range(2):
            yield "orders", order_at(turn + number, now - 2 * _LATE_MS)
        for _ in range(3):
            yield "orders", self._draw.choice(self._invalid(turn, now))
        yield "items", item(turn % 9, f"title {turn}" if self._draw.random() < 0.7 else None)
        for number in range(_CLICKS):
            if self._ids == 0 or number % 4:
                self._ids += 1
            click = {"id": str(self._ids), "page": f"page-{self._ids % 7}"}
            yield "clicks", ProducedRecord(json.dumps(click).encode(), key=click["id"].encode())

    @staticmethod
    def _invalid(turn: int, now: int) -> tuple[ProducedRecord, ...]:
        good = order_at(turn, now)
        assert good.value is not None
        return (
            replace(good, value=None),
            replace(good, value=good.value[:-1]),
            replace(good, value=b"[1, 2]"),
            replace(good, value=good.value.replace(b'"customer"', b'"client"')),
            replace(good, value=good.value.replace(b'"amount": ', b'"amount": "x", "other": ')),
            replace(good, key=b"somebody else"),
            replace(good, key=None),
        )


def order_at(number: int, at: int) -> ProducedRecord:
    made = order(number)
    assert made.value is not None
    event = json.loads(made.value) | {"at": at}
    return replace(made, value=json.dumps(event, ensure_ascii=False).encode())


def version_of(bed: Testbed, build: str) -> int:
    """Returns 1 if a build has the rows version of the very first build, otherwise 2."""
    first, this = (
        born_rows_version(read_birth(bed.store, folded_by(bed.store, each)))
        for each in (bed.state().rollouts[0].build, build)
    )
    return 1 if this == first else 2


def is_valid(record: Record) -> bool:
    """Returns True unless the record is an order that is invalid or late."""
    if record.topic != "orders":
        return True
    try:
        event = json.loads(record.value or b"")
    except ValueError:
        return False
    return (
        isinstance(event, dict)
        and isinstance(event.get("customer"), str)
        and isinstance(event.get("amount"), int | None)
        and record.key == event["customer"].encode()
        and record.timestamp_ms - event["at"] <= _LATE_MS
    )


def pages(clicks: Iterable[Record]) -> list[tuple[str, int]]:
    """Counts the clicks of each page; of clicks with the same id, only the first counts."""
    found = {(event := json.loads(each.value or b""))["id"]: event["page"] for each in clicks}
    return sorted(Counter(found.values()).items())


def assert_right(bed: Testbed, build: str) -> int:
    """Asserts that a build's tables are right (I1) and that its offsets add up (I6).

    Returns the number of records that the build has read.
    """
    offsets, tables = served(bed.store, build, asked=_ASKED)
    records = list(bed.log.records(TOPICS, Offsets(), offsets))
    clicks = [record for record in records if record.topic == "clicks"]
    valid = [record for record in records if record.topic != "clicks" and is_valid(record)]
    assert tables == {
        **expected(valid, version=version_of(bed, build)),
        "by_page": pages(clicks),
    }
    frontier = bed.frontier(folded_by(bed.store, build))
    assert frontier is not None
    for topic, partition, offset in frontier.offsets.items():
        tally = frontier.tally.get(topic, {}).get(partition)
        assert offset == 0 or (
            tally is not None
            and offset
            == tally.decoded + tally.duplicate + tally.rejected + tally.tombstone + tally.absent
        ), (topic, partition, offset, tally)
    return len(records)
