"""Laws of verification: a build passes only if both builds were compared at equal offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from journals import held, numbered, served, staged, verified
from msgspec.structs import replace
from twins import FLIGHTS, PLANES, align, appended, folded, latest, make_build

from kappa.base.document_seal import encoded
from kappa.base.errors import Conflict, Unreachable, UsageError
from kappa.code.code_snapshot import ensure_snapshot, hash_files
from kappa.code.fingerprint import has_key_format
from kappa.declare.options import Thresholds
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.verify.pairs import (
    bring_together,
    builds_to_compare,
    newest_pair,
    pin_equal,
)
from kappa.replay.rollout.verify.unsettled_keys import texts_for, unsettled_keys
from kappa.replay.rollout.verify.verify import (
    VerificationMeans,
    exceeded_thresholds,
    judge_results,
    sampled_columns,
    unmeasured_tables,
    verify_and_append_verdict,
    verify_candidate,
)
from kappa.state.build_status import turns_asked, verification_progress
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Check,
    Difference,
    OutcomeCount,
    Verified,
)
from kappa.state.journal.journal import Journal
from kappa.state.lease import Lease, ensure_lease, ensure_released, live_leases, put_floor
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

HIDDEN = {"_log_time": 1, "_partition": 0, "_offset": 0, "_deleted": False}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


class FakeLog:
    """A broker that knows one compacted topic."""

    def __init__(self, *keys: bytes, topic_id: str | None = "id-of-planes") -> None:
        self._keys = keys
        self._topic_id = topic_id
        self.asked: list[tuple[str, Offsets]] = []
        self.away = False

    def facts(self, _name: str) -> Any:
        if self.away:
            raise Unreachable("no broker")
        return None if self._topic_id is None else SimpleNamespace(id=self._topic_id)

    def keys(self, topic: str, start: Offsets) -> Iterator[bytes]:
        self.asked.append((topic, start))
        return iter(self._keys)


def rows(**on_time: int) -> list[dict[str, Any]]:
    return [{"carrier": carrier, "on_time": count} for carrier, count in on_time.items()]


def hundred(*, changed: int = 0, removed: int = 0, added: int = 0) -> list[dict[str, Any]]:
    return [
        {"carrier": f"c{n}", "on_time": 1 + (n >= 100 - changed)}
        for n in range(removed, 100 + added)
    ]


PAIR = (staged("a"), CaughtUp(1, Offsets()), verified(1), served(1, 1, "a"), staged("b"))
UNDERWAY = (*PAIR, CaughtUp(5, Offsets()))


def make_both(store: Store, tables: dict[TableBirth, Any]) -> Lease:
    """Makes builds a and b with the same tables, and aligns them. Returns the lease."""
    for build in ("a", "b"):
        make_build(store, build, tables)
    return align(store, "b", "a")


def verify(store: Store, live: str | None = "a", **means: Any) -> Verified:
    """Returns the verdict on the candidate, build b."""
    rollout = fold_records(numbered(*UNDERWAY)).rollout(5)
    return verify_candidate(store, rollout, live, VerificationMeans(60, **means))


def verdict_on(
    store: Store,
    before: dict[TableBirth, Any],
    after: dict[TableBirth, Any],
    *,
    log: FakeLog | None = None,
) -> Verified:
    make_build(store, "a", before)
    make_build(store, "b", after)
    align(store, "b", "a")
    return verify(store, log=log)


def test_a_candidate_is_compared_with_the_live_build_at_their_alignment(any_store: Store) -> None:
    seen = verdict_on(any_store, {folded(): rows(UA=1, AA=2)}, {folded(): rows(UA=1, AA=3, DL=4)})

    assert (seen.verdict, seen.live_build, seen.reason) == ("passed", "a", "")
    assert seen.differences == (
        Difference(
            *("delays", 2, 3),
            added=1,
            changed=1,
            changed_by_column={"on_time": 1},
            largest_relative_change={"on_time": pytest.approx(1 / 3)},
        ),
    )
    assert [lease.id for lease in live_leases(any_store, 0)] == ["of-the-alignment"]


def test_people_see_which_table_is_looked_at(store: Store) -> None:
    verdict_on(store, {folded(): rows(UA=1)}, {folded(): rows(UA=1)})

    assert verification_progress(store, "b") == "comparing table delays (1 of 1)"
    store.put("builds/b/verification.json", b"{")
    assert verification_progress(store, "b") == ""
    assert verify(store).verdict == "passed"


def test_what_both_have_folded_since_the_alignment_is_not_looked_at(store: Store) -> None:
    make_build(store, "a", {folded(): rows(UA=1)})
    make_build(store, "b", {replace(folded(), checks=("on_time < 5",)): rows(UA=1)})
    align(store, "b", "a")
    newer = Frontiers(store, "b").newest()
    offsets, versions = Offsets({"flights": {0: 99}}), {"delays": 7, "rejects": 0}
    Frontiers(store, "b").publish(replace(newer, number=2, offsets=offsets, versions=versions))

    seen = verify(store)

    assert (seen.verdict, seen.offsets.at("flights", 0)) == ("passed", 10)


def test_the_first_build_has_nothing_to_be_compared_with(store: Store) -> None:
    make_build(store, "b", {replace(folded(max_changed=0.0), checks=("on_time > 0",)): rows(UA=1)})

    seen = verify(store, None)

    assert (seen.verdict, seen.live_build, seen.differences) == ("passed", None, ())
    assert seen.checks[0].passed


def kept_view(sql: str = "select carrier, on_time from delays where on_time > 1") -> TableBirth:
    columns = (
        *(("carrier", "string"), ("on_time", "bigint")),
        *(("_deleted", "boolean"), ("_since", "bigint")),
    )
    keys = ("carrier",)
    return TableBirth("late", columns, keys=keys, view=sql, by=keys, reads=("delays",))


def stored(**on_time: int) -> list[dict[str, Any]]:
    return [{**row, "_deleted": False, "_since": 1} for row in rows(**on_time)]


@pytest.mark.parametrize("check_rows", [10, 1])
@pytest.mark.parametrize(
    ("found", "verdict"), [({"AA": 2}, "passed"), ({"AA": 3}, "failed"), ({"UA": 1}, "failed")]
)
def test_a_view_that_is_not_its_text_passes_nothing(
    store: Store, found: dict[str, int], verdict: str, check_rows: int
) -> None:
    """A view is compared with its text, which DuckDB runs over the tables.

    A rewritten query must not be the measure for itself.
    """
    make_build(store, "b", {folded(): rows(UA=1, AA=2), kept_view(): stored(**found)})

    seen = verify(store, None, check_rows=check_rows)

    assert (seen.verdict, seen.checks[-1].table) == (verdict, "late")
    if verdict == "failed":
        unlike = " of view late do not satisfy: its stored rows are those of its query"
        assert seen.reason.endswith(unlike)


def test_a_text_names_the_tables_of_its_own_pipeline(store: Store) -> None:
    """In a view's text, `rejects` are those of its own pipeline.

    For readers, the rejects of all pipelines are one relation, with one more column.
    """
    sql = (
        "select reason, count(*) as n from rejects natural join"
        " (select distinct 'x' as pipeline, reason from rejects) group by all"
    )
    columns = (("reason", "string"), ("n", "bigint"), ("_deleted", "boolean"), ("_since", "bigint"))
    bad = TableBirth("bad", columns, ("reason",), view=sql, by=("reason",), reads=("rejects",))
    kept = {"reason": "not-json", "n": 2, "_deleted": False, "_since": 1}
    made = {folded(): rows(UA=1), bad: [kept]}
    make_build(store, "b", made, rejects=[{"reason": "not-json", "offset": n} for n in (1, 2)])

    seen = verify(store, None)

    assert (seen.verdict, seen.reason) == ("passed", "")


def test_a_text_that_cannot_be_computed_concludes_nothing(store: Store) -> None:
    failing = kept_view("select carrier, error('no')::bigint as on_time from delays")
    make_build(store, "b", {folded(): rows(UA=1), failing: stored(UA=1)})

    seen = verify(store, None)

    assert seen.verdict == "inconclusive"
    assert "could not be run: its stored rows are those of its query:" in seen.reason


def test_without_an_alignment_with_the_build_that_serves_it_is_inconclusive(store: Store) -> None:
    for build in ("a", "b", "old"):
        make_build(store, build, {folded(): rows(UA=1)})

    never = verify(store)
    align(store, "b", "old")
    other = verify(store)

    assert never.verdict == "inconclusive"
    assert never.reason == "build b was not aligned with build a, which serves"
    assert other == never


@pytest.mark.parametrize("ended", ["released", "expired"])
def test_an_alignment_whose_lease_has_ended_is_inconclusive(store: Store, ended: str) -> None:
    lease = make_both(store, {folded(): rows(UA=1)})
    if ended == "released":
        ensure_released(store, lease.id)
    else:
        ensure_lease(store, replace(lease, expires_at=1.0))

    seen = verify(store)

    assert seen.verdict == "inconclusive"
    assert "is not kept any more" in seen.reason
    assert [each for each in live_leases(store, 0) if each.id != lease.id] == []


@pytest.mark.parametrize(
    ("kind", "most", "after", "told"),
    [
        ("changed", 0.05, hundred(changed=5), ""),
        ("changed", 0.05, hundred(changed=6), "6 %"),
        ("added", 0.07, hundred(added=7), ""),
        ("added", 0.07, hundred(added=8), "8 %"),
        ("removed", 0, hundred(), ""),
        ("removed", 0, hundred(removed=1), "1 %"),
        ("changed", 0.9, hundred(changed=6, removed=50, added=9), ""),
    ],
)
def test_a_threshold_is_kept_or_nothing_is_promoted(
    store: Store, kind: str, most: float, after: Any, told: str
) -> None:
    seen = verdict_on(store, {folded(): hundred()}, {folded(**{f"max_{kind}": most}): after})

    of = f"of the rows of table delays were {kind}, and max_{kind} is {most:.0%}"
    assert seen.reason == (f"{told} {of.replace('%', ' %')}" if told else "")
    assert seen.verdict == ("failed" if told else "passed")


def test_a_threshold_names_a_view_as_a_view() -> None:
    view = replace(folded(max_changed=0), view="from delays")

    (told,) = exceeded_thresholds([Difference("delays", 2, 2, changed=1)], [view])

    assert told.startswith("50 % of the rows of view delays were changed")


def test_a_check_names_a_view_as_a_view() -> None:
    view = replace(folded(), view="from delays")
    seen = Verified(1, "passed", Offsets(), checks=(Check("delays", "n > 0", 3, 2),))

    assert judge_results(seen, [view]).reason == "2 of 3 rows of view delays do not satisfy: n > 0"
    seen = replace(seen, checks=(Check("delays", "n > 0", 0, None, "no n"),))
    not_run = "a check of view delays could not be run: n > 0"
    assert judge_results(seen, [view]).reason.startswith(not_run)


def test_of_an_empty_table_any_row_is_all_of_it(store: Store) -> None:
    one = [{"carrier": "UA", "delay": 1}]
    seen = verdict_on(store, {appended(): []}, {appended(max_added=0.99): one})

    assert seen.verdict == "failed"
    assert seen.reason == "100 % of the rows of table departures were added, and max_added is 99 %"


def test_a_check_that_fails_and_a_threshold_that_is_exceeded_are_both_told(store: Store) -> None:
    table = replace(folded(max_changed=0.5), checks=("on_time < 2",))
    seen = verdict_on(store, {folded(): rows(UA=1)}, {table: rows(UA=2)})

    check, threshold = seen.reason.split("; ")
    assert check == "1 of 1 row of table delays do not satisfy: on_time < 2"
    changed = "100 % of the rows of table delays were changed, and max_changed is 50 %"
    assert threshold == changed


def test_a_failed_check_keeps_some_of_the_failing_rows(store: Store) -> None:
    """They come in the order of keys; long texts are cut, and no text steers a terminal."""
    table = folded(columns="carrier string, on_time bigint, note string")
    checks = ("on_time < 5 -- minutes", "on_time > 0", "carrier is not null")
    found: list[dict[str, Any]] = [{"carrier": f"c{n}", "on_time": n} for n in range(10)]
    found[4] = {"carrier": "c4", "on_time": None, "note": "x" * 200}
    found[5]["note"] = "\x1b[31m"
    make_build(store, "b", {replace(table, checks=checks): found})

    high, low, passed = verify(store, None).checks

    assert high.columns == ("carrier", "on_time", "note")
    assert (high.failing, high.samples) == (
        6,
        (
            ("c4", None, "x" * 99 + "…"),
            ("c5", "5", "\\x1b[31m"),
            *((f"c{n}", f"{n}", None) for n in (6, 7, 8)),
        ),
    )
    assert low.samples == (("c0", "0", None), ("c4", None, "x" * 99 + "…"))
    assert (passed.passed, passed.columns, passed.samples) == (True, (), ())


def test_the_failing_rows_of_ten_checks_are_kept(store: Store) -> None:
    """A record of the journal stays small, however many checks a table has."""
    table = replace(folded(), checks=tuple(f"on_time > {n}" for n in range(5, 17)))
    make_build(store, "b", {table: rows(UA=1)})

    assert [bool(each.samples) for each in verify(store, None).checks] == 10 * [True] + 2 * [False]


def test_samples_have_the_keys_and_the_columns_of_the_condition_first() -> None:
    columns = ", ".join(f"c{n} int" for n in range(20))
    table = folded(columns=f"{columns}, _hidden int", keys=("c3",))

    assert sampled_columns(table, "C19 + c15 > 0") == (
        *("c3", "c15", "c19", "c0", "c1", "c2"),
        *(f"c{n}" for n in range(4, 10)),
    )


def test_a_threshold_that_cannot_be_measured_does_not_pass(store: Store) -> None:
    columns = "carrier string, day date, on_time bigint"
    old, new = folded(columns=columns, keys=("carrier", "day")), folded(max_changed=0.5)

    seen = verdict_on(store, {old: []}, {new: []})

    assert seen.verdict == "inconclusive"
    others = "its keys are (carrier), and were (carrier, day)"
    assert f"table delays has thresholds and could not be compared: {others}" in seen.reason


def test_a_new_table_with_thresholds_has_nothing_to_be_measured_by() -> None:
    new, table = Difference("delays", None, 3), folded(max_added=0.0)

    assert exceeded_thresholds([new], [table]) == unmeasured_tables([new], [table]) == ()


def test_thresholds_are_the_candidates_own() -> None:
    gone = Difference("gone", 3, None)

    assert exceeded_thresholds([gone, Difference("delays", 2, 2, changed=2)], [folded()]) == ()
    assert folded().thresholds == Thresholds()


def test_keys_written_since_the_alignment_are_set_aside_and_counted(store: Store) -> None:
    def planes(**seats: int) -> list[dict[str, Any]]:
        return [{"tailnum": tail, "seats": count, **HIDDEN} for tail, count in seats.items()]

    log = FakeLog(b"N2", b"N2", b"\xff")
    before, after = {latest(): planes(N1=1, N2=2)}, {latest(max_changed=0.0): planes(N1=1, N2=3)}
    seen = verdict_on(store, before, after, log=log)

    assert seen.verdict == "passed"
    assert seen.differences == (Difference("planes", 1, 1, unsettled=1),)
    assert log.asked == [("planes", Offsets({"flights": {0: 10}, "planes": {0: 10}}))]


CODE = """from kappa import Avro, Table, Topic, pipeline

PLANES = Topic(
    "planes", event="tailnum string not null, seats int", kind="compacted",
    key="tailnum", FORM,
)


@pipeline(reads={"planes": PLANES}, writes=[Table("planes", latest=PLANES)])
def fleet():
    return {}
"""


@pytest.mark.parametrize(
    ("form", "line", "key"),
    [
        ('key_format=Avro("key.avsc")', "key format avro", "\x04N2"),
        ('format="debezium-json"', "format debezium-json", '{"tailnum": "N2"}'),
    ],
)
def test_keys_with_a_format_are_as_in_tables(store: Store, form: str, line: str, key: str) -> None:
    code = CODE.replace("FORM", form).encode()
    files = {"kappa.toml": b"", "fleet.py": code, "key.avsc": b'{"type": "string"}'}
    ensure_snapshot(store, "b", files)
    made = make_build(store, "b", {latest(): []}).birth
    birth = replace(made, module="fleet", pipeline="fleet", sources=hash_files(files))
    log = FakeLog(key.encode(), b"N2", b"\xff")
    for declared, wanted in (("", [key, "N2"]), (line, ["N2"])):
        birth = replace(birth, declarations={"topic planes": f"key tailnum\n{declared}"})
        found = unsettled_keys(log, birth, latest(), Offsets(), texts_for(store, birth))
        assert list(found or ()) == wanted


def test_a_format_of_changes_reads_its_keys_itself() -> None:
    lines = "key tailnum\nformat debezium-avro\ncolumn tailnum string not null"
    assert has_key_format(lines)
    assert not has_key_format(lines.replace("debezium-avro", "csv"))


def test_without_a_broker_nothing_is_said_of_a_compacted_topics_keys(store: Store) -> None:
    make_both(store, {latest(): []})
    log = FakeLog()
    log.away = True

    for away in (None, log):
        with pytest.raises(Unreachable):
            verify(store, log=away)
    assert len(live_leases(store, 0)) == 1


@pytest.mark.parametrize(
    ("topic_id", "says"),
    [("another", "was deleted and created again"), (None, "was deleted since")],
)
def test_re_created_topic_is_inconclusive(store: Store, topic_id: str | None, says: str) -> None:
    """The verdict on a compacted topic that was created again is inconclusive."""
    seen = verdict_on(store, {latest(): []}, {latest(): []}, log=FakeLog(topic_id=topic_id))

    assert seen.verdict == "inconclusive"
    assert says in seen.reason


def test_tables_of_retained_topics_have_no_unsettled_keys(store: Store) -> None:
    kept = latest(topic="flights")
    birth = make_build(store, "a", {kept: [], folded(): []}, topics=(FLIGHTS, PLANES)).birth

    assert unsettled_keys(None, birth, kept, Offsets()) is None
    assert unsettled_keys(None, birth, folded(), Offsets()) is None


def test_what_became_of_records_on_both_sides_is_in_the_verdict(store: Store) -> None:
    make_build(store, "a", {folded(): []}, tally=Tally(decoded=8, duplicate=2))
    make_build(store, "b", {folded(): []}, tally=Tally(decoded=7, duplicate=3))
    align(store, "b", "a")

    assert OutcomeCount("flights", "duplicate", 2, 3) in verify(store).counts


def test_comparison_without_lease_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make_both(store, {folded(): rows(UA=1)})
    kept = "kappa.serving.query.pin.snapshot.PinnedSnapshot.is_kept"
    monkeypatch.setattr(kept, lambda _self: False)

    seen = verify(store)

    assert seen.verdict == "inconclusive"
    assert "lease" in seen.reason


def test_verdict_has_differences(store: Store) -> None:
    """The verdict contains the differences. A record of an older Kappa contains none."""
    journal = Journal(store)
    for number, record in enumerate(UNDERWAY, start=1):
        assert journal.append(number, record)
    make_build(store, "a", {folded(): rows(UA=1)})
    make_build(store, "b", {folded(): rows(UA=2)})
    align(store, "b", "a")

    verify_and_append_verdict(store, 5, VerificationMeans(60))

    told = fold_records(journal.after(0)).rollout(5).verified
    assert told.differences == (
        Difference(
            *("delays", 1, 1),
            changed=1,
            changed_by_column={"on_time": 1},
            largest_relative_change={"on_time": 0.5},
        ),
    )
    document = store.get_json("journal/00000000000000000007.json")
    for name in ("differences", "counts", "live_build", "incomparable_topics"):
        del document["event"][name]
    # Nor has it a seal.
    del document["before"]
    store.put("journal/00000000000000000007.json", encoded(document))
    older = fold_records(journal.after(0)).rollout(5).verified
    assert older == replace(told, differences=(), counts=(), live_build=None)


def test_builds_are_compared_at_their_alignment_either_way_round(store: Store) -> None:
    make_both(store, {folded(): []})

    for before, after in (("a", "b"), ("b", "a")):
        with pin_equal(store, before, after, lease_seconds=60) as (pair, pinned):
            assert (pair.before.build, pair.after.build) == (before, after)
            assert pair.lease == "of-the-alignment"
            assert pinned.snapshot.serving == {"flights": after}


def test_builds_at_equal_offsets_need_no_alignment(store: Store) -> None:
    make_build(store, "a", {folded(): []}, topics=(FLIGHTS, PLANES))
    make_build(store, "b", {folded(): []}, topics=(FLIGHTS,))

    with pin_equal(store, "a", "b", lease_seconds=60) as (pair, _):
        assert pair.lease is None
        assert pair.comparable == frozenset({"flights"})
        assert pair.offsets == Offsets({"flights": {0: 10}})


@pytest.mark.parametrize(
    ("at", "floor", "why"), [(1300, 1, "2,580 offsets apart"), (10, 2, "not kept any more")]
)
def test_builds_without_a_common_moment_are_not_compared(store, at, floor, why) -> None:
    """Builds at different offsets, or with collected frontiers, are refused with the reason."""
    make_build(store, "a", {folded(): []})
    make_build(store, "b", {folded(): []}, at=at)
    put_floor(store, "a", floor)

    with pytest.raises(Conflict, match=why) as told, pin_equal(store, "a", "b", lease_seconds=60):
        pass

    assert floor == 2 or "kappa verify" in told.value.hint
    assert live_leases(store, 0) == ()


def test_the_one_that_rests_behind_is_asked_for_a_turn_and_waited_for(store: Store) -> None:
    for build, at in (("a", 10), ("b", 13)):
        make_build(store, build, {folded(): []}, at=at)

    def fold() -> None:
        while "a" not in turns_asked(store):
            time.sleep(0.01)
        frontiers = Frontiers(store, "a")
        newest, ahead = frontiers.newest(), Frontiers(store, "b").newest()
        frontiers.publish(replace(newest, number=newest.number + 1, offsets=ahead.offsets))

    folding = Thread(target=fold)
    folding.start()
    bring_together(store, "a", "b", seconds=60)
    folding.join()

    assert newest_pair(store, "a", "b").offsets == Offsets({"flights": {0: 13}, "planes": {0: 13}})


@pytest.mark.slow
def test_builds_apart_are_waited_for_as_said(store: Store) -> None:
    for build, at in (("a", 10), ("b", 13)):
        make_build(store, build, {folded(): []}, at=at)

    bring_together(store, "a", "b", seconds=0.5)

    with pytest.raises(Conflict, match="6 offsets apart"):
        newest_pair(store, "a", "b")


def test_equal_frontiers_replace_a_lost_alignment(store: Store) -> None:
    ensure_released(store, make_both(store, {folded(): []}).id)

    with pin_equal(store, "a", "b", lease_seconds=60) as (pair, _):
        assert pair.lease is None


def test_what_is_compared_is_what_serves_with_the_candidate_or_with_the_build_before() -> None:
    state = fold_records(numbered(*PAIR))
    switch = (CaughtUp(5, Offsets()), verified(5), held(5, "a"), served(5, 2, "b", live="a"))
    later = fold_records(numbered(*switch, after=5), state)

    assert builds_to_compare(state, "flights", None, None) == ("a", "b")
    # The builds of the last switch.
    assert builds_to_compare(later, "flights", None, None) == ("a", "b")
    assert builds_to_compare(later, "flights", "a", "b") == ("a", "b")
    alone = fold_records(numbered(Abandoned(5, "no"), after=5), state)
    with pytest.raises(UsageError, match="no build beside the one that serves"):
        builds_to_compare(alone, "flights", None, None)


@pytest.mark.parametrize(
    ("pipeline", "before", "after", "says"),
    [
        ("hits", None, None, "no pipeline hits"),
        ("flights", "a", None, "two are compared"),
        ("flights", "a", "a", "itself"),
        ("flights", "a", "x", "no build x"),
    ],
)
def test_what_cannot_be_compared_is_a_slip(
    pipeline: str, before: str | None, after: str | None, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        builds_to_compare(fold_records(numbered(*PAIR)), pipeline, before, after)


PLACE = {"topic": "flights", "partition": 0, "reason": "wrong_type", "detail": "delay is a text"}
REJECTED = [{**PLACE, "offset": offset} for offset in (3, 4)]


@pytest.mark.parametrize("live", [None, "a"])
@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(1, "failed"), (0.1, "failed"), (0.2, "passed"), (2, "passed"), (None, "passed")],
)
def test_a_candidate_that_has_rejected_too_much_does_not_pass(
    store: Store, live: str | None, limit: float | None, verdict: str
) -> None:
    make_build(store, "a", {folded(): rows(UA=1)})
    made = {"tally": Tally(decoded=8, rejected=2), "rejects": REJECTED, "max_rejects": limit}
    make_build(store, "b", {folded(): rows(UA=1)}, **made)
    align(store, "b", "a")

    seen = verify(store, live)

    assert (seen.verdict, seen.rejected, seen.records) == (verdict, 2, 10)
    if verdict == "failed":
        most = "10 %" if limit == 0.1 else "1"
        told, example = seen.reason.split(": wrong_type 2; for ")
        assert told == f"it rejected 2 of 10 records (20 %), and max_rejects is {most}"
        assert example == "example flights:0:3: delay is a text"


@pytest.mark.parametrize(
    ("live", "before", "records", "limit", "verdict"),
    [
        (None, 0, 10, None, "failed"),
        ("a", 1, 10, None, "failed"),
        ("a", 2, 10, None, "passed"),
        ("a", 0, 200, None, "passed"),
        ("a", 0, 10, 0.2, "passed"),
    ],
)
def test_candidate_whose_function_fails_more_is_not_passed(
    store: Store, live: str | None, before: int, records: int, limit: float | None, verdict: str
) -> None:
    """A candidate fails if its function rejects many more records than that of the live build."""
    failed = [{**each, "reason": "function_failed"} for each in REJECTED]
    for build, rejects in (("a", failed[:before]), ("b", failed)):
        tally = Tally(decoded=records - len(rejects), rejected=len(rejects))
        made = {"tally": tally, "rejects": rejects, "max_rejects": limit}
        make_build(store, build, {folded(): rows(UA=1)}, **made)
    align(store, "b", "a")

    seen = verify(store, live)

    assert seen.verdict == verdict
    if verdict == "failed":
        assert seen.reason.startswith(
            f"its function fails on 2 of 10 records (20 %), where that of what serves fails on"
            f" {before}; if that is meant, declare max_rejects: function_failed 2; for example"
        )
