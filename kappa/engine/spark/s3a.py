"""Settings and file names for S3A, Spark's client for buckets.

The module also compiles the Java class that stores Delta's logs in a bucket. Credentials are never
in Spark's settings, since Spark displays its settings. A JVM finds credentials in the same places
as Kappa's own client: in the environment, or by the usual chain of AWS credential providers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.engine.spark.java_compiler import compile_java
from kappa.state.files.bucket import is_bucket, is_plain_http, region_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.base.sections import StorageSettings
    from kappa.base.settings import Settings

_LOG_STORE = "kappa.ConditionalLogStore"
_SOURCE = Path(__file__).with_name("ConditionalLogStore.java")
_PROVIDERS = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
# Spark copies credentials of the driver's environment into these settings, which executors get.
_COPIES = (
    *("fs.s3.awsAccessKeyId", "fs.s3n.awsAccessKeyId", "fs.s3a.access.key"),
    *("fs.s3.awsSecretAccessKey", "fs.s3n.awsSecretAccessKey", "fs.s3a.secret.key"),
    "fs.s3a.session.token",
)


def storage_of(settings: Settings) -> StorageSettings | None:
    """Returns the storage settings of a root in a bucket, or None if the root is a folder."""
    return settings.storage if is_bucket(settings.root) else None


def spark_address(address: str) -> str:
    """Returns the name by which Spark opens a file or folder: a path, or a URL `s3a://...`.

    If `address` is a URL in a bucket, its scheme `s3` is replaced by `s3a`. A path is returned
    unchanged.
    """
    return f"s3a{address.removeprefix('s3')}" if is_bucket(address) else address


def bucket_settings(storage: StorageSettings) -> Mapping[str, str]:
    """Returns Spark's settings for a session that reads and writes tables in a bucket."""
    hadoop = {
        **dict.fromkeys(_COPIES, ""),
        "fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS),
        "fs.s3a.endpoint.region": region_of(storage),
        "fs.s3a.path.style.access": str(storage.path_style).lower(),
        "fs.s3a.connection.ssl.enabled": str(not is_plain_http(storage)).lower(),
        # The folder of the machine's own JVM.
        "fs.s3a.buffer.dir": "${java.io.tmpdir}/s3a",
        **({} if storage.endpoint is None else {"fs.s3a.endpoint": storage.endpoint}),
    }
    return {
        **{f"spark.hadoop.{name}": value for name, value in hadoop.items()},
        "spark.delta.logStore.s3a.impl": _LOG_STORE,
        # If a commit finds its version taken, its job has ended: the commit must not be made after
        # the commit of the job's successor.
        "spark.databricks.delta.maxCommitAttempts": "0",
    }


def classes_in(local_dir: Path) -> Path:
    """Returns the folder in `local_dir` for classes that are compiled in a JVM.

    The folder is on the JVM's class path.
    """
    return local_dir / "tmp" / "classes"


def compile_log_store(spark: SparkSession, classes: Path) -> None:
    """Compiles the Java class that stores Delta's logs, and writes it to the folder `classes`.

    The class is compiled in the session's JVM. The JVM loads the class when it opens the first
    table.
    """
    for name, content in dict(compile_java(spark, _SOURCE).getBytecodes()).items():
        path = classes / f"{name.replace('.', '/')}.class"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
