"""Groups whose values are together too large for a row (law 8) keep their first values.

The kept values are the same for any slices and for each writer.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from rehearsing import Rehearse, memory_log, pass_on

from kappa import Table, Topic, count, count_distinct, set_, top_k
from kappa.declare.folds import sizes
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.children.rehearsal import MemoryLog

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

EVENTS = Topic(
    "events",
    event="k string, s string, n bigint, tags array<string>, o struct<a:string,b:array<string>>",
    partitions=2,
)
FOLDS = {
    "rows": count(),
    "s_set": set_("s", limit=8),
    "s_distinct": count_distinct("s"),
    "s_top": top_k("s", 5, by="n"),
    "tags_top": top_k("tags", 5, by="n"),
    "o_top": top_k("o", 6, by="s"),
}
# In the law: few bytes, so that random texts overflow.
FEW_BYTES = 200


keep = pass_on(EVENTS, Table("kept", keys=("k",), fold=FOLDS))


def random_log(seed: int, records: int) -> MemoryLog:
    """Returns a log of texts of 0 to 120 bytes, with few keys and with nulls."""
    draw, log = random.Random(seed), memory_log()

    def text() -> str | None:
        return draw.choice([None, "", "ß" * draw.randrange(60), "x" * draw.randrange(9)])

    for number in range(records):
        fields = {
            "k": draw.choice([None, "a", "a", "b", "c"]),
            "s": text(),
            "n": draw.randrange(40),
            "tags": draw.choice([None, [], [text() for _ in range(draw.randrange(4))]]),
            "o": draw.choice([None, {"a": text(), "b": [text()]}, {"a": text(), "b": None}]),
        }
        ms = 1_700_000_000_000 + number // 5
        log.add("events", draw.randrange(2), json.dumps(fields).encode(), ms=ms)
    return log


def bytes_of(value: Any) -> int:
    """Returns the size of a value as sizes.py counts it: 8 bytes each, plus the bytes of texts."""
    match value:
        case str():
            return 8 + len(value.encode())
        case list():
            return 8 + sum(map(bytes_of, value))
        case dict():
            return 8 + sum(map(bytes_of, value.values()))
        case _:
            return 8


def first_of(values: Sequence[Any], limit: int, each: Any) -> list[Any]:
    """Returns the first values, as long as the values before have at most FEW_BYTES."""
    kept, size = list[Any](), 0
    for value in values[:limit]:
        if size > FEW_BYTES:
            break
        kept.append(value)
        size += each(value)
    return kept


def kept_from(log: MemoryLog, spark: SparkSession) -> dict[Any, dict[str, Any]]:
    """Computes the table in plain Python from all records at once; hashes come from Spark."""
    groups, clocks = defaultdict[Any, list[Any]](list), dict[int, int]()
    for _, partition, offset, micros, _key, value, _ in sorted(
        log.records, key=lambda record: record[1:3]
    ):
        clocks[partition] = max(micros // 1000, clocks.get(partition, 0))
        found = json.loads(value or b"")
        groups[found["k"]].append((found, (clocks[partition], partition, offset)))
    texts = {row["s"] for rows in groups.values() for row, _ in rows if row["s"] is not None}
    hashed = spark.createDataFrame([(text,) for text in sorted(texts)], "s string")
    hashes = dict(map(tuple, hashed.selectExpr("s", "xxhash64(s)").collect()))

    def top(rows: Sequence[Any], value: str, by: str, k: int) -> tuple[list[Any], bool]:
        ranked = sorted(
            (
                ((row[by].encode() if by == "s" else row[by], order), row)
                for row, order in rows
                if row[value] is not None and row[by] is not None
            ),
            key=lambda each: each[0],
            reverse=True,
        )

        def size(row: Any) -> int:
            return 64 + bytes_of(row[by]) + bytes_of(row[value])

        kept = first_of([row for _, row in ranked], k, size)
        return [row[value] for row in kept], len(kept) < len(ranked)

    def of(rows: Sequence[Any]) -> dict[str, Any]:
        distinct = sorted(
            {row["s"] for row, _ in rows if row["s"] is not None},
            key=lambda each: (hashes[each], each.encode()),
        )
        kept = first_of(distinct, 8, bytes_of)
        tops = {
            "s_top": (top(rows, "s", "n", 5), 5),
            "tags_top": (top(rows, "tags", "n", 5), 5),
            "o_top": (top(rows, "o", "s", 6), 6),
        }
        return {
            "rows": len(rows),
            "s_set": sorted(kept, key=str.encode),
            "s_set_overflow": len(kept) < len(distinct),
            "_s_set_cut": len(kept) < min(8, len(distinct)),
            "s_distinct": len(distinct) if sum(map(bytes_of, distinct)) <= FEW_BYTES else None,
            **{name: found for name, ((found, _), _) in tops.items()},
            **{f"{name}_overflow": over for name, ((_, over), _) in tops.items()},
            **{
                f"_{name}_cut": over and len(found) < k for name, ((found, over), k) in tops.items()
            },
        }

    return {key: of(rows) for key, rows in groups.items()}


def cuts(log: MemoryLog, draw: random.Random, slices: int) -> Iterator[Offsets]:
    """Yields the ends of random slices; the last one is the end of the log."""
    ends = {partition: end for (_, partition), end in log.ends.items()}
    parts = {
        each: sorted(draw.randrange(end + 1) for _ in range(slices)) for each, end in ends.items()
    }
    for number in range(slices - 1):
        yield Offsets({"events": {each: part[number] for each, part in parts.items()}})
    yield log.end


@pytest.mark.parametrize(
    ("seed", "slices"),
    [(1, 3), *(pytest.param(*each, marks=pytest.mark.long) for each in [(2, 1), (3, 9)])],
)
def test_values_beyond_the_bytes_do_not_depend_on_cut_or_writer(
    spark: SparkSession,
    rehearse: Rehearse,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    slices: int,
) -> None:
    monkeypatch.setattr(sizes, "MOST_BYTES", FEW_BYTES)
    log, draw = random_log(seed, 120), random.Random(seed)
    built = rehearse(keep, log)
    for number, end in enumerate(cuts(log, draw, slices)):
        built.begin(driver_rows=(10_000, 0)[number % 2])
        built.fold(end)

    found = {row["k"]: row for row in built.table("kept").to_pylist()}
    expected = kept_from(log, spark)
    assert found.keys() == expected.keys()
    for key, wanted in expected.items():
        for name, value in wanted.items():
            assert found[key][name] == value, (key, name)
    overflowed = {name for row in found.values() for name, value in row.items() if value is True}
    assert overflowed >= {f"_{name}_cut" for name in ("s_set", "s_top", "tags_top", "o_top")}


def test_a_row_of_large_values_is_bounded(rehearse: Rehearse) -> None:
    """Without a limit, the row would grow with each value until no writer could write it."""
    folds = {
        "s_set": set_("s", limit=100),
        "s_top": top_k("s", 100, by="n"),
        "s_distinct": count_distinct("s"),
    }
    log, large = memory_log(), "x" * (1 << 20)
    built = rehearse(pass_on(EVENTS, Table("kept", keys=("k",), fold=folds)), log)
    for part in range(3):
        for number in range(10 * part, 10 * part + 10):
            fields = {"k": "a", "s": f"{number:02}{large}", "n": number}
            log.add("events", 0, json.dumps(fields).encode())
        built.fold(log.end)
    (row,) = built.table("kept").to_pylist()

    # Sixteen values of a mebibyte and some bytes are more than 16 MiB; fifteen are less.
    assert (len(row["s_set"]), row["s_set_overflow"], row["_s_set_cut"]) == (16, True, True)
    assert [each[:2] for each in row["s_top"]] == [str(29 - n) for n in range(16)]
    assert (row["s_top_overflow"], row["_s_top_cut"], row["s_distinct"]) == (True, True, None)
