"""The limits of each type in each fold and view: nothing stops, and I1 and I6 hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from rehearsing import Rehearse, memory_log, pass_on

from kappa import Table, Topic, View, pipeline
from kappa.base.errors import DeclarationError
from kappa.declare.folds.exactness import Exactness
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.folds.registry import KINDS, fold_of
from kappa.declare.values.columns import INTEGERS, SCALARS, Scalar
from kappa.state.offsets import Offsets
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa import Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

LONG = "x" * 70_000
# Values as JSON has them, by type; those that are no value of it are rejects.
ENDS: dict[str, list[str]] = {
    "string": ['""', '"\\u0000"', json.dumps(LONG), '"\\ud83d\\ude00"', '"\\ud800"', '"NaN"'],
    "boolean": ["true", "false", "0"],
    **{
        name: [str(-(1 << bits - 1)), str((1 << bits - 1) - 1), str(1 << bits - 1), "0", "-0"]
        for name, bits in INTEGERS.items()
    },
    "float": ["3.4028234e38", "-3.4028234e38", "1e-45", "1e39", "-0.0", "0.0", "NaN", "1e400"],
    "double": [
        *("1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "1e400", "-0.0", "0.0"),
        *("NaN", "Infinity"),
    ],
    "date": ['"0001-01-01"', '"9999-12-31"', '"10000-01-01"', '"1582-10-10"'],
    "timestamp": [
        *('"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', "-62135596800001"),
        *('"0001-01-01T00:00:00+01:00"', "253402300799999", "0"),
    ],
    "decimal(38,0)": ["9" * 38, "-" + "9" * 38, "9" * 39, "1e37", "-0", f"0.{'0' * 5000}"],
    "decimal(38,38)": ["0." + "9" * 38, "-0." + "9" * 38, "1", "1e-38", "1e-39"],
    "array<string>": ["[]", "[null]", '["","\\u0000"]', json.dumps(["a"] * 10_000), "[1]"],
    "struct<a:struct<b:array<double>>,c:bigint>": [
        *("{}", '{"a":null}', '{"a":{"b":[-0.0,null,5e-324]},"c":9223372036854775807}'),
        *('{"a":{"b":[NaN]}}', '{"c":9223372036854775808}'),
    ],
}
TYPES = {f"c{number}": kind for number, kind in enumerate(ENDS)}
EVENTS = Topic(
    "events",
    event=f"k string, {', '.join(f'{name} {kind}' for name, kind in TYPES.items())}",
    partitions=1,
)


def values() -> Iterator[bytes]:
    """Yields an event for each limit of each type, with two keys in total."""
    for column, kind in TYPES.items():
        for number, value in enumerate(["null", *ENDS[kind], *reversed(ENDS[kind])]):
            yield f'{{"k": "{"ab"[number % 2]}", "{column}": {value}}}'.encode()


def test_each_scalar_type_has_its_ends() -> None:
    assert ENDS.keys() >= SCALARS


def ensure_held(made: Pipeline, rehearse: Rehearse) -> None:
    """Folds the limits in one slice, on Spark, and in many slices: tables and tallies are right."""
    log = memory_log()
    for value in values():
        log.add("events", 0, value)
    count, found = len(log.records), []
    in_many = [*range(9, count, 9), count]
    for driver_rows, ends in ((10_000, [count]), (0, [count]), (10_000, in_many)):
        built = rehearse(made, log, driver_rows)
        for end in ends:
            built.fold(Offsets({"events": {0: end}}))
        tally = built.publisher.newest.tally["events"][0]
        assert tally.decoded + tally.rejected == count
        assert built.table("rejects").num_rows == tally.rejected > 0
        # Of doubles that cancel, a sum keeps what the order of its parts leaves.
        served = {
            t.name: [name for name, _ in t.served if t.exactness(name) is not Exactness.ROUNDED]
            for t in built.birth.tables
        }
        found.append(
            {
                name: sorted(map(repr, built.table(name).select(columns).to_pylist()))
                for name, columns in served.items()
            }
        )
    assert found[0] == found[1] == found[2]


def folded(kind: str) -> dict[str, Any]:
    """Returns the folds of this kind for all columns that they accept."""
    returned = {column.name: column.type for column in EVENTS.columns}
    returned |= {name: Scalar(kind) for name, kind in FOLD_ORDER_COLUMNS}
    options: dict[str, dict[str, Any]] = {
        "set": {"limit": 3},
        "count_distinct": {"limit": 3},
        "top_k": {"k": 3},
        "sample": {"k": 3},
        "hll": {"lg_k": 4},
        "theta": {"lg_k": 4},
        "kll": {"rank": 0.5, "k": 200},
    }
    found = {}
    for column in [None] if kind == "count" else TYPES:
        fold = fold_of(kind, column, options.get(kind, {}))
        made = pass_on(EVENTS, Table("t", keys=("k",), fold={"f": fold}))
        with suppress(DeclarationError):
            table_births(made, {"t": returned})
            found[f"f{column}"] = fold
    return found


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_no_end_of_a_type_stops_a_fold(rehearse: Rehearse, kind: str) -> None:
    folds = folded(kind)
    assert folds

    ensure_held(pass_on(EVENTS, Table("t", keys=("k",), fold=folds)), rehearse)


@pytest.mark.long
def test_no_end_of_a_type_stops_a_view_whichever_way_it_is_kept(rehearse: Rehearse) -> None:
    columns = ", ".join(TYPES)
    ends = ", ".join(
        f"min({name}) as least_{name}, max({name}) as most_{name}"
        for name, kind in TYPES.items()
        if kind in INTEGERS or kind in {"date", "timestamp"} or kind.startswith("decimal")
    )

    @pipeline(
        reads={"e": EVENTS},
        writes=[
            Table("rows"),
            View("changed", f"select k, count(*) as n, {ends} from rows group by k", keys=("k",)),
            View("touched", f"select k, {columns} from rows where k = 'a'", by=("k",)),
            View("whole", "select length(c0) as n, count(*) over () as m from rows", by=("n",)),
        ],
    )
    def p(e: DataFrame) -> dict[str, DataFrame]:
        return {"rows": e.select("k", *TYPES)}

    ensure_held(p, rehearse)
