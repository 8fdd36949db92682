"""Spark's client of a bucket, S3A: the names of its files, its settings, its log of a table.

Credentials are in no setting of Spark, which shows them. A JVM takes them as the rest of Kappa
does: from its environment, or by the usual chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.state.files.bucket import is_bucket, is_plain_http, region_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.base.section.storage import StorageSettings
    from kappa.base.settings import Settings

_LOG_STORE = "kappa.ConditionalLogStore"
_SOURCE = Path(__file__).with_name("ConditionalLogStore.java")
# Java 17's, which Spark needs anyhow.
_JAVA = 17
_PROVIDERS = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
# Spark copies credentials of the driver's environment into these, which executors get.
_COPIES = (
    *("fs.s3.awsAccessKeyId", "fs.s3n.awsAccessKeyId", "fs.s3a.access.key"),
    *("fs.s3.awsSecretAccessKey", "fs.s3n.awsSecretAccessKey", "fs.s3a.secret.key"),
    "fs.s3a.session.token",
)


def storage_of(settings: Settings) -> StorageSettings | None:
    """Returns the storage of a root in a bucket, or None if the root is a folder."""
    return settings.storage if is_bucket(settings.root) else None


def spark_address(address: str) -> str:
    """Returns a path or URL of a root as Spark names it."""
    return f"s3a{address.removeprefix('s3')}" if is_bucket(address) else address


def bucket_settings(storage: StorageSettings) -> Mapping[str, str]:
    """Returns the settings of a session that reads and writes tables in a bucket."""
    hadoop = {
        **dict.fromkeys(_COPIES, ""),
        "fs.s3a.aws.credentials.provider": ",".join(_PROVIDERS),
        "fs.s3a.endpoint.region": region_of(storage),
        "fs.s3a.path.style.access": str(storage.path_style).lower(),
        "fs.s3a.connection.ssl.enabled": str(not is_plain_http(storage)).lower(),
        # A machine's own folder: that of its JVM.
        "fs.s3a.buffer.dir": "${java.io.tmpdir}/s3a",
        **({} if storage.endpoint is None else {"fs.s3a.endpoint": storage.endpoint}),
    }
    return {
        **{f"spark.hadoop.{name}": value for name, value in hadoop.items()},
        "spark.delta.logStore.s3a.impl": _LOG_STORE,
        # A commit that finds its version taken is of a job that has ended: it is not to be made
        # behind that of its successor.
        "spark.databricks.delta.maxCommitAttempts": "0",
    }


def classes_in(local_dir: Path) -> Path:
    """Returns the folder on a JVM's class path for the classes that are compiled in it."""
    return local_dir / "tmp" / "classes"


def compile_log_store(spark: SparkSession, classes: Path) -> None:
    """Compiles the store of Delta's logs in a session's JVM, by the compiler that Spark brings.

    The JVM loads it with its first table.
    """
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()  # type: ignore[union-attr]  # noqa: SLF001  # there is no other door
    compiler.setSourceVersion(_JAVA)
    compiler.setTargetVersion(_JAVA)
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    for name, content in dict(compiler.getBytecodes()).items():
        path = classes / f"{name.replace('.', '/')}.class"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
