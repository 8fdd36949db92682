"""The columns that a query's `from` clause makes visible, and which of them are equal. Pure.

A query is a tree from DuckDB's own parser, in which each named subquery (`with`) is replaced by its
query. A part that this module does not understand counts as having no columns: nothing is concluded
from that part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kappa.base.sql import lowered
from kappa.tables.views.syntax_tree import Tree, conjuncts, place_of, trees

# An item of a `from` clause, by its number there, and a column of the item.
Place = tuple[int, str]
# The types of each table's columns, by name.
Tables = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Visible:
    """A column that the expressions of a select can name.

    `places` contains columns of tables and subqueries in the `from` clause. The column equals each
    of these columns, in every row in which the column has a value. `given` is False if the column
    may be null because an outer join found no matching row. `bare` is False if expressions must
    write the alias before the column's name.
    """

    name: str
    alias: str
    places: tuple[Place, ...]
    given: bool = True
    bare: bool = True


@dataclass(slots=True)
class Item:
    """A table or a subquery in a `from` clause, and its column names in order."""

    tree: Tree
    columns: tuple[str, ...]
    # For a table, the names of its own columns: an alias may rename columns.
    table_columns: tuple[str, ...] = ()


@dataclass(slots=True)
class Scope:
    """The columns that a `from` clause makes visible.

    `edges` contains pairs (one, other) of columns: rows with certain values in the column `one` are
    only joined to rows with the same values in the column `other`.
    """

    items: list[Item] = field(default_factory=list)
    visible: list[Visible] = field(default_factory=list)
    edges: set[tuple[Place, Place]] = field(default_factory=set)
    # Columns that a full join has compared: their value is the first of both that is not null.
    paired: set[frozenset[Place]] = field(default_factory=set)
    # An as-of join takes one of several rows: columns that it does not compare by equality are that
    # row's.
    taken: set[Place] = field(default_factory=set)

    def find(self, expression: Any) -> Visible | None:
        """Returns the visible column that an expression names, or None for any other expression."""
        match expression:
            case Visible():
                return expression
            case {"class": "COLUMN_REF", "column_names": [str(name)]}:
                found = [each for each in self.visible if each.bare and each.name == lowered(name)]
            case {"class": "COLUMN_REF", "column_names": [str(alias), str(name)]}:
                wanted = lowered(alias), lowered(name)
                found = [each for each in self.visible if (each.alias, each.name) == wanted]
            case {"type": "OPERATOR_COALESCE", "children": [one, other]}:
                left, right = self.find(one), self.find(other)
                if left is None or right is None:
                    return None
                places = (*left.places, *right.places)
                return Visible("", "", places) if frozenset(places) in self.paired else None
            case _:
                return None
        return found[0] if len(found) == 1 else None

    def may_have(self, name: str) -> bool:
        """Returns True if a name may be a visible column, or the alias of a table or subquery."""
        return any(
            (each.bare and each.name == name) or each.alias == name for each in self.visible
        ) or any(not item.columns for item in self.items)

    def reached(self, places: Sequence[Place]) -> set[Place]:
        """Returns the columns at `places`, and all columns that must have the same values.

        A column is a pair: the number of the table or subquery in the `from` clause, and a name.
        """
        found, new = set[Place](), {*places}
        while new:
            found |= new
            new = {other for one, other in self.edges if one in new} - found
        return found


class Scopes:
    """The scopes (the visible columns) of all selects in a query's tree, each computed once."""

    def __init__(self, tables: Tables) -> None:
        """Prepares the scopes of the selects in a query's tree, without computing them.

        `tables` contains the column types of each table that the query may name.
        """
        self._tables = tables
        self._made: dict[int, Scope] = {}

    def of(self, select: Tree) -> Scope:
        """Returns the columns that a select's `from` clause makes visible.

        The result also contains the equalities of columns that the select's `where` clause
        requires.
        """
        if id(select) not in self._made:
            scope = Scope()
            self._made[id(select)] = scope
            scope.visible = self._relation(scope, select.get("from_table"))
            for condition in conjuncts(select.get("where_clause")):
                self._where(scope, condition)
        return self._made[id(select)]

    def outputs(self, node: Tree) -> list[tuple[str, Any]] | None:
        """Returns the columns of a query's result, as (name, expression) pairs.

        The expression is a tree, or a Visible for a column that `*` selects. For a set operation,
        such as a `union`, the expression is None. Returns None if the columns are not known.
        """
        match node:
            case {"type": "SELECT_NODE"}:
                return self._outputs(node)
            case {"type": "SET_OPERATION_NODE", "setop_type": str(kind), "left": left}:
                found = None if kind.endswith("BY_NAME") else self.outputs(left)
                return None if found is None else [(name, None) for name, _ in found]
        return None

    def groups(self, select: Tree) -> list[Any]:
        """Returns the expressions by which the `group by` of a select groups rows.

        In the list, None stands for an unknown expression. In a `group by`, DuckDB looks for a bare
        name first among the columns of the `from` clause, and then among the names of the select
        list.
        """
        return [self._grouped(select, each) for each in select["group_expressions"]]

    def _grouped(self, select: Tree, expression: Any) -> Any:
        outputs = self.outputs(select)
        if (place := place_of(expression)) is not None:
            is_there = outputs is not None and 0 < place <= len(outputs)
            return outputs[place - 1][1] if outputs is not None and is_there else None
        match expression:
            case {"class": "COLUMN_REF", "column_names": [str(name)]}:
                scope = self.of(select)
                if scope.find(expression) is not None:
                    return expression
                named = [each for each in outputs or () if each[0] == lowered(name)]
                is_alias = len(named) == 1 and not scope.may_have(lowered(name))
                return named[0][1] if is_alias else None
        return expression

    def kind(self, item: Item, column: str) -> str | None:
        """Returns the type of a column of a table or subquery in a `from` clause.

        Returns None if the column is not the unchanged column of a table.
        """
        if item.columns.count(column) != 1:
            return None
        number = item.columns.index(column)
        if item.tree["type"] == "BASE_TABLE":
            return self._tables[lowered(item.tree["table_name"])][item.table_columns[number]]
        return self._kind_of(item.tree["subquery"]["node"], number)

    def _kind_of(self, node: Tree, number: int) -> str | None:
        if node["type"] == "SET_OPERATION_NODE":
            left, right = (self._kind_of(node[side], number) for side in ("left", "right"))
            return left if left == right else None
        outputs = self.outputs(node)
        if outputs is None or number >= len(outputs):
            return None
        scope = self.of(node)
        found = scope.find(outputs[number][1])
        places = () if found is None else found.places
        kinds = {self.kind(scope.items[item], column) for item, column in places}
        return kinds.pop() if len(kinds) == 1 else None

    def _outputs(self, select: Tree) -> list[tuple[str, Any]] | None:
        scope, found = self.of(select), list[tuple[str, Any]]()
        for each in select["select_list"]:
            match each:
                case {"class": "STAR", "columns": False, "expr": None, "replace_list": [],
                      "rename_list": [], "qualified_exclude_list": []}:  # fmt: skip
                    alias = lowered(each["relation_name"])
                    left_out = set(map(lowered, each["exclude_list"]))
                    if any(not item.columns for item in scope.items):
                        return None
                    found += [
                        (one.name, one)
                        for one in scope.visible
                        if (one.alias == alias if alias else one.bare) and one.name not in left_out
                    ]
                case _ if any(one.get("class") == "STAR" for one in trees(each, within=True)):
                    # Such as `* like 'a%'`, or a function of `columns(*)`: any number of columns.
                    return None
                case {"alias": str(alias)} if alias:
                    found.append((lowered(alias), each))
                case {"class": "COLUMN_REF", "column_names": [*_, str(name)]}:
                    found.append((lowered(name), each))
                case _:
                    found.append(("", each))
        return found

    def _relation(self, scope: Scope, tree: Any) -> list[Visible]:
        """Adds the tables and subqueries of a `from` clause to a scope.

        Returns the columns of the clause that expressions can name.
        """
        match tree:
            case {"type": "JOIN"}:
                return self._join(scope, tree)
            case {"type": "BASE_TABLE", "schema_name": "", "table_name": str(name)} if (
                lowered(name) in self._tables
            ):
                own = tuple(self._tables[lowered(name)])
                return self._item(scope, tree, name, own, own)
            case {"type": "SUBQUERY", "subquery": {"node": dict(node)}}:
                outputs = self.outputs(node)
                names = () if outputs is None else tuple(name for name, _ in outputs)
                return self._item(scope, tree, "", names, ())
            case dict():
                return self._item(scope, tree, "", (), ())
        return []

    def _item(
        self, scope: Scope, tree: Tree, name: str, columns: tuple[str, ...], own: tuple[str, ...]
    ) -> list[Visible]:
        renamed = [lowered(each) for each in tree.get("column_name_alias") or ()]
        columns = _distinct_names((*renamed, *columns[len(renamed) :])) if columns else ()
        scope.items.append(Item(tree, columns, own))
        alias = lowered(tree.get("alias") or name)
        return [Visible(each, alias, ((len(scope.items) - 1, each),)) for each in columns]

    def _join(self, scope: Scope, tree: Tree) -> list[Visible]:
        """Adds a join's tables, subqueries and equal columns to a scope.

        Returns the columns of the join that expressions can name. A left or right join keeps all
        rows of one side. For such a join, an equality is added only in the direction from this side
        to the other side: a kept row is only joined to equal rows, but a row of the other side may
        be absent from the result.
        """
        left, right = (self._relation(scope, tree[side]) for side in ("left", "right"))
        kind = tree["join_type"]
        to_right, to_left = kind in {"INNER", "LEFT", "SEMI", "ANTI"}, kind in {"INNER", "RIGHT"}
        using = [lowered(name) for name in tree["using_columns"]]
        if tree["ref_type"] == "NATURAL":
            using = [each.name for each in left if each.bare and _visible_named(right, each.name)]
        both = Scope(scope.items, [*left, *right])
        if tree["ref_type"] == "ASOF":
            using = using[:-1]
        pairs = [(_visible_named(left, name), _visible_named(right, name)) for name in using]
        if tree["ref_type"] in {"REGULAR", "ASOF", "NATURAL"}:
            for condition in conjuncts(tree["condition"]):
                if condition.get("type") == "COMPARE_EQUAL":
                    one, other = both.find(condition["left"]), both.find(condition["right"])
                    pairs.append((other, one) if other in left else (one, other))
        for one, other in pairs:
            if one in left and other in right:
                self._equal(scope, one, other, to_left=to_left, to_right=to_right)
        if tree["ref_type"] == "ASOF":
            equal = {place for pair in pairs for each in pair if each for place in each.places}
            scope.taken |= {place for each in right for place in each.places} - equal
        if kind in {"SEMI", "ANTI"}:
            return left
        paired = {
            frozenset((*one.places, *other.places))
            for one, other in pairs
            if kind == "FULL" and one in left and other in right and one.given and other.given
        }
        if kind not in {"INNER", "LEFT", "RIGHT", "FULL"} or tree["ref_type"] == "POSITIONAL":
            return []
        merged = {
            name: _merged_column(kind, one, other)
            for name, (one, other) in zip(using, pairs, strict=False)
            if one is not None and other is not None
        }
        if kind in {"LEFT", "FULL"}:
            right = _not_given(scope, right)
        if kind in {"RIGHT", "FULL"}:
            left = _not_given(scope, left)
        scope.paired |= paired
        visible = list[Visible]()
        for each in (*left, *right):
            if each.bare and each.name in merged:
                if each in left:
                    visible.append(merged[each.name])
                visible.append(replace(each, bare=False))
            else:
                visible.append(each)
        return visible

    def _where(self, scope: Scope, condition: Tree) -> None:
        """Adds the equality of two columns that a `where` condition requires to a scope.

        The condition is true for all rows of the result. Conditions of other kinds are ignored.
        """
        match condition:
            case {"type": "COMPARE_EQUAL", "left": left, "right": right}:
                self._equal(scope, scope.find(left), scope.find(right), to_left=True, to_right=True)
            case {"class": "SUBQUERY", "subquery_type": "ANY", "comparison_type": "COMPARE_EQUAL",
                  "child": child, "subquery": {"node": dict(node)}}:  # fmt: skip
                outputs = self.outputs(node) or []
                names = tuple(name for name, _ in outputs)
                tree = {"type": "SUBQUERY", "subquery": condition["subquery"]}
                found = self._item(scope, tree, "", names, ())
                if len(found) == 1:
                    self._equal(scope, scope.find(child), found[0], to_left=False, to_right=True)

    def _equal(
        self,
        scope: Scope,
        one: Visible | None,
        other: Visible | None,
        *,
        to_left: bool,
        to_right: bool,
    ) -> None:
        """Adds the equality of two columns to a scope, if both columns have the same type.

        With different types, a value is converted before the comparison, so that different values
        may match. `to_right` adds the edge from `one` to `other`, and `to_left` the edge from
        `other` to `one`.
        """
        for left in () if one is None else one.places:
            for right in () if other is None else other.places:
                kinds = {self.kind(scope.items[item], name) for item, name in (left, right)}
                if len(kinds) == 1 and None not in kinds:
                    scope.edges |= (
                        {(left, right)} if to_right and right not in scope.taken else set()
                    )
                    scope.edges |= {(right, left)} if to_left and left not in scope.taken else set()


def _distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Returns a subquery's column names without repetition: a repeated name gets a number."""
    found = list[str]()
    for name in names:
        number, each = 0, name
        while each in found and name:
            number += 1
            each = f"{name}_{number}"
        found.append(each)
    return tuple(found)


def _visible_named(visible: Sequence[Visible], name: str) -> Visible | None:
    found = [each for each in visible if each.bare and each.name == name]
    return found[0] if len(found) == 1 else None


def _merged_column(kind: str, left: Visible, right: Visible) -> Visible:
    """Returns the column into which `using` merges two columns of the same name."""
    if kind == "FULL":
        given = left.given and right.given
        return Visible(left.name, "", (*left.places, *right.places), given)
    side = right if kind == "RIGHT" else left
    return replace(side, alias="")


def _not_given(scope: Scope, visible: Sequence[Visible]) -> list[Visible]:
    """Marks the columns of one side of an outer join as possibly null, and returns them.

    The columns of that side are null in a row that has no match on that side. The function also
    removes these columns from the scope's `paired` columns.
    """
    places = {place for each in visible for place in each.places}
    scope.paired = {pair for pair in scope.paired if not pair & places}
    return [replace(each, given=False) for each in visible]
