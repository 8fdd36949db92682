"""Changes of a database: tables equal the source, whatever happened there, for any slices."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from shares import long_except

from kappa import Debezium, Table, Topic, pipeline
from kappa.base.errors import Broken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa import Pipeline
    from kappa.testing import Event

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

FORM = Debezium(times="micros", decimals="text")
EVENT = (
    "id bigint not null, name string not null, change_op string not null,"
    " change_id string not null, change_lsn bigint"
)
ORDERS = Topic("orders", event=EVENT, format=FORM, key="id", identity="change_id")


@pipeline(reads={"orders": ORDERS}, writes=[Table("newest", latest=ORDERS), Table("changes")])
def shop(orders: DataFrame) -> dict[str, DataFrame]:
    return {"changes": orders.select("id", "name", "change_op", "change_lsn")}


def newest_of(topic: Topic, **options: Any) -> Pipeline:
    @pipeline(reads={"orders": topic}, writes=[Table("newest", latest=topic)], **options)
    def newest() -> dict[str, DataFrame]:
        return {}

    return newest


class Source:
    """A table of a database, and the records that Debezium has sent about it."""

    def __init__(self, draw: random.Random) -> None:
        self.rows: dict[int, str] = {}
        self.changes: list[dict[str, Any]] = []
        self.sent: list[Event] = []
        self._lsn = 0
        self._draw = draw
        self._unnoted = 0

    def change(self, op: str, **row: Any) -> None:
        """Changes a row; a deletion is followed by a tombstone."""
        from kappa.testing import Event

        change = {"id": None, "name": None, **row, "change_op": op, "change_lsn": self._lsn}
        self.changes.append(change)
        key = None if op == "t" else FORM.encoded_key("id", row["id"])
        self.sent.append(Event(FORM.encode_event(row | {
            "change_op": op, "change_lsn": self._lsn}, ()), key=key))  # fmt: skip
        if op == "d":
            self.sent.append(Event(None, key=key))

    def step(self) -> None:
        """Does one of all possible changes."""
        draw, rows = self._draw, self.rows
        self._lsn += 1
        key, name = draw.randrange(6), f"n{self._lsn}"
        match draw.choice(["write"] * 5 + ["delete"] * 3 + ["move", "truncate", "crash"]):
            case "write":
                self.change("u" if key in rows else "c", id=key, name=name)
                rows[key] = name
            case "delete" if key in rows:
                self.change("d", id=key, name=rows.pop(key))
            case "move" if key in rows and 7 not in rows:
                # An update of a key: both have one place in the log.
                self.change("d", id=key, name=rows[key])
                self.change("c", id=7, name=rows.pop(key))
                rows[7] = self.changes[-1]["name"]
            case "truncate" if draw.random() < 0.5:
                self.change("t")
                rows.clear()
            case "crash":
                # What was not noted down is sent again, tombstones too.
                self.sent += self.sent[self._unnoted :]
                self._unnoted = draw.randrange(self._unnoted, len(self.sent) + 1)
            case _:
                pass


@pytest.mark.law
@pytest.mark.parametrize("seed", long_except([0], range(3)))
def test_tables_are_the_sources_whatever_it_did(seed: int, spark: SparkSession) -> None:
    from kappa.testing import law_of_slices, tables_of

    source = Source(random.Random(seed))
    while len(source.sent) < 60:
        source.step()
    found = tables_of(shop, {"orders": source.sent})

    assert {row["id"]: row["name"] for row in found["newest"]} == source.rows
    assert sorted(found["changes"], key=repr) == sorted(source.changes, key=repr)
    assert found["rejects"] == []
    assert len(source.sent) > len(source.changes)
    law_of_slices(shop, {"orders": source.sent}, cuts=3, seed=seed)


def test_a_truncation_empties_the_table_and_what_comes_after_stays(spark: SparkSession) -> None:
    from kappa.testing import tables_of

    source = Source(random.Random(0))
    for key in range(4):
        source.change("c", id=key, name="before")
    source.change("t")
    source.change("c", id=2, name="after")

    found = tables_of(shop, {"orders": source.sent})

    assert [(row["id"], row["name"]) for row in found["newest"]] == [(2, "after")]
    assert [row["change_op"] for row in found["changes"]].count("t") == 1


def test_a_truncation_in_several_partitions_is_a_reject(spark: SparkSession) -> None:
    """In several partitions, the order of changes around a truncation is unknown.

    The declaration may request a stop instead of the reject.
    """
    from kappa.testing import tables_of

    two = Topic("orders", event=EVENT, format=FORM, key="id", identity="change_id", partitions=2)
    newest = newest_of(two)

    source = Source(random.Random(0))
    source.change("c", id=1, name="before")
    before = tables_of(newest, {"orders": source.sent})
    source.change("t")
    after = tables_of(newest, {"orders": source.sent})

    assert after["newest"] == before["newest"] != []
    assert [row["reason"] for row in after["rejects"]] == ["unordered"]
    with pytest.raises(Broken, match=r"record orders:0:1 truncates .* has 2 partitions"):
        tables_of(newest_of(two, on_error="stop"), {"orders": source.sent})


def test_a_compacted_topic_deletes_by_changes_and_by_tombstones(spark: SparkSession) -> None:
    from kappa.testing import Event, tables_of

    kept = Topic("orders", kind="compacted", event=EVENT, format=FORM, key="id")
    source = Source(random.Random(0))
    for key in range(3):
        source.change("c", id=key, name="there")
    source.change("d", id=0, name="there")
    # Without the tombstone behind the deletion; and one that compaction has left alone.
    sent = [*source.sent[:-1], Event(None, key=b'{"id": 1}')]
    found = tables_of(newest_of(kept), {"orders": sent})

    assert [row["id"] for row in found["newest"]] == [2]


@pytest.mark.long
def test_random_events_of_changes_obey_the_law(spark: SparkSession) -> None:
    from kappa.testing import law_of_slices, some_events, tables_of

    events = some_events(shop, 40, seed=3)

    assert {"c", "d"} <= {row["change_op"] for row in tables_of(shop, events)["changes"]}
    law_of_slices(shop, events, cuts=2)
