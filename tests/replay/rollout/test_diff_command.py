"""Laws of `kappa diff`: its texts and documents; unequal offsets are refused."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from journals import append, frontier, held, staged
from msgspec.structs import replace
from plans import A_SERVES
from twins import align, appended, folded, latest, make_build
from typing_in import Kappa, typist

from kappa.base.clock import now
from kappa.base.sections import RolloutSettings
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.history import rollout_entries
from kappa.replay.rollout.promote import next_promote_step
from kappa.replay.rollout.step import Sight
from kappa.replay.rollout.verify.diff_listing import difference_line
from kappa.replay.status.follow import rollout_news, verification_text
from kappa.replay.status.listings import history_listing
from kappa.replay.status.status import observe_status
from kappa.replay.status.status_text import status_heading, status_listing
from kappa.serving.query.render import json_value
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import CaughtUp, Difference, OutcomeCount, Verified
from kappa.state.offsets import Offsets
from kappa.state.store import Store

COLUMNS = "carrier string, flights bigint, on_time bigint, mean double, note string"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "kappa.toml").touch()
    return Store(tmp_path / ".kappa")


@pytest.fixture
def kappa(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kappa:
    monkeypatch.chdir(store.folder.parent)
    return typist(capsys, monkeypatch)


UNDERWAY = (*A_SERVES, staged("b"))


def row(
    carrier: str | None, on_time: int, mean: float = 0.5, note: str | None = None
) -> dict[str, Any]:
    return {"carrier": carrier, "flights": 9, "on_time": on_time, "mean": mean, "note": note}


@pytest.fixture
def two(store: Store) -> Store:
    """Returns a store in which build a serves and b is a candidate, at equal offsets."""
    table = folded(columns=COLUMNS)
    before = [row("UA", 3), row(None, 4), row("gone", 1), row("AA", 5, math.nan, "null")]
    after = [row("UA", 2), row(None, 0), row("new\x1b[31m", 1), row("AA", 5, math.nan, None)]
    delayed = [{"carrier": "UA", "delay": 1}] * 3
    make_build(store, "a", {table: before, appended(): delayed}, tally=Tally(duplicate=1))
    make_build(store, "b", {table: after, appended(): []}, tally=Tally(duplicate=1, rejected=2))
    append(store, *UNDERWAY)
    return store


def test_people_read_a_heading_and_samples_per_table(kappa: Kappa, two: Store) -> None:
    code, out, err = kappa("diff", "flights", "--sample", "2")

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "before: build a; after: build b; both at flights:0=10 planes:0=10",
        "",
        "delays: 4 rows, 1 added (25 %), 1 removed (25 %), 3 changed (75 %): on_time 2, note 1",
        "  largest change of on_time: 100 % of the larger value",
        "  sum of flights: 36 -> 36",
        "  sum of on_time: 13 -> 8",
        "  added:",
        "    carrier      flights  on_time  mean  note",
        "    ───────────  ───────  ───────  ────  ────",
        "    new\\x1b[31m        9        1   0.5  null",
        "  removed:",
        "    carrier  flights  on_time  mean  note",
        "    ───────  ───────  ───────  ────  ────",
        "    gone           9        1   0.5  null",
        "  changed, 2 of them:",
        "    carrier  on_time",
        "    ───────  ───────",
        "    null     4 -> 0",
        "    UA       3 -> 2",
        "",
        "departures: 3 rows before and 0 after, 0 added, 3 removed (100 %), 0 changed",
        "  sum of delay: 3 -> 0",
        "  removed:",
        "    carrier  delay  times",
        "    ───────  ─────  ─────",
        "    UA           1      3",
        "",
        "rejects: 0 before, 2 after",
        "flights: rejected: 0 before, 2 after",
    ]


def test_machines_get_all_of_it(kappa: Kappa, two: Store) -> None:
    document = json.loads(kappa("diff", "flights", "-o", "json")[1])

    assert document["before"] == {"build": "a", "frontier": 1}
    assert document["after"] == {"build": "b", "frontier": 1}
    assert document["offsets"]["flights"] == {"0": 10}
    assert (document["aligned"], document["equal"]) == (False, False)
    delays, departures = document["tables"]
    assert (delays["table"], delays["changed"], delays["changed_share"]) == ("delays", 3, 0.75)
    assert delays["changed_by_column"] == {"on_time": 2, "note": 1}
    assert delays["sums"] == {"flights": [36, 36], "on_time": [13, 8]}
    new = row("new\x1b[31m", 1)
    assert delays["samples"][0] == {"kind": "added", "before": None, "after": new, "times": 1}
    changed = [sample["before"] for sample in delays["samples"] if sample["kind"] == "changed"]
    assert [before["carrier"] for before in changed] == [None, "UA", "AA"]
    (removed,) = departures["samples"]
    before = {"carrier": "UA", "delay": 1}
    assert removed == {"kind": "removed", "before": before, "after": None, "times": 3}
    assert {"topic": "flights", "what": "rejected", "before": 0, "after": 2} in document["counts"]


def test_csv_has_a_row_per_table(kappa: Kappa, two: Store) -> None:
    text = kappa("diff", "flights", "--table", "delays", "-o", "csv")[1]
    (row,) = csv.DictReader(io.StringIO(text))

    assert (row["table"], row["changed"], row["changed_share"]) == ("delays", "3", "0.75")


def test_equal_builds_are_said_to_be(kappa: Kappa, store: Store) -> None:
    for build in ("a", "b"):
        make_build(store, build, {folded(): [{"carrier": "UA", "on_time": 1}]})
    append(store, *UNDERWAY)

    assert kappa("diff", "flights", "b", "a")[1].splitlines() == [
        "before: build b; after: build a; both at flights:0=10 planes:0=10",
        "",
        "delays: 1 row, 0 added, 0 removed, 0 changed",
    ]
    assert json.loads(kappa("diff", "flights", "-o", "json")[1])["equal"]


def test_builds_apart_need_their_alignment(kappa: Kappa, store: Store) -> None:
    make_build(store, "a", {folded(): []}, at=10)
    make_build(store, "b", {folded(): []}, at=10)
    append(store, *UNDERWAY)
    align(store, "b", "a")
    newest = Frontiers(store, "a").newest()
    offsets = Offsets({"flights": {0: 17}, "planes": {0: 10}})
    Frontiers(store, "a").publish(replace(newest, number=2, offsets=offsets))
    assert "both at flights:0=10" in kappa("diff", "flights")[1]

    store.delete("leases/of-the-alignment.json")
    code, out, err = kappa("diff", "flights")

    assert (code, out) == (6, "")
    assert "7 offsets apart, so their rows cannot be compared" in err
    assert "kappa verify flights brings a candidate" in err


def test_keys_that_only_the_broker_can_settle_need_one(kappa: Kappa, store: Store) -> None:
    for build in ("a", "b"):
        make_build(store, build, {folded(): [], latest(): []})
    append(store, *UNDERWAY)

    code, _, err = kappa("diff", "flights")
    assert (code, "kappa up -d" in err) == (1, True)
    assert kappa("diff", "flights", "--table", "delays")[0] == 0


def test_a_slip_is_told(kappa: Kappa, two: Store) -> None:
    assert kappa("diff", "flights", "a")[0] == 2
    code, _, err = kappa("diff", "flights", "--table", "delay")
    assert code == 2
    assert "neither build has a table delay" in err
    assert "delays, departures" in err


DIFFERENCES = (
    Difference(
        *("delays", 7034, 7034),
        changed=412,
        changed_by_column={"on_time": 412},
        unsettled=2,
        columns_new=("cancelled",),
        columns_retyped={"n": ("int", "bigint")},
    ),
    Difference("new", None, 3),
    Difference("gone", 4, None),
    Difference("other", 4, 5, incomparable="its keys are (a), and were (b)"),
)


def test_a_difference_is_told_in_a_line() -> None:
    assert [difference_line(difference) for difference in DIFFERENCES] == [
        (
            "delays: 7,034 rows, 0 added, 0 removed, 412 changed (5.857 %), 2 unsettled, "
            "column cancelled is new, column n is bigint, was int: on_time 412"
        ),
        "new: new, 3 rows",
        "gone: gone, 4 rows",
        "other: 4 rows before and 5 after, not compared: its keys are (a), and were (b)",
    ]


def test_progress_history_and_receipt_tell_differences(store: Store) -> None:
    counts = (OutcomeCount("flights", "duplicate", 1, 1), OutcomeCount("flights", "rejected", 0, 2))
    told = Verified(
        *(5, "passed", Offsets()),
        live_build="a",
        differences=DIFFERENCES[:1],
        counts=counts,
        incomparable_topics=("planes",),
    )
    before = append(store, *UNDERWAY, CaughtUp(5, Offsets()))
    state = append(store, told)

    lines = rollout_news(before.rollout(5), state.rollout(5))
    holding = append(store, held(5, "a"))
    here, there = frontier("b", 10), frontier("a", 10, hold=holding.last)
    topics = frozenset({"flights"})
    seen = Sight(holding, holding.rollout(5), here, there, topics)
    receipt = next_promote_step(seen, RolloutSettings()).event.receipt

    assert [line.strip() for line in lines[1:]] == [
        difference_line(DIFFERENCES[0]),
        "rejects: 0 before, 2 after",
        "flights: rejected: 0 before, 2 after",
        "topic planes is not the same for both builds: what comes from it is not comparable",
    ]
    told_last = history_listing(rollout_entries(state)).row_objects()
    assert told_last[-1]["differences"][0]["changed"] == 412
    assert json_value(told_last)
    assert receipt.differences == told.differences
    assert receipt.counts == told.counts
    assert receipt.incomparable_topics == told.incomparable_topics


@pytest.mark.parametrize(
    ("rejected", "records", "told"),
    [(3, 1200, ["  rejects: 3 of 1,200 records"]), (0, 1200, []), (None, None, [])],
)
def test_a_first_build_tells_what_it_has_rejected(
    store: Store, rejected: int | None, records: int | None, told: list[str]
) -> None:
    verdict = Verified(1, "passed", Offsets(), rejected=rejected, records=records)
    state = append(store, staged("a"), CaughtUp(1, Offsets()), verdict)

    assert verification_text(state.rollout(1)).splitlines()[2:] == told


@pytest.mark.parametrize(("limit", "loud"), [(0.01, True), (1, True), (2, False), (None, False)])
def test_serving_build_with_rejects_warns(store: Store, limit: float | None, loud: bool) -> None:
    """A serving build continues, however many records it has rejected; the status warns."""
    tally = Tally(decoded=97, rejected=2)
    make_build(store, "a", {folded(columns=COLUMNS): []}, tally=tally, max_rejects=limit)
    frontiers = Frontiers(store, "a")
    frontiers.publish(replace(frontiers.newest(), number=2, published_at=now()))
    append(store, *A_SERVES)

    status = observe_status(store, None)

    (seen,) = status_listing(status, datetime.now(UTC)).row_objects()
    said = "has rejected 2 of 99 records"
    warning = f"WARNING: pipeline flights: build a (live) {said} (2.02 %)"
    assert (warning in status_heading(status, None, None)) is loud
    assert (said in seen["note"]) is loud
    assert seen["state"] == "serving"
