"""Laws of looking back: queries that are answered as of the past.

A query by time gets the frontiers that readers saw then, or a little before. A query by generation
gets the last frontiers that the generation showed. A query for a moment that is gone is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from births import make_birth
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kappa.base.errors import KappaError, UsageError
from kappa.engine.write.publisher import Keeper
from kappa.replay.rollout.garbage import ensure_data_deleted
from kappa.serving.query.pin.catalog import pin_at
from kappa.serving.query.pin.moments import (
    AtEventTime,
    AtGeneration,
    AtOffsets,
    AtTime,
    frontiers_at,
    log_time,
    parse_offsets,
    parse_time,
    time_text,
)
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.state.build import put_birth, read_birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Event, Receipt, Retired, Served, Staged
from kappa.state.journal.journal import Journal, JournalRecord, as_document
from kappa.state.kept_frontiers import KeptFrontierRecord, ensure_past_gone, kept_frontiers_of
from kappa.state.lease import live_leases, put_floor
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

EVERY, KEEP = 60.0, 600.0
PIPELINES = {"a": "flights", "b": "flights", "c": "trains"}


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def text(seconds: float) -> str:
    return moment(seconds).isoformat(timespec="milliseconds")


@dataclass
class Past:
    """Builds a and b of flights and c of trains, with a clock that tests set.

    The jobs keep the frontiers that jobs should keep. `seen` contains the states that readers saw.
    """

    store: Store
    now: float = 1_000.0
    serving: dict[str, str] = field(default_factory=dict)
    # By overlay, the build whose tables it serves.
    below: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    records: int = 0
    unheard: JournalRecord | None = None
    seen: list[tuple[float, int, dict[str, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keepers = {build: self.keeper(build) for build in PIPELINES}
        self.shown: dict[str, Frontier] = {}
        for build, pipeline in PIPELINES.items():
            tables = (TableBirth("t", (("x", "string"),)),)
            put_birth(self.store, make_birth(build, tables, pipeline=pipeline))
            self.publish(build)

    def keeper(self, build: str) -> Keeper:
        return Keeper(
            self.store,
            build,
            pipeline=PIPELINES[build],
            every_seconds=EVERY,
            clock=lambda: self.now,
        )

    def overlay(self, build: str, of: str) -> None:
        """Stages an overlay, and tells the jobs."""
        self.below[build] = of
        put_birth(self.store, replace(read_birth(self.store, of), build=build, tables_of=of))
        staged = self.record(Staged(PIPELINES[of], build, "v", (), tables_of=of))
        for each, keeper in self.keepers.items():
            keeper.read_record(staged, self.shown[each])

    def publish(self, build: str) -> int:
        last = self.shown.get(build)
        number = 1 if last is None else last.number + 1
        self.shown[build] = Frontier(
            number, build, 1, Offsets({"x": {0: number}}), {"t": number}, text(self.now)
        )
        self.store.put(f"builds/{build}/data/{number}", b"rows")
        Frontiers(self.store, build).publish(self.shown[build])
        self.note()
        return number

    def switch(self, pipeline: str, build: str, *, heard: bool = True) -> int:
        self.generation += 1
        self.serving[pipeline] = build
        receipt = Receipt(pipeline, build, "v", Offsets(), None, None)
        record = self.record(Served(1, self.generation, dict(self.serving), receipt))
        self.unheard = record
        if heard:
            self.hear_last()
        self.note()
        return self.generation

    def hear_last(self) -> None:
        for each, keeper in self.keepers.items():
            assert self.unheard is not None
            # A job that runs has looked around before.
            keeper._begun = True
            keeper.read_record(self.unheard, self.shown[each])

    def record(self, event: Event) -> JournalRecord:
        self.records += 1
        record = JournalRecord(self.records, event, text(self.now), "me", id=str(self.records))
        assert self.store.put_new_json(f"journal/{self.records:020d}.json", as_document(record))
        return record

    def retire(self, build: str) -> bool:
        """Retires a build as the controller does: the record is written first."""
        self.record(Retired(build))
        return ensure_data_deleted(self.store, build, now=self.now)

    def wait(self, seconds: float) -> None:
        """Lets time pass, while the jobs look at the journal every second."""
        for _ in range(int(seconds)):
            self.now += 1
            for build, keeper in self.keepers.items():
                keeper.look(self.shown[build])
            self.note()

    def be_away(self, seconds: int) -> None:
        """Kills all jobs, and starts them again after this time.

        Each job reads the journal from the beginning, and publishes the same frontier once more.
        """
        self.now += seconds
        for build in PIPELINES:
            self.keepers[build] = keeper = self.keeper(build)
            for record in Journal(self.store).after(0):
                keeper.read_record(record, self.shown[build])
            keeper.look(self.shown[build])
            self.publish(build)

    def note(self) -> None:
        folding = {build: self.below.get(build, build) for build in self.serving.values()}
        numbers = {build: self.shown[below].number for build, below in folding.items()}
        self.seen.append((self.now, self.generation, numbers))

    def collect(self, build: str) -> None:
        """Maintains a build, with maintenance's order of puts and looks (law 11)."""
        newest = self.shown[build].number
        put_floor(self.store, build, newest)
        needed = {
            kept.frontier.number for kept in ensure_past_gone(self.store, build, self.now, KEEP)
        }
        leased = {
            lease.pins[build].frontier
            for lease in live_leases(self.store, self.now)
            if build in lease.pins
        }
        for name in self.store.names(f"builds/{build}/data"):
            if int(name.rsplit("/", 1)[-1]) not in {newest, *needed, *leased}:
                self.store.delete(name)
        Frontiers(self.store, build).delete_below(newest)

    def collect_later(self, build: str) -> None:
        """Collects as if the present kept frontiers were past."""
        self.now += KEEP
        self.collect(build)
        self.now -= KEEP

    def read(self, when: AtTime | AtGeneration | AtOffsets | AtEventTime) -> Snapshot:
        """Reads as a reader does; all data must exist while the reader reads."""
        with pin_at(self.store, when, lease_seconds=2 * KEEP, clock=lambda: self.now) as pinned:
            for frontier in pinned.snapshot.frontiers.values():
                data = f"builds/{frontier.build}/data/{frontier.number}"
                assert self.store.get(data) is not None, "a pinned version was collected"
            pinned.confirm_kept()
            return pinned.snapshot

    def numbers(self, when: AtTime | AtGeneration) -> dict[str, int]:
        return {build: frontier.number for build, frontier in self.read(when).frontiers.items()}


@pytest.fixture
def past(any_store: Store) -> Past:
    return Past(any_store)


def at(seconds: float) -> AtTime:
    return AtTime(moment(seconds))


def test_across_a_promote_and_an_undo_each_generation_shows_what_it_showed_last(past: Past) -> None:
    past.switch("flights", "a")
    past.publish("a")
    past.wait(30)
    last_of_a = past.publish("a")
    past.wait(5)
    first_of_b = past.publish("b")
    past.switch("flights", "b")
    past.publish("a")
    past.wait(100)
    last_of_b = past.publish("b")
    past.wait(5)
    back_to_a = past.publish("a")
    past.switch("flights", "a")
    past.publish("b")
    past.wait(10)
    now_of_a = past.publish("a")
    for build in PIPELINES:
        past.collect(build)

    assert past.numbers(AtGeneration(1)) == {"a": last_of_a}
    assert past.numbers(AtGeneration(2)) == {"b": last_of_b}
    assert past.numbers(AtGeneration(3)) == {"a": now_of_a}
    assert past.numbers(at(1_029)) == {"a": 1}
    assert past.numbers(at(1_034)) == {"a": last_of_a}
    assert past.numbers(at(1_035)) == {"b": first_of_b}
    assert past.numbers(at(1_134)) == {"b": first_of_b}
    assert past.numbers(at(1_139)) == {"b": last_of_b}
    assert past.numbers(at(1_140)) == {"a": back_to_a}
    assert past.numbers(at(past.now)) == {"a": now_of_a}


@pytest.mark.parametrize("away", [False, True], ids=["heard", "read later"])
def test_an_overlay_is_looked_back_at_in_the_tables_it_served(past: Past, *, away: bool) -> None:
    past.switch("flights", "a")
    past.wait(5)
    last_of_a = past.publish("a")
    past.overlay("d", "a")
    past.switch("flights", "d", heard=not away)
    if away:
        past.be_away(0)
    first_of_d = past.shown["a"].number
    past.wait(100)
    last_of_d = past.publish("a")
    past.wait(5)
    past.switch("flights", "a")
    past.wait(5)
    now_of_a = past.publish("a")
    past.collect("a")
    # The record of its end takes none of the tables away.
    assert past.retire("d")

    assert past.numbers(AtGeneration(1)) == {"a": last_of_a}
    assert past.numbers(AtGeneration(2)) == {"d": last_of_d}
    assert past.numbers(AtGeneration(3)) == {"a": now_of_a}
    assert past.numbers(at(1_006)) == {"d": first_of_d}
    past.collect_later("a")
    assert past.numbers(AtGeneration(2)) == {"d": last_of_d}


def test_a_job_that_has_not_heard_of_the_switch_yet_is_looked_back_at_all_the_same(
    past: Past,
) -> None:
    past.switch("flights", "a")
    past.wait(3)
    last_of_a = past.publish("a")
    past.wait(3)
    past.switch("flights", "b", heard=False)

    assert past.numbers(AtGeneration(1)) == {"a": last_of_a}


def test_a_builds_earlier_serving_never_answers_for_a_later_time(
    past: Past,
) -> None:
    """A build's earlier time of serving never answers for a later time.

    The job may read the record of the switch only after it has published once more.
    """
    past.switch("flights", "a")
    past.wait(10)
    past.switch("flights", "b")
    past.wait(10)
    before = past.publish("a")
    past.switch("flights", "a", heard=False)
    past.now += 0.1
    first = past.publish("a")
    past.hear_last()
    past.now += 10

    assert first > before
    assert past.numbers(at(1_020)) == {"a": first}
    assert past.numbers(at(1_005)) == {"a": 1}


def test_a_generation_tells_of_all_its_pipelines_at_one_moment(past: Past) -> None:
    past.switch("flights", "a")
    past.switch("trains", "c")
    past.wait(100)
    of_c = past.publish("c")
    past.wait(1)
    past.switch("flights", "b")
    past.wait(100)
    past.publish("c")
    past.collect("c")

    assert past.numbers(AtGeneration(2)) == {"a": 1, "c": of_c}


def test_what_is_kept_no_longer_is_refused_with_the_times_that_are(past: Past) -> None:
    past.switch("flights", "a")
    for _ in range(30):
        past.wait(61)
        past.publish("a")
    past.collect("a")

    with pytest.raises(
        KappaError, match=r"1970-01-01T00:20:00.000Z \(generation 1\) is not kept any more"
    ) as refused:
        past.read(at(1_200))
    assert refused.value.exit_code == 1
    _, _, there = refused.value.hint.partition("; generation 1 from ")
    assert refused.value.hint.startswith("there is: generation 1 from 1970-01-01T00:16:40.000Z to ")
    since = parse_time(there.partition(" to ")[0])[0]
    assert moment(past.now - KEEP - 2 * 61) <= since <= moment(past.now - KEEP)
    assert there.endswith("to now")
    assert past.read(AtTime(since)).generation == 1
    assert past.numbers(at(1_000)) == {"a": 1}


def test_what_a_retired_build_showed_is_refused(past: Past) -> None:
    past.switch("flights", "a")
    past.wait(10)
    past.switch("flights", "b")
    assert past.retire("a")

    with pytest.raises(KappaError, match="what generation 1 showed last is not kept") as refused:
        past.read(AtGeneration(1))
    assert refused.value.hint == "there is: generation 2 from 1970-01-01T00:16:50.000Z to now"


@pytest.mark.parametrize(
    ("when", "message", "hint"),
    [
        (AtGeneration(3), "there is no generation 3", "generations are numbered 1 to 2"),
        (at(999), "nothing was served yet at 1970-01-01T00:16:39.000Z", "the first since 1970"),
        (at(2_000), "is yet to come", "UTC"),
    ],
)
def test_what_never_was_is_a_slip(
    past: Past, when: AtTime | AtGeneration, message: str, hint: str
) -> None:
    past.switch("flights", "a")
    past.switch("flights", "b")

    with pytest.raises(UsageError, match=message) as refused:
        past.read(when)
    assert hint in refused.value.hint


def test_where_nothing_serves_there_is_no_past(past: Past) -> None:
    with pytest.raises(UsageError, match="there is no generation 1") as refused:
        past.read(AtGeneration(1))
    assert refused.value.hint == "nothing is served yet: kappa deploy"


@pytest.mark.parametrize(
    ("written", "time", "with_zone"),
    [
        ("2026-01-31T14:05:00Z", datetime(2026, 1, 31, 14, 5, tzinfo=UTC), True),
        ("2026-01-31 15:05+01:00", datetime(2026, 1, 31, 14, 5, tzinfo=UTC), True),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC), False),
        ("2026-01-31T14:05:00.250", datetime(2026, 1, 31, 14, 5, 0, 250_000, tzinfo=UTC), False),
    ],
)
def test_a_time_without_a_zone_is_utc(written: str, time: datetime, with_zone: bool) -> None:
    assert parse_time(written) == (time, with_zone)


@pytest.mark.parametrize(
    "written", ["14:05", "2026-01", "2026-01-31Z", "yesterday", "2026-13-31T14:05", ""]
)
def test_what_is_no_time_is_a_slip(written: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_time(written)


def meddle(
    patch: pytest.MonkeyPatch, store: Store, meanwhile: Callable[[], object], *, after: bool
) -> None:
    """Runs an action when the next lease is put: before the put, or right after it."""
    put_json = store.put_json

    def put(name: str, document: object, *, synced: bool = True) -> None:
        if not name.startswith("leases/"):
            put_json(name, document, synced=synced)
            return
        patch.setattr(store, "put_json", put_json)
        if not after:
            meanwhile()
        put_json(name, document, synced=synced)
        if after:
            meanwhile()

    patch.setattr(store, "put_json", put)


@pytest.mark.parametrize("after", [False, True])
def test_what_goes_between_look_and_second_look_is_refused(
    past: Past, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    with_history(past)
    meddle(monkeypatch, past.store, lambda: past.collect_later("a"), after=after)

    with pytest.raises(KappaError, match="is not kept any more"):
        past.read(at(1_100))
    assert live_leases(past.store, past.now) == ()


def test_what_is_pinned_is_kept_though_its_time_is_over(past: Past) -> None:
    with_history(past)

    with pin_at(past.store, at(1_100), lease_seconds=2 * KEEP, clock=lambda: past.now) as pinned:
        (frontier,) = pinned.snapshot.frontiers.values()
        past.collect_later("a")
        pinned.confirm_kept()
        assert past.store.get(f"builds/a/data/{frontier.number}") is not None
        with pytest.raises(KappaError):
            past.read(at(1_100))
    past.collect_later("a")

    assert past.store.get(f"builds/a/data/{frontier.number}") is None


@pytest.mark.parametrize("after", [False, True])
def test_a_build_that_is_retired_while_it_is_looked_at_is_refused(
    past: Past, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    past.switch("flights", "a")
    past.wait(10)
    past.switch("flights", "b")
    deleted: list[bool] = []
    meddle(monkeypatch, past.store, lambda: deleted.append(past.retire("a")), after=after)

    with pytest.raises(KappaError):
        past.read(AtGeneration(1))

    assert deleted == [not after]
    assert ensure_data_deleted(past.store, "a", now=past.now)


def test_a_build_that_is_retired_while_it_is_pinned_is_waited_for(past: Past) -> None:
    past.switch("flights", "a")
    past.wait(10)
    past.switch("flights", "b")

    with pin_at(past.store, AtGeneration(1), lease_seconds=60, clock=lambda: past.now) as pinned:
        assert not past.retire("a")
        assert past.store.get("builds/a/data/1") is not None
        pinned.confirm_kept()

    assert ensure_data_deleted(past.store, "a", now=past.now)


def with_history(past: Past) -> None:
    past.switch("flights", "a")
    for _ in range(4):
        past.wait(61)
        past.publish("a")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 150)),
        st.tuples(st.just("publish"), st.sampled_from(list(PIPELINES))),
        st.tuples(st.just("switch"), st.sampled_from(["flights", "trains"])),
        st.tuples(st.just("be away"), st.integers(1, 300)),
        st.tuples(st.just("collect"), st.sampled_from(list(PIPELINES))),
    ),
    min_size=3,
    max_size=40,
)


@pytest.mark.slow
@pytest.mark.law
@examples(12)
@given(steps=STEPS)
def test_a_time_gets_what_was_seen_then_or_just_before_or_a_refusal(
    new_store: Callable[[], Store], steps: list[tuple[str, object]]
) -> None:
    past = Past(new_store())
    past.switch("flights", "a")
    for what, which in steps:
        match what:
            case "wait":
                past.wait(int(str(which)))
            case "publish":
                past.publish(str(which))
            case "be away":
                past.be_away(int(str(which)))
            case "switch" if which == "trains":
                past.switch("trains", "c")
            case "switch":
                past.switch("flights", "b" if past.serving["flights"] == "a" else "a")
            case _:
                past.collect(str(which))
    check(past)


def check(past: Past) -> None:
    """Asserts that each past second is answered with what readers saw then, or a little before.

    A young second must not be refused.
    """
    last = {time: (generation, numbers) for time, generation, numbers in past.seen}
    times = {
        time + later for time in sorted(last)[:: max(1, len(last) // 25)] for later in (0.0, 0.5)
    } - {past.now + 0.5}
    for time in sorted(
        times | {time - 0.5 for time in last if time - 1 not in last and time > 1_000}
    ):
        before = max(each for each in last if each <= time)
        generation, seen = last[before]
        try:
            found = past.read(at(time))
        except KappaError:
            assert time < past.now - KEEP, f"second {time} is young and was refused"
            continue
        assert found.generation == generation
        for build, frontier in found.frontiers.items():
            # The last one shown before that window counts, too: it was the newest for a while.
            told = [(when, each[build]) for when, _, each in past.seen if build in each]
            before = [when for when, _ in told if when <= time - EVERY - 1]
            since = max(before, default=0.0)
            lately = {number for when, number in told if since <= when <= time}
            assert frontier.number in lately, (
                f"{build} showed {lately} around second {time}, and not {frontier.number}"
            )
            assert frontier.number <= seen[build]


@pytest.mark.slow
def test_readers_of_the_past_and_collections_in_many_threads_never_miss_a_file(past: Past) -> None:
    past.switch("flights", "a")
    for _ in range(20):
        past.wait(61)
        past.publish("a")
    errors: list[BaseException] = []
    done = threading.Event()

    def reading(seconds: float) -> None:
        while not done.is_set():
            try:
                past.read(at(past.now - seconds))
            except KappaError:
                continue
            # Raised below, by the thread that may fail the test.
            except BaseException as error:  # noqa: BLE001
                errors.append(error)
                return

    readers = [threading.Thread(target=reading, args=(KEEP + 30 * n,)) for n in range(-2, 3)]
    for reader in readers:
        reader.start()
    for _ in range(40):
        past.wait(31)
        past.publish("a")
        past.collect("a")
    done.set()
    for reader in readers:
        reader.join()

    assert errors == []
    assert live_leases(past.store, past.now) == ()
    assert len(kept_frontiers_of(past.store, "a")) <= KEEP / EVERY + 4
    assert sum(1 for _ in Journal(past.store).after(0)) == 1


# Looking back by the log.


def offset_of_x(offset: int) -> AtOffsets:
    return AtOffsets(Offsets({"x": {0: offset}}))


def kept_at(
    *frontiers: tuple[dict[int, int], dict[int, int]], build: str = "a", until: str | None = None
) -> list[KeptFrontierRecord]:
    """Returns kept frontiers with these offsets and log times (in seconds) of topic x's partitions.

    The last but one frontier gets `until`, the time until which readers saw it.
    """
    found = []
    for number, (offsets, seconds) in enumerate(frontiers, 1):
        log_time = {"x": {partition: second * 1000 for partition, second in seconds.items()}}
        at = Offsets({"x": offsets})
        frontier = Frontier(number, build, 1, at, {"t": number}, text(number), log_time=log_time)
        found.append(KeptFrontierRecord(frontier))
    return [*found[:-2], *(replace(each, until=until) for each in found[-2:-1]), *found[-1:]]


@pytest.mark.parametrize(
    ("ms", "told_as"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (1_700_000_000_000_000, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_log_time_is_told_whatever_producers_have_sent(
    ms: int | None, told_as: str | None
) -> None:
    frontier = Frontier(
        1, "b", 1, Offsets(), {}, "", log_time={} if ms is None else {"t": {0: ms, 1: 0}}
    )

    found = log_time(frontier)

    assert (None if found is None else time_text(found)) == told_as


def chosen(when: AtOffsets | AtEventTime, kept: list[KeptFrontierRecord]) -> int | None:
    """Returns the number of the chosen frontier; the last number is the newest frontier's."""
    found = frontiers_at(when, {"flights": "a"}, {"a": kept[:-1]}, {"a": kept[-1].frontier})
    return found["a"].number


@pytest.mark.parametrize(
    ("typed", "offsets"),
    [
        ("hits:0=120,hits:1=80", {"hits": {0: 120, 1: 80}}),
        ("hits:0=120 web.hits_2-x:11=0", {"hits": {0: 120}, "web.hits_2-x": {11: 0}}),
        (" hits:0=120, ", {"hits": {0: 120}}),
    ],
)
def test_offsets_are_typed_as_kappa_writes_them_or_with_commas(
    typed: str, offsets: dict[str, dict[int, int]]
) -> None:
    assert parse_offsets(typed) == Offsets(offsets)


@pytest.mark.parametrize(
    "typed",
    [
        *("", ",", "hits", "hits:0", "hits=3", "hits:0=-1", "hits:0=3.5", "hits:0=³", "höts:0=3"),
        *("hits:0=1,hits:0=1", "hits:0=99999999999999999999"),
    ],
)
def test_what_are_no_offsets_is_a_slip(typed: str) -> None:
    with pytest.raises(UsageError, match=r"not an offset|no offsets|given twice"):
        parse_offsets(typed)


def test_offsets_get_the_newest_frontier_at_exactly_the_named_partitions() -> None:
    kept = kept_at(({0: 5, 1: 1}, {}), ({0: 5, 1: 2}, {}), ({0: 5, 1: 2}, {}), ({0: 9, 1: 2}, {}))

    assert chosen(offset_of_x(5), kept) == 3
    assert chosen(AtOffsets(Offsets({"x": {0: 5, 1: 1}})), kept) == 1
    assert chosen(offset_of_x(9), kept) == 4


def test_offsets_that_no_frontier_stood_at_are_refused_with_the_nearest() -> None:
    kept = kept_at(({0: 5, 1: 1}, {}), ({0: 9, 1: 2}, {}))

    for offset, nearest in (
        (7, "flights is kept before at x:0=5 x:1=1 and after at x:0=9 x:1=2;"),
        (10, "is kept before at x:0=9 x:1=2;"),
        (3, "is kept after at x:0=5 x:1=1;"),
    ):
        with pytest.raises(KappaError, match=f"nothing is kept at x:0={offset}") as refused:
            chosen(offset_of_x(offset), kept)
        assert nearest in refused.value.hint
        assert not isinstance(refused.value, UsageError)


def test_offsets_of_topics_of_several_pipelines_are_meant_for_those_that_read_them() -> None:
    flights = kept_at(({0: 5}, {}), ({0: 9}, {}))
    trains = [
        replace(each, frontier=replace(each.frontier, offsets=Offsets({"y": {0: number}})))
        for number, each in enumerate(kept_at(({0: 1}, {}), ({0: 2}, {}), build="c"), 1)
    ]
    kept = {"a": flights[:1], "c": trains[:1]}
    newest = {"a": flights[1].frontier, "c": trains[1].frontier}

    def found(x: int, y: int) -> dict[str, int]:
        offsets = AtOffsets(Offsets({"x": {0: x}, "y": {0: y}}))
        there = frontiers_at(offsets, {"flights": "a", "trains": "c"}, kept, newest)
        return {build: frontier.number for build, frontier in there.items()}

    assert found(5, 2) == {"a": 1, "c": 2}
    assert found(9, 7) == {"a": 2}
    with pytest.raises(KappaError, match="nothing is kept at x:0=7 y:0=7") as refused:
        found(7, 7)
    near = "flights is kept before at x:0=5 and after at x:0=9; trains is kept before at y:0=2"
    assert near in refused.value.hint


@pytest.mark.parametrize("offsets", [{"y": {0: 1}}, {"x": {2: 1}}])
def test_a_topic_or_a_partition_that_nothing_reads_is_a_slip(
    offsets: dict[str, dict[int, int]],
) -> None:
    with pytest.raises(UsageError, match="nothing that serves reads"):
        chosen(AtOffsets(Offsets(offsets)), kept_at(({0: 5, 1: 1}, {})))


def test_an_event_time_gets_the_newest_frontier_with_nothing_later_in_any_partition() -> None:
    kept = kept_at(
        ({0: 0, 1: 0}, {}),
        ({0: 1, 1: 1}, {0: 10, 1: 20}),
        ({0: 2, 1: 1}, {0: 30, 1: 20}),
        ({0: 3, 1: 2}, {0: 31, 1: 40}),
    )

    assert [
        chosen(AtEventTime(moment(seconds)), kept) for seconds in (19, 20, 29.999, 30, 39, 40, 500)
    ] == [1, 2, 2, 3, 3, 4, 4]


def test_an_event_time_without_its_nearest_kept_frontier_is_refused() -> None:
    kept = kept_at(({0: 1}, {0: 10}), ({0: 9}, {0: 90}), until=text(50))

    for seconds, nearest in (
        (9, "flights is kept after at 1970-01-01T00:00:10.000Z;"),
        (20, "before at 1970-01-01T00:00:10.000Z and after at 1970-01-01T00:01:30.000Z"),
    ):
        with pytest.raises(KappaError, match="nothing is kept at the event time") as refused:
            chosen(AtEventTime(moment(seconds)), kept)
        assert nearest in refused.value.hint
    assert chosen(AtEventTime(moment(90)), kept) == 2


def test_a_pipeline_that_was_not_there_is_left_out(past: Past) -> None:
    past.switch("flights", "a")
    past.switch("trains", "c")
    past.wait(EVERY + 1)
    past.publish("a")
    past.wait(EVERY + 1)

    assert set(past.read(offset_of_x(past.shown["a"].number)).serving) == {"flights"}
    assert past.read(offset_of_x(past.shown["c"].number)).serving == {"flights": "a", "trains": "c"}


def kept_twice(past: Past) -> int:
    """Makes a serving build with kept frontiers before its present offsets.

    Returns the offset of the last kept frontier.
    """
    past.switch("flights", "a")
    for _ in range(3):
        past.wait(EVERY + 1)
        past.publish("a")
    past.wait(EVERY + 1)
    return past.shown["a"].number - 1


def test_offsets_are_read_as_long_as_they_are_kept(past: Past) -> None:
    wanted = kept_twice(past)

    assert past.read(offset_of_x(wanted)).frontiers["a"].number == wanted
    past.collect("a")
    assert past.read(offset_of_x(wanted)).frontiers["a"].number == wanted
    past.collect_later("a")
    with pytest.raises(KappaError, match="nothing is kept"):
        past.read(offset_of_x(wanted))


@pytest.mark.parametrize("after", [False, True])
def test_offsets_that_go_between_look_and_second_look_are_refused(
    past: Past, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    wanted = kept_twice(past)
    meddle(monkeypatch, past.store, lambda: past.collect_later("a"), after=after)

    with pytest.raises(KappaError, match="nothing is kept at"):
        past.read(offset_of_x(wanted))
    assert live_leases(past.store, past.now) == ()


def test_a_switch_between_look_and_second_look_starts_over_with_what_serves_then(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_twice(past)
    while past.shown["b"].number < past.shown["a"].number:
        past.publish("b")
    wanted = past.shown["a"].number
    meddle(monkeypatch, past.store, lambda: past.switch("flights", "b"), after=True)

    found = past.read(offset_of_x(wanted))

    assert found.serving == {"flights": "b"}


def test_where_nothing_serves_nothing_is_kept(past: Past) -> None:
    with pytest.raises(UsageError, match="nothing is served yet"):
        past.read(offset_of_x(1))
