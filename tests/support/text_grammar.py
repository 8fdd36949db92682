"""Random view texts as people write them: names that shadow others, stars, nested values.

DuckDB may refuse some of the texts. DuckDB is asked which columns a star gives.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.base.duck import DUCKDB_ERRORS
from kappa.base.sql import quoted

if TYPE_CHECKING:
    from kappa.base.duck import Connection

# Columns of the tables, by their types.
TYPED = {
    "bids": {
        "auction": "int", "bidder": "bigint", "price": "decimal(9,2)", "kind": "string",
        "since": "timestamp", "tags": "array<string>",
    },
    "auctions": {
        "id": "int", "category": "string", "seller": "int", "since": "timestamp",
        "box": "struct<w:int,kind:string>",
    },
    "persons": {
        "id": "bigint", "city": "string", "born": "int", "kind": "string", "day": "date",
        "is_new": "boolean",
    },
}  # fmt: skip
_NUMBERS, _TEXTS, _TIMES, _FLAGS = "number", "text", "time", "flag"
_LISTS, _STRUCTS, _OTHERS = "list", "struct", "other"
# By the beginnings of types, Spark's and DuckDB's.
_KINDS = {
    "array": _LISTS, "struct": _STRUCTS, "list": _LISTS, "timestamp": _TIMES, "date": _TIMES,
    "string": _TEXTS, "varchar": _TEXTS, "boolean": _FLAGS, "int": _NUMBERS, "bigint": _NUMBERS,
    "hugeint": _NUMBERS, "decimal": _NUMBERS, "double": _NUMBERS,
}  # fmt: skip
# Names that are columns of tables, names of tables, or words that SQL has for its own.
_ALIASES = (
    "auction", "bidder", "price", "kind", "since", "id", "category", "seller", "city", "born", "n",
    "bids", "persons", "k", "K", "tags", "box", "w", "day", '"order"', '"a b"', '"Kind"',
    '"a.b"', '"x""y"', '"Ä"', '"ä"', '"all"', '"1"', '"*"',
)  # fmt: skip
_WITHOUT_RIGHT = ("semi join", "anti join")

# A column as it is written, with its kind.
Written = tuple[str, str]


@dataclass
class Relation:
    """The text of a `from` clause, and its columns."""

    sql: str
    columns: list[Written]


def bare(name: str) -> str:
    """Returns a written name without its quotes and its qualifier."""
    if (found := re.search(r'"((?:[^"]|"")*)"$', name)) is not None:
        return found[1].replace('""', '"')
    return name.rpartition(".")[2]


def can_be_key(kind: str) -> bool:
    """Returns True if a view can have a column of this kind among its keys."""
    return kind not in {_LISTS, _STRUCTS, _OTHERS}


def _own(name: str) -> str:
    """Returns a written name without its qualifier."""
    found = re.search(r'"(?:[^"]|"")*"$', name)
    return name.rpartition(".")[2] if found is None else found[0]


def _kind(name: str) -> str:
    name = name.lower()
    if name.endswith("[]"):
        return _LISTS
    return next((kind for word, kind in _KINDS.items() if name.startswith(word)), _OTHERS)


class Texts:
    """Queries with names that shadow others; DuckDB may refuse some of them."""

    def __init__(self, seed: int, duck: Connection) -> None:
        """Takes a DuckDB connection with the tables, which have no rows."""
        self.draw = random.Random(seed)
        self._duck = duck
        # Of each table and named subquery in force: its columns with their kinds.
        self._named: dict[str, list[Written]] = {}
        self._tables = {
            table: [(name, _kind(kind)) for name, kind in columns.items()]
            for table, columns in TYPED.items()
        }
        # The named subqueries around what is written.
        self._around: list[str] = []

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def view(self) -> tuple[str, list[Written], bool]:
        """Returns a query, its columns, and whether it groups by all columns that are not computed.

        If it does, these columns may be the keys of the view.
        """
        if self.chance(0.25):
            return self.with_named(1)
        if self.chance(0.02):
            return self.recursive()
        if self.chance(0.4):
            return self.grouped(self.item(0, 1), is_counted=True)
        return self.query(2)

    def over(self, sql: str, columns: list[Written]) -> tuple[str, list[Written], bool]:
        """Returns a query that may read a view with this query and these columns."""
        self._tables["v"] = [(quoted(bare(name)), kind) for name, kind in columns]
        self._around = [f"v as ({sql})"]
        self._likely = ["v"] * 6
        return self.view()

    _likely: Sequence[str] = ()

    def with_named(self, depth: int) -> tuple[str, list[Written], bool]:
        """Returns a query with named subqueries; some have the name of a table."""
        named, around, ctes = dict(self._named), [*self._around], list[str]()
        for _ in range(self.draw.choice([1, 1, 2])):
            name = self.draw.choice([*TYPED, *TYPED, "few", "Bids", '"Ä"', '"ä"'])
            if any(each.startswith((f"{name} ", f"{name}(")) for each in ctes):
                continue
            sql, columns, _ = self.query(depth)
            aliases = ""
            if self.chance(0.2):
                names = [f"c{number}" for number in range(len(columns))]
                if self.chance(0.3):
                    names = self.draw.sample([name for name, _ in columns], len(columns))
                    names = [_own(name) for name in names]
                aliases = f"({', '.join(names)})"
                columns = [(new, kind) for new, (_, kind) in zip(names, columns, strict=True)]
            word = self.draw.choice(["", "", "", "materialized ", "not materialized "])
            ctes.append(f"{name}{aliases} as {word}({sql})")
            self._around.append(ctes[-1])
            self._named = {**self._named, name: columns}
        sql, columns, keys = self.query(depth)
        self._named, self._around = named, around
        if sql.startswith("with "):
            sql = f"({sql})"
        return f"with {', '.join(ctes)} {sql}", columns, keys

    def recursive(self) -> tuple[str, list[Written], bool]:
        """Returns a query that reads itself."""
        one = self.item(0, 1)
        first = f"select {self.column(one, _NUMBERS)} as k from {one.sql}"
        sql = f"with recursive few(k) as ({first} union select k + 1 from few where k < 3)"
        return f"{sql} select k, count(*) as n from few group by k", [("k", _NUMBERS)], True

    def query(self, depth: int) -> tuple[str, list[Written], bool]:
        """Returns a query, its columns with their kinds, and whether some of them are keys."""
        makers = [self.grouped, self.grouped, self.grouped, self.plain, self.windowed, self.starred]
        if depth and self.chance(0.12):
            return self.combined(depth)
        if depth and self.chance(0.08):
            return self.with_named(depth - 1)
        return self.draw.choice(makers)(self.relation(depth))

    def described(self, sql: str) -> list[Written] | None:
        """Returns the columns of a query when it is a subquery, or None if it is invalid."""
        around = f"with {', '.join(self._around)} " if self._around else ""
        with suppress(*DUCKDB_ERRORS):
            found = self._duck.sql(f"{around}select * from ({sql})")
            return [
                (name if re.fullmatch(r"[a-zA-Z_]\w*", name) else quoted(name), _kind(str(kind)))
                for name, kind in zip(found.columns, found.types, strict=True)
            ]
        return None

    # Parts of expressions.

    def column(self, relation: Relation, kind: str | None = None) -> str:
        found = [name for name, each in relation.columns if kind is None or each == kind]
        return self.draw.choice(found) if found else self.literal(kind)

    def literal(self, kind: str | None) -> str:
        if kind == _TEXTS:
            return self.draw.choice(["'1'", "'a'", "''", "null::varchar"])
        if kind == _TIMES:
            return self.draw.choice(["timestamptz '2020-01-02'", "null::timestamptz"])
        if kind == _FLAGS:
            return self.draw.choice(["true", "null::boolean"])
        if kind == _LISTS:
            return "['a']"
        if kind == _STRUCTS:
            return "{'w': 1, 'kind': 'a'}"
        return self.draw.choice(["1", "2", "0", "null::int", "1.5"])

    def expression(self, relation: Relation) -> Written:
        """Returns a column, or an expression of a column, with its kind."""
        if self.chance(0.12):
            return self.nested(relation)
        if self.chance(0.05):
            return self.scalar(relation)
        kind = self.draw.choice(
            [_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _TEXTS, _TEXTS, _TEXTS, _TIMES, _FLAGS]
        )
        one = self.column(relation, kind)
        if self.chance(0.5):
            return one, kind
        if kind == _TEXTS:
            return self.draw.choice(
                [(f"lower({one})", kind), (f"{one} || 'x'", kind), (f"coalesce({one}, 'b')", kind),
                 (f"length({one})", _NUMBERS), (f"nullif({one}, '1')", kind),
                 (f"try_cast({one} as int)", _NUMBERS), (f"{one} = '1'", _FLAGS),
                 (f"coalesce({one}, {self.column(relation, _TEXTS)})", kind)]
            )  # fmt: skip
        if kind == _TIMES:
            return self.draw.choice(
                [(f"date_trunc('day', {one})", kind), (f"cast({one} as date)", kind),
                 (f"{one} + interval 1 day", kind), (f"extract(day from {one})", _NUMBERS)]
            )  # fmt: skip
        if kind == _FLAGS:
            return self.draw.choice([(f"not {one}", kind), (f"{one}::int", _NUMBERS)])
        other = self.column(relation, _NUMBERS)
        return self.draw.choice(
            [(f"abs({one})", kind), (f"-{one}", kind), (f"{one} % 2", kind),
             (f"({one} + {other})", kind), (f"coalesce({one}, 0)", kind),
             (f"coalesce({one}, {other})", kind), (f"greatest({one}, {other})", kind),
             (f"{one} > {other}", _FLAGS), (f"{one}::bigint", kind),
             (f"cast({one} as varchar)", _TEXTS), (f"case when {one} > 1 then {other} end", kind)]
        )  # fmt: skip

    def nested(self, relation: Relation) -> Written:
        """Returns an expression of a list, a struct or a map, or such a value itself."""
        number, text = self.column(relation, _NUMBERS), self.column(relation, _TEXTS)
        one, box = self.column(relation, _LISTS), self.column(relation, _STRUCTS)
        name = self.draw.choice(["k", "x", _own(number)])
        return self.draw.choice(
            [(one, _LISTS), (f"len({one})", _NUMBERS), (f"{one}[1]", _TEXTS),
             (f"list_contains({one}, {text})", _FLAGS), (f"array_to_string({one}, '-')", _TEXTS),
             (f"[each for each in {one} if each <> 'a']", _LISTS),
             (f"[{name} + 1 for {name} in [1, {number}]][2]", _NUMBERS),
             (f"list_transform([1, 2], lambda {name}: {name} + 1)[1]", _NUMBERS),
             (f"list_filter([1, {number}], lambda {name}: {name} > 1)[1]", _NUMBERS),
             (box, _STRUCTS), (f"{box}.w", _NUMBERS), (f"{box}.kind", _TEXTS),
             (f"{box}['kind']", _TEXTS), (f"struct_extract({box}, 'w')", _NUMBERS),
             (f"({{'k': {number}, 'kind': {text}}}).k", _NUMBERS),
             (f"struct_pack(w := {number}, kind := {text})", _STRUCTS),
             (f"map([{number}, 2], ['y', 'z'])[2]", _TEXTS),
             (f"map {{'a': {number}, 'b': 2}}['a']", _NUMBERS),
             (f"cardinality(map {{'a': {number}}})", _NUMBERS),
             (f"unnest({one})", _TEXTS), (f"unnest([{number}, 2])", _NUMBERS)]
        )  # fmt: skip

    def scalar(self, relation: Relation) -> Written:
        """Returns a subquery with one value, which may name columns of the outer query."""
        table, number = self.draw.choice(sorted(TYPED)), self.column(relation, _NUMBERS)
        inner = [name for name, kind in self._tables[table] if kind == _NUMBERS]
        one, other = self.draw.choice(inner), self.draw.choice(inner)
        return self.draw.choice(
            [f"(select max({one}) from {table} where {other} = {number})",
             f"(select count(*) from {table} as q where q.{other} = {number})",
             f"(select max({one}) from {table})",
             f"(with {table} as (select 1 as {one}) select {one} from {table})",
             f"(select count({number}) from {table} as kind)"]
        ), _NUMBERS  # fmt: skip

    def condition(self, relation: Relation, aliases: Sequence[str] = ()) -> str:
        one, kind = self.draw.choice(relation.columns)
        if aliases and self.chance(0.3):
            return f"{self.draw.choice(aliases)} is not null"
        table = self.draw.choice(sorted(TYPED))
        inner = self.draw.choice([name for name, _ in self._tables[table]])
        same = self.draw.choice([n for n, k in self._tables[table] if k == kind] or ["null"])
        number, text = self.column(relation, _NUMBERS), self.column(relation, _TEXTS)
        return self.draw.choice(
            [f"{one} = {self.column(relation, kind)}", f"{one} <> {self.literal(kind)}",
             f"{one} is not null", f"{one} > {self.literal(kind)}",
             f"{one} is distinct from {self.column(relation, kind)}",
             f"{one}::varchar in (select {inner}::varchar from {table})",
             f"{one} in (select {same} from {table})", f"{one} not in (select {same} from {table})",
             f"({one}, {number}) in (select {same}, {same} from {table})",
             f"{one} = (select max({same}) from {table})",
             f"{one} = any (select {same} from {table})",
             f"exists (select 1 from {table} where {inner}::varchar = {one}::varchar)",
             f"not exists (from {table} as x where x.{same} = {one})",
             f"exists (from {table} as x where x.{inner} is not distinct from {one})",
             f"{text} = 1", f"{text} in ('1', {number})", f"{number} = '2'",
             f"{number} between 1 and {self.column(relation, _NUMBERS)}",
             f"coalesce({one} = {self.column(relation, kind)}, true)",
             f"({one} = {self.literal(kind)} or {self.column(relation)} is null)"]
        )  # fmt: skip

    def alias(self, taken: Sequence[str]) -> str:
        return self.draw.choice([each for each in _ALIASES if each.lower() not in taken])

    def listed(self, relation: Relation, count: int) -> list[tuple[str, str, str]]:
        """Returns expressions of a select list, each with its name and its kind."""
        found: list[tuple[str, str, str]] = []
        for _ in range(count):
            expression, kind = self.expression(relation)
            taken = [name.lower() for _, name, _ in found]
            own = _own(expression)
            is_column = expression in {name for name, _ in relation.columns}
            if is_column and own.lower() not in taken and self.chance(0.4):
                found.append((expression, own, kind))
            else:
                found.append((expression, self.alias(taken), kind))
        return found

    def shown(self, listed: Sequence[tuple[str, str, str]]) -> str:
        return ", ".join(
            each
            if _own(each) == name
            else f"{name}: {each}"
            if self.chance(0.05)
            else f"{each} {'' if name in {'n', 'k', 'K', 'price'} else 'as '}{name}"
            for each, name, _ in listed
        )

    # Selects.

    def grouped(
        self, relation: Relation, *, is_counted: bool = False
    ) -> tuple[str, list[Written], bool]:
        groups = self.listed(relation, self.draw.choice([1, 1, 2]))
        computed = []
        for _ in range(self.draw.choice([1, 1, 2])):
            one, other = self.column(relation, _NUMBERS), self.column(relation)
            name = self.alias([each.lower() for _, each, _ in (*groups, *computed)])
            where = self.condition(relation)
            counted = [
                "count(*)", f"count({other})", f"sum({one})", f"max({other})",
                f"sum({one}) filter ({where})", f"sum({one}) filter (where {where})",
                f"coalesce(sum({one}), 0) + count(*)", f"{groups[0][0]}",
                f"coalesce({groups[-1][0]}::varchar, '') || count(*)",
                f"list_transform([count(*)], lambda {groups[0][1]}: {groups[0][1]} + 1)[1]",
                f"case when {groups[0][0]} is null then 0 else count({other}) end",
            ]  # fmt: skip
            made = self.draw.choice(
                counted
                if is_counted
                else [*counted, f"sum(distinct {one})", f"min({other})", f"count(distinct {other})",
                      f"avg({one})", f"bool_or({where})", f"count_if({where})",
                      f"list({other} order by {other})", f"arg_max({one}, {one} order by {one})",
                      f"list(distinct {other} order by {other})[1]", f"median({one})",
                      f"bit_xor({one}::int)", f"max({{'k': {one}}}).k", f"max([{one}])[1]",
                      f"count(*) filter (where {other} is null)"]
            )  # fmt: skip
            computed.append((made, name, _NUMBERS))
        listed = [*groups, *computed]
        if self.chance(0.3):
            self.draw.shuffle(listed)
        places = [str(listed.index(each) + 1) for each in groups]
        both = ", ".join(each for each, _, _ in groups)
        by = self.draw.choice(
            ["all", ", ".join(name for _, name, _ in groups), both, ", ".join(places),
             ", ".join(name for _, name, _ in groups), f"({both})",
             ", ".join([groups[0][1], *places[1:]]),
             f"{', '.join(places)}, {self.draw.choice(['true', '1.0', '1.5', '1::int', '-1'])}",
             f"{', '.join(places)}, {self.column(relation)}"]
        )  # fmt: skip
        if not is_counted and self.chance(0.05):
            by = self.draw.choice([f"rollup ({both})", f"cube ({both})",
                                   f"grouping sets (({both}), ({groups[0][0]}))"])  # fmt: skip
        names = [name for _, name, _ in listed]
        having = self.draw.choice(
            ["", "", "", "", " having count(*) > 1", f" having {names[0]} is not null",
             f" having {computed[0][1]} > 1", f" having max({names[0]}) is not null",
             f" having {self.draw.choice(names)} is not null"]
        )  # fmt: skip
        having = "" if is_counted and self.chance(0.9) else having
        order = f" order by {self.draw.choice([*names, '1', 'all'])}" if self.chance(0.1) else ""
        where = f" where {self.condition(relation, names)}" if self.chance(0.4) else ""
        return (
            self.select("", self.shown(listed), relation, f"{where} group by {by}{having}{order}"),
            [(name, kind) for _, name, kind in listed],
            True,
        )

    def select(self, word: str, shown: str, relation: Relation, rest: str) -> str:
        """Returns a select in one of its two forms (`select` first or `from` first)."""
        if self.chance(0.05):
            return f"from {relation.sql} select {word}{shown}{rest}"
        return f"select {word}{shown} from {relation.sql}{rest}"

    def plain(self, relation: Relation) -> tuple[str, list[Written], bool]:
        listed = self.listed(relation, self.draw.choice([1, 2, 2, 3]))
        names = [name for _, name, _ in listed]
        where = f" where {self.condition(relation, names)}" if self.chance(0.5) else ""
        word, order = "", ""
        if self.chance(0.25):
            word = "distinct "
        elif self.chance(0.25):
            on = self.draw.choice([names[0], "1", listed[-1][0], names[-1], listed[0][0]])
            by = self.draw.choice([", ".join(names), "all", ", ".join(reversed(names))])
            word, order = f"distinct on ({on}) ", f" order by {by}"
        elif self.chance(0.1):
            by = self.draw.choice([", ".join(names), f"{names[-1]} desc nulls last, 1, 2", "all"])
            order = f" order by {by} limit {self.draw.choice(['2', '2 offset 1', '1 + 1'])}"
        return (
            self.select(word, self.shown(listed), relation, f"{where}{order}"),
            [(name, kind) for _, name, kind in listed],
            False,
        )

    def windowed(self, relation: Relation) -> tuple[str, list[Written], bool]:
        listed = self.listed(relation, 2)
        by = self.draw.choice([listed[0][0], listed[0][1], listed[1][1], self.column(relation)])
        order = self.draw.choice([listed[1][1], self.column(relation), listed[0][1]])
        where = f" where {self.condition(relation)}" if self.chance(0.3) else ""
        over, window = f"(partition by {by} order by {order})", ""
        if self.chance(0.15):
            over, window = "k", f" window k as {over}"
        named = [(name, kind) for _, name, kind in listed]
        if self.chance(0.5):
            made = self.draw.choice(["rank()", "count(*)", f"max({self.column(relation)})"])
            qualify = f"qualify {made} over {over} is not distinct from 1"
            if "max" in made:
                qualify = f"qualify {made} over {over} = {self.column(relation)}"
            rest = f"{where}{window} {qualify}"
            return self.select("", self.shown(listed), relation, rest), named, False
        name = self.alias([each.lower() for _, each, _ in listed])
        number = self.column(relation, _NUMBERS)
        made = self.draw.choice(
            ["rank()", "count(*)", f"sum({number})", "dense_rank()",
             f"sum({number}) filter ({self.condition(relation)})", f"count(distinct {number})"]
        )  # fmt: skip
        qualify = f" qualify {name} = 1" if self.chance(0.3) else ""
        shown = f"{self.shown(listed)}, {made} over {over} as {name}"
        return (
            self.select("", shown, relation, f"{where}{window}{qualify}"),
            [*named, (name, _NUMBERS)],
            False,
        )

    def starred(self, relation: Relation) -> tuple[str, list[Written], bool]:
        """Returns a query with a star in its select list."""
        where = f" where {self.condition(relation)}" if self.chance(0.5) else ""
        (one, _), (other, _) = (self.draw.choice(relation.columns) for _ in range(2))
        prefix = other.removesuffix(_own(other))
        expression, _ = self.expression(relation)
        stars = [
            "*", "*", f"{prefix}*", f"* exclude ({_own(one)})", f"* exclude ({one})",
            f"{prefix}* exclude ({_own(other)})", f"* exclude ({one}, {_own(other)})",
            f"* replace ({expression} as {_own(one)})", f"* rename ({_own(one)} as k)",
            f"{prefix}* rename ({other} as {self.alias(())})", "columns(*)", "columns('i.*')",
            f"columns(c -> c <> '{bare(one)}')", f"*, {expression} as k", f"{expression} as k, *",
            f"{prefix}*, {one} as K", "* like '%i%'",
            f"* exclude ({_own(one)}) replace ({expression} as {_own(other)})",
        ]  # fmt: skip
        word = self.draw.choice(["", "", "", "distinct "])
        sql = self.select(word, self.draw.choice(stars), relation, where)
        if self.chance(0.1):
            sql = f"from {relation.sql}{where}"
        elif self.chance(0.1):
            sql = f"select {prefix}*, count(*) as n from {relation.sql}{where} group by all"
        found = self.described(sql)
        return self.plain(relation) if found is None else (sql, found, False)

    def combined(self, depth: int) -> tuple[str, list[Written], bool]:
        word = self.draw.choice(
            ["union all", "union all", "union", "except", "intersect", "except all",
             "union by name", "union all by name"]
        )  # fmt: skip
        sides = []
        for _ in range(2):
            relation = self.relation(depth - 1)
            sides.append(
                f"select {self.column(relation, _NUMBERS)} as k, {self.column(relation, _TEXTS)}"
                f" as {self.draw.choice(['kind', 'k2'])} from {relation.sql}"
                + self.draw.choice(["", f" where {self.condition(relation, ['k', 'k2', 'kind'])}"])
            )
        sql = f" {word} ".join(sides)
        if self.chance(0.1):
            sql = f"{sql} order by 1, 2 limit 3"
        return sql, self.described(sql) or [("k", _NUMBERS)], False

    # Relations.

    def item(self, depth: int, number: int) -> Relation:
        if depth and self.chance(0.25):
            sql, columns, _ = self.query(depth - 1)
            alias = self.draw.choice([f"s{number}", f"s{number}", "kind", "bids"])
            rest = [
                (f"{alias}.{name}" if self.chance(0.7) else name, kind) for name, kind in columns
            ]
            return Relation(f"({sql}) as {alias}", rest)
        if number > 1 and self.chance(0.05):
            columns = [(f"t{number}.auction", _NUMBERS), ("kind", _TEXTS)]
            return Relation(f"(values (1, '1'), (2, null)) as t{number}(auction, kind)", columns)
        known = {**self._tables, **self._named}
        table = self.draw.choice([*TYPED, *TYPED, *self._named, *self._likely])
        columns = known[table]
        word = table
        if table.isidentifier():
            word = self.draw.choice([table, table, table.upper(), f'"{table}"'])
        # An alias may be the name of another table, or that of a column.
        alias = self.draw.choice(
            ["", "", f"t{number}", f"T{number}", "kind", "bids", "persons", "box"]
        )
        name, given = alias or word, ""
        if alias and self.chance(0.08):
            # The first columns have other names.
            renamed = self.draw.sample(["auction", "id", "kind", "c1", "seller"], 2)
            columns = [*zip(renamed, [k for _, k in columns], strict=False), *columns[2:]]
            given = f"({', '.join(renamed[: len(columns)])})"
        written = [
            (self.draw.choice([f"{name}.{column}", f"{name}.{column}", column]), kind)
            for column, kind in columns
        ]
        if self.chance(0.05):
            written = [(each.upper(), kind) if '"' not in each else (each, kind)
                       for each, kind in written]  # fmt: skip
        return Relation(f"{word} as {alias}{given}" if alias else word, written)

    def relation(self, depth: int) -> Relation:
        left = self.item(depth, 1)
        for number in range(2, 2 + self.draw.choice([0, 0, 0, 1, 1, 2])):
            left = self.joined(left, self.item(depth, number))
        if self.chance(0.03):
            left = self.lateral(left)
        return left

    def lateral(self, left: Relation) -> Relation:
        """Returns a relation joined with a relation that is computed for each of its rows."""
        one, number = self.column(left, _LISTS), self.column(left, _NUMBERS)
        return self.draw.choice(
            [Relation(f"{left.sql}, unnest({one}) as u(tag)", [*left.columns, ("u.tag", _TEXTS)]),
             Relation(f"{left.sql}, lateral (select {number} + 1 as k) as u",
                      [*left.columns, ("u.k", _NUMBERS)]),
             Relation(f"{left.sql}, lateral (select count(*) as k from bids as q"
                      f" where q.auction = {number}) as u", [*left.columns, ("u.k", _NUMBERS)])]
        )  # fmt: skip

    def joined(self, left: Relation, right: Relation) -> Relation:
        word = self.draw.choice(
            ["join", "join", "left join", "right join", "full join", "full join", "semi join",
             "anti join", "cross join", "natural join", "natural full join", "asof join",
             "asof left join", ","]
        )  # fmt: skip
        both = [*left.columns, *right.columns]
        if word in {"cross join", "natural join", "natural full join", ","}:
            return Relation(f"{left.sql} {word} {right.sql}", both)
        names = [[_own(name).lower() for name, _ in side.columns] for side in (left, right)]
        shared = sorted(set(names[0]) & set(names[1]))
        if shared and self.chance(0.5) and not word.startswith("asof"):
            using = self.draw.sample(shared, min(len(shared), self.draw.choice([1, 1, 2])))
            merged = [
                next((n, k) for (_, k), n in zip(left.columns, names[0], strict=True) if n == name)
                for name in using
            ]
            columns = [*(left.columns if word in _WITHOUT_RIGHT else both), *merged]
            return Relation(f"{left.sql} {word} {right.sql} using ({', '.join(using)})", columns)
        kind = self.draw.choice([_NUMBERS, _NUMBERS, _TEXTS])
        one, other = self.column(left, kind), self.column(right, kind)
        if self.chance(0.1):
            # A text is compared with a number: DuckDB converts it.
            other = self.column(right)
        on = f"{one} = {other}"
        if word.startswith("asof"):
            kind = self.draw.choice([_TIMES, _NUMBERS])
            on += f" and {self.column(left, kind)} >= {self.column(right, kind)}"
        elif self.chance(0.05):
            on = f"{one} is not distinct from {other}"
        elif self.chance(0.2):
            on += f" and {self.column(left)} is not null"
        columns = left.columns if word in _WITHOUT_RIGHT else both
        return Relation(f"{left.sql} {word} {right.sql} on {on}", [*columns])
