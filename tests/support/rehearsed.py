"""Rehearsed builds whose roots are in a bucket, on the Spark session of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from kappa.engine.children.rehearsal import Rehearsal
from kappa.engine.spark.s3a import bucket_settings, classes_in, compile_log_store
from kappa.state.store import Store

if TYPE_CHECKING:
    from object_store import ObjectStore
    from pyspark.sql import SparkSession

_OF_HADOOP = "spark.hadoop."


@contextmanager
def rehearsed_in_bucket(running: ObjectStore, spark: SparkSession) -> Iterator[None]:
    """Makes a root in the bucket for each build that is rehearsed at a path within the block."""
    begin, begun = Rehearsal.__init__, list[Store]()

    def begin_in_bucket(build: Rehearsal, root: Path, *given: Any, **named: Any) -> None:
        begun.append(Store(running.new_root(), storage=running.storage, local=root))
        begin(build, begun[-1], *given, **named)

    with _knowing(spark, running), mock.patch.object(Rehearsal, "__init__", begin_in_bucket):
        yield
    # Otherwise the test would be of the disk.
    assert begun, "nothing was rehearsed"
    assert all(each.names("builds") for each in begun), "a build is not in the bucket"


@contextmanager
def _knowing(spark: SparkSession, running: ObjectStore) -> Iterator[None]:
    """Configures a session for tables in the bucket within the block, as a job's session is."""
    context: Any = spark.sparkContext
    settings = bucket_settings(running.storage)
    own = [name for name in settings if not name.startswith(_OF_HADOOP)]
    for name in settings.keys() - own:
        context._jsc.hadoopConfiguration().set(name.removeprefix(_OF_HADOOP), settings[name])
    for name in own:
        context._jsc.sc().conf().set(name, settings[name])
        spark.conf.set(name, settings[name])
    # Its JVM's own folder for files is in the folder that the session was begun with.
    local_dir = Path(context._jvm.System.getProperty("java.io.tmpdir")).parent
    compile_log_store(spark, classes_in(local_dir))
    yield
    for name in own:
        context._jsc.sc().conf().remove(name)
        spark.conf.unset(name)
