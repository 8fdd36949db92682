"""Bit rot: a flipped bit in any data file is noticed, named, and found by a scrub (I14)."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pyarrow as pa
import pytest
from crashing import Doom, World
from deltalake import write_deltalake
from journals import NOWHERE, staged, verified
from served import PLANES, ROWS_OF_PLANES, Platform

from kappa.base.clock import now
from kappa.base.errors import Damaged, ExitCode
from kappa.commands.app import run_command
from kappa.declare.values.arrow import arrow_schema
from kappa.replay.rollout.garbage import find_garbage
from kappa.replay.status.doctor.examine import examine_root, unvouched_builds
from kappa.replay.status.doctor.scrub import scrub_root
from kappa.serving.query.query import answer_query
from kappa.serving.query.rejects import RejectFilter, rejects_in_order
from kappa.serving.query.sandbox.question import Allowance, Question
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.serving.query.tables import served_tables
from kappa.state.build import put_birth, read_birth, recent_names, table_path
from kappa.state.file_sums import join_sums, sums_records
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import CaughtUp
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.branch import begin_from
from kappa.tables.durable_versions import sync_versions, take_back_to_frontier
from kappa.tables.file_list import commit_path
from kappa.tables.merge import contribution_columns
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.versions import files

BUILD = "flights-1"
TRIALS = 30
DRAW = random.Random(26)
COLUMNS = (("carrier", "string"), ("flights", "bigint"))
TOTALS = TableBirth("totals", COLUMNS, keys=("carrier",), fold={"flights": ("sum", "flights")})
DEPARTURES = TableBirth("departures", (("carrier", "string"), ("delay", "int")))
MANY = [f"carrier {DRAW.random()}" for _ in range(600)]
ROWS_OF_TOTALS = pa.table({"carrier": MANY, "flights": range(600)})
ROWS_OF_DEPARTURES = pa.table({"carrier": MANY, "delay": pa.array(range(600), pa.int32())})
PLACE = {"topic": "flights", "partition": 0, "timestamp": 1_700_000_000_000_000}
ROWS_OF_REJECTS = pa.Table.from_pylist(
    [
        {**PLACE, "offset": at, "value": name.encode(), "reason": "not_json", "detail": name}
        for at, name in enumerate(MANY)
    ],
    arrow_schema(REJECTS_BIRTH.columns),
)
TABLES = {
    TOTALS: ROWS_OF_TOTALS,
    DEPARTURES: ROWS_OF_DEPARTURES,
    PLANES: ROWS_OF_PLANES,
    REJECTS_BIRTH: ROWS_OF_REJECTS,
}
COUNT_LATER, COUNT = "select count(*) from later", "select count(*) from departures"
VIEWS = {"late": "select * from departures where delay > 3", "later": "select * from late"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Returns a root with a build that has tables of every kind, and waiting contributions."""
    platform = Platform(Store(tmp_path / "root", syncs=False))
    (tmp_path / "kappa.toml").write_text('root = "root"\n', encoding="utf-8")
    for number, event in enumerate((staged(BUILD), CaughtUp(1, NOWHERE), verified(1)), 1):
        assert Journal(platform.store).append(number, event)
    platform.serve("flights", TABLES, VIEWS)
    waiting, _ = recent_names("totals")
    schema = arrow_schema(contribution_columns(TOTALS))
    rows = pa.Table.from_pylist([{"carrier": MANY[0], "flights": 7}]).cast(schema)
    write_deltalake(table_path(platform.store, BUILD, waiting), rows)
    last = newest(platform.store)
    versions = {**last.versions, waiting: 0}
    sums = sync_versions(platform.store, BUILD, last.versions, versions)
    last = Frontier(2, BUILD, 1, Offsets({"flights": {0: 24}}), versions, now(), sums=sums)
    Frontiers(platform.store, BUILD).publish(last)
    return platform.store


def newest(store: Store) -> Frontier:
    return Frontiers(store, BUILD).newest()


def without(store: Store, *fields: str) -> None:
    """Removes these fields from all frontiers, and the seals too."""
    for number in range(1, newest(store).number + 1):
        name = f"builds/{BUILD}/frontier/{number:020d}.json"
        record = store.get_json(name)
        store.put_json(name, {key: record[key] for key in record.keys() - {*fields, "seal"}})


def anew(store: Store) -> Store:
    """Returns the root as a new process opens it, which has checked no file."""
    return Store(store.folder, syncs=False)


def files_of(store: Store, table: str) -> list[Path]:
    version = newest(store).versions[table]
    return [Path(each) for each in files(table_path(store, BUILD, table), version, None)]


@contextmanager
def flipped(file: Path, bit: int) -> Iterator[None]:
    """Flips a bit of a file within the block, as a disk does: size and time stay the same."""
    whole, time = file.read_bytes(), file.stat().st_mtime_ns
    rotten = bytearray(whole)
    rotten[bit // 8] ^= 1 << bit % 8
    for content in (bytes(rotten), whole):
        file.write_bytes(content)
        os.utime(file, ns=(time, time))
        if content != whole:
            yield


def a_bit_of(file: Path, draw: random.Random) -> int:
    return draw.randrange(8 * file.stat().st_size)


def test_nothing_is_found_where_nothing_was_flipped(store: Store) -> None:
    found = scrub_root(anew(store))

    assert (found.bad, found.unknown, found.files) == ((), 0, 5)
    ((total,),) = answer_query(anew(store), "select sum(flights) from totals").rows
    assert total == sum(range(600)) + 7


@pytest.mark.parametrize("joined", [False, True], ids=["of frontiers", "joined"])
def test_a_flipped_bit_of_any_file_is_refused_by_name_and_found_by_a_scrub(
    store: Store, *, joined: bool
) -> None:
    if joined:
        join_sums(store, BUILD)
        Frontiers(store, BUILD).delete_below(newest(store).number)
    draw = random.Random(1)
    tables = sorted(newest(store).versions)
    for trial in range(TRIALS):
        table = tables[trial % len(tables)]
        file = draw.choice(files_of(store, table))
        with flipped(file, a_bit_of(file, draw)):
            with pytest.raises(Damaged) as told:
                answer_query(anew(store), f"select * from flights.{table.partition('.')[0]}")
            bad = scrub_root(anew(store)).bad

        assert f"builds/{BUILD}/tables/{table}/{file.name} of pipeline flights" in str(told.value)
        assert "kappa replay flights" in told.value.hint
        assert [(each.path, each.of, each.table) for each in bad] == [(str(file), BUILD, table)]
        assert "is not as it was written: its CRC was" in bad[0].why
        assert "kappa replay flights" in bad[0].hint


@pytest.mark.slow
def test_a_build_without_sums_is_served(store: Store) -> None:
    """A build without checksums is served, although most flipped bits then give wrong answers.

    DuckDB itself does not notice flipped bits.
    """
    without(store, "sums")
    (file,) = files_of(store, "departures")
    right = answer_query(anew(store), "select * from departures").rows
    draw, wrong = random.Random(2), 0
    for _ in range(20):
        # The names in a column, far from the file's ends.
        with flipped(file, draw.randrange(8 * 200, 8 * 4000)):
            try:
                wrong += answer_query(anew(store), "select * from departures").rows != right
            except Damaged:
                continue
            finally:
                found = scrub_root(anew(store))
                assert (found.bad, found.unknown) == ((), 5)

    assert wrong > 5


def test_only_what_a_query_reads_is_checked_by_views_and_by_value_too(store: Store) -> None:
    (file,) = files_of(store, "departures")
    with flipped(file, 8 * 1000):
        for sql in ("from planes", "from totals", "with departures as (select 1) select 2"):
            answer_query(anew(store), sql)
        for sql in (
            COUNT_LATER,
            'select * from "DEPARTURES" limit 1',
            "select * from planes where exists (from flights.late)",
            "select * from query_table('departures')",
            "describe departures",
        ):
            with pytest.raises(Damaged, match=file.name):
                answer_query(anew(store), sql)


@pytest.mark.slow
def test_a_server_checks_each_file_once(store: Store) -> None:
    (file,) = files_of(store, "departures")
    later = Question(COUNT_LATER)
    with Sandbox(Allowance(at_once=1)) as sandbox:
        with flipped(file, 8 * 1000):
            other = anew(store)
            sandbox.ask_query(other, Question("select * from planes")).body.close()
            with pytest.raises(Damaged, match=file.name):
                sandbox.ask_query(other, later)
        other = anew(store)
        sandbox.ask_query(other, later).body.close()
        with flipped(file, 8 * 1000):
            # It was checked by this process.
            sandbox.ask_query(other, later).body.close()


def test_other_readers_and_the_job_refuse_it_too(store: Store) -> None:
    (rejects,), (totals,) = files_of(store, "rejects"), files_of(store, "totals")
    with flipped(rejects, 8 * 1000):
        with pytest.raises(Damaged, match=rejects.name):
            rejects_in_order(anew(store), RejectFilter())
        listed = {each.name: each for each in served_tables(anew(store))}
        assert rejects.name in listed["rejects"].broken
        assert not listed["totals"].broken
    with flipped(totals, 8 * 1000), pytest.raises(Damaged, match=totals.name):
        take_back_to_frontier(anew(store), read_birth(store, BUILD))


def test_a_branch_takes_the_sums_along_and_not_what_is_wrong_since(store: Store) -> None:
    (file,) = files_of(store, "departures")
    birth = read_birth(store, BUILD)
    there = newest(store)
    with flipped(file, 8 * 1000):
        into = Store(store.folder.with_name("branch"), syncs=False)
        put_birth(into, birth)
        begin_from(into, birth, anew(store), there)

        (bad,) = Path(table_path(into, BUILD, "departures")).glob("*.parquet")
        with pytest.raises(Damaged, match=bad.name):
            take_back_to_frontier(Store(into.folder, syncs=False), birth)
    take_back_to_frontier(Store(into.folder, syncs=False), birth)


def test_a_large_file_is_checked_once_since_the_machine_was_started(store: Store) -> None:
    draw = random.Random(3)
    platform = Platform(store)
    names = [str(draw.random()) for _ in range(120_000)]
    rows = pa.table({"carrier": names, "delay": pa.array([1] * len(names), pa.int32())})
    platform.advance(BUILD, DEPARTURES, rows)
    file = max(files_of(store, "departures"), key=lambda each: each.stat().st_size)
    assert file.stat().st_size > 1 << 20
    answer_query(anew(store), COUNT)

    with flipped(file, 8 * 100_000):
        answer_query(anew(store), COUNT)
        assert [each.path for each in scrub_root(anew(store)).bad] == [str(file)]
        remembered = json.dumps({**store.get_json("run/whole.json"), "boot": "another"})
        for document in (remembered.encode(), b"{"):
            store.put("run/whole.json", document)
            with pytest.raises(Damaged, match=file.name):
                answer_query(anew(store), COUNT)


def test_a_file_that_is_gone_is_found_by_a_scrub(store: Store) -> None:
    (file,) = files_of(store, "planes")
    file.unlink()

    (bad,) = scrub_root(anew(store)).bad
    assert (bad.path, bad.why) == (str(file), "is gone")


def test_sums_that_rot_themselves_are_named_by_the_doctor(store: Store) -> None:
    join_sums(store, BUILD)
    Frontiers(store, BUILD).delete_below(newest(store).number)
    (number,) = sums_records(store, BUILD).numbers()
    name = sums_records(store, BUILD).name(number)
    content = store.get(name)
    store.put(name, content.replace(b"1", b"2", 1))

    with pytest.raises(Damaged, match="of the sums of build"):
        answer_query(anew(store), "select * from planes")
    (damage,) = examine_root(anew(store), now=0.0)
    assert damage.names == (name,)


def test_the_command_tells_what_is_bad_and_fails(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.folder.parent)
    typed = ["--root", str(store.folder), "scrub"]
    assert run_command(typed) == ExitCode.OK
    assert "5 files" in capsys.readouterr().err
    (file,) = files_of(store, "totals")
    with flipped(file, 8 * 1000):
        assert run_command(typed) == ExitCode.FAILED
        named = f"file builds/{BUILD}/tables/totals/{file.name} of table totals"
        assert named in capsys.readouterr().out
        assert run_command([*typed, "-o", "json"]) == ExitCode.FAILED
        (bad,) = json.loads(capsys.readouterr().out)
    assert (Path(bad["file"]).name, bad["table"]) == (file.name, "totals")


@pytest.mark.slow
def test_a_job_keeps_a_sum_of_each_file(tmp_path: Path) -> None:
    world = World(Store(tmp_path), Doom())
    world.stage("one")
    for end in range(16, 200, 12):
        world.log.ensure(end)
        world.round()
    world.end()
    other = Store(tmp_path)
    found = scrub_root(other)
    assert (found.bad, found.unknown) == ((), 0)
    assert found.files


def a_second_commit(store: Store) -> Path:
    """Appends rows to a table, publishes the version, and returns the file of its commit."""
    Platform(store).advance(BUILD, DEPARTURES, ROWS_OF_DEPARTURES.slice(0, 7))
    return Path(commit_path(table_path(store, BUILD, "departures"), 1))


def damaged_copies(store: Store, file: Path, content: bytes) -> Iterator[Store]:
    """Yields copies of the root in which a file has this content.

    No process knows the file lists of a copy, because lists are known by path.
    """
    for number in count():
        folder = store.folder.with_name(f"copy-{number}")
        shutil.copytree(store.folder, folder)
        (folder / file.relative_to(store.folder)).write_bytes(content)
        yield Store(folder, syncs=False)


@pytest.mark.parametrize("damage", ["empty", "cdd", "path", "rows"])
def test_a_damaged_commit_is_refused_by_all(store: Store, damage: str) -> None:
    """Nothing reads, folds, branches, deletes or accepts what a frontier does not vouch for."""
    commit = a_second_commit(store)
    birth, there = read_birth(store, BUILD), newest(store)
    whole = commit.read_bytes()
    rotten = {
        "empty": b"",
        "cdd": whole.replace(b'"add"', b'"cdd"'),
        "path": whole.replace(b"part-0", b"part-1"),
        "rows": whole.replace(b'\\"numRecords\\":7', b'\\"numRecords\\":5'),
    }[damage]
    assert rotten != whole
    into = Store(store.folder.with_name("branch"), syncs=False)
    put_birth(into, birth)
    acts: tuple[Callable[[Store], object], ...] = (
        lambda copy: answer_query(copy, COUNT),
        lambda copy: take_back_to_frontier(copy, birth),
        lambda copy: begin_from(into, birth, copy, there),
        lambda copy: find_garbage(copy, keep_seconds=0.0, now=0.0),
    )
    told = list[str]()
    for act, copy in zip(acts, damaged_copies(store, commit, rotten), strict=False):
        with pytest.raises(Damaged, match="kappa replay|is not as it was written") as raised:
            act(copy)
        told.append(raised.value.message)
        assert "kappa replay" in raised.value.hint
    (found,) = examine_root(copy, now=0.0)
    (bad,) = scrub_root(copy).bad

    named = commit.parent if damage == "rows" else commit
    assert all(str(named.relative_to(store.folder)) in why for why in (*told, found.what, bad.why))
    assert unvouched_builds(store) == ()
    assert examine_root(store, now=0.0) == ()
    assert answer_query(store, COUNT).rows == ((607,),)


def test_a_frontier_of_before_vouches_for_no_list_and_is_read(store: Store) -> None:
    """A root of an older Kappa, without file lists, is read as before, except for empty commits."""
    commit = a_second_commit(store)
    without(store, "file_lists")
    same, other, empty = islice(damaged_copies(store, commit, b""), 3)
    for copy in (same, other):
        (copy.folder / commit.relative_to(store.folder)).write_bytes(commit.read_bytes())

    assert answer_query(same, COUNT).rows == ((607,),)
    assert unvouched_builds(same) == (BUILD,)
    take_back_to_frontier(other, read_birth(other, BUILD))
    with pytest.raises(Damaged, match="it is empty"):
        answer_query(empty, COUNT)


@pytest.mark.parametrize("content", [b"", b"PAR1"], ids=["empty", "cut"])
def test_an_empty_or_cut_file_is_damage(store: Store, content: bytes) -> None:
    """A file with a wrong size is found in a listing, because Delta's commits contain the sizes."""
    (file,) = files_of(store, "departures")
    copy = next(damaged_copies(store, file, content))
    (found,) = examine_root(copy, now=0.0)

    assert f"{file.name} is not as it was written: it had" in found.what
    with pytest.raises(Damaged, match=file.name):
        answer_query(copy, "select count(*) from departures")
    assert examine_root(store, now=0.0) == ()
