"""Random queries with nested names: `with`, subqueries, set operations and shadowing.

Each relation has one column `n`. Each name of a `with` is used, so DuckDB looks up all names.
"""

from __future__ import annotations

from hypothesis import strategies as st

# Allowed, not allowed, and those of the queries' own. Only letters of ASCII have a case in DuckDB:
# the last one is a Kelvin sign, which Python takes for a k.
ALLOWED = "ok"
HIDDEN = "hidden"
NAMES = (ALLOWED, "OK", HIDDEN, "Hidden", "a", "A", "b", "k", '"\N{KELVIN SIGN}"')
_DEFINED = (ALLOWED, HIDDEN, "a", "b", "k", '"\N{KELVIN SIGN}"')
_QUALIFIED = (f"main.{ALLOWED}", f"main.{HIDDEN}", "main.a", "recurring.a", "recurring.b")

# Where a relation is read: {0} is a query.
_SOURCES = (
    "({0}) as t{1}",
    "({0}) as t{1}",
    "lateral ({0}) as t{1}",
    "range((select max(n) from ({0}))) as t{1}(n)",
    "unnest((select list(n) from ({0}))) as t{1}(n)",
    "(select 1 as n from (describe {0})) as t{1}",
    "(select 1 as n from (summarize {0})) as t{1}",
    "(select 1 as n from (pivot ({0}) on n in (1) using count(*))) as t{1}",
    "(select 1 as n from (unpivot ({0}) on n)) as t{1}",
    "(values ((select max(n) from ({0})))) as t{1}(n)",
)
_OF_A_NAME = (
    "{0} as t{1}",
    "{0} as t{1}",
    "{0} as t{1}",
    "(from {0}) as t{1}",
    "(table {0}) as t{1}",
    "(select 1 as n from (describe {0})) as t{1}",
    "(select 1 as n from (summarize {0})) as t{1}",
    "(select 1 as n from (pivot {0} on n in (1) using count(*))) as t{1}",
    "(select 1 as n from (unpivot {0} on n)) as t{1}",
)
# What a query has beside its sources: {0} is a query of one value.
_MORE = (
    "",
    "",
    " where t0.n in ({0})",
    " where exists ({0})",
    " where t0.n = any({0})",
    " where (select count(*) from ({0})) > 0",
    " group by t0.n having count(*) > (select max(n) from ({0}))",
    " qualify row_number() over () > (select max(n) from ({0}))",
    " order by (select max(n) from ({0}))",
    " limit (select max(n) from ({0}))",
    " where case when exists ({0}) then true else false end",
    " where len([(select max(n) from ({0}))]) > 0",
)
_SET_OPERATIONS = ("union", "union all", "intersect", "except", "union all by name")
_RECURSIVE = ("union", "union all", "union all", "intersect", "union all by name")


@st.composite
def queries(draw: st.DrawFn, depth: int = 3, scope: tuple[str, ...] = ()) -> str:
    """Draws a query of one column `n`; most of its names are in `scope` or are allowed tables."""
    kind = draw(st.integers(0, 7)) if depth else 0
    if kind >= 5:
        return draw(_with(depth, scope))
    if kind == 4:
        operation = draw(st.sampled_from(_SET_OPERATIONS))
        left, right = (draw(queries(depth - 1, scope)) for _ in range(2))
        return f"({left}) {operation} ({right})"
    return draw(_selects(depth, scope))


@st.composite
def _selects(draw: st.DrawFn, depth: int, scope: tuple[str, ...]) -> str:
    source = draw(_sources(depth, scope, 0))
    if draw(st.integers(0, 3)) == 0:
        between = draw(st.sampled_from((", ", " cross join ")))
        source = f"{source}{between}{draw(_sources(depth, scope, 1))}"
    more = draw(st.sampled_from(_MORE)) if depth and draw(st.booleans()) else ""
    if "{0}" in more:
        more = more.format(draw(queries(depth - 1, scope)))
    column = "t0.n"
    if depth and "by" not in more and draw(st.integers(0, 3)) == 0:
        column = f"coalesce(t0.n, (select max(n) from ({draw(queries(depth - 1, scope))})))"
    return f"select {column} as n from {source}{more}"


@st.composite
def _sources(draw: st.DrawFn, depth: int, scope: tuple[str, ...], place: int) -> str:
    if depth == 0 or draw(st.booleans()):
        is_wild = draw(st.integers(0, 24)) == 7
        name = draw(st.sampled_from(NAMES + _QUALIFIED if is_wild else (ALLOWED, *scope, *scope)))
        return draw(st.sampled_from(_OF_A_NAME)).format(name, place)
    return draw(st.sampled_from(_SOURCES)).format(draw(queries(depth - 1, scope)), place)


@st.composite
def _with(draw: st.DrawFn, depth: int, scope: tuple[str, ...]) -> str:
    names = draw(st.lists(st.sampled_from(_DEFINED), min_size=1, max_size=2, unique=True))
    is_recursive = draw(st.booleans())
    defined = []
    for name in names:
        how = draw(st.sampled_from(("", "", "materialized ", "not materialized ")))
        # A name in its own query, or in a query before it, is that of another relation.
        itself = (name,) if draw(st.integers(0, 9)) == 3 else ()
        query = draw(queries(depth - 1, scope + itself))
        key = ""
        if is_recursive and draw(st.booleans()):
            how, operation = "", draw(st.sampled_from(_RECURSIVE))
            seen = draw(st.sampled_from((name, name, f"recurring.{name}")))
            query = f"({query}) {operation} ({draw(queries(depth - 1, (*scope, seen)))})"
            key = draw(st.sampled_from(("", "", " using key (n)")))
        defined.append(f"{name}(n){key} as {how}({query})")
        scope = (*scope, name)
    used = " and ".join(f"exists (from {name})" for name in names)
    body = f"select n from ({draw(queries(depth - 1, scope))}) where {used}"
    return f"with {'recursive ' if is_recursive else ''}{', '.join(defined)} {body}"
