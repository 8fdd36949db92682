"""The command line and the environment variables of a session's JVM."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from kappa.base.errors import SettingsError
from kappa.base.java.jars import Jars
from kappa.base.java.java import locate_java
from kappa.base.settings import Settings
from kappa.engine.spark.cds import spark_archive
from kappa.engine.spark.cluster import SparkCluster, cluster_of
from kappa.engine.spark.s3a import classes_in
from kappa.kafka.client_options import client_options
from kappa.kafka.java_options import secret_variables

# Variables of another Spark or Hadoop would change the class path or the settings.
FOREIGN = (
    # With this variable, workers would import PySpark from an archive there, and compile PySpark
    # each time.
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_JARS_DIR",
    "SPARK_MASTER",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_REMOTE",
)


class Profile(StrEnum):
    """The purpose of a session: a long catch-up, a catch-up, or a tail.

    A catch-up needs throughput. A tail needs a fast start and fast answers.
    """

    LONG_CATCH_UP = "long catch-up"
    CATCH_UP = "catch-up"
    TAIL = "tail"

    @classmethod
    def of_catch_up(cls, offsets: int) -> Profile:
        """Returns the profile for a catch-up of this many offsets."""
        return cls.LONG_CATCH_UP if offsets >= _LONG else cls.CATCH_UP


# C1 alone starts a third quicker and makes small slices quicker. On one core a catch-up of 340,000
# records is an eighth quicker: compiling by C2 costs more than C2 saves. On two cores, 20 million
# records of few keys take as long with both. With many keys C2 is quicker from 10 million records
# on, by a sixth at 50 million.
_C1_ALONE = "-XX:TieredStopAtLevel=1"
_LONG = 10_000_000
_JVM_OPTIONS = {
    Profile.LONG_CATCH_UP: ("-XX:+UseParallelGC",),
    Profile.CATCH_UP: (_C1_ALONE, "-XX:+UseParallelGC"),
    # Compared with G1, a tail's start and first batches take a tenth less CPU, and the process
    # keeps 100 MiB less. A heap that begins small and keeps little free saves 80 MiB, at a fiftieth
    # more CPU.
    Profile.TAIL: (
        _C1_ALONE,
        "-XX:+UseSerialGC",
        "-Xms64m",
        "-XX:MinHeapFreeRatio=20",
        "-XX:MaxHeapFreeRatio=30",
    ),
}

# spark-submit's options for each JVM (launcher/.../JavaModuleOptions.java of Spark 4.2), except for
# the vector module: only MLlib's fastest loops use that module, which slows the start and prints a
# warning.
_OPENED = (
    *(
        f"java.base/java.{name}"
        for name in (
            "lang",
            "lang.invoke",
            "lang.reflect",
            "io",
            "net",
            "nio",
            "util",
            "util.concurrent",
            "util.concurrent.atomic",
        )
    ),
    *(
        f"java.base/{name}"
        for name in (
            "jdk.internal.ref",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
    "java.security.jgss/sun.security.krb5",
)
_SPARKS_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)


def command(
    profile: Profile, memory: str, jars: Jars, local_dir: Path, list_classes: Path | None = None
) -> list[str]:
    """Returns the command that starts a session's JVM, as a list of arguments.

    PySpark itself would start the JVM by `spark-submit`, which takes half a second longer and needs
    another JVM (see pyspark/java_gateway.py). If `list_classes` is a path, the JVM writes the list
    of its classes to this path.
    """
    options = [
        # query.stop() can die of a StackOverflowError with the default.
        "-Xss8m",
        f"-Djava.io.tmpdir={local_dir / 'tmp'}",
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        *_JVM_OPTIONS[profile],
    ]
    java = locate_java()
    archive = spark_archive(jars, java)
    # A class archive stays valid if its class path is the beginning of another class path.
    for_bucket = (*jars.bucket, classes_in(local_dir)) if jars.bucket else ()
    return [
        java,
        "-cp",
        os.pathsep.join((archive.class_path, *map(str, for_bucket))),
        f"-Xmx{memory}",
        *options,
        *archive.options(list_classes),
        # The JVM would report a stale archive on stdout.
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
        *_SPARKS_OPTIONS,
        "org.apache.spark.api.python.PythonGatewayServer",
    ]


def secrets_of(settings: Settings) -> Mapping[str, str]:
    """Returns environment variables with the secrets of the Kafka cluster, for a session's JVM.

    Returns an empty mapping if a secret is missing; the code that reads the log then reports the
    error.
    """
    # A session need not read the log: a missing secret is reported by the code that reads the log.
    with suppress(SettingsError):
        return secret_variables(client_options(settings))
    return {}


def cluster_for(settings: Settings, profile: Profile) -> SparkCluster | None:
    """Returns the cluster that runs a session's tasks, or None if this machine runs them.

    The tasks of a tail always run on this machine: the slices of a tail are so small that sending
    them to other machines costs more than folding them.
    """
    cluster = None if profile is Profile.TAIL else cluster_of(settings)
    return cluster and replace(cluster, jvm=_JVM_OPTIONS[profile])
