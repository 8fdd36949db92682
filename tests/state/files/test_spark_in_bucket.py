"""Spark commits in a bucket: of two writers one wins, and no kill changes a row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from between import Between
from bucket_site import expected, random_log, site
from object_store import CREDENTIALS, ObjectStore
from served import serve_build

from kappa.engine.children.rehearsal import MemoryLog
from kappa.serving.query.query import answer_query
from kappa.serving.query.reader import reader as reader_module
from kappa.state.store import Store

pytestmark = [pytest.mark.long, pytest.mark.jvm]

_PATIENCE_SECONDS = 400
RECORDS, SLICES = 300, 5
RACES = 30
# Requests of a slice that Spark folds into the site's tables, measured as 289.
LARGE_SLICE = 350

# So long is the server away, or refuses all: less than S3A is patient.
AWAY_SECONDS = 3.0
SLOW_SECONDS = 0.05

# It appends to a table, again and again, and prints what becomes of each attempt.
RACING = """
import sys
from pathlib import Path
from typing import Self
from py4j.protocol import Py4JJavaError
from kappa.base.sections import StorageSettings
from kappa.engine.spark.s3a import spark_address
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java

endpoint, address, local, races = sys.argv[1:]
machine = boot(
    profile=Profile.CATCH_UP, name="racing", memory="1g", local_dir=Path(local),
    jars=ensure_jars(find_java(), for_bucket=True), cores=1,
    storage=StorageSettings(endpoint=endpoint),
)
spark = machine.session()
for race in range(int(races)):
    try:
        rows = spark.createDataFrame([(race,)], "number int").coalesce(1)
        rows.write.format("delta").mode("append").save(spark_address(address))
        print("won", flush=True)
    except Exception as error:
        print(f"lost by {type(error).__name__}", flush=True)
shown = [*spark.sparkContext.getConf().getAll()]
shown += [
    (each.getKey(), each.getValue())
    for each in spark._jsc.hadoopConfiguration().iterator()
]
print(repr([(name, value) for name, value in shown if "kappa-tests-" in value]), flush=True)
machine.end()
"""


@pytest.fixture
def store(object_store: ObjectStore, tmp_path: Path) -> Store:
    # Connections of earlier tests know no bucket.
    reader_module._idle.clear()
    root = object_store.new_root()
    return Store(root, storage=object_store.storage, local=tmp_path / "local")


@pytest.fixture
def folding(store: Store, between: Between, tmp_path: Path) -> Callable[[], Folding]:
    return partial(Folding, store, between, tmp_path)


class Folding:
    """A process that folds, starting at the frontier; it ends with the block."""

    def __init__(
        self, store: Store, between: Between, folder: Path, *, slices: int = SLICES
    ) -> None:
        program = Path(__file__).parents[2] / "support" / "folding_in_bucket.py"
        given = [between.storage.endpoint, store.url, folder / "local", RECORDS, slices]
        self.output = folder / f"{len([*folder.iterdir()])}.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, program, *map(str, given)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, _path: str = "") -> None:
        """Kills the process, with its JVM and its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)

    def ended(self) -> int:
        """Waits until the process has ended; returns its exit code."""
        return self.process.wait(_PATIENCE_SECONDS)

    def said(self) -> str:
        return self.output.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


class Outage:
    """A time in which a server answers no request, or refuses each one.

    The outage begins at a given request.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end
        self._begun = threading.Event()
        self.times = 0

    @property
    def is_on(self) -> bool:
        return self._begun.is_set()

    def begin(self, _path: str = "") -> None:
        self._begin()
        self.times += 1
        self._begun.set()

    def end_in_time(self) -> None:
        """Ends the outage after its time, if it has begun."""
        if self._begun.wait(0.1):
            time.sleep(AWAY_SECONDS)  # The time of an outage is what is tried.
            self.end()

    def end(self) -> None:
        self._begun.clear()
        self._end()


@pytest.fixture(params=["killed", "throttling"])
def outage(
    request: pytest.FixtureRequest, object_store: ObjectStore, between: Between
) -> Iterator[Outage]:
    def deny(code: str) -> None:
        between.denied = code

    means = {
        "killed": (object_store.kill, object_store.start),
        "throttling": (partial(deny, "SlowDown"), partial(deny, "")),
    }
    made = Outage(*means[request.param])
    yield made
    if made.is_on:
        made.end()


def commit(table: str, version: int) -> str:
    return f"/tables/{table}/_delta_log/{version:020d}.json"


@contextmanager
def asked(store: Store) -> Iterator[Callable[[str], list[tuple[object, ...]]]]:
    serve_build(store, site.name, "b")
    yield lambda sql: list(answer_query(store, sql).rows)


def assert_right(store: Store) -> None:
    wanted = expected(random_log(MemoryLog(), RECORDS))
    with asked(store) as ask:
        assert {sql: ask(sql) for sql in wanted} == wanted


def assert_folded_once(store: Store, *, slices: int) -> None:
    """Asserts that the rows are right, and that each slice is one commit of each table."""
    assert_right(store)
    for table in ("totals", "visitors", "all", "pages"):
        logged = store.names(f"builds/b/tables/{table}/_delta_log")
        assert len([each for each in logged if each.endswith(".json")]) == 1 + slices, logged


@pytest.mark.sweep
def test_large_slices_are_what_the_log_says_whatever_is_killed_or_lost(store, folding, between):
    """Spark decodes and folds the rows, and commits them if there are many.

    One job dies while it writes a table's rows, and one job after it has sent a commit, which
    succeeds.
    """
    for method, name in [("PUT", ".parquet"), ("PUT", commit("totals", 2))]:
        with folding() as job:
            between.before(method, name, job.kill)
            assert job.ended() == -signal.SIGKILL, job.said()

    # A commit of delta-rs whose answer is lost ends the job; one of Spark's does not.
    with folding() as job, between.losing("PUT", commit("visitors", 4)):
        assert job.ended() in {0, 1}, job.said()
    with folding() as job:
        assert job.ended() == 0, job.said()

    assert_right(store)


@pytest.mark.sweep
@pytest.mark.fault
def test_a_server_that_is_away_as_spark_commits_costs_time_alone(store, folding, between, outage):
    """The server goes away at the put of a file, of a commit, and of a commit that is repeated.

    A job whose commit fails is followed by another job.
    """
    again = commit("totals", 3)
    between.before("PUT", ".parquet", outage.begin)
    between.before("PUT", commit("totals", 2), outage.begin)
    between.before("PUT", again, lambda _: between.before("PUT", again, outage.begin))
    code, jobs = 1, 0
    with between.losing("PUT", again):
        while code:
            with folding(slices=3) as job:
                while job.process.poll() is None:
                    outage.end_in_time()
                code, jobs = job.ended(), jobs + 1
                assert code in {0, 1}, job.said()
                assert jobs <= outage.times + 1, job.said()

    print(f"{jobs} jobs")
    assert outage.times == 3
    assert_folded_once(store, slices=3)


@pytest.mark.sweep
@pytest.mark.fault
def test_a_slow_server_slows_spark_alone(store, folding, between):
    between.delay_seconds = SLOW_SECONDS
    with folding(slices=2) as job:
        assert job.ended() == 0, job.said()
    between.delay_seconds = 0.0

    assert_folded_once(store, slices=2)


@pytest.mark.sweep
def test_a_large_slice_takes_a_bounded_number_of_requests(folding, between):
    """A large slice takes a limited number of requests, including the job's start and end."""
    with folding() as job:
        assert job.ended() == 0, job.said()

    methods = Counter(each.split()[0] for each in between.requests)
    print(len(between.requests), methods)
    assert len(between.requests) / SLICES <= LARGE_SLICE, methods


def test_a_late_writer_never_wins_and_no_setting_has_credentials(store, between, tmp_path):
    """If another writer commits a version first, Spark's commit of that version never wins."""
    other = json.dumps({"commitInfo": {"timestamp": 0, "operation": "another's"}}).encode()
    table, won = "builds/b/tables/t", []

    def race(version: int, _path: str) -> None:
        name = f"{table}/_delta_log/{version:020d}.json"
        won.append(store.put_new(name, other))

    for version in range(1, RACES + 1):
        between.before("PUT", commit("t", version), partial(race, version))

    given = [between.storage.endpoint, store.address(table), tmp_path / "racing", RACES + 1]
    done = subprocess.run(
        [sys.executable, "-c", RACING, *map(str, given)],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )

    *told, shown = done.stdout.splitlines() or [""]
    assert told[0] == "won", done.stderr[-3000:]
    assert len(told) == RACES + 1
    assert [each for each in told[1:] if each == "won"] == []
    assert won == [True] * RACES
    for version in range(1, RACES + 1):
        assert store.get(f"{table}/_delta_log/{version:020d}.json") == other
    assert store.get(f"{table}/_delta_log/{RACES + 1:020d}.json") is None
    assert shown == "[]", shown
    assert all(secret.startswith("kappa-tests-") for secret in CREDENTIALS.values())
