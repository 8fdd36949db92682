"""Random queries of views: joins of all kinds, groups, windows, unions, distinct rows.

Some of them may take either of several rows: `as of`, or by an order that leaves ties.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

TABLES = {
    "bids": (("auction", "int"), ("bidder", "int"), ("price", "int")),
    "auctions": (("id", "int"), ("category", "int"), ("seller", "int")),
    "persons": (("id", "int"), ("city", "int"), ("born", "int")),
}


class Grammar:
    """Random queries; each relation is a text with the names of its columns, all whole numbers."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._names = 0
        # Of how many items of joins it is in one.
        self._within = 0

    def query(self, depth: int) -> tuple[str, list[str]]:
        """Returns a query and its columns."""
        kind = self.draw.choice(
            ["plain", "plain", "grouped", "distinct", "windowed", "union", "on", "ordered"]
        )
        if kind == "union" and depth:
            parts = [self.select(depth - 1) for _ in range(2)]
            width = min(len(columns) for _, columns in parts)
            word = self.draw.choice(["union all", "union", "except", "intersect", "except all"])
            columns = parts[0][1][:width]
            sides = [f"(select {', '.join(names[:width])} from ({sql}))" for sql, names in parts]
            return f" {word} ".join(sides), columns
        return self.select(depth, kind)

    def select(self, depth: int, kind: str = "plain") -> tuple[str, list[str]]:
        relation, columns = self.relation(depth)
        chosen = self.draw.sample(columns, min(len(columns), self.draw.choice([1, 2, 3])))
        names = [self.name() for _ in chosen]
        listed = ", ".join(f"{c} as {n}" for c, n in zip(chosen, names, strict=True))
        where = f" where {self.condition(columns)}" if self.draw.random() < 0.5 else ""
        other = self.draw.choice(columns)
        if kind == "grouped":
            group = self.draw.choice([", ".join(chosen), "all", ", ".join(names), "1"])
            if group == "1":
                listed, names = f"{chosen[0]} as {names[0]}", names[:1]
            having = self.draw.choice(["", "", " having count(*) > 1"])
            made = self.draw.choice([f"count({other})", f"max({other})", "count(*)"])
            return (
                f"select {listed}, {made} as made from {relation}{where} group by {group}{having}",
                [*names, "made"],
            )
        if kind == "windowed":
            part = ", ".join(self.draw.sample(columns, self.draw.choice([0, 1, 2][: len(columns)])))
            over = f"{f'partition by {part} ' if part else ''}order by {other}"
            if self.draw.random() < 0.5:
                return (
                    f"select {listed} from {relation}{where} qualify rank() over ({over}) = 1",
                    names,
                )
            return f"select {listed}, rank() over ({over}) as made from {relation}{where}", [
                *names,
                "made",
            ]
        if kind == "ordered":
            return self.ordered(f"{relation}{where}", columns, chosen, names)
        if kind == "on":
            order = self.order(columns)
            rows = f"select distinct on ({chosen[0]}) {listed} from {relation}{where}"
            return f"{rows} order by {order}", names
        word = "distinct " if kind == "distinct" else ""
        return f"select {word}{listed} from {relation}{where}", names

    def ordered(
        self, rows: str, columns: list[str], chosen: list[str], names: list[str]
    ) -> tuple[str, list[str]]:
        """Returns a query whose rows an order decides, or leaves open."""
        listed = ", ".join(f"{c} as {n}" for c, n in zip(chosen, names, strict=True))
        order, one, other = self.order(columns), self.draw.choice(columns), self.draw.choice(chosen)
        kinds = [
            f"first({one} order by {order})",
            f"arg_max({one}, {other} order by {order})",
            f"row_number() over (partition by {other} order by {order})",
            f"lag({one}) over (order by {order})",
            f"first_value({one}) over (partition by {other} order by {order})",
            f"max({one}) over (order by {order} rows between 1 preceding and current row)",
        ]
        # DuckDB 1.5 takes rows by the other side of a join before a limit within that, and so finds
        # others (its pull request 22963 mends this).
        made = self.draw.choice(kinds if self._within else ["limit", *kinds])
        if made == "limit":
            return f"select {listed} from {rows} order by {order} limit 2", names
        group = "" if "over" in made else " group by all"
        return f"select {listed}, {made} as made from {rows}{group}", [*names, "made"]

    def order(self, columns: list[str]) -> str:
        """Returns all of certain columns, or some."""
        some = self.draw.choice([len(columns), self.draw.randrange(len(columns)) + 1])
        return ", ".join(self.draw.sample(columns, some))

    def relation(self, depth: int) -> tuple[str, list[str]]:
        left, columns = self.item(depth)
        for _ in range(self.draw.choice([0, 1, 1, 2])):
            right, others = self.item(depth)
            kind = self.draw.choice(
                ["join", "left join", "right join", "full join", "semi join", "anti join",
                 "asof join", "asof left join", "cross join", "using"]
            )  # fmt: skip
            if kind == "cross join":
                left, columns = f"{left} cross join {right}", [*columns, *others]
                continue
            if kind == "using":
                # Both sides under one name.
                name = self.name()
                a, b = self.draw.choice(columns), self.draw.choice(others)
                rest, more = self.name(), self.name()
                word = self.draw.choice(["", "left ", "right ", "full ", "semi ", "anti "])
                left = (
                    f"(select {a} as {name}, {self.draw.choice(columns)} as {rest} from {left})"
                    f" {word}join (select {b} as {name}, {self.draw.choice(others)} as {more}"
                    f" from {right}) using ({name})"
                )
                columns = [name, rest] if word in {"semi ", "anti "} else [name, rest, more]
                continue
            one, other = self.draw.choice(others), self.draw.choice(others)
            if kind.startswith("asof") and self.draw.random() < 0.5:
                right, (one, other, *rest) = self.one_of_each()
                others = [one, other, *rest]
            on = f"{self.draw.choice(columns)} = {one}"
            if kind.startswith("asof"):
                on += f" and {self.draw.choice(columns)} >= {other}"
            elif self.draw.random() < 0.3:
                on += f" and {self.draw.choice(columns)} <= {self.draw.choice(others)}"
            left = f"{left} {kind} {right} on {on}"
            if kind == "full join" and self.draw.random() < 0.5:
                one, _, other = on.partition(" and ")[0].partition(" = ")
                name = self.name()
                left, columns = (
                    f"(select coalesce({one}, {other}) as {name}, * from {left}) as {self.name()}",
                    [name],
                )
            elif kind not in {"semi join", "anti join"}:
                columns = [*columns, *others]
        return left, columns

    def one_of_each(self) -> tuple[str, list[str]]:
        """Returns a relation of which no two rows share the first two columns."""
        alias, table = self.name(), self.draw.choice(sorted(TABLES))
        names = [name for name, _ in TABLES[table]]
        if table == "bids":
            one, other, rest = self.draw.sample(names, 3)
            rows = f"(select {one}, {other}, max({rest}) as {rest} from bids group by all)"
            return f"{rows} as {alias}", [f"{alias}.{name}" for name in (one, other, rest)]
        return f"{table} as {alias}", [f"{alias}.{name}" for name in names]

    def item(self, depth: int) -> tuple[str, list[str]]:
        alias = self.name()
        if depth and self.draw.random() < 0.4:
            self._within += 1
            sql, columns = self.query(depth - 1)
            self._within -= 1
            return f"({sql}) as {alias}", [f"{alias}.{name}" for name in columns]
        table = self.draw.choice(sorted(TABLES))
        return f"{table} as {alias}", [f"{alias}.{name}" for name, _ in TABLES[table]]

    def condition(self, columns: list[str]) -> str:
        one, other = self.draw.choice(columns), self.draw.choice(columns)
        table = self.draw.choice(sorted(TABLES))
        inner = self.draw.choice(TABLES[table])[0]
        return self.draw.choice(
            [f"{one} = {other}", f"{one} > 1", f"{one} is null",
             f"{one} in (select {inner} from {table})",
             f"{one} not in (select {inner} from {table})",
             f"exists (select 1 from {table} as _x where _x.{inner} = {one})",
             f"{one} = {other} and {one} in (select {inner} from {table})"]
        )  # fmt: skip

    def name(self) -> str:
        self._names += 1
        return f"n{self._names}"


# Columns of the tables of `Texts`, by what they are: numbers, texts and times.
TYPED = {
    "bids": {
        "auction": "int", "bidder": "bigint", "price": "decimal(9,2)", "kind": "string",
        "since": "timestamp",
    },
    "auctions": {"id": "int", "category": "string", "seller": "int", "since": "timestamp"},
    "persons": {"id": "bigint", "city": "string", "born": "int", "kind": "string"},
}  # fmt: skip
_NUMBERS, _TEXTS, _TIMES = "number", "text", "time"
_KINDS = {
    "int": _NUMBERS,
    "bigint": _NUMBERS,
    "decimal(9,2)": _NUMBERS,
    "string": _TEXTS,
    "timestamp": _TIMES,
}
# Names that are columns of tables, names of tables, or words that SQL has for its own.
_ALIASES = (
    "auction", "bidder", "price", "kind", "since", "id", "category", "seller", "city", "born", "n",
    "bids", "persons", "k", "K", '"order"', '"a b"', '"Kind"',
)  # fmt: skip


class Relation:
    """The text of a `from` clause, and its columns: each as it is written, with its kind."""

    def __init__(self, sql: str, columns: list[tuple[str, str]]) -> None:
        self.sql = sql
        self.columns = columns


class Texts:
    """Queries as people write them, with names that shadow others; DuckDB may refuse some."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        # Of each named subquery in force: its columns with their kinds.
        self._named: dict[str, list[tuple[str, str]]] = {}

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def view(self) -> tuple[str, list[str], bool]:
        """Returns a query, its columns, and whether it groups rows by all those but computed ones.

        Its keys may then be the others.
        """
        if self.chance(0.25):
            return self.with_named()
        if self.chance(0.35):
            sql, columns, keys = self.grouped(self.item(0, 1), is_counted=True)
        else:
            sql, columns, keys = self.query(2)
        return sql, [name for name, _ in columns], keys

    def with_named(self) -> tuple[str, list[str], bool]:
        """Returns a query with named subqueries, of which some have a table's name."""
        ctes = []
        for _ in range(self.draw.choice([1, 1, 2])):
            name = self.draw.choice([*TYPED, *TYPED, "few", "Bids"])
            if name.lower() in self._named:
                continue
            sql, columns, _ = self.query(1)
            aliases = ""
            if self.chance(0.2):
                renamed = [f"c{number}" for number in range(len(columns))]
                aliases = f"({', '.join(renamed)})"
                columns = [(new, kind) for new, (_, kind) in zip(renamed, columns, strict=True)]
            ctes.append(f"{name}{aliases} as {self.draw.choice(['', '', 'materialized '])}({sql})")
            self._named[name.lower()] = columns
        sql, columns, keys = self.query(1)
        self._named = {}
        return f"with {', '.join(ctes)} {sql}", [name for name, _ in columns], keys

    def query(self, depth: int) -> tuple[str, list[tuple[str, str]], bool]:
        """Returns a query, its columns with their kinds, and whether some of them are keys."""
        makers = [self.grouped, self.grouped, self.grouped, self.plain, self.windowed, self.starred]
        if depth and self.chance(0.12):
            return self.combined(depth)
        return self.draw.choice(makers)(self.relation(depth))

    # Parts of expressions.

    def column(self, relation: Relation, kind: str | None = None) -> str:
        found = [name for name, each in relation.columns if kind is None or each == kind]
        return self.draw.choice(found) if found else self.literal(kind)

    def literal(self, kind: str | None) -> str:
        if kind == _TEXTS:
            return self.draw.choice(["'1'", "'a'", "''", "null::varchar"])
        if kind == _TIMES:
            return self.draw.choice(["timestamptz '2020-01-02'", "null::timestamptz"])
        return self.draw.choice(["1", "2", "0", "null::int", "1.5"])

    def expression(self, relation: Relation) -> tuple[str, str]:
        """Returns a column or a value that is computed from one, with its kind."""
        kind = self.draw.choice([_NUMBERS, _NUMBERS, _NUMBERS, _TEXTS, _TEXTS, _TIMES])
        one = self.column(relation, kind)
        if self.chance(0.5):
            return one, kind
        if kind == _TEXTS:
            return self.draw.choice(
                [(f"lower({one})", kind), (f"{one} || 'x'", kind), (f"coalesce({one}, 'b')", kind),
                 (f"length({one})", _NUMBERS), (f"nullif({one}, '1')", kind)]
            )  # fmt: skip
        if kind == _TIMES:
            return self.draw.choice(
                [(f"date_trunc('day', {one})", kind), (f"cast({one} as date)", kind),
                 (f"{one} + interval 1 day", kind), (f"extract(day from {one})", _NUMBERS)]
            )  # fmt: skip
        other = self.column(relation, _NUMBERS)
        return self.draw.choice(
            [(f"abs({one})", kind), (f"-{one}", kind), (f"{one} % 2", kind),
             (f"({one} + {other})", kind), (f"coalesce({one}, 0)", kind),
             (f"cast({one} as varchar)", _TEXTS), (f"case when {one} > 1 then {other} end", kind)]
        )  # fmt: skip

    def condition(self, relation: Relation, aliases: Sequence[str] = ()) -> str:
        one, kind = self.draw.choice(relation.columns)
        if aliases and self.chance(0.3):
            return f"{self.draw.choice(aliases)} is not null"
        table = self.draw.choice(sorted(TYPED))
        inner = self.draw.choice([*TYPED[table]])
        return self.draw.choice(
            [f"{one} = {self.column(relation, kind)}", f"{one} <> {self.literal(kind)}",
             f"{one} is not null", f"{one} > {self.literal(kind)}",
             f"{one} is distinct from {self.column(relation, kind)}",
             f"{one}::varchar in (select {inner}::varchar from {table})",
             f"exists (select 1 from {table} where {inner}::varchar = {one}::varchar)",
             f"exists (from {table} as x where x.{inner} is not distinct from {one})",
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
            own = expression.rpartition(".")[2]
            is_column = expression in {name for name, _ in relation.columns}
            if is_column and own.lower() not in taken and self.chance(0.4):
                found.append((expression, own, kind))
            else:
                found.append((expression, self.alias(taken), kind))
        return found

    def shown(self, listed: Sequence[tuple[str, str, str]]) -> str:
        return ", ".join(
            each if each.rpartition(".")[2] == name else f"{each} as {name}"
            for each, name, _ in listed
        )

    # Selects.

    def grouped(
        self, relation: Relation, *, is_counted: bool = False
    ) -> tuple[str, list[tuple[str, str]], bool]:
        groups = self.listed(relation, self.draw.choice([1, 1, 2]))
        computed = []
        for _ in range(self.draw.choice([1, 1, 2])):
            one, other = self.column(relation, _NUMBERS), self.column(relation)
            name = self.alias([each.lower() for _, each, _ in (*groups, *computed)])
            counted = [
                "count(*)", f"count({other})", f"sum({one})", f"max({other})",
                f"sum({one}) filter ({self.condition(relation)})",
                f"coalesce(sum({one}), 0) + count(*)", f"{groups[0][0]}",
            ]  # fmt: skip
            made = self.draw.choice(
                counted
                if is_counted
                else ["count(*)", f"count({other})", f"sum({one})", f"sum(distinct {one})",
                 f"max({other})", f"min({other})", f"count(distinct {other})",
                 f"sum({one}) filter ({self.condition(relation)})",
                 f"coalesce(sum({one}), 0) + count(*)",
                 f"{groups[0][0]}", f"count(*) filter (where {other} is null)"]
            )  # fmt: skip
            computed.append((made, name, _NUMBERS))
        listed = [*groups, *computed]
        if self.chance(0.3):
            self.draw.shuffle(listed)
        places = [str(listed.index(each) + 1) for each in groups]
        by = self.draw.choice(
            ["all", ", ".join(name for _, name, _ in groups),
             ", ".join(each for each, _, _ in groups), ", ".join(places),
             ", ".join(name for _, name, _ in groups), f"({', '.join(e for e, *_ in groups)})",
             ", ".join([groups[0][1], *places[1:]]),
             f"{', '.join(places)}, {self.draw.choice(['true', '1.0', '1.5'])}",
             f"{', '.join(places)}, {self.column(relation)}"]
        )  # fmt: skip
        names = [name for _, name, _ in listed]
        having = self.draw.choice(
            ["", "", "", "", " having count(*) > 1", f" having {names[0]} is not null",
             f" having {self.draw.choice(names)} is not null"]
        )  # fmt: skip
        having = "" if is_counted and self.chance(0.9) else having
        order = f" order by {self.draw.choice([*names, '1', 'all'])}" if self.chance(0.1) else ""
        where = f" where {self.condition(relation, names)}" if self.chance(0.4) else ""
        return (
            f"select {self.shown(listed)} from {relation.sql}{where} group by {by}{having}{order}",
            [(name, kind) for _, name, kind in listed],
            True,
        )

    def plain(self, relation: Relation) -> tuple[str, list[tuple[str, str]], bool]:
        listed = self.listed(relation, self.draw.choice([1, 2, 2, 3]))
        names = [name for _, name, _ in listed]
        where = f" where {self.condition(relation, names)}" if self.chance(0.5) else ""
        word, order = "", ""
        if self.chance(0.25):
            word = "distinct "
        elif self.chance(0.25):
            on = self.draw.choice([names[0], "1", listed[-1][0], names[-1], listed[0][0]])
            word, order = f"distinct on ({on}) ", f" order by {', '.join(names)}"
        elif self.chance(0.1):
            order = f" order by {', '.join(names)} limit 2"
        return (
            f"select {word}{self.shown(listed)} from {relation.sql}{where}{order}",
            [(name, kind) for _, name, kind in listed],
            False,
        )

    def windowed(self, relation: Relation) -> tuple[str, list[tuple[str, str]], bool]:
        listed = self.listed(relation, 2)
        by = self.draw.choice([listed[0][0], listed[0][1], listed[1][1], self.column(relation)])
        order = self.draw.choice([listed[1][1], self.column(relation), listed[0][1]])
        where = f" where {self.condition(relation)}" if self.chance(0.3) else ""
        over = f"(partition by {by} order by {order})"
        if self.chance(0.5):
            named = [(name, kind) for _, name, kind in listed]
            made = self.draw.choice(["rank()", "count(*)", f"max({self.column(relation)})"])
            qualify = f"qualify {made} over {over} is not distinct from 1"
            if "max" in made:
                qualify = f"qualify {made} over {over} = {self.column(relation)}"
            return f"select {self.shown(listed)} from {relation.sql}{where} {qualify}", named, False
        name = self.alias([each.lower() for _, each, _ in listed])
        made = self.draw.choice(["rank()", "count(*)", f"sum({self.column(relation, _NUMBERS)})"])
        return (
            f"select {self.shown(listed)}, {made} over {over} as {name} from {relation.sql}{where}",
            [*((each, kind) for _, each, kind in listed), (name, _NUMBERS)],
            False,
        )

    def starred(self, relation: Relation) -> tuple[str, list[tuple[str, str]], bool]:
        """Returns a query whose columns are those of its relation, if no two have one name."""
        names = [name.rpartition(".")[2] for name, _ in relation.columns]
        kinds = [kind for _, kind in relation.columns]
        if len({name.lower() for name in names}) < len(names) or " using (" in relation.sql:
            return self.plain(relation)
        where = f" where {self.condition(relation)}" if self.chance(0.5) else ""
        star = self.draw.choice(["select * from", "from", "select distinct * from"])
        if self.chance(0.3) and len(names) > 1:
            star = f"select * exclude ({names[0]}) from"
            names, kinds = names[1:], kinds[1:]
        return f"{star} {relation.sql}{where}", list(zip(names, kinds, strict=True)), False

    def combined(self, depth: int) -> tuple[str, list[tuple[str, str]], bool]:
        word = self.draw.choice(["union all", "union", "except", "intersect", "union all"])
        sides = []
        for _ in range(2):
            relation = self.relation(depth - 1)
            sides.append(
                f"select {self.column(relation, _NUMBERS)} as k, {self.column(relation, _TEXTS)}"
                f" as {self.draw.choice(['kind', 'k2'])} from {relation.sql}"
                + self.draw.choice(["", f" where {self.condition(relation, ['k', 'k2', 'kind'])}"])
            )
        first = "kind" if " as kind from" in sides[0] else "k2"
        return f" {word} ".join(sides), [("k", _NUMBERS), (first, _TEXTS)], False

    # Relations.

    def item(self, depth: int, number: int) -> Relation:
        if depth and self.chance(0.25):
            sql, columns, _ = self.query(depth - 1)
            alias = f"s{number}"
            rest = [
                (f"{alias}.{name}" if self.chance(0.7) else name, kind) for name, kind in columns
            ]
            return Relation(f"({sql}) as {alias}", rest)
        table = self.draw.choice([*TYPED, *TYPED, *self._named])
        columns = self._named.get(table) or [
            (name, _KINDS[kind]) for name, kind in TYPED[table].items()
        ]
        word = self.draw.choice([table, table, table.upper(), f'"{table}"'])
        # An alias may be the name of another table, or that of a column.
        alias = self.draw.choice(["", "", f"t{number}", f"T{number}", "kind", "bids", "persons"])
        name = alias or word
        written = [
            (self.draw.choice([f"{name}.{column}", f"{name}.{column}", column]), kind)
            for column, kind in columns
        ]
        return Relation(f"{word} as {alias}" if alias else word, written)

    def relation(self, depth: int) -> Relation:
        left = self.item(depth, 1)
        for number in range(2, 2 + self.draw.choice([0, 0, 0, 1, 1, 2])):
            left = self.joined(left, self.item(depth, number))
        return left

    def joined(self, left: Relation, right: Relation) -> Relation:
        word = self.draw.choice(
            ["join", "join", "left join", "right join", "full join", "full join", "semi join",
             "anti join", "cross join", "natural join", "asof join", "asof left join"]
        )  # fmt: skip
        both = [*left.columns, *right.columns]
        if word in {"cross join", "natural join"}:
            return Relation(f"{left.sql} {word} {right.sql}", both)
        names = [
            [name.rpartition(".")[2].lower() for name, _ in side.columns] for side in (left, right)
        ]
        shared = sorted(set(names[0]) & set(names[1]))
        if shared and self.chance(0.5) and not word.startswith("asof"):
            name = self.draw.choice(shared)
            kind = next(k for (n, k), m in zip(left.columns, names[0], strict=True) if m == name)
            columns = [
                *(left.columns if word in {"semi join", "anti join"} else both),
                (name, kind),
            ]
            return Relation(f"{left.sql} {word} {right.sql} using ({name})", columns)
        kind = self.draw.choice([_NUMBERS, _NUMBERS, _TEXTS])
        one, other = self.column(left, kind), self.column(right, kind)
        if self.chance(0.1):
            # A text is compared with a number: DuckDB converts it.
            other = self.column(right)
        on = f"{one} = {other}"
        if word.startswith("asof"):
            kind = self.draw.choice([_TIMES, _NUMBERS])
            on += f" and {self.column(left, kind)} >= {self.column(right, kind)}"
        elif self.chance(0.2):
            on += f" and {self.column(left)} is not null"
        columns = left.columns if word in {"semi join", "anti join"} else both
        return Relation(f"{left.sql} {word} {right.sql} on {on}", [*columns])
