"""A cluster that cannot be used is reported in one sentence, whatever is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spark_cluster import spark_cluster

from kappa.base.cluster_rules import IS_DYNAMIC, MAX_INSTANCES, addresses
from kappa.base.errors import KappaError, Unreachable
from kappa.base.java.jars import spark_home
from kappa.base.settings import load_settings
from kappa.engine.spark.cluster import SparkCluster, ensure_master
from kappa.engine.spark.jvm import Profile, cluster_for
from kappa.engine.spark.worker_archive import kappa_digest, same_kappa, take_compiled
from kappa.kafka.broker.broker import HOST, free_ports

_OPTIONS = "spark.executor.extraJavaOptions"
_LEG = """
import sys
from pathlib import Path

from kappa import Table, Topic, pipeline
from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.code.importer import open_sources
from kappa.code.sources import Sources
from kappa.engine.function.spark_errors import SPARK_ERRORS, translated
from kappa.engine.spark.cluster import ensure_executor
from kappa.engine.spark.jvm import Profile, cluster_for
from kappa.engine.spark.leg_session import LegSession
from kappa.engine.spark.session import end_process

project = Path(sys.argv[1])
settings = load_settings(project)
cluster = cluster_for(settings, Profile.CATCH_UP)
assert cluster_for(settings, Profile.TAIL) is None


def doubled(batches):
    from helper import double

    for batch in batches:
        yield batch.set_column(0, "id", double(batch.column(0)))


@pipeline(reads={"events": Topic("events", event="id string")}, writes=[Table("t")])
def p(events):
    return {"t": events}


with LegSession(settings, "b", Profile.CATCH_UP, project / "leg") as leg:
    spark = leg()
    open_sources(Sources(project / "code"))
    try:
        ensure_executor(spark, cluster, lambda: False, patience_seconds=1)
    except KappaError as error:
        print(error.message, flush=True)
    sys.stdin.readline()
    leg.begin_workers()
    found = spark.range(0, 4, 1, 1).mapInArrow(doubled, "id bigint").collect()
    print([row.id for row in found], flush=True)
    spark.sparkContext.environment["KAPPA_DIGEST"] = "of another"
    try:
        spark.range(0, 1, 1, 1).mapInArrow(doubled, "id bigint").collect()
    except SPARK_ERRORS as error:
        print(translated(error, p).message, flush=True)
    spark.sparkContext._jsc.sc().stop()
    try:
        ensure_executor(spark, cluster, lambda: False)
    except KappaError as error:
        print(error.message, flush=True)
end_process(0)
"""
_HELPER = """
import pyarrow.compute as pc


def double(column):
    return pc.multiply(column, 2)
"""


_WRONG = """
import sys
from pathlib import Path

from kappa.base.errors import KappaError
from kappa.engine.spark.cluster import SparkCluster
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot, end_process
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java

conf = {"spark.network.timeout": "10s"}
host = sys.argv[2]
machine = boot(
    profile=Profile.CATCH_UP,
    name="wrong",
    memory="512m",
    jars=ensure_jars(find_java()),
    local_dir=Path(sys.argv[1]),
    cluster=SparkCluster("spark://127.0.0.1:1", host, conf if host == "127.0.0.1" else {}),
)
try:
    machine.session()
except KappaError as error:
    print(error, flush=True)
end_process(0)
"""


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize(
    ("host", "named"),
    [
        (HOST, ["spark.executor.heartbeatInterval", "mend engine.conf"]),
        # No machine has it: it is for documents alone (RFC 5737).
        ("192.0.2.1", ["engine.driver_host", "spark.driver.bindAddress in engine.conf"]),
        ("no-such.invalid", ["engine.driver_host", "spark.driver.bindAddress in engine.conf"]),
    ],
)
def test_a_setting_that_spark_refuses_is_one_sentence(
    tmp_path: Path, host: str, named: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WRONG, str(tmp_path), host],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=240,
    )

    assert done.stdout.startswith("Spark's session does not begin: ")
    assert all(name in done.stdout for name in named)


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({"spark.cores.max": "16"}, 16),
        ({"spark.cores.max": "16", IS_DYNAMIC: "true", "spark.executor.cores": "4"}, 16),
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ({IS_DYNAMIC: " True", MAX_INSTANCES: "5", "spark.executor.cores": "4"}, 20),
        # A beginning alone: Spark asks for as many as there are tasks.
        ({IS_DYNAMIC: "true", "spark.executor.instances": "3"}, 0),
        ({}, 0),
    ],
)
def test_how_many_cores_a_cluster_gives_is_known_or_not(conf: dict[str, str], cores: int) -> None:
    assert SparkCluster("spark://one:1", HOST, conf).cores == cores


def test_a_container_of_yarn_has_room_for_the_workers_of_python() -> None:
    conf = {"spark.executor.memory": "8g", "spark.executor.cores": "2"}

    found = SparkCluster("yarn", HOST, conf).settings("1g", [])

    # Two workers, and a tenth of the heap.
    assert found["spark.executor.memoryOverhead"] == f"{2 * 1024 + 819}m"
    assert found["spark.yarn.jars"] == f"local:{spark_home()}/jars/*"


def test_what_a_project_says_of_yarn_stays() -> None:
    conf = {"spark.executor.memoryOverhead": "1g", "spark.yarn.archive": "hdfs:///spark.zip"}

    found = SparkCluster("yarn", HOST, conf).settings("1g", [])

    assert conf.items() <= found.items()
    assert "spark.yarn.jars" not in found
    assert "spark.executor.memoryOverhead" not in SparkCluster("k8s://h", HOST, {}).settings(
        "1g", []
    )


def test_the_resource_managers_of_yarn_are_asked_by_their_hosts_or_addresses() -> None:
    manager = "spark.hadoop.yarn.resourcemanager"
    one = {f"{manager}.hostname": "one", f"{manager}.scheduler.address": "one:1"}
    two = {f"{manager}.ha.rm-ids": "a,b", f"{manager}.hostname.a": "one"}
    two |= {f"{manager}.address.b": "two:9", f"{manager}.hostname.b": "other"}

    assert addresses("yarn", one) == [("one", 8032)]
    assert sorted(addresses("yarn", two)) == [("one", 8032), ("two", 9)]


def test_the_time_zone_of_executors_is_ours() -> None:
    conf = {"spark.executor.extraJavaOptions": "-Xss4m -Duser.timezone=Asia/Tokyo"}

    found = SparkCluster("spark://one:1", HOST, conf).settings("1g", [])

    assert found["spark.executor.extraJavaOptions"] == (
        "-Xss4m -Duser.timezone=Asia/Tokyo -Duser.timezone=UTC"
    )


@pytest.mark.parametrize(
    ("profile", "given", "has"),
    [
        (Profile.CATCH_UP, "", "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"),
        (Profile.LONG_CATCH_UP, "", "-XX:+UseParallelGC"),
        (Profile.CATCH_UP, "-XX:+UseZGC", "-XX:+UseZGC"),
    ],
)
def test_jvms_of_executors_have_the_options_of_the_leg_unless_the_project_has_some(
    tmp_path: Path, profile: Profile, given: str, has: str
) -> None:
    conf = f'[engine.conf]\n"{_OPTIONS}" = "{given}"\n' if given else ""
    (tmp_path / "kappa.toml").write_text(
        f'[engine]\nmaster = "spark://{HOST}:1"\ndriver_host = "{HOST}"\n{conf}'
    )
    cluster = cluster_for(load_settings(tmp_path), profile)
    assert cluster is not None

    found = cluster.settings("1g", ())[_OPTIONS]

    assert sorted(found.split()) == sorted(["-Duser.timezone=UTC", *has.split()])


def test_a_master_that_does_not_answer_is_named() -> None:
    port, other = free_ports(None)
    cluster = SparkCluster(f"spark://{HOST}:{port},{HOST}:{other}", HOST, {})

    with pytest.raises(Unreachable, match="does not answer") as told:
        ensure_master(cluster)

    assert f"{HOST}:{port} (Connection refused), {HOST}:{other}" in told.value.message


def test_a_worker_with_another_kappa_refuses() -> None:
    same_kappa({})
    same_kappa({"KAPPA_DIGEST": kappa_digest()})
    with pytest.raises(KappaError, match="another Kappa"):
        same_kappa({"KAPPA_DIGEST": "of another"})


def test_shipped_loops_are_put_where_none_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "cache" / "kappa" / "compiled"
    for folder, text in (
        (own / "a", "own"),
        (tmp_path / "compiled" / "a", "shipped"),
        (tmp_path / "compiled" / "b", "shipped"),
        (tmp_path / "compiled" / "c", "shipped"),
    ):
        folder.mkdir(parents=True)
        (folder / "loop").write_text(text)
    # It cannot be renamed to, as one that another worker has put meanwhile.
    (own / "c").symlink_to("nowhere")

    take_compiled(tmp_path)
    take_compiled(tmp_path / "without")

    assert {path.name for path in own.iterdir()} == {"a", "b", "c"}
    assert (own / "a" / "loop").read_text() == "own"
    assert (own / "b" / "loop").read_text() == "shipped"


@pytest.mark.long
@pytest.mark.jvm
def test_tasks_run_on_workers_that_have_the_code_and_the_same_kappa(tmp_path: Path) -> None:
    project = tmp_path / "a project #1"
    (project / "code").mkdir(parents=True)
    (project / "code" / "helper.py").write_text(_HELPER)
    with spark_cluster(tmp_path / "cluster", workers=0) as cluster:
        (project / "kappa.toml").write_text(
            f'[engine]\nmaster = "{cluster.url}"\ndriver_host = "{HOST}"\n'
            '[engine.conf]\n"spark.executor.memory" = "512m"\n'
        )
        with subprocess.Popen(
            [sys.executable, "-c", _LEG, str(project)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as leg:
            assert leg.stdout is not None
            first = leg.stdout.readline()
            cluster.start_worker(0)
            printed, _ = leg.communicate("\n", timeout=600)

        assert first == f"the Spark cluster {cluster.url} has given no executor in 1 s\n"
        assert printed.splitlines()[0] == "[0, 2, 4, 6]"
        assert printed.splitlines()[1].startswith("a worker of the cluster has another Kappa")
        assert "has ended the application before" in printed.splitlines()[2]
