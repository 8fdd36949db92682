"""Runs all servers of a cluster on this machine, and returns the settings of a project on it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.cluster.brokers import NODES, Brokers
from demo.cluster.object_store import KEY, SECRET, NotRunError, RunningStore, ensure_versitygw
from demo.cluster.spark import RunningSpark, why_not_isolated
from kappa.base.errors import KappaError
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.base.temporary_folders import user_cache
from kappa.kafka.broker.broker import HOST
from kappa.kafka.client import Log

WORKERS = 2
BUCKET = "kappa-demo"
# A catch-up of six times so many records is folded on the cluster.
_LARGE_SLICE, _TAIL_RECORDS = 2_000, 20_000
_BROKERS_SECONDS = 120.0
_NAP_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Servers:
    """The running servers: `sentences` describe them, and `settings` are lines of kappa.toml."""

    spark: RunningSpark
    settings: str
    sentences: tuple[str, ...]


def credentials() -> Mapping[str, str]:
    """Returns new credentials for the S3 server, as environment variables."""
    return {KEY: "kappa-demo", SECRET: secrets.token_hex(16)}


@contextmanager
def running_servers(
    folder: Path, project: Path, environment: Mapping[str, str], *, in_bucket: bool
) -> Iterator[Servers]:
    """Runs all servers during the block, and yields their description.

    The servers' files are in `folder`. With `in_bucket`, the root is in a bucket if the S3 server
    can run; otherwise the root is a folder that all servers can read and write. `environment`
    contains the credentials of the bucket. The folder `project` is hidden from the Spark workers,
    if workers can be isolated on this machine.
    """
    # Logs and locks of this host are in it, and so is the root, if it is a folder.
    own = folder / "kappa"
    hidden = [user_cache("jars").parent, project, folder / "brokers"]
    sentences = []
    with ExitStack() as stack:
        java = find_java()
        brokers = Brokers(folder / "brokers", ensure_jars(java), java, environment)
        stack.callback(brokers.close)
        root = in_folder(own)
        if in_bucket:
            try:
                store = RunningStore(ensure_versitygw(), folder / "s3", BUCKET, environment)
            except NotRunError as error:
                sentences.append(f"S3 server: not run: {error}")
            else:
                stack.callback(store.kill)
                store.start()
                own.mkdir()
                hidden += [own, store.folder]
                root = at_store(own, store)
        missing = why_not_isolated()
        spark = RunningSpark(folder / "spark", () if missing else hidden, environment)
        stack.callback(spark.close)
        spark.start_master()
        for number in range(WORKERS):
            spark.start_worker(number)
        _wait_for_all(brokers)
        sentences += (
            f"Brokers: {brokers.bootstrap_servers}",
            f"Spark's master: {spark.page}",
            f"Root: {root['root']}",
            f"isolated workers: not run: {missing}"
            if missing
            else f"Each worker sees nothing in {', '.join(map(str, hidden))}",
        )
        yield Servers(
            spark, settings_on(root, brokers.bootstrap_servers, spark.url), tuple(sentences)
        )


def in_folder(own: Path) -> Mapping[str, str]:
    """Returns the settings of a root in the folder `own`."""
    return {"root": str(own)}


def at_store(own: Path, store: RunningStore) -> Mapping[str, str]:
    """Returns the settings of a root in the bucket of `store`.

    `own` is the local folder of this host.
    """
    return {
        "root": f"s3://{BUCKET}/root",
        "local": str(own),
        "storage.endpoint": str(store.storage.endpoint),
    }


def settings_on(root: Mapping[str, str], bootstrap_servers: str, master: str) -> str:
    """Returns lines of kappa.toml with the settings of the root, the brokers and Spark."""
    settings = {
        **root,
        "kafka.bootstrap_servers": bootstrap_servers,
        "engine.master": master,
        "engine.driver_host": HOST,
        'engine.conf."spark.executor.memory"': "512m",
        'engine.conf."spark.cores.max"': str(WORKERS),
        # Even of a short log most is folded on the cluster.
        "engine.driver_rows": _LARGE_SLICE,
        "engine.tail_records": _TAIL_RECORDS,
    }
    # JSON's strings and numbers are TOML's.
    return "".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items()
    )


def _wait_for_all(brokers: Brokers) -> None:
    log = Log(brokers.bootstrap_servers)
    deadline = time.monotonic() + _BROKERS_SECONDS
    while not (log.wait_until_ready(1.0) and log.brokers() == len(NODES)):
        if time.monotonic() > deadline:
            raise KappaError(f"the {len(NODES)} brokers have not come up")
        time.sleep(_NAP_SECONDS)
