"""Laws of a root in a bucket without credentials in the environment: the usual chain is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from machine import Machine, running_machine
from object_store import CREDENTIALS, ObjectStore, running_object_store
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.base.duck import DUCKDB_ERRORS, Connection
from kappa.base.errors import KappaError
from kappa.engine.views.view_maintenance import MaintainedViews
from kappa.kafka.broker_requests import wait_until
from kappa.serving.query.reader import reader as reader_module
from kappa.serving.query.sandbox.question import Allowance, Question
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.build import table_path
from kappa.state.files import credentials
from kappa.state.files.address import delta_options
from kappa.state.files.credentials import Keys, keys_for_requests, keys_of_chain
from kappa.state.files.duckdb_access import Access, open_exact, renew_access
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import Guard
from kappa.tables.parquet import parquet_sql
from kappa.tables.stored_table import ensure_table
from kappa.tables.versions import files

pytestmark = pytest.mark.slow

MARK = Mark("b", "t", 1, 1, Offsets(), Offsets())
BIRTH = TableBirth("t", (("k", "string"), ("n", "bigint")), keys=("k",), fold={"n": ("sum", "n")})
KEYS = (CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
NEWER = ("newer-key", "newer-secret-1618033988")
BOTH_WAYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"


@pytest.fixture
def own_store(tmp_path: Path, object_store: ObjectStore) -> Iterator[ObjectStore]:
    """Yields a server for one test, whose keys the test may change.

    The test is skipped if the common server is not available.
    """
    with running_object_store(tmp_path / "s3") as running:
        yield running


@pytest.fixture
def machine(
    tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    """Yields the machine of this process, on which no credentials were found yet."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    reader_module._idle.clear()
    credentials._credential_chain.cache_clear()
    with running_machine(KEYS, tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made
    reader_module._idle.clear()
    credentials._credential_chain.cache_clear()


def with_token(machine: Machine, environment: pytest.MonkeyPatch, folder: Path) -> None:
    """Changes nothing: the machine has its token from the beginning."""


def with_token_file(machine: Machine, environment: pytest.MonkeyPatch, folder: Path) -> None:
    environment.delenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    environment.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(folder / "token"))


def with_profile(machine: Machine, environment: pytest.MonkeyPatch, folder: Path) -> None:
    for name in machine.environment:
        if "CONTAINER" in name:
            environment.delenv(name)
    (folder / "credentials").write_text(
        f"[default]\naws_access_key_id = {KEYS[0]}\naws_secret_access_key = {KEYS[1]}\n"
    )


SOURCES = pytest.mark.parametrize("source", [with_token, with_token_file, with_profile])


def rotated(running: ObjectStore, machine: Machine, keys: tuple[str, str]) -> None:
    """Makes the server accept only other keys, which the machine gives; the earlier keys end."""
    running.kill()
    machine.keys = keys
    running.environment = {**running.environment, **dict(zip(CREDENTIALS, keys, strict=True))}
    running.start()
    wait_until(
        lambda: machine.end is None or datetime.now(UTC) > machine.end,
        "the end of the earlier keys",
    )


def counted(duck: Connection, path: str, version: int) -> int:
    sql = parquet_sql(BIRTH.columns, files(path, version, None))
    return duck.execute(f"select count(*) from ({sql})").fetchall()[0][0]


@SOURCES
def test_all_of_a_root_is_written_and_read(source, machine, object_store, tmp_path, monkeypatch):
    source(machine, monkeypatch, tmp_path)
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")
    store.put("a", b"1")
    table = ensure_table(table_path(store, "b", "t"), BIRTH.columns, MARK)
    table.append(pa.table({"k": ["x"], "n": [1]}), MARK, Guard("a", 1))
    platform = Platform(store)
    platform.serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        {"busy": "select carrier from delays where flights > 3"},
    )

    assert store.get("a") == b"1"
    assert len(platform.ask("from busy").rows) == 2
    with open_exact() as duck:
        assert counted(duck, table.path, table.version) == 1


def test_whatever_is_kept_goes_on_with_newer_keys(machine, own_store, tmp_path):
    machine.lasts_seconds = 2
    # A thread that lets go a lease of an earlier test may have asked for keys of an hour.
    credentials._credential_chain.cache_clear()
    # What a process remembers of roots goes by their URLs.
    root = f"s3://{own_store.bucket}/rotated/kappa"
    store = Store(root, storage=own_store.storage, local=tmp_path / "local")
    platform = Platform(store)
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    assert len(platform.ask("from delays").rows) == 3
    table = ensure_table(table_path(store, "b", "t"), BIRTH.columns, MARK)
    idle = reader_module._idle.pop()
    duck, blind = open_exact(), open_exact()
    access = renew_access(duck)
    reader = reader_module.open_reader(None, served=True)
    reader.rows("select 1")
    views = MaintainedViews([], None, are_current=True)
    writer = SimpleNamespace(rewriting=SimpleNamespace(bounds={}))
    of_views = views._connection(writer)

    rotated(own_store, machine, NEWER)

    store.put("a", b"1")
    table.append(pa.table({"k": ["x"], "n": [1]}), MARK, Guard("a", 1))
    sql = parquet_sql(BIRTH.columns, files(table.path, table.version, None))
    with pytest.raises(DUCKDB_ERRORS):
        blind.execute(f"from ({sql})").fetchall()
    renewed = renew_access(duck, access)
    assert (renewed.buckets, renewed.keys) == (access.buckets, Keys(*NEWER, None))
    assert counted(duck, table.path, table.version) == 1
    assert len(reader.rows(sql).rows) == 1
    assert views._connection(writer) is of_views
    assert counted(of_views, table.path, table.version) == 1
    views.close()
    reader.close()
    reader_module._idle[:] = [idle]
    assert len(platform.ask("from delays").rows) == 3
    assert reader_module._idle[0].connection is idle.connection
    duck.close()
    blind.close()


def test_a_stranger_is_answered(machine, object_store, tmp_path):
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")
    Platform(store).serve("flights", {DELAYS: ROWS_OF_DELAYS})

    with (
        Sandbox(Allowance()) as sandbox,
        sandbox.ask_query(store, Question("from delays")).body as body,
    ):
        assert len(json.load(body)["rows"]) == 3


def test_a_sessions_token_reaches_every_client(machine, object_store, tmp_path):
    machine.token = "the-session's-own"
    Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")
    commands: list[str] = []

    class Listening:
        def execute(self, command: str) -> None:
            commands.append(command)

    renew_access(Listening())

    assert any("session_token 'the-session''s-own'" in each for each in commands)
    assert keys_for_requests().get("token") == "the-session's-own"
    assert machine.asked == 1


def test_without_any_keys_both_ways_are_named(machine, object_store, tmp_path, monkeypatch):
    with_profile(machine, monkeypatch, tmp_path)
    (tmp_path / "credentials").write_text("")
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")

    for act in (lambda: store.get("a"), lambda: store.put("a", b""), open_exact):
        with pytest.raises(KappaError, match="there are no credentials of a bucket") as caught:
            act()
        assert caught.value.hint.startswith(BOTH_WAYS)


def test_a_source_that_fails_shows_nothing_of_its_answer(machine, object_store, tmp_path):
    machine.broken = f"not for {KEYS[1]}"
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")

    for act in (lambda: store.get("a"), open_exact):
        with pytest.raises(KappaError, match="the source of this machine's credentials") as caught:
            act()
        assert KEYS[1] not in "".join(traceback.format_exception(caught.value))


def test_keys_are_never_shown(machine, object_store, tmp_path):
    machine.token = "the-session's-own"
    Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")

    shown = f"{keys_of_chain()!r} {Access((), keys_of_chain())!r}"

    assert not any(each in shown for each in (*KEYS, machine.token))


def test_with_keys_in_the_environment_no_other_source_is_asked(
    machine, object_store, tmp_path, monkeypatch
):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")
    platform = Platform(store)
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})

    assert len(platform.ask("from delays").rows) == 3
    assert "aws_force_credential_load" not in (delta_options(store.url + "/a") or {})
    assert (machine.asked, credentials._credential_chain.cache_info().misses) == (0, 0)


SPARK = """
import sys
from pathlib import Path
from kappa.base.sections import StorageSettings
from kappa.engine.spark.s3a import spark_address
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java

endpoint, address, local = sys.argv[1:]
machine = boot(
    profile=Profile.CATCH_UP, name="chain", memory="1g", local_dir=Path(local),
    jars=ensure_jars(find_java(), for_bucket=True), cores=1,
    storage=StorageSettings(endpoint=endpoint),
)
spark = machine.session()
spark.range(7).write.format("delta").save(spark_address(address))
print(spark.read.format("delta").load(spark_address(address)).count(), flush=True)
machine.end()
"""


@pytest.mark.long
@pytest.mark.jvm
@SOURCES
def test_spark_takes_the_same_chain(source, machine, object_store, tmp_path, monkeypatch):
    source(machine, monkeypatch, tmp_path)
    address = f"{object_store.new_root()}/t"
    given = [str(object_store.storage.endpoint), address, str(tmp_path / "local")]

    ran = subprocess.run(
        [sys.executable, "-c", SPARK, *given], capture_output=True, text=True, check=False
    )

    assert ran.stdout.strip() == "7", ran.stderr[-3000:]
