"""Laws of the oracle, compared with plain Python on the same few events; and of row comparison."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from demo.judgement.oracle import ASKED, Oracle, compare
from demo.producer.events import Event, first_events, further_events
from demo.producer.ledger import Ledger
from kappa.base.errors import Broken
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def events() -> list[Event]:
    # Making them takes seconds, which a process that only collects tests need not spend.
    return [*first_events(21_000), *islice(further_events(), 2_000)]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory, events: list[Event]) -> tuple[Path, Offsets]:
    path = tmp_path_factory.mktemp("ledger") / "ledger.parquet"
    with Ledger(path) as account:
        for event in events:
            account.add(event)
        account.close(account.offsets)
        return path, account.offsets


@pytest.mark.parametrize("version", [1, 2])
def test_on_time_is_counted_as_the_version_says(
    events: list[Event], ledger: tuple[Path, Offsets], version: int
) -> None:
    flights = [
        json.loads(event.value or b"")
        for event in events
        if event.topic == "flights" and event.valid
    ]
    on_time = Counter(
        (flight["carrier"], flight["day"])
        for flight in flights
        if (version == 1 and flight["dep_time"] is None)
        or (flight["dep_delay"] is not None and flight["dep_delay"] < 15)
    )

    with Oracle(*ledger) as oracle:
        rows = oracle.rows("delays", version)

    assert sum(row[2] for row in rows) == len(flights)
    assert {(row[0], row[1].isoformat()): row[4] for row in rows if row[4]} == dict(on_time)


def test_the_latest_value_of_a_key_counts_and_a_tombstone_deletes(
    events: list[Event], ledger: tuple[Path, Offsets]
) -> None:
    latest = {event.key: event.value for event in events if event.topic == "planes"}
    seats = {key: json.loads(value)["seats"] for key, value in latest.items() if value is not None}

    with Oracle(*ledger) as oracle:
        planes = {row[0]: row[6] for row in oracle.rows("planes", 1)}
        airlines = dict(oracle.rows("airlines", 1))

    assert planes == seats
    assert None in latest.values()
    assert airlines["FL"] == "Southwest Airlines (AirTran)"
    assert "YV" not in airlines
    assert "OO" in airlines


def test_what_lies_behind_the_offsets_has_not_happened(ledger: tuple[Path, Offsets]) -> None:
    path, _ = ledger

    with Oracle(path, Offsets({"flights": {0: 3, 2: 2}})) as oracle:
        assert oracle.records == 5
        assert sum(row[2] for row in oracle.rows("delays", 1)) == 5
        assert oracle.rows("planes", 1) == []


def test_every_question_has_an_answer_in_both_versions(ledger: tuple[Path, Offsets]) -> None:
    with Oracle(*ledger) as oracle:
        answers = {
            (table, version): oracle.rows(table, version) for table in ASKED for version in (1, 2)
        }

    assert all(answers.values())
    assert len(answers["rejects", 1]) == 4


def test_rows_are_compared_as_multisets() -> None:
    same = compare("t", [(1, "a"), (2, None), (1, "a")], [(2, None), (1, "a"), (1, "a")])
    different = compare("t", [(1, "a"), (1, "a"), (2, 0.5)], [(1, "a"), (2, 0.25), (2, 0.25)])

    assert same.equal
    assert not different.equal
    assert different.missing == ("(2, 0.25)", "(2, 0.25)")
    assert different.unexpected == ("(1, 'a')", "(2, 0.5)")


def test_a_ledger_of_other_records_than_were_acknowledged_is_refused(
    events: list[Event], tmp_path: Path
) -> None:
    with Ledger(tmp_path / "ledger.parquet") as account:
        account.add(events[0])

        with pytest.raises(Broken, match="the broker acknowledged"):
            account.close(Offsets({"airlines": {0: 2}}))
