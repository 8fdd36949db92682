"""A site whose builds are in a bucket: a random log, and the right tables by plain Python."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kappa import Table, Topic, count, pipeline, set_, sum_
from kappa.records.redrive import Original, Position
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa.engine.children.rehearsal import MemoryLog

# Of a record: its topic, partition and offset.
Place = tuple[str, int, int]
VISITS = Topic("visits", event="page string, seconds bigint, who string", partitions=2)
PAGES = Topic(
    "pages", kind="compacted", event="page string not null, title string", partitions=2, key="page"
)


@pipeline(
    reads={"visits": VISITS, "pages": PAGES},
    writes=[
        Table("totals", keys=("page",), fold={"visits": count(), "seconds": sum_("seconds")}),
        # Its rows of touched keys are read at the version of the slice before.
        Table("visitors", keys=("page",), fold={"who": set_("who")}),
        Table("all"),
        Table("pages", latest=PAGES),
    ],
)
def site(visits: DataFrame) -> dict[str, DataFrame]:
    return {"totals": visits, "visitors": visits, "all": visits.select("page", "seconds")}


TOTALS = "select page, visits, seconds from totals order by all"
VISITORS = "select page, array_to_string(list_sort(who), ',') from visitors order by all"
ALL = 'select page, seconds from "all" order by all'
NEWEST = "select page, title from pages order by all"
REJECTS = "select count(*) from rejects"


def random_log(log: MemoryLog, records: int) -> MemoryLog:
    draw, rejected = random.Random(31), list[Place]()
    for number in range(records):
        page, partition = draw.choice(["a", "b", "ü"]), draw.randrange(2)
        match draw.randrange(10):
            case 0:
                rejected.append(("visits", partition, log.ends["visits", partition]))
                log.add("visits", partition, b"{")
            case 1 | 2:
                value = {"page": page, "title": f"title {number}"}
                content = None if draw.random() < 0.3 else json.dumps(value).encode()
                log.add("pages", hash_of(page), content, key=page.encode(), ms=number)
            case 3 if rejected:
                # The first mended copy that is valid is folded for its original.
                at = draw.choice(rejected)
                value = {"page": page, "seconds": number, "who": draw.choice("xyz")}
                content = json.dumps(value).encode() if draw.random() < 0.6 else b"["
                log.add("visits", at[1], content, ms=number, headers=[mended(at)])
            case _:
                seconds = draw.choice([None, 0, number, -(2**40)])
                value = {"page": page, "seconds": seconds, "who": draw.choice("xyz")}
                log.add("visits", partition, json.dumps(value).encode(), ms=number)
    return log


def mended(at: Place) -> tuple[str, bytes]:
    """Returns the header of a mended copy of the record at this place."""
    return Original(Position(*at), 1_700_000_000_000).header()


def hash_of(page: str) -> int:
    return ord(page) % 2


def ends_of(log: MemoryLog, slices: int) -> list[Offsets]:
    """Returns the ends of this many slices at random offsets; the last end is that of the log."""
    draw, end, found = random.Random(7), log.end, []
    at = {(topic, partition): 0 for topic, partition, _ in end.items()}
    for left in range(slices, 0, -1):
        for topic, partition, last in end.items():
            step = int((last - at[topic, partition]) * draw.random() * 2 / left)
            at[topic, partition] = last if left == 1 else min(last, at[topic, partition] + step)
        found.append(Offsets.of_partitions(at))
    return found


def expected(log: MemoryLog) -> dict[str, list[tuple[Any, ...]]]:
    """Computes the right answers of the queries from the log, record by record."""
    totals: dict[str, list[Any]] = defaultdict(lambda: [0, None])
    visitors: dict[str, set[str]] = defaultdict(set)
    every, pages, rejects, settled = [], {}, 0, set[Any]()
    for topic, _, _, _, key, value, headers in sorted(log.records, key=lambda each: each[:3]):
        if topic == "pages":
            # A page is in one partition: its newest record is the last one there.
            pages[key.decode()] = None if value is None else json.loads(value)["title"]
            continue
        try:
            row = json.loads(value)
        except ValueError:
            rejects += 1
            continue
        if headers in settled:
            continue
        settled |= {headers} - {()}
        found, seconds = totals[row["page"]], row["seconds"]
        found[0] += 1
        found[1] = seconds if found[1] is None else found[1] + (seconds or 0)
        visitors[row["page"]].add(row["who"])
        every.append((row["page"], seconds))
    return {
        TOTALS: sorted((page, *each) for page, each in totals.items()),
        VISITORS: sorted((page, ",".join(sorted(who))) for page, who in visitors.items()),
        ALL: sorted(every, key=lambda each: (each[0], each[1] is None, each[1])),
        NEWEST: sorted((page, title) for page, title in pages.items() if title is not None),
        REJECTS: [(rejects,)],
    }
