"""A view's text is its meaning: each way is compared with plain DuckDB, after each small slice.

There is no Spark and no Delta table: tables are DuckDB's own. The code that decides rows is the
engine's: births, ways, and the queries of a slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from text_grammar import Texts, Written, bare, can_be_key
from view_worlds import EndedError, World, open_plans

from kappa import View
from kappa.base.errors import DeclarationError

if TYPE_CHECKING:
    from kappa.base.duck import Connection

# Texts of one example of the law: they share tables, which cost more than a text. With forty
# examples these are 2,000 texts in `make test`, and with four hundred 100,000 in `make faults`.
_TEXTS = 50 if settings.default.max_examples <= 50 else 250


@pytest.fixture(scope="module")
def plans() -> Iterator[Connection]:
    with open_plans() as duck:
        yield duck


@pytest.fixture(scope="module")
def worlds(plans: Connection) -> Iterator[list[World]]:
    found = [World(plans, seed) for seed in range(6)]
    yield found
    for each in found:
        each.close()


def views_of(plans: Connection, seed: int) -> list[View]:
    """Returns a view with a random text, and sometimes a view over it.

    Returns nothing if names occur twice. Raises DeclarationError, as View does.
    """
    grammar = Texts(seed, plans)
    sql, columns, is_grouped = grammar.view()
    is_read = grammar.chance(0.15)
    if is_read and grammar.chance(0.3):
        given = [View("v", sql)]
    else:
        given = [kept_view("v", grammar, sql, columns, is_grouped=is_grouped)]
    if is_read:
        over = grammar.over(sql, columns)
        given.append(kept_view("w", grammar, over[0], over[1], is_grouped=over[2]))
    views = [each for each in given if each is not None]
    return views if any(each.is_maintained for each in views) else []


def kept_view(
    name: str, grammar: Texts, sql: str, columns: Sequence[Written], *, is_grouped: bool
) -> View | None:
    """Returns a view with keys or with `by` columns, or None if it can have neither."""
    names = [bare(each) for each, _ in columns]
    possible = [bare(each) for each, kind in columns if can_be_key(kind)]
    if len({each.lower() for each in names}) < len(names) or not possible:
        return None
    if is_grouped and grammar.chance(0.8):
        keys = names[:-1] if set(names[:-1]) <= set(possible) else possible[:1]
        return View(name, sql, keys=keys or names)
    by = grammar.draw.sample(possible, min(len(possible), grammar.draw.choice([1, 1, 2])))
    return View(name, sql, by=by)


def keep_texts(plans: Connection, first: int) -> Counter[str]:
    """Maintains the views of some texts over one world; counts the ways.

    Raises Unlike if a view differs from its text.
    """
    world, found = World(plans, first), Counter[str]()
    try:
        for seed in range(first * _TEXTS, (first + 1) * _TEXTS):
            try:
                views = views_of(plans, seed)
            except DeclarationError:
                continue
            if not views:
                continue
            try:
                how = world.kept(views)
            except EndedError:
                world.close()
                world = World(plans, first)
                how = world.kept(views)
            found[how.partition(":")[0]] += 1
    finally:
        world.close()
    return found


@pytest.mark.slow
@pytest.mark.law
@pytest.mark.timeout(7200)
# The same texts in each `make test`: a text that nobody tried yet holds up no change.
@settings(examples(40), derandomize=settings.default.max_examples <= 50)
@given(st.integers(0, 1_000_000))
def test_each_way_gives_the_rows_of_the_text(plans: Connection, first: int) -> None:
    keep_texts(plans, first)


@pytest.mark.slow
def test_random_texts_are_kept_in_each_way(plans: Connection) -> None:
    """Random texts use each way of maintenance, so that the law above covers each way."""
    found = sum((keep_texts(plans, first) for first in range(4)), Counter[str]())

    assert min(found[each] for each in ("whole", "by touched keys", "by change")) >= 5, found
    assert found["refused"] < sum(found.values()) / 2, found


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        # In `group by` a column comes before the name of an expression.
        ("select abs(auction) as auction, count(*) as n from bids group by auction", ["auction"]),
        ("select lower(kind) as kind, count(*) as n from bids group by kind", ["kind"]),
        ("select upper(city) as city, count(*) as n from persons group by city", ["city"]),
        ("select abs(auction) as k, count(*) as n from bids group by K", ["k"]),
        ("select abs(auction) as auction, count(*) as n from bids group by all", ["auction"]),
        ("select abs(auction) as auction, count(*) as n from bids group by 1", ["auction"]),
        ('select -auction as "Kind", kind as k, count(*) as n from bids b group by kind, 1',
         ["Kind", "k"]),
        # Neither of these is a place in the select list.
        ("select auction as k, count(*) as n from bids group by 1.0, auction", ["k"]),
        ("select auction as k, count(*) as n from bids group by true, bids.auction", ["k"]),
        # A constant that is a column is none either.
        ("select 3 as c, auction as k, count(*) as n from bids group by all", ["c", "k"]),
        ("select count(*) as n, 1 as c, auction as k from bids group by c, k", ["c", "k"]),
        # In `distinct on` and `order by` the names of the select list come first.
        ("select distinct on (born) born as k, id as born from persons order by born, k", []),
        ("select distinct on (k) born as k, id as born from persons order by k, born", []),
        # In windows, in `where` and in `having` columns come first.
        (("select id as k, city, born from persons qualify rank() over (partition by city order by"
         " id) = 1"), []),
        (("select city as kind, id as k from persons qualify rank() over (partition by kind order"
         " by k) = 1"), []),
        ("select auction as price, count(*) as n from bids group by 1 having price > 1", ["price"]),
        # What a full join compares is not what coalesce makes of it and something else.
        (("select coalesce(category, '9') as k, count(*) as n from auctions full join auctions as b"
         " using (category) group by k"), ["k"]),
        # Two columns of one name, of which the second is followed.
        ("select * from (select * from (select id as c, born as c from persons)) as s(x, k)", []),
        # A name of the select list that another side of a union gives to another column.
        (("select id as k, city as c from persons union all select id as j, kind as k from persons"
          " semi join auctions on seller = born where k = '1'"), []),
        # A star that is filtered has any number of columns.
        (("with q(a, b, c, k, d) as (select * like '%i%' from bids) select k, c from q"), []),
        ("select * similar to 'auction|bidder', price as k from bids", []),
        # A named subquery with a table's name, and columns that are renamed twice.
        (("with bids as (select * from bids where price > 0) select auction, count(*) as n"
         " from bids group by all"), ["auction"]),
        (("with persons(x, y) as (select born, id from persons) select p as k, count(y) as n"
         " from persons as q(p) group by p"), ["k"]),
        (("with Bids as (select id as auction from auctions) select auction, count(*) as n"
         " from bids group by auction"), ["auction"]),
        # Of other letters than those of ASCII, DuckDB takes the small one and the capital for two.
        ('select auction as k, count(*) as "Ä" from bids group by auction', ["k"]),
        (('with "Ä" as (select id from persons), "ä" as (select born as id from persons)'
          ' select id as k, count(*) as n from "Ä" group by id'), ["k"]),
        (('select one.id as k, "Ä".born, "ä".born as c from persons as one join persons as "Ä"'
          ' on one.id = "Ä".id join persons as "ä" on one.id = "ä".born'), []),
        # DuckDB writes a cross join as a comma, which binds less than other joins.
        (("select b.auction as k, count(*) as n from auctions as a cross join (select p.id from"
          " persons as p asof join persons as q on p.id = q.id and p.born >= q.born) as p full join"
          " bids as b on p.id = b.bidder group by k"), ["k"]),
        (("select b.auction as k, count(p.id) as n from bids as b left join (auctions as a cross"
          " join persons as p) on a.id = b.auction asof join persons as q on b.auction = q.id and"
          " b.price >= q.born group by k"), ["k"]),
        # DuckDB writes a double without an exponent, which is a decimal then.
        ("select auction as k, price * 1e-1 as c from bids", []),
        ("select auction as k, sum(price) * 1e-1 as c from bids group by k", ["k"]),
    ],
)  # fmt: skip
def test_texts_mean_what_duckdb_takes_them_for(
    worlds: Sequence[World], sql: str, keys: Sequence[str]
) -> None:
    views = [View("v", sql, keys=keys) if keys else View("v", sql, by=("k",))]
    for world in worlds:
        found = world.kept(views)

        assert not found.startswith(("refused", "raises")), found
