"""A shop whose long legs run on a Spark cluster, and its right tables.

The shop's function calls a UDF of another module of the project. That module needs a package that
the workers do not have. One table is folded by a step in Python.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spark_cluster import RunningCluster, spark_cluster
from testbed import Testbed, platform
from yarn_cluster import RunningYarn, yarn_cluster

from demo.cluster.spark import why_not_isolated
from kappa.base.temporary_folders import user_cache
from kappa.kafka.broker.broker import HOST
from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record
from kappa.state.build_status import READING, SliceProgress, read_progress
from kappa.state.offsets import Offsets

# Two JVMs and Python's workers begin before a slice is read: on a busy machine that is minutes.
PATIENCE_SECONDS = 600.0
_PACKAGE = "h11"
_PRICES = f"""
import {_PACKAGE}


def gross(amount, midnight):
    return None if amount is None else amount * len({_PACKAGE}.__version__) + midnight.hour
"""
_SHOP = '''
from prices import gross
from pyspark.sql import functions as F

from kappa import Table, Topic, count, ordered, pipeline, sum_

ORDERS = Topic(
    "orders", partitions=3, key="customer", event="customer string not null, amount bigint"
)


def climb(state, row):
    """Counts the orders of a customer that are dearer than the one before."""
    last, state["last"] = state["last"], row["amount"]
    state["climbs"] = (state["climbs"] or 0) + (last is not None and row["amount"] > last)


@pipeline(
    reads={"orders": ORDERS},
    writes=[
        Table("by_customer", keys=("customer",), fold={"orders": count(), "gross": sum_("gross")}),
        Table(
            "climbs", keys=("customer",), fold=ordered(climb, state="climbs bigint, last bigint")
        ),
        Table("order_log"),
    ],
)
def shop(orders):
    midnight = F.timestamp_seconds(F.lit(0))
    priced = orders.withColumn("gross", F.udf(gross, "bigint")("amount", midnight))
    return {"by_customer": priced, "climbs": orders, "order_log": orders.select("amount")}
'''


# A later version, whose orders cost one more: a branch may begin with it.
_DEARER = _SHOP.replace('("amount", ', '(F.col("amount") + 1, ', 1)


@contextmanager
def shop_on_cluster(
    folder: Path, conf: Mapping[str, str] | None = None, *, rooted: str | None = None
) -> Iterator[tuple[Testbed, RunningCluster]]:
    """Yields the shop and its cluster of two workers, isolated if this machine can.

    Isolated workers see neither the project nor the user's cache nor the package. All workers see
    the root, which is a folder unless the settings in `rooted` name another root.
    """
    project = folder / "project"
    rooted = rooted or f'root = "{folder / "root"}"\n'
    project.mkdir(parents=True)
    found = find_spec(_PACKAGE)
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    packed = folder / "packed.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in package.rglob("*.py"):
            archive.write(file, file.relative_to(package.parent))
    missing = why_not_isolated()
    if missing is not None:
        print(f"isolated workers: not run: {missing}")
    cache = user_cache("jars").parent
    hidden = () if missing else (cache, project, package)
    with spark_cluster(folder / "cluster", hidden=hidden) as cluster:
        given = {
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",
            "spark.archives": f"{packed}#packed",
            "spark.executorEnv.PYTHONPATH": "./packed",
            **(conf or {}),
        }
        with _shop(project, rooted, cluster.url, given) as bed:
            yield bed, cluster


@contextmanager
def shop_on_yarn(folder: Path, jars: Path) -> Iterator[tuple[Testbed, RunningYarn]]:
    """Yields the shop and the YARN cluster on which it folds."""
    project = folder / "project"
    project.mkdir(parents=True)
    with yarn_cluster(folder / "yarn", jars) as yarn:
        given = {"spark.executor.memory": "512m", **yarn.conf}
        with _shop(project, f'root = "{folder / "root"}"\n', "yarn", given) as bed:
            yield bed, yarn


@contextmanager
def _shop(project: Path, rooted: str, master: str, conf: Mapping[str, str]) -> Iterator[Testbed]:
    listed = "\n".join(f'"{name}" = "{value}"' for name, value in conf.items())
    settings = (
        f"{rooted}[engine]\ndriver_rows = 250\ntail_records = 500\nhung_seconds = 60\n"
        f'slice_records = 10000\nmaster = "{master}"\ndriver_host = "{HOST}"\n'
        f"[engine.conf]\n{listed}\n"
    )
    with platform(project, settings, shop=_SHOP, prices=_PRICES) as bed:
        yield bed


def order(number: int) -> ProducedRecord:
    """Returns the order with this number, from one of 17 customers."""
    customer = f"cust-{number % 17} é✈"
    event = {"customer": customer, "amount": number * 7919 % 1000}
    return ProducedRecord(key=customer.encode(), value=json.dumps(event).encode())


def produce(bed: Testbed, count: int) -> None:
    bed.log.produce((order(number) for number in range(count)), "orders")


def must(bed: Testbed, *arguments: str) -> str:
    """Runs a command that has to succeed, and returns its output.

    The command may take longer than a test usually waits, because it starts more JVMs.
    """
    asked = bed.start(*arguments)
    out, told = asked.communicate(timeout=600)
    assert asked.returncode == 0, out + told + bed.logs()
    return out


def declare_dearer(bed: Testbed) -> None:
    """Writes the version of the pipeline in which each order costs one more."""
    bed.declare("shop", _DEARER)


def assert_right(bed: Testbed, *, dearer_from: Offsets | None = None) -> None:
    """Asserts that the whole log is served, and that the tables equal those of plain Python.

    If `dearer_from` is given, each order from these offsets on costs one more.
    """
    end = bed.log.end(["orders"])
    bed.wait_until_folded("shop", end)
    wanted = _expected(bed.log.records(["orders"], Offsets(), end), dearer_from or end)
    assert {
        "by_customer": bed.rows("select customer, orders, gross from by_customer order by 1"),
        "climbs": bed.rows("select customer, climbs, last from climbs order by 1"),
        "order_log": bed.rows(
            "select count(*) as orders, sum(amount)::bigint as amount from order_log"
        ),
    } == wanted


def _expected(
    records: Iterator[Record], dearer_from: Offsets
) -> Mapping[str, list[dict[str, Any]]]:
    factor = len(version(_PACKAGE))
    found: dict[str, dict[str, int]] = {}
    count = amounts = 0
    for record in records:
        event = json.loads(record.value or b"")
        amount = event["amount"]
        count, amounts = count + 1, amounts + amount
        row = found.setdefault(
            event["customer"], {"orders": 0, "gross": 0, "climbs": 0, "last": amount}
        )
        row["orders"] += 1
        is_dearer = record.offset >= dearer_from.at("orders", record.partition)
        row["gross"] += (amount + is_dearer) * factor
        row["climbs"] += amount > row["last"]
        row["last"] = amount
    ordered = sorted(found.items())
    return {
        "by_customer": [
            {"customer": name, "orders": row["orders"], "gross": row["gross"]}
            for name, row in ordered
        ],
        "climbs": [
            {"customer": name, "climbs": row["climbs"], "last": row["last"]}
            for name, row in ordered
        ],
        "order_log": [{"orders": count, "amount": amounts}],
    }


def candidate(bed: Testbed) -> str | None:
    """Returns the candidate build, or None."""
    rollout = bed.state().active("shop")
    return None if rollout is None else rollout.build


def slice_under_way(bed: Testbed) -> SliceProgress | None:
    """Returns the slice that the candidate's job folds now, or None."""
    build = candidate(bed)
    return None if build is None else read_progress(bed.store, build, bed.frontier(build))


def is_reading(bed: Testbed) -> bool:
    """Returns True while the candidate's tasks read a slice after the first."""
    found = slice_under_way(bed)
    return found is not None and found.step == READING and found.slice >= 1


def replay(bed: Testbed) -> subprocess.Popen[str]:
    """Begins a replay, and waits until its tasks read a slice after the first."""
    asked = bed.start("replay", "shop", "--yes")
    bed.wait(lambda: is_reading(bed), "a slice that is read", PATIENCE_SECONDS)
    return asked


def assert_switched(bed: Testbed, before: str, asked: subprocess.Popen[str]) -> None:
    """Asserts that a replay ends, that another build serves, and that the tables are right."""
    asked.communicate(timeout=PATIENCE_SECONDS)
    bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
    assert bed.live("shop") != before
    assert_right(bed)
