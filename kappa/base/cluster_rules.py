"""The checks of the settings `engine.master`, `engine.driver_host` and `engine.conf`.

A leg on a cluster must compute the same rows as on one machine. So Kappa itself sets the Spark
settings that affect rows. If a user sets one of them, the error names the setting and the reason.
All other settings are passed to Spark unchanged. This module does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from kappa.base.sections import EngineSettings, without_secrets

# The settings of Spark that Kappa itself reads.
CORES_MAX, INSTANCES, EXECUTOR_CORES, MAX_INSTANCES = NUMBERS = (
    "spark.cores.max",
    "spark.executor.instances",
    "spark.executor.cores",
    "spark.dynamicAllocation.maxExecutors",
)
IS_DYNAMIC = "spark.dynamicAllocation.enabled"
YARN = "yarn"
_MASTER = re.compile(rf"spark://[^/\s,]+:\d+(?:,[^/\s,]+:\d+)*|k8s://\S+|{YARN}")
# The settings with the places of YARN's resource managers: the host or the whole address of each
# manager, and its id.
_MANAGER = re.compile(r"spark\.hadoop\.yarn\.resourcemanager\.(hostname|address)(\.\w+)?")
_MANAGERS_PORT = 8032
_HOST = "spark.hadoop.yarn.resourcemanager.hostname"
_STAGING = "spark.yarn.stagingDir"
# The heap of an executor, from which the size of its container is computed, and the default.
HEAP, HEAP_UNLESS_SET = "spark.executor.memory", "1g"
_SIZE = re.compile(r"\d+[mg]")
_DELTA = "commits to a table, and what is kept of it, are Kappa's"
_ROWS = "the function has to give the same rows on the cluster and on this machine"
_UNUSED = "spark-submit alone reads it, and a job does without"
_JVM = "the driver is the job's own JVM: see engine.memory"
# For the beginning of a setting's name, the reason for a refusal; None allows the setting. The
# longest beginning that matches decides.
_RULES: Mapping[str, str | None] = {
    "spark.master": "engine.master names the cluster",
    "spark.app.name": "it is the name of the build",
    "spark.submit.": _UNUSED,
    "spark.submit.pyFiles": None,
    "spark.jars.": _UNUSED,
    "spark.driver.": _JVM,
    "spark.driver.bindAddress": None,
    "spark.driver.blockManager.port": None,
    "spark.driver.maxResultSize": None,
    "spark.driver.port": None,
    "spark.driver.host": "engine.driver_host is the driver's address",
    "spark.speculation": "a second attempt of a task would write when its slice is over",
    "spark.databricks.delta.": _DELTA,
    "spark.delta.": _DELTA,
    "spark.sql.": _ROWS,
    "spark.sql.adaptive.": None,
    "spark.sql.autoBroadcastJoinThreshold": None,
    "spark.sql.broadcastTimeout": None,
    "spark.sql.files.": None,
    "spark.sql.shuffle.partitions": None,
    "spark.sql.files.ignore": _ROWS,
    "spark.python.": "Python's workers import and decode as the job does",
    "spark.executorEnv.TZ": _ROWS,
    "spark.executorEnv.KAPPA_": "Kappa tells its own workers by such variables",
    # Spark hides values whose names look like secrets; to Spark AWS_ACCESS_KEY_ID does not.
    "spark.executorEnv.AWS_": "Spark shows its settings, and these are credentials",
    "spark.pyspark.driver.python": "the driver is the job's own Python",
    "spark.executor.pyspark.memory": "engine.worker_memory is the memory of Python's workers",
    "spark.hadoop.fs.default": "paths of the root are given without a file system",
    "spark.hadoop.fs.permissions.": "the root's files are for their user alone",
    "spark.hadoop.fs.file.": "the root's files are written as on this machine",
    "spark.hadoop.fs.s3a.": "[storage] says where the root's bucket is, and its credentials are in "
    "the environment",
    "spark.hadoop.fs.s3a.connection.": None,
    "spark.hadoop.fs.s3a.connection.ssl.": "[storage] says whether requests are encrypted",
    "spark.hadoop.fs.s3a.threads.": None,
    "spark.hadoop.mapreduce.fileoutputcommitter.": "a lost task must leave no part of its file",
}

_MENDS: Mapping[str, str] = {
    "spark.executorEnv.AWS_": "give it to each worker in its own environment, or its machine a "
    "role; on Kubernetes by spark.kubernetes.executor.secretKeyRef.AWS_...",
}
# The names of settings whose values are secrets; a reference to a secret of Kubernetes is none.
_SECRET = re.compile(
    r"(?!spark\.kubernetes\.\w+\.secretKeyRef\.).*(secret|password|passphrase|token|access[._]?key)",
    re.IGNORECASE,
)


def problems_of_cluster(engine: EngineSettings) -> Iterator[tuple[str, str, str]]:
    """Yields (setting, problem, remedy) for each problem of the cluster's settings."""
    if engine.master and not _is_master(engine.master):
        yield (
            "engine.master",
            f"is {without_secrets(engine.master)}, which is not a cluster that replays can run on",
            "give spark://HOST:PORT, k8s://URL or yarn, or nothing: then this machine folds",
        )
    elif engine.master and not engine.driver_host:
        yield (
            "engine.driver_host",
            "is missing, and engine.master is given",
            "give the address of this machine to which the cluster's workers connect",
        )
    if engine.master == YARN:
        yield from _problems_of_yarn(engine.conf)
    for name in engine.conf:
        rule, why = _rule(name)
        if why is not None:
            mend = _MENDS.get(rule, "take it away")
            yield f"engine.conf.{name}", f"is refused: {why}", mend
        elif name in NUMBERS and not engine.conf[name].isdecimal():
            yield f"engine.conf.{name}", "is not a whole number", "give one"


def _problems_of_yarn(conf: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    try:
        managers = addresses(YARN, conf)
    except ValueError:
        wrong = next(name for name in conf if _MANAGER.fullmatch(name) and ".address" in name)
        yield f"engine.conf.{wrong}", "is not an address", "give HOST:PORT"
        return
    missing = "is missing, and engine.master is yarn"
    if not managers:
        yield f"engine.conf.{_HOST}", missing, "give the host of YARN's resource manager"
    if CORES_MAX in conf:
        yield (
            f"engine.conf.{CORES_MAX}",
            "is nothing that YARN heeds",
            f"give {INSTANCES} and {EXECUTOR_CORES}",
        )
    if not _SIZE.fullmatch(conf.get(HEAP, HEAP_UNLESS_SET)):
        yield f"engine.conf.{HEAP}", "is not a size", "give one such as 2g"
    if _STAGING not in conf:
        yield (
            f"engine.conf.{_STAGING}",
            missing,
            "give the URL of a folder that all nodes see, as hdfs://HOST/user/kappa",
        )


def is_secret_of_spark(name: str) -> bool:
    """Returns True if the value of the Spark setting `name` is a secret."""
    return _SECRET.fullmatch(name) is not None


def addresses(master: str, conf: Mapping[str, str] = MappingProxyType({})) -> list[tuple[str, int]]:
    """Returns the (host, port) pairs of the masters of a Spark cluster.

    `master` is the value of `engine.master`, and `conf` contains settings of Spark. For YARN, the
    result contains the resource managers that `conf` names. Raises ValueError if an address is not
    valid.
    """
    if master == YARN:
        return _managers(conf)
    if master.startswith("spark://"):
        urls = [f"spark://{each}" for each in master.removeprefix("spark://").split(",")]
    else:
        url = master.removeprefix("k8s://")
        urls = [url if re.match(r"\w+://", url) else f"https://{url}"]
    parts = [urlsplit(url) for url in urls]
    return [
        (each.hostname or "", each.port or (80 if each.scheme == "http" else 443)) for each in parts
    ]


def _managers(conf: Mapping[str, str]) -> list[tuple[str, int]]:
    found: dict[str | None, tuple[str, int]] = {}
    # An address says more than a host name, and its setting sorts before that of the host.
    for name in sorted(conf):
        manager = _MANAGER.fullmatch(name)
        if manager is not None:
            host, _, port = (
                (conf[name], "", str(_MANAGERS_PORT))
                if manager[1] == "hostname"
                else conf[name].rpartition(":")
            )
            if not host:
                raise ValueError(name)
            found.setdefault(manager[2], (host, int(port)))
    return list(found.values())


def _is_master(text: str) -> bool:
    if not _MASTER.fullmatch(text):
        return False
    try:
        # A socket takes no other names, and an empty name means this machine.
        return all(host.encode("idna") for host, _ in addresses(text))
    except ValueError:
        return False


def _rule(name: str) -> tuple[str, str | None]:
    """Returns the rule for a Spark setting: a key of `_RULES`, and the reason for a refusal.

    The key is the longest prefix of the setting's name in `_RULES`, or "" if there is none. The
    reason is None if the setting is allowed.
    """
    if not name.startswith("spark."):
        return "", "the name of a setting of Spark begins with spark."
    fitting = max((rule for rule in _RULES if name.startswith(rule)), key=len, default="")
    return fitting, _RULES.get(fitting)
