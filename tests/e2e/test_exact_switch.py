"""A switch sends exactly the differences that its verification has found, or nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from book import row_text
from e2e_shop import order
from sinking import cursor_of, records_of
from story_shop import FIRST as SHOP
from story_shop import REWRITTEN, SINKS, TABLES, WITH_A_VIEW, WITHOUT_AN_ITEM, Orders
from testbed import Testbed, platform

from kappa.kafka.reader import Record
from kappa.state.journal.events import Verified
from kappa.state.journal.journal import Journal

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(900)]

# Of each row that differs: how often, and the row before and after.
_Rows = Counter[tuple[str | None, str | None]]
NOTHING = {"insert": 0, "update": 0, "delete": 0}


@dataclass(frozen=True, slots=True)
class Seen:
    """The changes of a table since a reader last looked: kinds, counts, rows, last cursor."""

    kinds: tuple[str, ...]
    counts: Mapping[str, int]
    rows: _Rows
    cursor: str | None


@dataclass
class Reader:
    """A reader of all tables and topics that looks from time to time."""

    bed: Testbed
    cursors: dict[str, str] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)

    def changes(self, table: str) -> Seen:
        since = self.cursors.get(table)
        start = () if since is None else ("--from", since)
        lines = self.bed.must("changes", table, "-o", "jsonl", *start).out.splitlines()
        found = [json.loads(line) for line in lines]
        heads = [each["begin"] for each in found if "begin" in each]
        rows: _Rows = Counter()
        for each in found:
            if "op" in each:
                rows[_text(each["before"]), _text(each["after"])] += each.get("times", 1)
        counts: Counter[str] = Counter(NOTHING)
        for head in heads:
            counts.update(head["changes"])
        for each in found:
            self.cursors[table] = each.get("commit", self.cursors.get(table))
        kinds = tuple(head["kind"] for head in heads)
        return Seen(kinds, dict(counts), rows, self.cursors.get(table))

    def sent(self, topic: str) -> list[Record]:
        records = records_of(self.bed.log, topic)[self.read[topic] :]
        self.read[topic] += len(records)
        return records

    def wait_until_sent(self) -> None:
        """Waits until each sink has sent the changes of the last switch."""
        generation = self.bed.state().generation

        def is_sent() -> bool:
            sinks = self.bed.must("sinks", "-o", "json").json()
            return {each["sink"] for each in sinks} == {*SINKS} and all(
                f"generation {generation}:" in (each["switch"] or "") for each in sinks
            )

        self.bed.wait(is_sent, "what is sent")


def _text(row: Any) -> str | None:
    return None if row is None else row_text(row)


def reversed_(rows: _Rows) -> _Rows:
    return Counter({(after, before): times for (before, after), times in rows.items()})


def assert_silent(reader: Reader) -> None:
    """Asserts that no reader gets a row."""
    for table in TABLES:
        seen = reader.changes(table)
        assert seen.kinds in ((), ("slice",))
        assert (seen.counts, seen.rows) == (NOTHING, Counter())
    assert [reader.sent(topic) for topic in SINKS] == [[], []]


def assert_switched(reader: Reader, kind: str, rows: Mapping[str, _Rows]) -> None:
    """Asserts that readers get one change set with exactly these rows, and topics the same rows."""
    reader.wait_until_sent()
    cursors = {}
    for table in TABLES:
        seen = reader.changes(table)
        assert seen.kinds == (kind,), table
        assert seen.rows == rows[table], table
        assert seen.counts == counted(rows[table])
        cursors[table] = seen.cursor
    for topic, table in SINKS.items():
        records = reader.sent(topic)
        assert [key for key, _ in groupby(map(cursor_of, records))] == [cursors[table]] * bool(
            rows[table]
        )
        assert Counter(
            None if each.value is None else row_text(json.loads(each.value)) for each in records
        ) == Counter(after for _, after in rows[table].elements())
        assert len({each.key for each in records}) == len(records)


def counted(rows: _Rows) -> Mapping[str, int]:
    counts = {**NOTHING}
    for (before, after), times in rows.items():
        counts["insert" if before is None else "delete" if after is None else "update"] += times
    return counts


def verified(bed: Testbed) -> tuple[Mapping[str, Mapping[str, int]], Mapping[str, _Rows]]:
    """Returns the counts of the last verification, and the rows of `kappa diff`, by table."""
    found = [
        record.event for record in Journal(bed.store).after(0) if isinstance(record.event, Verified)
    ][-1]
    counts = {
        each.table: {"insert": each.added, "update": each.changed, "delete": each.removed}
        for each in found.differences
    }
    shown = bed.must("diff", "shop", "--sample", "10000", "-o", "json").json()
    rows: dict[str, _Rows] = {}
    for each in shown["tables"]:
        rows[each["table"]] = Counter(
            {
                (_text(sample["before"]), _text(sample["after"])): sample["times"]
                for sample in each["samples"]
            }
        )
    return counts, rows


def test_a_switch_is_exactly_what_its_verification_has_found(tmp_path: Path) -> None:
    with platform(tmp_path, shop=SHOP) as bed:
        orders = [record for _, record in Orders(1, 300)(0)]
        bed.log.produce([*orders, order(3, customer="of item-3 alone")], "orders")
        bed.must("deploy", "--yes")
        reader = Reader(bed)
        for table in TABLES:
            seen = reader.changes(table)
            assert seen.kinds == ("snapshot",)
            assert seen.counts["insert"] == seen.rows.total() > 0
        bed.wait(lambda: all(records_of(bed.log, topic) for topic in SINKS), "the sinks")
        for topic in SINKS:
            assert reader.sent(topic)

        bed.declare("shop", WITHOUT_AN_ITEM)
        bed.must("stage", "shop", "--yes")
        bed.must("wait", "shop")
        assert_silent(reader)
        counts, rows = verified(bed)
        assert {table: counted(rows[table]) for table in TABLES} == {
            table: counts[table] for table in TABLES
        }
        assert all(sum(counts[table].values()) > 0 for table in TABLES)
        assert counts["by_customer"]["delete"] > 0
        assert_silent(reader)

        bed.must("promote", "shop", "--yes")
        assert_switched(reader, "promote", rows)
        bed.must("undo", "shop", "--yes")
        assert_switched(reader, "undo", {table: reversed_(rows[table]) for table in TABLES})
        bed.must("undo", "shop", "--yes")
        assert_switched(reader, "undo", rows)
        bed.must("undo", "shop", "--yes")
        assert_switched(reader, "undo", {table: reversed_(rows[table]) for table in TABLES})

        nothing: dict[str, _Rows] = {table: Counter() for table in TABLES}
        for version in (WITH_A_VIEW, REWRITTEN):
            bed.declare("shop", version)
            bed.must("deploy", "--allow-breaking", "--yes")
            assert_switched(reader, "promote", nothing)
        bed.must("undo", "shop", "--yes")
        assert_switched(reader, "undo", nothing)
        print({table: counts[table] for table in TABLES})
