"""Laws of `kappa export`: a copy has the rows that readers see, even after an interruption.

Only one process writes a copy. Builds are folded by hand, and only Spark as a reader needs a JVM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from changing import FOLLOWED, ChangingWorld
from deltalake import DeltaTable
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace
from pyiceberg.catalog import load_catalog
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.base.duck import open_connection
from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.base.failpoint import acting
from kappa.commands.app import run_command
from kappa.serving.outlets.export.exporter import Exporter, open_exporter
from kappa.serving.query.query import answer_query
from kappa.state.lease import LEASES
from kappa.state.root import ensure_root
from kappa.state.store import Store
from kappa.tables.views.exact_rows import rows_of

if TYPE_CHECKING:
    from object_store import ObjectStore
    from pyspark.sql import SparkSession

FAILPOINTS = (
    *("export.before_commit", "export.after_commit", "export.before_catalog"),
    *("export.after_catalog", "export.before_record", "export.after_record"),
)
# Every type that a table may have, and values that a copy may not lose.
KINDS = replace(
    DELAYS,
    name="kinds",
    keys=("k",),
    columns=(
        *(("k", "string"), ("b", "boolean"), ("i1", "tinyint"), ("i2", "smallint"), ("i4", "int")),
        *(("i8", "bigint"), ("f4", "float"), ("f8", "double"), ("d", "date")),
        *(("t", "timestamp"), ("n", "decimal(38,0)"), ("m", "decimal(9,3)")),
        *(("l", "array<string>"), ("s", "struct<a:int,b:array<struct<c:string>>>")),
    ),
    fold={},
)
MORE_PLANES = ROWS_OF_PLANES.slice(0, 1).set_column(0, "tailnum", pa.array(["N3"]))
ROW_OF_KINDS = {
    "k": "ä",
    "b": True,
    "i1": -128,
    "i2": 32767,
    "i4": -(2**31),
    "i8": 2**63 - 1,
    "f4": 1.5,
    "f8": float("inf"),
    "d": None,
    "t": None,
    "n": 10**37,
    "m": None,
    "l": ["x", None, ""],
    "s": {"a": 1, "b": [{"c": "ü"}, None]},
}


def served_rows(store: Store, table: str) -> Counter[str]:
    found = answer_query(store, f"from {table}")
    return Counter(str(dict(zip(found.columns, row, strict=True))) for row in found.rows)


def arrow_rows(found: Any) -> Counter[str]:
    """Returns the rows of an Arrow table in the form of Kappa's own readers."""
    with open_connection() as duck:
        duck.register("found", found)
        return Counter(str(row) for row in rows_of(duck, "from found"))


def delta_rows(target: Path | str, table: str, version: int | None = None) -> Counter[str]:
    return arrow_rows(DeltaTable(f"{target}/{table}", version=version).to_pyarrow_table())


def iceberg_rows(target: Path, table: str) -> Counter[str]:
    file = target / "iceberg" / "catalog.db"
    with load_catalog("kappa", type="sql", uri=f"sqlite:///{file}") as catalog:
        found = catalog.load_table(("kappa", table)).scan().to_arrow()
        catalog.engine.dispose()
    # Iceberg has no integers of one or two bytes.
    return arrow_rows(found)


def record_of(target: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((target / "kappa-export.json").read_text())
    return found


def ensure_copies_hold(
    store: Store, seed: int, target: str, *, steps: int, iceberg: bool
) -> Counter[str]:
    """Exports all tables across slices, maintenance, switches, restarts and lost leases."""
    world = ChangingWorld(store, seed)
    draw, kinds = world.draw, Counter[str]()

    def opened(stack: ExitStack) -> Exporter:
        return stack.enter_context(
            open_exporter(
                store,
                FOLLOWED,
                target,
                with_iceberg=iceberg,
                keep_seconds=60.0,
                clock=lambda: world.now,
            )
        )

    try:
        with ExitStack() as stack:
            exporter = opened(stack)
            for _ in range(steps):
                what = world.step()
                if what == "restart":
                    stack.close()
                    exporter = opened(stack)
                if draw.random() < 0.3:
                    continue
                switch = exporter.next_switch()
                kinds.update("none" if switch is None else [e.kind for e in switch.tables])
                for table in FOLLOWED:
                    wanted = served_rows(store, table)
                    assert delta_rows(target, table) == wanted, (table, what)
                    if iceberg:
                        assert iceberg_rows(Path(target), table) == wanted, (table, what)
                found = pl.scan_delta(f"{target}/totals").collect().to_arrow()
                assert arrow_rows(found) == served_rows(store, "totals")
                # What it needs to go on, and no more: one frontier of one pipeline.
                held = [name for name in store.names(LEASES) if "/export-" in name]
                assert len(held) == 1
    finally:
        world.close()
    return kinds


@pytest.mark.slow
@pytest.mark.law
@examples(2, suppress=(HealthCheck.function_scoped_fixture,))
@given(st.integers(0, 10_000_000))
def test_copies_are_what_readers_see(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Each copy equals the served table, whatever is folded, maintained, switched or restarted."""
    folder = tmp_path_factory.mktemp("exports")
    kinds = ensure_copies_hold(
        Store(folder / "root"), seed, str(folder / "lake"), steps=12, iceberg=seed % 2 == 0
    )

    assert kinds["anew"] > 0


@pytest.mark.slow
@pytest.mark.long
def test_a_root_in_a_bucket_is_copied(object_store: ObjectStore, tmp_path: Path) -> None:
    """The copies go from a bucket to a folder, and to another place in the bucket."""
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")
    ensure_root(store)
    kinds = ensure_copies_hold(store, 3, str(tmp_path / "lake"), steps=6, iceberg=True)
    assert kinds["slice"] > 0

    target = object_store.new_root()
    with open_exporter(store, FOLLOWED[:2], target, storage=object_store.storage) as exporter:
        assert exporter.next_switch() is not None
        for table in FOLLOWED[:2]:
            found = exporter.copies[table]
            assert found._table is not None
            wanted = served_rows(store, table)
            assert arrow_rows(found._table.to_pyarrow_table()) == wanted
    with (
        pytest.raises(UsageError, match="cannot be in a bucket"),
        open_exporter(store, ["totals"], target, with_iceberg=True),
    ):
        pass


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    (tmp_path / "kappa.toml").touch()
    platform = Platform(Store(tmp_path / ".kappa"))
    platform.serve(
        "flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES}, {"all_planes": "from planes"}
    )
    return platform


def test_every_type_is_copied_whole(tmp_path: Path) -> None:
    """No value changes on its way to a reader of Delta or Iceberg, wherever the folder is."""
    platform, lake = Platform(Store(tmp_path / "root")), tmp_path / "läke"
    rows = pa.Table.from_pylist([ROW_OF_KINDS, dict.fromkeys(ROW_OF_KINDS)], schema=kinds_schema())
    platform.serve("kinds", {KINDS: rows})

    with open_exporter(platform.store, ["kinds"], str(lake), with_iceberg=True) as exporter:
        exporter.next_switch()

    wanted = served_rows(platform.store, "kinds")
    assert wanted.total() == 2
    assert delta_rows(lake, "kinds") == iceberg_rows(lake, "kinds") == wanted


def kinds_schema() -> pa.Schema:
    from kappa.declare.values.arrow import arrow_schema

    return arrow_schema(KINDS.columns)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ChangingWorld]:
    (tmp_path / "kappa.toml").touch()
    world = ChangingWorld(Store(tmp_path / ".kappa"), 5)
    world.fold()
    yield world
    world.close()


NAMED = ("totals", "events")


def test_tables_are_named_at_one_moment(world: ChangingWorld, tmp_path: Path) -> None:
    """The record names versions of one frontier, and Iceberg's catalog switches them together."""
    lake, store = tmp_path / "lake", world.store
    with open_exporter(store, NAMED, str(lake), with_iceberg=True) as exporter:
        assert exporter.next_switch() is not None
        before = record_of(lake)
        first = {name: served_rows(store, name) for name in NAMED}
        world.fold()

        def dies_at(name: str) -> None:
            if name == "export.before_catalog":
                raise KappaError("the disk is full")

        with acting(dies_at), pytest.raises(KappaError, match="disk is full"):
            exporter.next_switch()
        assert first["totals"] != served_rows(store, "totals")
        # The tables are ahead already, and no reader that asks for the moment sees it.
        assert record_of(lake) == before
        for name, rows in first.items():
            assert delta_rows(lake, name) == served_rows(store, name)
            assert delta_rows(lake, name, before["tables"][name]["version"]) == rows
            assert iceberg_rows(lake, name) == rows

        switch = exporter.next_switch()
    assert switch is not None
    for name in NAMED:
        found = record_of(lake)["tables"][name]
        assert delta_rows(lake, name, found["version"]) == served_rows(store, name)
        assert iceberg_rows(lake, name) == served_rows(store, name)


def test_replaced_files_go_and_readers_stay(world: ChangingWorld, tmp_path: Path) -> None:
    """Files that no recent version needs are deleted, also those of Iceberg."""
    lake, metadata = tmp_path / "lake", tmp_path / "lake" / "iceberg" / "totals" / "metadata"
    with open_exporter(world.store, NAMED, str(lake), with_iceberg=True) as made:
        for _ in range(4):
            world.fold()
            assert made.next_switch() is not None
        before = {*metadata.iterdir()}
        made.delete_replaced(0.0)
        assert before <= {*metadata.iterdir()}

        assert made.delete_replaced(time.time() + 5) > 0

        assert not before <= {*metadata.iterdir()}
        for name in NAMED:
            there = {str(each) for each in (lake / name).glob("*.parquet")}
            assert there == {*made.copies[name].files()}
            wanted = served_rows(world.store, name)
            assert delta_rows(lake, name) == iceberg_rows(lake, name) == wanted
        world.fold()
        assert made.next_switch() is not None
        assert delta_rows(lake, "totals") == served_rows(world.store, "totals")


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("name", FAILPOINTS)
def test_a_killed_export_ends_the_same(world: ChangingWorld, tmp_path: Path, name: str) -> None:
    """After a kill, readers see the last complete switch, and the next process continues."""
    lake, store = tmp_path / "lake", world.store
    words = ("export", *NAMED, "--to", str(lake), "--iceberg")
    with open_exporter(store, NAMED, str(lake), with_iceberg=True) as exporter:
        exporter.next_switch()
    before = record_of(lake)
    rows = {each: served_rows(store, each) for each in NAMED}
    world.fold()

    assert typed(tmp_path, words, KAPPA_FAIL=f"{name}:kill").returncode == -9
    if name != "export.after_record":
        assert record_of(lake) == before
        for each, wanted in rows.items():
            assert delta_rows(lake, each, before["tables"][each]["version"]) == wanted

    with open_exporter(store, NAMED, str(lake), with_iceberg=True) as exporter:
        exporter.next_switch()
        assert exporter.next_switch() is None
    for each in NAMED:
        wanted = served_rows(store, each)
        assert delta_rows(lake, each, record_of(lake)["tables"][each]["version"]) == wanted
        assert delta_rows(lake, each) == iceberg_rows(lake, each) == wanted


def typed(
    project: Path, words: Sequence[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_process_writes_a_folder(platform: Platform, tmp_path: Path) -> None:
    """A second process is refused, and so is another root, at the same time or later."""
    lake = str(tmp_path / "lake")
    other = Platform(Store(tmp_path / "other"))
    other.serve("flights", {PLANES: ROWS_OF_PLANES})
    with open_exporter(platform.store, ["planes"], lake) as exporter:
        exporter.next_switch()
        with pytest.raises(Conflict, match="held by process"), opened(platform.store, lake):
            pass
    with pytest.raises(Conflict, match="the export of another root"), opened(other.store, lake):
        pass
    with opened(platform.store, lake) as again:
        assert again.next_switch() is None


def opened(store: Store, to: str, *tables: str) -> Any:
    return open_exporter(store, tables or ("planes",), to)


def test_a_strangers_commit_is_written_over(platform: Platform, tmp_path: Path) -> None:
    """A copy that another program has changed is written again, whatever that program did."""
    lake = tmp_path / "lake"
    with opened(platform.store, str(lake)) as exporter:
        exporter.next_switch()
        DeltaTable(str(lake / "planes")).delete()
        platform.advance("flights-1", PLANES, MORE_PLANES)

        switch = exporter.next_switch()

    assert switch is not None
    assert [each.kind for each in switch.tables] == ["anew"]
    assert delta_rows(lake, "planes") == served_rows(platform.store, "planes")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("all_planes", "--to", "{lake}"), "computed when it is read"),
        (("plains", "--to", "{lake}"), "did you mean planes?"),
        (("rejects", "--to", "{lake}"), "no table of its own"),
        (("planes", "--to", "{root}/lake"), "is in the root"),
        (("planes", "--to", "{project}"), "is around the root"),
        (("planes", "--to", "{strange}"), "is not empty"),
    ],
)
def test_a_wrong_export_is_told(
    platform: Platform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: Sequence[str],
    told: str,
) -> None:
    """Each error names the cause, and what to type now."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "file").touch()
    places = {
        "lake": tmp_path / "lake",
        "root": tmp_path / ".kappa",
        "project": tmp_path,
        "strange": tmp_path / "strange",
    }

    assert run_command(["export", *(each.format(**places) for each in words)]) == 2

    said = capsys.readouterr().err
    assert told in said
    assert "hint: " in said


def test_others_may_read_a_copy(platform: Platform, tmp_path: Path) -> None:
    """The root is private to its user; a copy has the modes that the umask allows."""
    before = os.umask(0o022)
    try:
        ended = typed(tmp_path, ("export", "planes", "--to", str(tmp_path / "lake"), "--iceberg"))
    finally:
        os.umask(before)

    assert ended.returncode == 0, ended.stderr
    assert "about " in ended.stderr
    files = [each for each in (tmp_path / "lake").rglob("*") if each.is_file()]
    assert {each.stat().st_mode & 0o777 for each in files} == {0o644}
    folders = [tmp_path / "lake", *(each.parent for each in files)]
    assert {each.stat().st_mode & 0o777 for each in folders} == {0o755}


@pytest.mark.slow
def test_an_interrupt_waits_for_the_copy(platform: Platform, tmp_path: Path) -> None:
    """Ctrl-C ends a following copy after its current switch."""
    words = ("export", "planes", "--to", str(tmp_path / "lake"), "--follow", "--iceberg")
    follower = subprocess.Popen(
        [sys.executable, "-P", "-m", "cli", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stderr is not None
    assert "at each change" in follower.stderr.readline()
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=60)

    assert follower.returncode == 130, said
    assert said.endswith("planes written anew, 1 row (version 0)\ninterrupted\n")


@pytest.mark.jvm
def test_engines_read_names_across_switches(
    world: ChangingWorld, tmp_path: Path, spark: SparkSession
) -> None:
    """Spark, Polars and pyiceberg read a table by name, and get the rows after each switch."""
    lake, names = tmp_path / "lake", (*NAMED, "cities")
    with open_exporter(world.store, names, str(lake), with_iceberg=True) as exporter:
        for step in ("fold", "promote", "fold", "undo", "fold"):
            if step == "fold":
                world.fold()
            else:
                world.serve(1 - world.builds.index(world.live), asked=step == "undo")
            assert exporter.next_switch() is not None
            for name in names:
                wanted = served_rows(world.store, name)
                assert iceberg_rows(lake, name) == wanted
                assert arrow_rows(pl.scan_delta(str(lake / name)).collect().to_arrow()) == wanted
                found = spark.read.format("delta").load(str(lake / name))
                assert arrow_rows(found.toArrow()) == wanted
