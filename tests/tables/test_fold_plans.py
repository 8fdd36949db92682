"""Golden plans of every fold: its SQL, columns and types, byte by byte.

They are in tests/data/fold_plans.json. Served builds were folded by these plans, so a refactoring
must change none of them. After an intended change, `python tests/tables/test_fold_plans.py` writes
the file again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kappa import (
    Fold,
    Table,
    Topic,
    and_,
    avg_,
    count,
    count_distinct,
    first,
    hll,
    kll,
    latest,
    max_,
    min_,
    or_,
    pipeline,
    sample,
    set_,
    sum_,
    theta,
    top_k,
)
from kappa.base.sql import quoted, spark_quote
from kappa.code.fingerprint import declaration_lines
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.values.columns import parse_columns, parse_type
from kappa.engine.fold.combine import aggregates, combinations, combined_columns
from kappa.engine.fold.latest import latest_input, latest_sql
from kappa.engine.write.recent_rows import sum_limits
from kappa.replay.rollout.prove.row_hash import left_out_of
from kappa.state.table import TableBirth
from kappa.tables.merge import (
    committed_columns,
    contribution_columns,
    is_mergeable,
    merge_for,
    merged_sql,
)
from kappa.tables.shape import table_births

PLANS = Path(__file__).resolve().parent.parent / "data" / "fold_plans.json"

EVENT = (
    "k string, g int, n bigint, small smallint, x double, f float, d decimal(12,3), s string,"
    " at timestamp, day date, b boolean, tags array<string>"
)
OUTPUT = {column.name: column.type for column in parse_columns(EVENT)} | {
    name: parse_type(kind) for name, kind in FOLD_ORDER_COLUMNS
}
EVENTS = Topic("events", event=EVENT)
THINGS = Topic(
    "things", kind="compacted", event="id int not null, v string", partitions=3, key="id"
)

# Each fold over each type that it treats differently.
FOLDS: dict[str, Fold] = {
    "count_rows": count(),
    "count_s": count("s"),
    "count_x": count("x"),
    "sum_n": sum_("n"),
    "sum_small": sum_("small"),
    "sum_x": sum_("x"),
    "sum_f": sum_("f"),
    "sum_d": sum_("d"),
    "avg_n": avg_("n"),
    "avg_f": avg_("f"),
    "avg_d": avg_("d"),
    "min_n": min_("n"),
    "max_n": max_("n"),
    "min_x": min_("x"),
    "max_f": max_("f"),
    "max_at": max_("at"),
    "and_b": and_("b"),
    "or_b": or_("b"),
    "first_s": first("s"),
    "latest_x": latest("x"),
    "latest_tags": latest("tags"),
    "set_s": set_("s", limit=3),
    "set_x": set_("x"),
    "count_distinct_s": count_distinct("s", limit=3),
    "count_distinct_x": count_distinct("x"),
    "top_k_n": top_k("n", 2),
    "top_k_tags_by_x": top_k("tags", by="x"),
    "sample_s": sample("s", 3),
    "sample_rows": sample(["s", "x"], 3, weight="n"),
    "hll_s": hll("s", lg_k=10),
    "theta_x": theta("x"),
    "kll_n": kll("n", 0.5),
    "kll_x": kll("x", 1, k=8),
    "kll_d": kll("d", 0.0),
}


def births(fold: dict[str, Fold]) -> tuple[TableBirth, ...]:
    @pipeline(
        reads={"events": EVENTS, "things": THINGS},
        writes=[Table("t", keys=("k", "g"), fold=fold), Table("things", latest=THINGS)],
    )
    def p(events: object) -> dict[str, object]:
        return {}

    return table_births(p, {"t": OUTPUT})


def plans_of(table: TableBirth) -> dict[str, Any]:
    """Returns all SQL, columns and types of a table's folds."""

    def merge(quote: Any) -> Any:
        how = merge_for(table, quote)
        return {
            "match": how.match,
            "when": how.update_when,
            "update": dict(how.update),
            "insert": dict(how.insert),
        }

    folded = bool(table.fold)
    compared = {column: table.exactness(column) for column, _ in table.served}
    return {
        "birth": [table.fold, table.options, table.sketched],
        "columns": table.columns,
        "compared": table.compared,
        "contributed": contribution_columns(table),
        "committed": committed_columns(table),
        "exactness": compared,
        "left out of proofs": left_out_of(table),
        "differs": {column: how.differs_sql(column) for column, how in compared.items()},
        "combined": table.is_combined,
        "mergeable": is_mergeable(table),
        "merge at Spark": merge(spark_quote),
        "merge": merge(quoted),
        "aggregates": aggregates(table, {name: str(kind) for name, kind in OUTPUT.items()})
        if folded
        else [latest_sql(table, "select 1"), latest_input(table)],
        "combinations": combinations(table) if table.is_combined else None,
        "combined columns": combined_columns(table) if table.is_combined else None,
        "sums that may overflow": {
            column: str(limit) for column, limit in sum_limits(table).items()
        },
        "read with recent rows": merged_sql(table, "select 1", ["select 2", "select 3"])
        if is_mergeable(table)
        else None,
    }


# These parts are written once, for the table of all merged folds.
WIDE = ("merge at Spark", "read with recent rows")


def plans() -> Iterator[tuple[str, Any]]:
    for name, fold in FOLDS.items():
        plan = plans_of(births({"f": fold})[0])
        yield name, {what: said for what, said in plan.items() if what not in WIDE}
    # Folds that a merge can express are combined too, beside one that it cannot.
    beside = plans_of(births(FOLDS)[0])
    yield (
        "all folds in one table",
        {
            what: beside[what]
            for what in ("columns", "aggregates", "combinations", "combined columns")
        },
    )
    merged, things, rejects = births(
        {name: fold for name, fold in FOLDS.items() if not births({"f": fold})[0].is_combined}
    )
    all_merged = plans_of(merged)
    yield "all merged folds in one table", {what: all_merged[what] for what in ("merge", *WIDE)}
    yield "latest table", plans_of(things)
    yield "rejects", [rejects.columns, rejects.compared]

    @pipeline(reads={"events": EVENTS}, writes=[Table("t", keys=("k",), fold=FOLDS)])
    def p(events: object) -> dict[str, object]:
        return {}

    yield "declared", declaration_lines(p)["table t"].splitlines()


def written(plan: Any) -> str:
    return json.dumps(plan, indent=1, ensure_ascii=False)


@pytest.mark.parametrize(("name", "plan"), [*plans()], ids=[name for name, _ in plans()])
def test_a_fold_means_at_each_place_what_it_meant_before(name: str, plan: Any) -> None:
    assert written(plan) == written(json.loads(PLANS.read_text(encoding="utf-8"))[name])


if __name__ == "__main__":
    PLANS.write_text(written(dict(plans())) + "\n", encoding="utf-8")
