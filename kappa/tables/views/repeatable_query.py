"""The parts of a view's query whose results may differ between two runs.

A query with such a part is refused, and the error names the part. The rows of a maintained view
must be determined by the view's tables alone. DuckDB reads files with several threads, so the
tables do not determine the order in which DuckDB reads rows. An aggregate or a window that depends
on that order is therefore refused. Sums of doubles are refused too, because their last digits
depend on that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kappa.base.duck import DUCKDB_ERRORS, Connection
from kappa.base.sql import quoted
from kappa.tables.views.syntax_tree import Tree, expanded, is_recursive, sql_of, trees


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


# These take whichever rows come first, or list rows as they come. An order may decide (ties.py).
BY_ORDER = _words(
    "first last any_value arbitrary list array_agg string_agg group_concat listagg arg_max "
    "arg_min argmax argmin max_by min_by arg_max_null arg_min_null"
)
# These depend on the order of rows as well, and no order in the query mends that.
_NEVER = _words(
    "mode reservoir_quantile approx_quantile approx_top_k stddev stddev_pop stddev_samp variance "
    "var_pop var_samp covar_pop covar_samp corr kurtosis kurtosis_pop skewness regr_avgx "
    "regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem "
    "product geometric_mean geomean"
)
_SUMS = frozenset({"sum", "avg", "mean", "fsum", "sumkahan", "kahan_sum", "favg"})
# Windows that number or pick rows.
NUMBERING = _words("row_number ntile lag lead first first_value last last_value nth_value")
_CAST = "sum what is exact, as in sum(price::decimal(18, 4))"


def inexact(duck: Connection, statement: Tree) -> tuple[str, str] | None:
    """Returns a part of a query whose result may differ between two runs, and a remedy.

    Returns None if there is no such part. `statement` is the query's tree. `duck` is a connection
    in which the query's tables exist; no rows are read.
    """
    tree = expanded(statement) if not is_recursive(statement) else statement
    # The parser makes a call of this kind from `list(x order by x)`.
    ordered = {
        id(each["children"][0]) for each in trees(tree) if each.get("function_name") == "list_sort"
    }
    for each in trees(tree):
        if each.get("sample") is not None:
            return "a sample of rows", "leave the sample out"
        name = str(each.get("function_name", "")).lower()
        if each.get("ref_type") == "POSITIONAL":
            return "a positional join, which takes rows as they come", "join by what rows share"
        if each.get("ref_type") == "NATURAL" and each["right"]["type"] == "JOIN":
            nested = "a natural join with a join in parentheses on its right"
            return (
                f"{nested}, which slices would read in another order",
                "name the columns: join (...) using (...)",
            )
        if each.get("class") in {"WINDOW", "FUNCTION"} and name in _NEVER:
            return f"{name}, whose result depends on the order of rows", "compute it at reading"
        is_open = each.get("class") == "WINDOW" and is_by_order(each)
        if is_open and not each["orders"] and not each["arg_orders"]:
            return f"{name} over rows without an order", f"{name}(...) over (... order by ...)"
        is_open = each.get("class") == "FUNCTION" and name in BY_ORDER and id(each) not in ordered
        if is_open and not each["order_bys"]["orders"]:
            return (
                f"{name} without an order, which takes rows as they come",
                f"give it one that no two rows share: {name}(... order by ...)",
            )
        if (limited := _limited(each)) is not None:
            return limited
    if _numbers_rows(duck, statement):
        return "rowid, which numbers rows as they come", "order by what its tables' rows have"
    for select in trees(tree):
        if select.get("type") == "SELECT_NODE":
            for name in _sums_of_doubles(duck, select):
                return f"{name} of a double, whose last digits depend on the order of rows", _CAST
    return None


def is_by_order(window: Tree) -> bool:
    """Returns True if a window's result may depend on the order in which DuckDB reads tied rows."""
    name = str(window["function_name"]).lower()
    return name in NUMBERING or name in BY_ORDER or has_row_frame(window)


def has_row_frame(window: Tree) -> bool:
    """Returns True if a window's frame may contain only some of several tied rows.

    That is the case if the frame counts rows (`rows between ...`).
    """
    return any(str(window[each]).endswith("_ROWS") for each in ("start", "end"))


def _limited(node: Tree) -> tuple[str, str] | None:
    kinds = [each.get("type", "") for each in node.get("modifiers", ()) if isinstance(each, dict)]
    if any("LIMIT" in kind for kind in kinds) and "ORDER_MODIFIER" not in kinds:
        return "a limit without an order", "order by what no two rows share, before the limit"
    targets = any(each.get("distinct_on_targets") for each in node.get("modifiers", ()))
    if targets and "ORDER_MODIFIER" not in kinds:
        return "distinct on without an order", "order by what no two rows share"
    return None


def _numbers_rows(duck: Connection, statement: Tree) -> bool:
    """Returns True if a query reads the hidden column `rowid`, which DuckDB's tables have."""
    if not any(
        "rowid" in map(str.lower, each.get("column_names", ())) for each in trees(statement)
    ):
        return False
    found = duck.execute("select table_name from duckdb_tables()").fetchall()
    # The rows of a query have no `rowid`, unless a column has that name.
    read = ", ".join(f"{quoted(name)} as (from main.{quoted(name)})" for (name,) in found)
    try:
        duck.sql(f"with {read} select * from ({sql_of(duck, statement)})")
    except DUCKDB_ERRORS:
        return True
    return False


def _sums_of_doubles(duck: Connection, select: Tree) -> Iterator[str]:
    """Yields the function name of each sum over doubles in a select. DuckDB derives the types."""
    sums = [
        each
        for part in ("select_list", "having", "qualify", "modifiers")
        for each in trees(select[part], within=True)
        if each.get("class") in {"FUNCTION", "WINDOW"}
        and str(each.get("function_name", "")).lower() in _SUMS
        and each["children"]
    ]
    for each in sums:
        asked: dict[str, Any] = {
            **select,
            "cte_map": {"map": []},
            "modifiers": [],
            "select_list": [{**each["children"][0], "alias": ""}],
            "group_expressions": [],
            "group_sets": [],
            "aggregate_handling": "STANDARD_HANDLING",
            "having": None,
            "qualify": None,
        }
        statement = {"error": False, "statements": [{"node": asked, "named_param_map": []}]}
        try:
            kinds = duck.sql(sql_of(duck, statement)).types
        except DUCKDB_ERRORS:
            # The argument names something outside of the select, or an aggregate within.
            continue
        if str(kinds[0]).lower() in {"double", "float"}:
            yield str(each["function_name"]).lower()
