"""The session has what jobs rely on, and leaves no files where it was started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.jvm


def test_it_reads_kafka_writes_delta_and_leaves_nothing_in_the_working_folder(
    spark, log, topic_name, tmp_path, monkeypatch
):
    from kappa.declare.topic import Topic
    from kappa.kafka.producer import ProducedRecord

    here = sorted(Path.cwd().iterdir())
    log.create(Topic(topic_name, event="id string"))
    log.produce([ProducedRecord(b"x"), ProducedRecord(b"y")], topic_name)

    read = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", log.bootstrap_servers)
        .option("subscribe", topic_name)
        .load()
    )
    read.selectExpr("cast(value as string) as id", "timestamp").write.format("delta").save(
        str(tmp_path / "table")
    )

    assert sorted(
        row.id for row in spark.read.format("delta").load(str(tmp_path / "table")).collect()
    ) == ["x", "y"]
    assert sorted(Path.cwd().iterdir()) == here


def test_workers_are_this_python_with_its_own_pyspark(spark):
    import pyarrow as pa
    import pyspark

    def who(batches):
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"python": [sys.executable], "pyspark": [pyspark.__file__]}
            )

    # Spark would have them import it from an archive, and so compile it each time.
    assert {
        tuple(row)
        for row in spark.range(1).mapInArrow(who, "python string, pyspark string").collect()
    } == {(sys.executable, pyspark.__file__)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.ui.enabled", "false"),
        ("spark.sql.shuffle.partitions", str(len(os.sched_getaffinity(0)))),
        ("spark.databricks.delta.snapshotPartitions", "1"),
    ],
)
def test_settings_are_in_force(spark, name, value):
    assert spark.conf.get(name) == value


def test_the_class_archives_are_made_and_both_jvms_use_them(spark, broker, jars):
    from kappa.base.java.java import locate_java
    from kappa.engine.spark.cds import ensure_archives, missing_archives, spark_archive
    from kappa.kafka.broker.broker import broker_archive

    missing = {archive.use for archive in missing_archives(jars)}
    # Set-up has made them, or has reported why not: then this reports it again, and fails.
    ensure_archives(jars)

    java = locate_java()
    session = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    for archive, process in (
        (spark_archive(jars, java), session),
        (broker_archive(jars, java), broker.pid),
    ):
        assert archive.path.exists()
        used = str(archive.path) in Path(f"/proc/{process}/maps").read_text()
        assert used or archive.use in missing


@pytest.mark.parametrize("use", ["broker", "spark"])
def test_class_lists_are_of_the_jars_that_are_locked(jars, use):
    """The class lists match the locked jars; `make classes` renews them after a change.

    Without that, each start would be slower.
    """
    from kappa.base.java.class_archive import class_list
    from kappa.base.java.jars import spark_home

    files = {"broker": jars.broker, "spark": [*jars.spark, *(spark_home() / "jars").glob("*.jar")]}
    there = {
        name.removesuffix(".class")
        for file in files[use]
        for name in ZipFile(file).namelist()
        if name.endswith(".class")
    }
    listed = {
        line.split()[0]
        for line in class_list(use).decode().splitlines()
        if line.startswith(("io/", "kafka/", "org/apache/", "scala/"))
    }
    named = {name for name in listed if "$$Lambda" not in name and "$Proxy" not in name}

    assert len(named) > 2_000
    assert named - there == set()


def test_a_machine_that_cannot_boot_says_so(jars, tmp_path):
    from kappa.base.errors import KappaError
    from kappa.engine.spark.jvm import Profile
    from kappa.engine.spark.session import boot

    machine = boot(
        profile=Profile.TAIL, name="too large", memory="900000g", jars=jars, local_dir=tmp_path
    )

    with pytest.raises(KappaError, match="ended with 1 before it could be used") as told:
        machine.session()
    assert "900000g" in told.value.hint


def test_a_session_answers_while_another_jvm_boots_and_is_ended(spark, jars, tmp_path):
    """A session answers while another JVM boots; the booting JVM can be killed."""
    from kappa.engine.spark.jvm import Profile
    from kappa.engine.spark.session import boot

    machine = boot(profile=Profile.TAIL, name="next", memory="512m", jars=jars, local_dir=tmp_path)
    try:
        assert [row.n for row in spark.createDataFrame([(1,), (2,)], "n int").collect()] == [1, 2]
        machine._gateway()
        assert _mentioning(tmp_path)
    finally:
        machine.kill()

    assert not _mentioning(tmp_path)


@pytest.mark.long
def test_a_process_may_have_one_session_after_the_other_each_with_a_jvm(tmp_path):
    """A process may have several sessions, one after the other; each JVM ends with its session."""
    program = """
import sys
from pathlib import Path
from threading import Thread
from pyspark.sql import SparkSession
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session_control import activate
from kappa.engine.spark.session import boot
from kappa.base.java.java import find_java
from kappa.base.java.jars import ensure_jars

jars = ensure_jars(find_java())
for number in range(2):
    folder = Path(sys.argv[1]) / str(number)
    machine = boot(
        profile=Profile.TAIL, name="again", memory="512m", jars=jars, local_dir=folder
    )
    begun = []
    beside = Thread(target=lambda: begun.append(machine.session()))
    beside.start()
    beside.join()
    assert SparkSession.getActiveSession() is None
    activate(begun[0])
    assert SparkSession.getActiveSession().range(3).count() == 3
    machine.end()
    assert machine.process.poll() is not None
"""
    subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program, str(tmp_path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )

    assert not _mentioning(tmp_path)


def test_times_are_in_utc_wherever_the_machine_is_and_a_log_has_no_noise(tmp_path):
    """Times are in UTC, and the log has no noise.

    Noise means the memory limits of workers, and the end of a job group without a job.
    """
    program = dedent("""
        import sys
        from datetime import datetime
        from pathlib import Path
        from pyspark.sql import functions as F
        from kappa.base.java.jars import ensure_jars
        from kappa.base.java.java import find_java
        from kappa.engine.spark.jvm import Profile
        from kappa.engine.spark.session import boot

        machine = boot(
            profile=Profile.CATCH_UP,
            name="elsewhere",
            memory="512m",
            jars=ensure_jars(find_java()),
            local_dir=Path(sys.argv[1]),
        )
        try:
            spark = machine.session()
            # The loop of the driver that ends job groups also starts workers.
            spark.sparkContext.cancelJobGroup("nobody's")
            hour = F.udf(lambda at: at.hour, "int")
            given, literal = F.timestamp_seconds(F.lit(3600)), F.lit(datetime(1970, 1, 1, 2))
            print(*spark.range(1).select(hour(given), F.hour(literal), hour(literal)).first())
        finally:
            machine.end()
    """)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "TZ": "Asia/Tokyo"},
    )

    assert ran.stdout.split() == ["1", "2", "2"]
    assert "limits" not in ran.stderr
    assert "job group" not in ran.stderr


def test_a_machine_is_started_as_spark_submit_would_start_it(jars, tmp_path):
    from kappa.base.java.jars import spark_home
    from kappa.engine.spark.jvm import Profile, command

    environment = {**os.environ, "SPARK_PRINT_LAUNCH_COMMAND": "1"}
    said = subprocess.run(
        [spark_home() / "bin" / "spark-submit", "--version"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    ).stderr
    (theirs,) = (
        line.removeprefix("Spark Command: ").split()
        for line in said.splitlines()
        if line.startswith("Spark Command: ")
    )
    options = {
        word
        for word in theirs[1:]
        if word.startswith(("--", "-X", "-D")) and not word.startswith("-Xmx")
    } - {"--version"}

    assert options - set(command(Profile.TAIL, "1g", jars, tmp_path)) == {
        "--add-modules=jdk.incubator.vector"
    }


def test_a_long_catch_up_is_compiled_for_its_length_and_a_shorter_one_for_its_start(jars, tmp_path):
    from kappa.engine.spark.jvm import Profile, command

    c1_alone = [
        "-XX:TieredStopAtLevel=1" in command(Profile.of_catch_up(offsets), "1g", jars, tmp_path)
        for offsets in (0, 9_999_999, 10_000_000)
    ]

    assert c1_alone == [True, True, False]


def _mentioning(folder: Path) -> list[str]:
    """Lists the processes whose command line contains this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += (
                [entry.name] if str(folder).encode() in (entry / "cmdline").read_bytes() else []
            )
    return found
