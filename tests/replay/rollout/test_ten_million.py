"""The diff of tables of ten million rows, within the configured memory; prints its cost."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import duckdb
import pytest
from deltalake import write_deltalake
from house import HOUSE
from msgspec.structs import replace
from twins import appended, folded, make_build

from kappa.state.build import table_path
from kappa.state.frontier import Frontiers
from kappa.state.store import Store

pytestmark = pytest.mark.sweep

ROWS = 10_000_000
KEYED = folded(
    "keyed",
    "carrier string, day date, flights bigint, mean double, money decimal(20,2), note string",
    keys=("carrier", "day"),
)
APPENDED = appended("appended", "carrier string, at timestamp, delay int, note string")
# On the new side, one row in a hundred is missing, as many are new, and one in twenty has another
# number. All are in another order.
COLUMNS = {
    "keyed": "'carrier ' || lpad((i // 365)::varchar, 8, '0') as carrier, date '2013-01-01' + (i % "
    "365)::int as day, (i % 1000 + {other})::bigint as flights, "
    "(i / 7.0)::double as mean, (i / 100.0)::decimal(20, 2) as money, 'a note of some "
    "length about ' || (i % 5000) as note",
    "appended": "'carrier ' || (i % 100000) as carrier, timestamptz '2013-01-01 00:00:00Z' + "
    "to_seconds(i // 2) as at, (i % 50 + {other})::int as delay, "
    "'a note of some length about ' || (i % 5000) as note",
}
CHILD = """
import json, resource, sys, time
from pathlib import Path
from kappa.state.store import Store
from kappa.replay.rollout.verify.pairs import compare_pair, pin_equal
from kappa.serving.query.reader.reader import Limits

store, begun = Store(sys.argv[1]), time.monotonic()
with pin_equal(store, "a", "b", lease_seconds=60) as (pair, pinned):
    limits = Limits("1g", 2, store.path("tmp"), "20g")
    found = compare_pair(
        store, pair, pinned, log=None, limits=limits, samples=3, only=[sys.argv[2]]
    )
(each,) = found.differences
names = ("rows_before", "rows_after", "added", "removed", "changed", "changed_by_column")
counts = {name: getattr(each, name) for name in names}
status = Path("/proc/self/status").read_text().splitlines()
peak = int(next(line.split()[1] for line in status if line.startswith("VmHWM")))
seconds, shown = round(time.monotonic() - begun, 1), len(found.samples[each.table])
took = {"seconds": seconds, "peak_mb": peak // 1024, "shown": shown, "counts": counts}
print(json.dumps(took))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("ten"))
    for build in ("a", "b"):
        frontier = make_build(store, build, {KEYED: [], APPENDED: []}).frontier
        for name, columns in COLUMNS.items():
            write(table_path(store, build, name), columns, new=build == "b")
        Frontiers(store, build).publish(
            replace(frontier, number=2, versions={**frontier.versions, "keyed": 1, "appended": 1})
        )
    return store


def write(path: str, columns: str, *, new: bool) -> None:
    connection = duckdb.connect()
    connection.execute(
        "set TimeZone = 'UTC'; set memory_limit = '2GB'; set preserve_insertion_order = true"
    )
    # 7,654,321 has no factor in common with ten million, so each number occurs once.
    which = f"(range * 7654321) % {ROWS} + {ROWS // 100}" if new else "range"
    rows = (
        f"select {columns.format(other='(i % 20 = 0)::int' if new else 0)} from (select "
        f"{which} as i from range({ROWS}))"
    )
    write_deltalake(path, connection.sql(rows).to_arrow_reader(500_000), mode="append")
    connection.close()


def diff_in_a_process(store: Store, table: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(store.folder), table],
        capture_output=True,
        text=True,
        check=False,
        cwd=HOUSE,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(
        f"\n{table}: {ROWS:,} rows on each side: {found['seconds']} s, peak {found['peak_mb']} MB"
    )
    return found


def test_ten_million_rows_by_key(store: Store) -> None:
    found = diff_in_a_process(store, "keyed")

    one_percent, changed = ROWS // 100, (ROWS - ROWS // 100) // 20
    assert found["counts"] == {
        "rows_before": ROWS,
        "rows_after": ROWS,
        "added": one_percent,
        "removed": one_percent,
        "changed": changed,
        "changed_by_column": {"flights": changed},
    }
    assert found["shown"] == 9
    # The limit of DuckDB, plus the memory of Python, Arrow and the files' readers.
    assert found["peak_mb"] < 1536


def test_ten_million_appended_rows(store: Store) -> None:
    found = diff_in_a_process(store, "appended")

    differing = ROWS // 100 + (ROWS - ROWS // 100) // 20
    assert found["counts"]["added"] == differing
    assert found["counts"]["removed"] == differing
    assert found["counts"]["changed"] == 0
    assert found["shown"] == 6
    assert found["peak_mb"] < 1536
