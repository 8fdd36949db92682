"""Checks of the Spark plan of a pipeline's function, and the sources of its columns. Pure.

This module reads the analysed plan as JSON (TreeNode.toJSON). The plan is a list of nodes, each
node before its children; an expression is a list of the same form.

A function must compute the contribution of each row from that row alone. Otherwise a replay in
large slices would compute other rows than the tail in small slices (the law of slices). The plan
shows the operations of a function, however the function is written. For each operation that a
function may not use, this module contains a hint that describes an alternative. Operators that this
module does not know are refused, too.

In plans without such operations, the module also finds the fields of the function's inputs from
which each column of a frame is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The number of a leaf of the plan, and a field of the leaf's frame.
Field = tuple[int, str]


@dataclass(frozen=True, slots=True)
class NotRowLocal:
    """A part of a plan that computes a row from more than a single row.

    `what` describes what the part does, `hint` describes an alternative, and `calls` names the
    DataFrame methods that create such a part.
    """

    what: str
    hint: str
    calls: tuple[str, ...] = ()


_KEYS = (
    "give the table keys and a fold, Table(..., keys=(...), fold={...}): Kappa groups and folds;"
    " an average is the fold avg_(...)"
)
_VIEW = 'join the tables when they are read: View("name", "select ... from a join b using (key)")'
_GROUPED = NotRowLocal(
    "groups rows",
    _KEYS,
    ("groupBy", "groupby", "agg", "rollup", "cube", "groupingSets", "describe", "summary"),
)
_JOINED = NotRowLocal("joins", _VIEW, ("join", "crossJoin", "lateralJoin"))
_WINDOWED = NotRowLocal(
    "looks at other rows through a window",
    'make the window a key: keys=(..., "hour"), with hour a column such as'
    ' date_trunc("hour", "at")',
    ("over",),
)
_DISTINCT = NotRowLocal(
    "drops repeated rows",
    "give the table those columns as keys: there is one row per key",
    ("distinct", "dropDuplicates", "drop_duplicates", "dropDuplicatesWithinWatermark"),
)
_SORTED = NotRowLocal(
    "sorts rows",
    "order them in the query or in a View",
    ("orderBy", "sort", "sortWithinPartitions"),
)
_LIMITED = NotRowLocal(
    "takes only some rows",
    "choose them by a condition (where), or limit in the query or in a View",
    ("limit", "offset"),
)
_SAMPLED = NotRowLocal(
    "takes rows at random",
    'choose them by a condition on a column, such as where("crc32(id) % 10 = 0")',
    ("sample", "sampleBy", "randomSplit"),
)
_COMPARED = NotRowLocal(
    "compares sets of rows", _VIEW, ("intersect", "intersectAll", "subtract", "exceptAll")
)
_MAPPED = NotRowLocal(
    "hands many rows at once to Python",
    "use a scalar udf or pandas_udf in select or withColumn",
    ("mapInPandas", "mapInArrow"),
)
_SPREAD = NotRowLocal(
    "spreads rows anew",
    "leave it out: Kappa spreads the rows",
    ("repartition", "repartitionByRange", "coalesce"),
)
_ASKED = NotRowLocal(
    "asks other rows by a subquery",
    "make the other rows a table of their own, and bring both together in a View",
    ("scalar", "exists"),
)
_FROM_ELSEWHERE = NotRowLocal(
    "brings in rows that do not come from its topics",
    "produce them to a topic and read that: a replay must find them again",
    ("createDataFrame", "range", "table", "rdd", "toDF"),
)

# By class name in Spark 4's catalyst.plans.logical.
_OPERATORS: Mapping[str, NotRowLocal] = {
    **dict.fromkeys(
        (
            "Aggregate",
            "GroupingSets",
            "Pivot",
            "TypedAggregate",
            "MapGroups",
            "CoGroup",
            "TransformWithState",
        ),
        _GROUPED,
    ),
    **dict.fromkeys(
        (
            "FlatMapGroupsInPandas",
            "FlatMapGroupsInArrow",
            "FlatMapCoGroupsInPandas",
            "FlatMapCoGroupsInArrow",
            "TransformWithStateInPySpark",
        ),
        _GROUPED,
    ),
    **dict.fromkeys(("Join", "LateralJoin", "AsOfJoin", "NearestByJoin"), _JOINED),
    **dict.fromkeys(("Window", "WindowGroupLimit", "WindowInPandas"), _WINDOWED),
    **dict.fromkeys(("Distinct", "Deduplicate", "DeduplicateWithinWatermark"), _DISTINCT),
    "Sort": _SORTED,
    **dict.fromkeys(("GlobalLimit", "LocalLimit", "LimitAll", "Offset", "Tail"), _LIMITED),
    "Sample": _SAMPLED,
    **dict.fromkeys(("Intersect", "Except"), _COMPARED),
    **dict.fromkeys(
        ("MapInPandas", "MapInArrow", "PythonMapInArrow", "MapPartitions", "MapElements"), _MAPPED
    ),
    **dict.fromkeys(("Repartition", "RepartitionByExpression", "RebalancePartitions"), _SPREAD),
    "AttachDistributedSequence": NotRowLocal(
        "numbers rows",
        "use _partition and _offset: together they are a row's place in its topic",
        ("zipWithIndex",),
    ),
    "CollectMetrics": NotRowLocal("counts rows in passing", _KEYS, ("observe",)),
}
# The calls whose line is noted.
TELLING_CALLS = frozenset(
    call for each in (*_OPERATORS.values(), _ASKED, _FROM_ELSEWHERE) for call in each.calls
) | {"sql"}
_ROW_LOCAL = frozenset(
    {"Project", "Filter", "Generate", "Union", "Expand", "SubqueryAlias", "View", "ResolvedHint"}
)
_CHANGING = frozenset(
    {
        "CurrentDate",
        "CurrentTime",
        "CurrentTimestamp",
        "CurrentTimestampLike",
        "LocalTimestamp",
        "Now",
        "CurrentBatchTimestamp",
        "CurrentUser",
    }
    | {
        "Rand",
        "Randn",
        "RandStr",
        "Uniform",
        "Uuid",
        "Shuffle",
        "MonotonicallyIncreasingID",
        "SparkPartitionID",
        "InputFileName",
        "InputFileBlockStart",
        "InputFileBlockLength",
    }
)


def not_row_local(plan: list[Any], given: Sequence[bool]) -> NotRowLocal | None:
    """Returns the first part of a plan that computes a row from more than a single row, or None.

    `plan` is an analysed plan (TreeNode.toJSON). `given` has a value for each leaf of the plan, in
    order: True if the leaf is a frame that was passed to the function.
    """
    leaves = iter(given)
    for node in plan:
        operator = class_of(node)
        if operator in _OPERATORS:
            return _OPERATORS[operator]
        inside = next(filter(None, map(_in_expression, nested(node))), None)
        if inside is not None:
            return inside
        if node["num-children"] == 0 and not next(leaves):
            return _FROM_ELSEWHERE
        if node["num-children"] > 0 and operator not in _ROW_LOCAL:
            return NotRowLocal(
                f"uses Spark's operator {operator}",
                "use select, where, withColumn, explode, union and scalar functions",
            )
    return None


def changing(plan: list[Any]) -> tuple[str, ...]:
    """Returns Spark's names of the expressions in a plan whose values change from run to run."""
    return tuple(
        sorted(
            {
                class_of(node)
                for top in plan
                for node in (top, *nested(top))
                if class_of(node) in _CHANGING or node.get("udfDeterministic") is False
            }
        )
    )


def _in_expression(node: Any) -> NotRowLocal | None:
    kind = class_of(node)
    if kind.endswith("Subquery") or kind in {"Exists", "ListQuery"}:
        return _ASKED
    if kind == "WindowExpression":
        return _WINDOWED
    return None


@dataclass(frozen=True, slots=True)
class _OutputColumn:
    """A column of a node's output: its number, its name, and the fields that it is computed from.

    The number is Spark's id of the column.
    """

    number: int
    name: str
    fields: frozenset[Field]


def frame_sources(plan: Sequence[Any]) -> Mapping[str, frozenset[Field]]:
    """Returns the sources of each column of a frame, by the name of the column.

    A source is a field from which the values of the column are computed, as a pair (number of a
    leaf of the plan, field name). Leaves are numbered from 0, in the order of the plan. Fields that
    only select rows (`where`) are not sources. Returns an empty mapping if the plan contains an
    unknown operator.
    """
    try:
        found = _PlanOutputs(plan).outputs()
    except (LookupError, TypeError, ValueError):
        # Another version of Spark may write plans in another way.
        return {}
    return {each.name: each.fields for each in found}


class _PlanOutputs:
    def __init__(self, nodes: Sequence[Any]) -> None:
        self._nodes = iter(nodes)
        self._leaves = 0

    def outputs(self) -> list[_OutputColumn]:
        """Reads the plan's next node and its children. Returns the node's output columns."""
        node = next(self._nodes)
        if node["num-children"] == 0:
            leaf, self._leaves = self._leaves, self._leaves + 1
            return [
                _OutputColumn(number, name, frozenset({(leaf, name)}))
                for number, name in map(_named, _heads(node["output"]))
            ]
        children = [self.outputs() for _ in range(node["num-children"])]
        match class_of(node):
            case "Filter" | "SubqueryAlias" | "View" | "ResolvedHint":
                return children[0]
            case "Project":
                return [_computed(each, children[0]) for each in node["projectList"]]
            case "Generate":
                made = _fields_in(node["generator"], children[0])
                left_out = set(node.get("unrequiredChildIndex") or ())
                return [
                    *(each for place, each in enumerate(children[0]) if place not in left_out),
                    *(
                        _OutputColumn(number, name, made)
                        for number, name in map(_named, _heads(node["generatorOutput"]))
                    ),
                ]
            case "Union":
                return [
                    _OutputColumn(same[0].number, same[0].name, _united(same))
                    for same in zip(*children, strict=True)
                ]
            case "Expand":
                rows = [
                    [_fields_in(each, children[0]) for each in row] for row in node["projections"]
                ]
                return [
                    _OutputColumn(number, name, frozenset().union(*(row[place] for row in rows)))
                    for place, (number, name) in enumerate(map(_named, _heads(node["output"])))
                ]
        raise LookupError(class_of(node))


def _heads(expressions: Sequence[Any]) -> Iterator[Any]:
    """Yields the outermost node of each expression.

    An expression is a node, or a list that begins with the outermost node.
    """
    return (each[0] if isinstance(each, list) else each for each in expressions)


def _named(head: Any) -> tuple[int, str]:
    return int(head["exprId"]["id"]), str(head["name"])


def _computed(expression: Any, below: Sequence[_OutputColumn]) -> _OutputColumn:
    number, name = _named(next(_heads([expression])))
    return _OutputColumn(number, name, _fields_in(expression, below))


def _fields_in(expression: Any, below: Sequence[_OutputColumn]) -> frozenset[Field]:
    """Returns the fields from which an expression is computed, as pairs (leaf, field name).

    `below` contains the output columns of the node below, with their fields.
    """
    known = {each.number: each.fields for each in below}
    found = {
        int(each["exprId"]["id"])
        for each in nested(expression)
        if class_of(each) == "AttributeReference"
    }
    return frozenset().union(*(known[number] for number in found))


def _united(columns: Sequence[_OutputColumn]) -> frozenset[Field]:
    return frozenset().union(*(each.fields for each in columns))


def nested(value: Any) -> Iterator[Any]:
    """Yields all expressions and plans that are inside a node, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        if isinstance(each, dict) and "class" in each:
            yield each
        yield from nested(each)


def class_of(node: Any) -> str:
    """Returns Spark's class name of an expression or operator."""
    return str(node.get("class", "")).rpartition(".")[2].removesuffix("$")
