"""Random queries of views: joins of all kinds, groups, windows, unions, distinct rows.

Some queries may return either of several rows: `as of` joins, or an order with ties.
"""

from __future__ import annotations

import random

TABLES = {
    "bids": (("auction", "int"), ("bidder", "int"), ("price", "int")),
    "auctions": (("id", "int"), ("category", "int"), ("seller", "int")),
    "persons": (("id", "int"), ("city", "int"), ("born", "int")),
}


class Grammar:
    """Random queries. Each relation is a text with its column names; all columns are integers."""

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
        """Returns a query whose rows depend on an order, which may leave ties."""
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
        """Returns the columns of an `order by`: all or some of these columns."""
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
        """Returns a relation in which no two rows have the same first two columns."""
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
