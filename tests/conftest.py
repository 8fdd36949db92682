"""Fixtures for all tests: the jars, one real broker for a whole run, unique topic names."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from stores import make_store

from kappa.base.java.jars import Jars, ensure_jars
from kappa.base.java.java import Java, find_java
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.state.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from between import Between
    from ext4 import Ext4
    from losing import Restarted
    from object_store import ObjectStore
    from pyspark.sql import SparkSession
    from secured import SecuredBroker

# In the background of a shell and under nohup these are ignored, and children inherit that: tests
# press Ctrl-C, and Spark ends its workers by SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A run starts two dozen brokers: with C1 alone each takes 5 s of CPU to answer, else 8.
# Plans of some rows are not planned again stage by stage: that takes twice as many jobs of Spark.
os.environ["JDK_JAVA_OPTIONS"] = " ".join(
    [
        *os.environ.get("JDK_JAVA_OPTIONS", "").split(),
        "-XX:TieredStopAtLevel=1",
        "-Dspark.sql.adaptive.enabled=false",
    ]
)

# Examples are judged by what they show: how long one takes says only how busy the machine is.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("kappa", _PATIENT, max_examples=50)
# For `make check`, which one runs after each change.
settings.register_profile("check", _PATIENT, max_examples=10)
# For `make faults`: it runs tests with the marker `law` with as many.
settings.register_profile("faults", _PATIENT, max_examples=500)
settings.load_profile("kappa")


# The long suite is run in so many shares. A test's share depends on its name alone, so that a new
# test moves no other one; all cases of a test are in one share.
_SHARES = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        type=int,
        choices=range(_SHARES),
        help=f"of the tests marked as long, only this one of {_SHARES} shares",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts files with laws first, and deselects the long tests of other shares.

    A law takes long. If it began last, it would keep one worker busy while the others are idle.
    """
    unmarked = {
        str(item.path)
        for item in items
        if "java" in item.fixturenames and not item.get_closest_marker("jvm")
    }
    if unmarked:
        raise pytest.UsageError(
            f"tests of {', '.join(sorted(unmarked))} start a JVM: mark them with pytest.mark.jvm, "
            "so that `make check` and the part of `make test` without a JVM leave them out"
        )
    with_laws = {item.path for item in items if item.get_closest_marker("law")}
    items.sort(key=lambda item: item.path not in with_laws)
    share = config.getoption("share")
    if share is None:
        return
    others = [
        item
        for item in items
        if item.get_closest_marker("long")
        and zlib.crc32(item.nodeid.partition("[")[0].encode()) % _SHARES != share
    ]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in {*others}]


@pytest.fixture(scope="session")
def java() -> Java:
    return find_java()


@pytest.fixture(scope="session")
def jars(java: Java) -> Jars:
    return ensure_jars(java)


@pytest.fixture(scope="session")
def broker(jars: Jars, java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Runs one broker for the test run. It ends with this process, however the process ends.

    kappa.base.process ensures that.
    """
    running = Broker.start(tmp_path_factory.mktemp("broker"), jars, java)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def kafka(jars: Jars, java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    """Yields a broker for one file, which the file's tests stop, cut and start again."""
    from losing import Restarted

    running = Restarted(tmp_path_factory.mktemp("losing"), jars, java)
    yield running
    running.broker.stop()


@pytest.fixture(scope="session")
def secured(
    jars: Jars, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    """Yields a broker for the run that admits known users, within its access rules."""
    from secured import SecuredBroker

    running = SecuredBroker(tmp_path_factory.mktemp("secured"), jars, java)
    yield running
    running.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4]:
    """Yields a real file system for one test, to fill it or to cut its power."""
    import ext4

    missing = ext4.why_not()
    if missing is not None:
        pytest.skip(f"not run: {missing}")
    with ext4.mounted(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def log(broker: Broker) -> Log:
    return Log(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def lent(broker: Broker, log: Log) -> Iterator[str]:
    """Yields settings of a project on the run's broker; deletes topics that were made meanwhile."""
    before = {*log.topics()}
    yield f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
    for name in {*log.topics()} - before:
        log.delete(name)


@pytest.fixture(scope="session")
def spark(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yields one Spark session for the run. Its JVM ends with this process.

    The session folds more than a job does: with a tail's memory, a sixth of its time was garbage
    collection. It can be configured for a bucket later (tests/support/rehearsed.py), because its
    class path has everything that is needed.
    """
    from object_store import CREDENTIALS

    from kappa.engine.spark.jvm import Profile
    from kappa.engine.spark.s3a import classes_in
    from kappa.engine.spark.session import boot

    local_dir = tmp_path_factory.mktemp("spark")
    classes_in(local_dir).mkdir(parents=True)
    running = boot(
        profile=Profile.CATCH_UP,
        name="tests",
        memory="2g",
        jars=ensure_jars(java, for_bucket=True),
        local_dir=local_dir,
        secrets=CREDENTIALS,
    ).session()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    """Makes the run's session interpret the plans of this file's tests."""
    from builds import INTERPRETED

    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield spark
    for name in INTERPRETED:
        spark.conf.unset(name)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Yields an S3 server for the run, with its credentials in the environment."""
    import object_store

    from demo.cluster.object_store import NotRunError, ensure_versitygw

    try:
        ensure_versitygw()
    except NotRunError as error:
        pytest.skip(f"not run: {error}")
    with (
        pytest.MonkeyPatch.context() as environment,
        object_store.running_object_store(tmp_path_factory.mktemp("s3")) as running,
    ):
        for name, value in object_store.CREDENTIALS.items():
            environment.setenv(name, value)
        yield running


@pytest.fixture
def between(object_store: ObjectStore) -> Iterator[Between]:
    """Yields a proxy in front of the S3 server."""
    from between import proxy_before

    with proxy_before(object_store.storage) as proxy:
        yield proxy


# A law that any store keeps is tried on a disk in each run, and in a bucket by the long suite.
_STORES = ["disk", pytest.param("bucket", marks=pytest.mark.long)]


@pytest.fixture(params=_STORES)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Returns a store of each kind, because all kinds must behave the same."""
    return make_store(request.param, request, tmp_path)


@pytest.fixture(scope="module", params=_STORES)
def new_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Store]:
    """Returns a function that makes stores of each kind, for a law with one store per example."""
    return lambda: make_store(request.param, request, tmp_path_factory.mktemp("root"))


@pytest.fixture
def object_files(request: pytest.FixtureRequest, any_store: Store) -> Path:
    """Returns the folder in which the objects of `any_store` are files, on the server or here."""
    if any_store.is_on_disk:
        return any_store.folder
    running: ObjectStore = request.getfixturevalue("object_store")
    return running.folder / any_store.url.removeprefix("s3://")


@pytest.fixture
def topic_name(request: pytest.FixtureRequest, _numbers: Callable[[], int]) -> str:
    """Returns a unique name: the test's name in Kafka's alphabet, shortened, and a number."""
    own = "".join(
        letter if letter.isascii() and letter.isalnum() else "-" for letter in request.node.name
    )[:80]
    return f"{own}.{os.getpid()}.{_numbers()}"


@pytest.fixture(scope="session")
def _numbers() -> Callable[[], int]:
    return itertools.count(1).__next__


def pytest_collection_finish() -> None:
    """Makes garbage collection rare, and excludes what was imported."""
    gc.freeze()
    # A search through 150,000 states took a third longer with Python's own 700.
    gc.set_threshold(100_000, 20, 100)


# The files that make a run long are named at its end.
_SLOWEST = 10


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the slowest files, with the wall time of all their tests in seconds."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section("slowest files")
    for file, took in seconds.most_common(_SLOWEST):
        terminalreporter.line(f"{took:7.1f} s  {file}")
