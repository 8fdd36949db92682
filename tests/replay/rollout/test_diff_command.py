"""Laws of `kappa diff`: its texts and documents; unequal offsets are refused."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from journals import frontier, held, served, staged, verified
from msgspec.structs import replace
from twins import align, appended, folded, latest, make_build

from kappa.base.clock import now
from kappa.base.sections import RolloutSettings
from kappa.commands.app import run_command
from kappa.commands.terminal import moving
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.history import rollout_entries
from kappa.replay.rollout.promote import next_promote_step
from kappa.replay.rollout.state import State
from kappa.replay.rollout.step import Append, Sight
from kappa.replay.rollout.verify.diff_listing import difference_line
from kappa.replay.status.follow import rollout_news, verification_text
from kappa.replay.status.listings import history_listing
from kappa.replay.status.status import observe_status
from kappa.replay.status.status_text import status_heading, status_listing
from kappa.serving.query.render import json_value
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import CaughtUp, Difference, Event, OutcomeCount, Served, Verified
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import Store

Kappa = Callable[..., tuple[int, str, str]]
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
    # On a busy machine any step may take long enough for a line of progress.
    monkeypatch.setattr(moving, "_FIRST_SECONDS", 600.0)

    def type_in(*arguments: str) -> tuple[int, str, str]:
        code = run_command(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return type_in


def append(store: Store, *events: Event) -> State:
    journal = Journal(store)
    for event in events:
        assert journal.append(fold_records(journal.after(0)).last + 1, event)
    return fold_records(journal.after(0))


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
    make_build(
        store,
        "a",
        {table: before, appended(): [{"carrier": "UA", "delay": 1}] * 3},
        tally=Tally(duplicate=1),
    )
    make_build(store, "b", {table: after, appended(): []}, tally=Tally(duplicate=1, rejected=2))
    append(store, staged("a"), CaughtUp(1, Offsets()), verified(1), served(1, 1, "a"), staged("b"))
    return store


def test_people_read_a_heading_and_samples_per_table(kappa: Kappa, two: Store) -> None:
    code, out, err = kappa("diff", "flights", "--sample", "2")

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "before: build a; after: build b; both at flights:0=10 planes:0=10",
        "",
        "delays: 4 rows, 1 added (25 %), 1 removed (25 %), 3 changed (75 %): on_time 2, note 1",
        "  largest change of on_time: 100 %",
        "  added:",
        "    carrier      flights  on_time  mean  note",
        "    ───────────  ───────  ───────  ────  ────",
        "    new\\x1b[31m        9        1   0.5  null",
        "  removed:",
        "    carrier  flights  on_time  mean  note",
        "    ───────  ───────  ───────  ────  ────",
        "    gone           9        1   0.5  null",
        "  changed, 2 of them:",
        "    carrier  on_time  note",
        "    ───────  ───────  ────────────",
        "    AA       5        null -> null",
        "    UA       3 -> 2   null",
        "",
        "departures: 3 rows before and 0 after, 0 added, 3 removed (100 %), 0 changed",
        "  removed:",
        "    carrier  delay  times",
        "    ───────  ─────  ─────",
        "    UA           1      3",
        "",
        "rejects: 0 before, 2 now",
        "flights: rejected: 0 before, 2 after",
    ]


def test_machines_get_all_of_it(kappa: Kappa, two: Store) -> None:
    document = json.loads(kappa("diff", "flights", "-o", "json")[1])

    assert (document["before"], document["after"]) == (
        {"build": "a", "frontier": 1},
        {"build": "b", "frontier": 1},
    )
    assert (document["offsets"]["flights"], document["aligned"], document["equal"]) == (
        {"0": 10},
        False,
        False,
    )
    delays, departures = document["tables"]
    assert (
        delays["table"],
        delays["changed"],
        delays["changed_share"],
        delays["changed_by_column"],
    ) == ("delays", 3, 0.75, {"on_time": 2, "note": 1})
    assert delays["samples"][0] == {
        "kind": "added",
        "before": None,
        "after": row("new\x1b[31m", 1),
        "times": 1,
    }
    assert [
        sample["before"]["carrier"] for sample in delays["samples"] if sample["kind"] == "changed"
    ] == ["AA", "UA", None]
    assert departures["samples"] == [
        {"kind": "removed", "before": {"carrier": "UA", "delay": 1}, "after": None, "times": 3}
    ]
    assert {"topic": "flights", "what": "rejected", "before": 0, "after": 2} in document["counts"]


def test_csv_has_a_row_per_table(kappa: Kappa, two: Store) -> None:
    rows = list(
        csv.DictReader(io.StringIO(kappa("diff", "flights", "--table", "delays", "-o", "csv")[1]))
    )

    assert [(each["table"], each["changed"], each["changed_share"]) for each in rows] == [
        ("delays", "3", "0.75")
    ]


def test_equal_builds_are_said_to_be(kappa: Kappa, store: Store) -> None:
    for build in ("a", "b"):
        make_build(store, build, {folded(): [{"carrier": "UA", "on_time": 1}]})
    append(store, staged("a"), CaughtUp(1, Offsets()), verified(1), served(1, 1, "a"), staged("b"))

    assert kappa("diff", "flights", "b", "a")[1].splitlines() == [
        "before: build b; after: build a; both at flights:0=10 planes:0=10",
        "",
        "delays: 1 row, 0 added, 0 removed, 0 changed",
    ]
    assert json.loads(kappa("diff", "flights", "-o", "json")[1])["equal"]


def test_builds_that_are_apart_are_refused_and_their_alignment_is_not(
    kappa: Kappa, store: Store
) -> None:
    make_build(store, "a", {folded(): []}, at=10)
    make_build(store, "b", {folded(): []}, at=10)
    append(store, staged("a"), CaughtUp(1, Offsets()), verified(1), served(1, 1, "a"), staged("b"))
    align(store, "b", "a")
    newest = Frontiers(store, "a").newest()
    assert newest is not None
    Frontiers(store, "a").publish(
        replace(newest, number=2, offsets=Offsets({"flights": {0: 17}, "planes": {0: 10}}))
    )
    assert "both at flights:0=10" in kappa("diff", "flights")[1]

    store.delete("leases/of-the-alignment.json")
    code, out, err = kappa("diff", "flights")

    assert (code, out) == (6, "")
    assert "7 offsets apart, so their rows cannot be compared" in err
    assert "kappa verify flights brings a candidate" in err


def test_keys_that_only_the_broker_can_settle_need_one(kappa: Kappa, store: Store) -> None:
    for build in ("a", "b"):
        make_build(store, build, {folded(): [], latest(): []})
    append(store, staged("a"), CaughtUp(1, Offsets()), verified(1), served(1, 1, "a"), staged("b"))

    code, _, err = kappa("diff", "flights")
    assert (code, "kappa up -d" in err) == (1, True)
    assert kappa("diff", "flights", "--table", "delays")[0] == 0


def test_a_slip_is_told(kappa: Kappa, two: Store) -> None:
    assert kappa("diff", "flights", "a")[0] == 2
    code, _, err = kappa("diff", "flights", "--table", "delay")
    assert (code, "neither build has a table delay" in err, "delays, departures" in err) == (
        2,
        True,
        True,
    )


DIFFERENCES = (
    Difference(
        "delays",
        7034,
        7034,
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


def test_a_rollouts_progress_its_history_and_its_receipt_tell_the_differences(store: Store) -> None:
    counts = (OutcomeCount("flights", "duplicate", 1, 1), OutcomeCount("flights", "rejected", 0, 2))
    told = Verified(
        5,
        "passed",
        Offsets(),
        live_build="a",
        differences=DIFFERENCES[:1],
        counts=counts,
        incomparable_topics=("planes",),
    )
    before = append(
        store,
        staged("a"),
        CaughtUp(1, Offsets()),
        verified(1),
        served(1, 1, "a"),
        staged("b"),
        CaughtUp(5, Offsets()),
    )
    state = append(store, told)

    lines = rollout_news(before.rollout(5), state.rollout(5))
    holding = append(store, held(5, "a"))
    here, there = frontier("b", 10), frontier("a", 10, hold=holding.last)
    step = next_promote_step(
        Sight(holding, holding.rollout(5), here, there, frozenset({"flights"})), RolloutSettings()
    )

    assert [line.strip() for line in lines[1:]] == [
        difference_line(DIFFERENCES[0]),
        "rejects: 0 before, 2 now",
        "flights: rejected: 0 before, 2 after",
        "topic planes is not the same for both builds: what comes from it is not comparable",
    ]
    assert (
        history_listing(rollout_entries(state)).row_objects()[-1]["differences"][0]["changed"]
        == 412
    )
    assert json_value(history_listing(rollout_entries(state)).row_objects())
    assert isinstance(step, Append)
    assert isinstance(step.event, Served)
    receipt = step.event.receipt
    assert (receipt.differences, receipt.counts, receipt.incomparable_topics) == (
        told.differences,
        told.counts,
        told.incomparable_topics,
    )


@pytest.mark.parametrize(
    ("rejected", "records", "told"),
    [(3, 1200, ["  rejects: 3 of 1,200 records"]), (0, 1200, []), (None, None, [])],
)
def test_a_first_build_tells_what_it_has_rejected(
    store: Store, rejected: int | None, records: int | None, told: list[str]
) -> None:
    state = append(
        store,
        staged("a"),
        CaughtUp(1, Offsets()),
        Verified(1, "passed", Offsets(), rejected=rejected, records=records),
    )

    assert verification_text(state.rollout(1)).splitlines()[2:] == told


@pytest.mark.parametrize(("limit", "loud"), [(0.01, True), (1, True), (2, False), (None, False)])
def test_a_serving_build_that_has_rejected_too_much_continues_and_status_warns(
    store: Store, limit: float | None, loud: bool
) -> None:
    make_build(
        store,
        "a",
        {folded(columns=COLUMNS): []},
        tally=Tally(decoded=97, rejected=2),
        max_rejects=limit,
    )
    frontiers = Frontiers(store, "a")
    newest = frontiers.newest()
    assert newest is not None
    frontiers.publish(replace(newest, number=2, published_at=now()))
    append(store, staged("a"), CaughtUp(1, Offsets()), verified(1), served(1, 1, "a"))

    status = observe_status(store, None)

    (seen,) = status_listing(status, datetime.now(UTC)).row_objects()
    assert (
        "WARNING: pipeline flights: build a (live) has rejected 2 of 99 records (2.02 %)"
        in status_heading(status, None, None)
    ) is loud
    assert ("has rejected 2 of 99 records" in seen["note"]) is loud
    assert seen["state"] == "serving"
