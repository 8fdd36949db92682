"""Laws of the snapshot: no reader goes back, and a pinned snapshot is kept until the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from births import make_birth
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from served import serve_build

from kappa.base.errors import Conflict, Damaged, KappaError
from kappa.kafka.broker_requests import wait_until
from kappa.serving.query.pin import shared_pins
from kappa.serving.query.pin.catalog import pin_build, pin_pair, pin_served
from kappa.state.build import Birth, put_birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Held, Receipt, Served, Switched
from kappa.state.journal.journal import Journal
from kappa.state.lease import (
    GRACE_SECONDS,
    Lease,
    Pin,
    ensure_lease,
    ensure_released,
    live_leases,
    put_floor,
    read_lease,
)
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "röot")


def born(build: str, pipeline: str = "flights") -> Birth:
    delays = TableBirth("delays", (("carrier", "string"),))
    return make_birth(build, (delays,), pipeline=pipeline)


def publish(store: Store, build: str, offset: int, hold: int | None = None) -> Frontier:
    """Publishes the next frontier of a build.

    The frontier's number is the version of the tables, and the offset is their content.
    """
    frontiers = Frontiers(store, build)
    last = frontiers.newest()
    number = 1 if last is None else last.number + 1
    store.put(f"builds/{build}/data/{number}", str(offset).encode())
    at = Offsets({"flights": {0: offset}})
    frontier = Frontier(number, build, 1, at, {"delays": number}, "then", hold=hold)
    frontiers.publish(frontier)
    return frontier


def collect(store: Store, build: str, now: float, *, keep: int = 1) -> None:
    """Collects as a job does (law 11).

    The floor is put first. Then the leases are listed, and frontiers that neither needs are
    deleted.
    """
    newest = Frontiers(store, build).newest()
    assert newest is not None
    least = max(1, newest.number - keep + 1)
    put_floor(store, build, least)
    leased = {
        version
        for lease in live_leases(store, now)
        if build in lease.pins
        for version in lease.pins[build].versions.values()
    }
    for name in store.names(f"builds/{build}/data"):
        version = int(name.rsplit("/", 1)[-1])
        if version < least and version not in leased:
            store.delete(name)
    Frontiers(store, build).delete_below(least)


class Meddled(Store):
    """A store in which something happens at the moment when the first lease has been put."""

    def __init__(self, root: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self._meanwhile: Callable[[], None] | None = meanwhile

    def put_json(self, name: str, document: object, *, synced: bool = True) -> None:
        meanwhile = self._meanwhile if name.startswith("leases/") else None
        if meanwhile is not None:
            self._meanwhile = None
            meanwhile()
        super().put_json(name, document, synced=synced)


class Elsewhere(Store):
    """A store that readers take for a bucket; something happens before the next look at a floor."""

    is_on_disk = False

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.meanwhile: Callable[[], None] = lambda: None

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        if prefix.endswith("/floor"):
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
        return super().names(prefix, after=after)


def test_where_nothing_serves_the_snapshot_is_empty(store: Store) -> None:
    with pin_served(store, lease_seconds=60) as pinned:
        assert pinned.snapshot.generation == 0
        assert pinned.snapshot.serving == {}


def test_a_snapshot_names_the_newest_frontier_of_each_serving_build(store: Store) -> None:
    for build, pipeline in (("flights-1", "flights"), ("hits-1", "hits")):
        put_birth(store, born(build, pipeline))
        publish(store, build, 3)
        serve_build(store, pipeline, build)
    publish(store, "flights-1", 9)

    with pin_served(store, lease_seconds=60) as pinned:
        assert pinned.snapshot.generation == 2
        assert pinned.snapshot.frontiers["flights-1"].offsets.at("flights", 0) == 9
        assert pinned.snapshot.frontiers["hits-1"].offsets.at("flights", 0) == 3
        assert pinned.snapshot.births["hits-1"].pipeline == "hits"


def test_a_pinned_snapshot_is_leased_until_it_is_closed(store: Store) -> None:
    put_birth(store, born("flights-1"))
    publish(store, "flights-1", 3)
    serve_build(store, "flights", "flights-1")

    with pin_served(store, lease_seconds=60, clock=lambda: 1000.0) as pinned:
        assert [lease.pins for lease in live_leases(store, 1000.0)] == [
            {"flights-1": Pin(1, {"delays": 1})}
        ]
        pinned.confirm_kept()
    assert live_leases(store, 1000.0) == ()


@pytest.mark.slow
def test_readers_of_a_bucket_share_a_pin(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_pins, "_IDLE_SECONDS", 5.0)
    put_birth(store, born("flights-1"))
    publish(store, "flights-1", 3)
    serve_build(store, "flights", "flights-1")
    elsewhere = Elsewhere(tmp_path / "röot")
    with pin_served(elsewhere, lease_seconds=60) as first:
        pass

    with (
        pin_served(elsewhere, lease_seconds=60) as again,
        pin_served(elsewhere, lease_seconds=60) as beside,
    ):
        assert again is first
        assert beside is first
        assert [each.id for each in live_leases(store, 0.0)] == [first.lease.id]
    publish(store, "flights-1", 4)
    with pin_served(elsewhere, lease_seconds=60) as newer:
        assert newer.snapshot.frontiers["flights-1"].number == 2
    # It is given up when nobody has taken it for a moment.
    wait_until(lambda: live_leases(store, 0.0) == (), "the end of the lease")


def test_a_pin_whose_lease_was_taken_away_is_left_for_nobody(tmp_path: Path, store: Store) -> None:
    put_birth(store, born("flights-1"))
    publish(store, "flights-1", 3)
    serve_build(store, "flights", "flights-1")
    elsewhere = Elsewhere(tmp_path / "röot")
    with pin_served(elsewhere, lease_seconds=60) as first:
        ensure_released(store, first.lease.id)
        assert not first.is_kept()

    with pin_served(elsewhere, lease_seconds=60) as again:
        assert again is not first
        again.confirm_kept()


def test_where_no_thread_can_be_started_no_pin_is_left(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_birth(store, born("flights-1"))
    publish(store, "flights-1", 3)
    serve_build(store, "flights", "flights-1")

    def refuse(_timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    with pin_served(Elsewhere(tmp_path / "röot"), lease_seconds=60):
        assert len(live_leases(store, 0.0)) == 1

    assert live_leases(store, 0.0) == ()


def test_a_promote_between_look_and_lease_starts_over(tmp_path: Path, store: Store) -> None:
    for build in ("flights-1", "flights-2"):
        put_birth(store, born(build))
        publish(store, build, 5)
    serve_build(store, "flights", "flights-1")
    meddled = Meddled(tmp_path / "röot", lambda: serve_build(store, "flights", "flights-2"))

    with pin_served(meddled, lease_seconds=60) as pinned:
        assert pinned.snapshot.serving == {"flights": "flights-2"}
        assert len(live_leases(store, 0.0)) == 1


def test_a_promote_since_the_last_answer_is_in_the_next_one(store: Store) -> None:
    for build in ("flights-1", "flights-2"):
        put_birth(store, born(build))
        publish(store, build, 5)
        serve_build(store, "flights", build)
        with pin_served(store, lease_seconds=60) as pinned:
            assert pinned.snapshot.serving == {"flights": build}


def test_pipelines_that_were_promoted_together_are_seen_to_switch_together(
    tmp_path: Path, store: Store
) -> None:
    pipelines = ("flights", "hits")
    for pipeline in pipelines:
        for build in (f"{pipeline}-1", f"{pipeline}-2"):
            put_birth(store, born(build, pipeline))
            publish(store, build, 5)
        serve_build(store, pipeline, f"{pipeline}-1")

    def promote_both() -> None:
        first, second = (
            Receipt(pipeline, f"{pipeline}-2", "v2", Offsets(), None, None)
            for pipeline in pipelines
        )
        serving = {receipt.pipeline: receipt.build for receipt in (first, second)}
        both = Served(7, 3, serving, first, (Switched(8, second),))
        assert Journal(store).append(3, both) is not None

    with (
        pin_served(store, lease_seconds=60) as before,
        pin_served(Meddled(tmp_path / "röot", promote_both), lease_seconds=60) as meanwhile,
    ):
        assert (before.snapshot.generation, before.snapshot.serving) == (
            2,
            {"flights": "flights-1", "hits": "hits-1"},
        )
        assert (meanwhile.snapshot.generation, meanwhile.snapshot.serving) == (
            3,
            {"flights": "flights-2", "hits": "hits-2"},
        )
        assert set(meanwhile.snapshot.frontiers) == {"flights-2", "hits-2"}


def test_a_collection_between_look_and_lease_starts_over(tmp_path: Path, store: Store) -> None:
    put_birth(store, born("flights-1"))
    publish(store, "flights-1", 5)
    serve_build(store, "flights", "flights-1")

    def overtake() -> None:
        publish(store, "flights-1", 6)
        collect(store, "flights-1", 0.0)

    with pin_served(Meddled(tmp_path / "röot", overtake), lease_seconds=60) as pinned:
        assert pinned.snapshot.frontiers["flights-1"].number == 2
        assert store.get("builds/flights-1/data/2") == b"6"


def test_collection_keeps_what_is_leased_and_frees_it_after(store: Store) -> None:
    put_birth(store, born("flights-1"))
    publish(store, "flights-1", 5)
    serve_build(store, "flights", "flights-1")
    with pin_served(store, lease_seconds=60, clock=lambda: 1000.0) as pinned:
        publish(store, "flights-1", 6)
        collect(store, "flights-1", 1000.0)
        assert store.get("builds/flights-1/data/1") == b"5"
        pinned.confirm_kept()

    collect(store, "flights-1", 1000.0)
    assert store.get("builds/flights-1/data/1") is None


def test_an_answer_is_not_confirmed_after_its_lease_has_ended(store: Store) -> None:
    put_birth(store, born("flights-1"))
    publish(store, "flights-1", 5)
    serve_build(store, "flights", "flights-1")
    times = [1000.0]

    with pin_served(store, lease_seconds=60, clock=lambda: times[0]) as pinned:
        times[0] = 1060.0
        with pytest.raises(Conflict, match="lease"):
            pinned.confirm_kept()


def test_an_answer_is_not_confirmed_after_its_lease_was_taken_away(store: Store) -> None:
    with pin_served(store, lease_seconds=60) as pinned:
        ensure_released(store, pinned.lease.id)
        with pytest.raises(Conflict, match="lease"):
            pinned.confirm_kept()


def test_a_lease_renews_itself_while_its_reader_lives(store: Store) -> None:
    begun = time.monotonic()

    def clock() -> float:
        # It ends after half a minute if it is not renewed, which is due each 0.1 s.
        return (time.monotonic() - begun) / 100

    with pin_served(store, lease_seconds=0.3, clock=clock) as pinned:
        first = pinned.lease.expires_at
        wait_until(lambda: pinned.lease.expires_at > first, "its renewal")
        pinned.confirm_kept()


def test_a_lease_that_was_taken_away_is_not_put_again(store: Store) -> None:
    """The clock goes forward, collection takes the lease and the files, and the clock goes back."""
    with pin_served(store, lease_seconds=0.3) as pinned:
        ensure_released(store, pinned.lease.id)
        pinned._renewer.join(30)

        assert read_lease(store, pinned.lease.id) is None
        assert not pinned.is_kept()


def test_an_ended_lease_is_kept_through_its_grace_and_then_swept(store: Store) -> None:
    ensure_lease(store, Lease(pid=1, by="me", expires_at=100.0, pins={}, id="x"))
    assert [lease.id for lease in live_leases(store, 100.0 + GRACE_SECONDS / 2)] == ["x"]
    assert live_leases(store, 100.0 + GRACE_SECONDS) == ()
    assert store.names("leases") == ()


@pytest.mark.parametrize("content", [b"", b'{"pid": "?"}'])
def test_a_damaged_lease_is_moved_aside_and_named(
    store: Store, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader that lives notices that its lease is gone, and starts over."""
    store.put("leases/x.json", content)

    assert live_leases(store, 0.0) == ()
    assert "x" in capsys.readouterr().err
    assert store.names("leases") == ()
    (aside,) = store.names("damaged")
    assert store.get(aside) == content


def test_a_candidate_is_pinned_by_itself(store: Store) -> None:
    put_birth(store, born("flights-2"))
    publish(store, "flights-2", 4)
    with pin_build(store, "flights-2", lease_seconds=60) as pinned:
        assert pinned.snapshot.serving == {"flights": "flights-2"}
        assert [set(lease.pins) for lease in live_leases(store, 0.0)] == [{"flights-2"}]


def test_a_serving_build_without_a_frontier_is_damage(store: Store) -> None:
    put_birth(store, born("flights-1"))
    serve_build(store, "flights", "flights-1")
    with (
        pytest.raises(Damaged, match="flights-1 has no frontier"),
        pin_served(store, lease_seconds=60),
    ):
        pass
    assert store.names("leases") == ()


def two_published(store: Store) -> tuple[Frontier, Frontier]:
    for build in ("flights-1", "flights-2"):
        put_birth(store, born(build))
    return publish(store, "flights-1", 5), publish(store, "flights-2", 5)


def test_a_pair_is_pinned_by_one_lease_and_the_second_answers(store: Store) -> None:
    before, after = two_published(store)

    with pin_pair(store, before, after, alignment_lease=None, lease_seconds=60) as pinned:
        assert pinned.snapshot.serving == {"flights": "flights-2"}
        assert pinned.snapshot.frontiers == {"flights-1": before, "flights-2": after}
        (lease,) = live_leases(store, 0.0)
        assert lease.pins == {
            "flights-1": Pin(1, {"delays": 1}),
            "flights-2": Pin(1, {"delays": 1}),
        }
    assert live_leases(store, 0.0) == ()


def test_a_pair_below_a_floor_is_kept_by_its_alignment_alone(store: Store) -> None:
    before, after = two_published(store)
    theirs = Lease(1, "the job", 100.0, {"flights-1": Pin(1, {"delays": 1})})
    ensure_lease(store, theirs)
    publish(store, "flights-1", 6)
    collect(store, "flights-1", 50.0)

    with pin_pair(
        store, before, after, alignment_lease=theirs.id, lease_seconds=60, clock=lambda: 50.0
    ):
        ensure_released(store, theirs.id)
        collect(store, "flights-1", 50.0)
        assert store.get("builds/flights-1/data/1") == b"5"
    with (
        pytest.raises(Conflict, match="not kept any more"),
        pin_pair(store, before, after, alignment_lease=None, lease_seconds=60, clock=lambda: 50.0),
    ):
        pass


@pytest.mark.parametrize("clock", [100.0, 105.0])
def test_an_ended_alignment_pins_no_pair_though_collection_still_keeps_it(
    store: Store, clock: float
) -> None:
    before, after = two_published(store)
    ensure_lease(store, Lease(1, "the job", 100.0, {}, id="theirs"))

    with (
        pytest.raises(Conflict, match="kappa verify flights"),
        pin_pair(
            store, before, after, alignment_lease="theirs", lease_seconds=60, clock=lambda: clock
        ),
    ):
        pass

    assert [lease.id for lease in live_leases(store, clock)] == ["theirs"]


def test_an_alignment_that_ends_between_look_and_lease_pins_nothing(
    tmp_path: Path, store: Store
) -> None:
    before, after = two_published(store)
    ensure_lease(
        store, Lease(1, "the job", 100.0, {"flights-1": Pin(1, {"delays": 1})}, id="theirs")
    )

    def ends() -> None:
        ensure_released(store, "theirs")
        publish(store, "flights-1", 6)
        collect(store, "flights-1", 0.0)

    with (
        pytest.raises(Conflict),
        pin_pair(
            Meddled(tmp_path / "röot", ends),
            before,
            after,
            alignment_lease="theirs",
            lease_seconds=60,
            clock=lambda: 0.0,
        ),
    ):
        pass

    assert store.get("builds/flights-1/data/1") is None
    assert live_leases(store, 0.0) == ()


@pytest.mark.law
@pytest.mark.slow
@pytest.mark.parametrize("in_bucket", [False, True])
@examples(60, suppress=(HealthCheck.function_scoped_fixture,))
@given(
    st.lists(
        st.sampled_from(
            [
                *("advance 1", "advance 2", "promote", "collect 1", "collect 2"),
                *("read", "read in between"),
            ]
        ),
        min_size=4,
        max_size=25,
    ),
    st.randoms(use_true_random=False),
)
def test_no_history_of_promotes_and_collections_takes_a_reader_back(
    tmp_path_factory: pytest.TempPathFactory, in_bucket: bool, steps: list[str], chance
) -> None:
    root = tmp_path_factory.mktemp("any")
    world, elsewhere = World(Store(root)), Elsewhere(root)
    for step in steps:
        what, _, build = step.partition(" ")
        match what:
            case "advance":
                world.advance(f"flights-{build}")
            case "promote":
                world.promote()
            case "collect":
                collect(world.store, f"flights-{build}", 0.0)
            case _:
                meddle = chance.choice(
                    (
                        world.promote,
                        lambda: world.advance("flights-1"),
                        lambda: collect(world.store, "flights-2", 0.0),
                        lambda: None,
                    )
                )
                if in_bucket:
                    elsewhere.meanwhile = meddle if build else lambda: None
                    world.read(elsewhere)
                else:
                    world.read(Meddled(root, meddle) if build else world.store)


@pytest.mark.slow
def test_readers_in_many_threads_see_no_error_no_mix_and_no_step_back(store: Store) -> None:
    world = World(store)
    errors: list[BaseException] = []
    done = threading.Event()

    def reading() -> None:
        own = World.Reader()
        try:
            while not done.is_set():
                own.read(store)
        # Raised below, by the thread that may fail the test.
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    readers = [threading.Thread(target=reading) for _ in range(6)]
    for reader in readers:
        reader.start()
    for number in range(60):
        world.advance("flights-1")
        world.advance("flights-2")
        collect(store, f"flights-{number % 2 + 1}", 0.0)
        if number % 3 == 0:
            world.promote()
    done.set()
    for reader in readers:
        reader.join()

    assert errors == []
    assert live_leases(store, 0.0) == ()


class World:
    """Two builds of a partition that are promoted in turn.

    The protocol is: hold, acknowledge, reach the hold, serve.
    """

    class Reader:
        """A reader, with the newest state that it has read."""

        def __init__(self) -> None:
            self.generation = 0
            self.offset = 0

        def read(self, store: Store) -> None:
            while True:
                with pin_served(store, lease_seconds=60, clock=lambda: 0.0) as pinned:
                    snapshot = pinned.snapshot
                    frontier = snapshot.frontiers[snapshot.serving["flights"]]
                    content = store.get(
                        f"builds/{frontier.build}/data/{frontier.versions['delays']}"
                    )
                    try:
                        pinned.confirm_kept()
                    except KappaError:
                        continue
                offset = frontier.offsets.at("flights", 0)
                assert content == str(offset).encode(), "a pinned version was collected"
                assert snapshot.generation >= self.generation
                assert offset >= self.offset, "time went back"
                self.generation, self.offset = snapshot.generation, offset
                return

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reader = World.Reader()
        self.offsets = {"flights-1": 0, "flights-2": 0}
        for build in self.offsets:
            put_birth(store, born(build))
            publish(store, build, 0)
        self.live = "flights-1"
        serve_build(store, "flights", self.live)

    def advance(self, build: str) -> None:
        self.offsets[build] += 1
        publish(self.store, build, self.offsets[build])

    def promote(self) -> None:
        candidate = "flights-2" if self.live == "flights-1" else "flights-1"
        journal = Journal(self.store)
        last, _ = journal.last_served()
        assert journal.append(last + 1, Held(1, self.live, 1)) is not None
        publish(self.store, self.live, self.offsets[self.live], hold=last + 1)
        while self.offsets[candidate] < self.offsets[self.live]:
            self.advance(candidate)
        serve_build(self.store, "flights", candidate)
        self.live = candidate

    def read(self, store: Store) -> None:
        self.reader.read(store)
