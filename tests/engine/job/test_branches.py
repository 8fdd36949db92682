"""Branches: the old code's rows up to the base, the new code's rows after it (law 15).

This is so wherever the branch was killed. The branch is compared with one slice of the whole log by
a third code, which chooses by each record's position. Some records are late, sent again or redriven
across the base. One table is folded by a step.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from kappa import Table, Topic, avg_, count, ordered, pipeline, sum_
from kappa.base.failpoint import acting
from kappa.declare.values.tally import Tally
from kappa.records.redrive import Original, Position
from kappa.state.build import Base, put_birth
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.branch import base_frontier, begin_from, keep_base, stands_before_base
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from kappa.declare.pipeline import Pipeline
    from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal
    from kappa.state.build import Birth

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("spark")]

PAID = Topic(
    "paid",
    event="id string not null, who string not null, n bigint, at timestamp not null",
    partitions=2,
    key="who",
    event_time="at",
    lateness="30 seconds",
    identity="id",
)
BASE = {0: 30, 1: 24}
# The hand-over to the new code: killed at each of these in turn, at the slice that ends there.
HAND_OVER = ("table.after_commit", "job.before_frontier", "frontier.after_put", "kept.before_put")


def refuse(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Keeps balances that refuse to go below zero (the old code). Emits nothing."""
    after = (state["balance"] or 0) + (row["n"] or 0)
    state["balance"] = after if after >= 0 else state["balance"]
    yield from ()


def overdraw(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Keeps balances that go down to -100, and emits a row below zero (the new code)."""
    after = (state["balance"] or 0) + (row["n"] or 0)
    state["balance"] = max(after, -100)
    if after < 0:
        yield {"who": row["who"], "id": row["id"], "balance": after}


def either(state: dict[str, Any], row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (refuse if row["_offset"] < BASE[row["_partition"]] else overdraw)(state, row)


def code(which: str) -> Pipeline:
    """Returns the `old` code, the `new` code, or `both`, each for its part of the log."""
    step = {"old": refuse, "new": overdraw, "both": either}[which]

    @pipeline(
        name="p",
        reads={"paid": PAID},
        writes=[
            Table(
                "totals", keys=("who",), fold={"rows": count(), "n": sum_("n"), "mean": avg_("n")}
            ),
            Table("accepted"),
            Table(
                "balances",
                keys=("who",),
                fold=ordered(step, state="balance bigint", emits="overdrawn"),
            ),
            Table("overdrawn", emitted="who string, id string, balance bigint"),
        ],
    )
    def p(paid: DataFrame) -> dict[str, DataFrame]:
        old = {
            "old": "true",
            "new": "false",
            "both": " or ".join(
                f"(_partition = {partition} and _offset < {offset})"
                for partition, offset in BASE.items()
            ),
        }[which]
        made = paid.selectExpr(
            "id", "who", f"if({old}, n, n * 10) as n", f"{old} as old", "_partition", "_offset"
        )
        if which == "new":
            # Columns in another order, and fewer for the step: what is kept is the same.
            return {
                "totals": made,
                "accepted": made.select("old", "n", "id"),
                "balances": paid.select("n", "id", "who", "_topic", "_partition", "_offset"),
            }
        return {"totals": made, "accepted": made.select("id", "n", "old"), "balances": paid}

    return p


def a_log() -> MemoryLog:
    """Returns 60 records per partition: three people, some records late, some sent again.

    Every ninth record is not JSON; some of those were redriven, mended or not.
    """
    from kappa.engine.children.rehearsal import MemoryLog

    log = MemoryLog()
    for number in range(120):
        partition, place = number % 2, number // 2
        ms = 1_700_000_000_000 + 1_000 * number
        who = f"{['ann', 'Ä', 'bo'][place % 3]} {partition}"
        event = {
            "id": f"{place - 9 if place % 5 == 4 else place}",
            "who": who,
            "n": (37 * place) % 50 - 30,
            "at": ms - (31_000 if place % 7 == 6 else 0),
        }
        # A redriven record is 4, 12 or 30 records before, and may have been redriven already.
        back, of = next(
            ((back, place - back) for back in (4, 12, 30) if (place - back) % 9 == 8), (0, None)
        )
        if place % 9 == 8:
            log.add("paid", partition, b"{", key=who.encode(), ms=ms)
        elif of is not None and of >= 0:
            mended = json.dumps({**event, "id": f"mended {of}"}).encode()
            headers = [
                Original(Position("paid", partition, of), 1_700_000_000_000 + 2_000 * of).header()
            ]
            log.add(
                "paid",
                partition,
                mended if of % 2 or back > 4 else b"[",
                key=who.encode(),
                ms=ms,
                headers=headers,
            )
        else:
            log.add("paid", partition, json.dumps(event).encode(), key=who.encode(), ms=ms)
    return log


def at(*offsets: int) -> Offsets:
    return Offsets({"paid": dict(enumerate(offsets))})


class Killed(BaseException):  # no Exception: what answers errors must not answer a death
    """Raised where this process is killed."""


def killing(place: str) -> Callable[[str], None]:
    """Returns an action that dies at the slice's passing of a failpoint.

    Each job that begins puts a frontier, too. That passing does not count.
    """
    passed: Counter[str] = Counter()

    def act(name: str) -> None:
        passed[name] += 1
        if name == place and passed[name] == (2 if name.startswith("frontier.") else 1):
            raise Killed(name)

    return act


def rows(build: Rehearsal) -> dict[str, Counter[str]]:
    """Returns the served rows of each table, and all rejects."""
    births = {table.name: table for table in build.birth.tables}
    served = {
        name: [column for column, _ in (table.columns if name == "rejects" else table.served)]
        for name, table in births.items()
    }
    return {
        name: Counter(map(repr, build.table(name).select(sorted(columns)).to_pylist()))
        for name, columns in served.items()
    }


def test_any_log_across_the_base_and_any_cut_of_the_hand_over(
    tmp_path: Path,
) -> None:
    from kappa.engine.children.rehearsal import Rehearsal, local_pipeline

    log = a_log()
    with ExitStack() as open_:
        both, new = (open_.enter_context(local_pipeline(code(which))) for which in ("both", "new"))
        old = replace(both, pipeline=code("old"))

        def job(
            folder: Path, local: LocalPipeline, *, birth: Birth | None = None, leg: int = 1
        ) -> Rehearsal:
            made = Rehearsal(folder, local, log, driver_rows=1_000, birth=birth, leg=leg)
            open_.callback(made.close)
            return made

        whole = job(tmp_path / "whole", both)
        whole.fold(log.end)
        served = job(tmp_path / "root", old)
        served.fold(at(20, 11))
        start = served.publisher.newest
        served.fold(log.end)
        base = at(*BASE.values())
        tables = table_births(new.pipeline, new.outputs)
        birth = structs.replace(
            served.birth,
            build="branch",
            tables=tables,
            base=Base("b", "v", base.plain(), start.number, start.offsets.plain()),
        )
        store = served.store
        put_birth(store, birth)
        begin_from(store, birth, store, start)

        def to_base() -> None:
            """Folds up to the base, as a job of the leg `base` does (kappa/engine/job/job.py)."""
            first = job(store.folder, old, birth=structs.replace(birth, tables=served.birth.tables))
            keep_base(store, birth, first.publisher.newest)
            if stands_before_base(store, "branch"):
                first.fold(base)
            keep_base(store, birth, first.publisher.newest)

        for place in HAND_OVER:
            with pytest.raises(Killed, match=place), acting(killing(place)):
                to_base()
        to_base()
        with pytest.raises(Killed), acting(killing("job.between_tables")):
            job(store.folder, new, birth=birth, leg=2).fold(at(40, 24))
        branch = job(store.folder, new, birth=birth, leg=2)
        for end in (at(40, 24), at(40, 45), log.end):
            branch.die_before_the_frontier_of(end)
            branch = job(store.folder, new, birth=birth, leg=2)
            branch.fold(end)

        assert rows(branch) == rows(whole)
        assert branch.publisher.newest.tally == whole.publisher.newest.tally

        # As a proof folds it again: from the base on, in another cut.
        anew = Store(tmp_path / "anew")
        begin_from(anew, birth, store, base_frontier(store, birth))
        again = job(anew.folder, new, birth=birth, leg=0)
        again.fold(at(55, 30))
        again.fold(log.end)
        assert rows(again) == rows(whole)

    # The log had what it was to have, and the two codes are not the same.
    tally = sum(whole.publisher.newest.tally["paid"].values(), Tally())
    assert min(tally.late, tally.duplicate, tally.rejected - tally.late) > 5
    accepted = whole.table("accepted").to_pylist()
    assert {("mended 17", True), ("mended 26", False)} <= {
        (row["id"], row["old"]) for row in accepted
    }
    assert any(rows(served)[name] != rows(whole)[name] for name in ("totals", "balances"))
