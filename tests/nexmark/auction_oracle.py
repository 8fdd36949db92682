"""The answers to Nexmark's queries, which DuckDB computes only from the bytes of the log.

Nothing here uses Kappa: DuckDB reads the events' JSON, and times are integers in milliseconds. The
SQL differs from that of the views wherever a query can be written in another way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

# The names of columns, and rows.
Rows = tuple[tuple[str, ...], list[tuple[Any, ...]]]
# Topic, partition, offset, time of the log in milliseconds, and value.
LogRecord = tuple[str, int, int, int, str]

_SIDE = Path(__file__).with_name("side_input.csv")
_COMMON = {"dateTime": "BIGINT", "extra": "VARCHAR"}
_EVENTS = {
    "person": dict.fromkeys(("name", "emailAddress", "creditCard", "city", "state"), "VARCHAR")
    | {"id": "BIGINT"},
    "auction": dict.fromkeys(("itemName", "description"), "VARCHAR")
    | dict.fromkeys(("id", "initialBid", "reserve", "expires", "seller", "category"), "BIGINT"),
    "bid": dict.fromkeys(("channel", "url"), "VARCHAR")
    | dict.fromkeys(("auction", "bidder", "price"), "BIGINT"),
}
_WINNERS = """
    create table winners as
    select distinct on (a.id) a.*, b.bidder, b.price, b.ms as bid_ms, b.extra as bid_extra
    from bid b, auction a where a.id = b.auction and b.ms >= a.ms and b.ms <= a.expires
    order by a.id, b.price desc, b.ms, b.bidder, b.extra
"""
_OF_AUCTION = """
    a.itemName, a.description, a.initialBid, a.reserve, epoch_ms(a.ms) as auction_dateTime,
    epoch_ms(a.expires) as expires, a.seller, a.category, a.extra as auction_extra
"""
_RANKED = """
    create table ranked as
    select *, epoch_ms(ms)::date::varchar as day, left(epoch_ms(ms)::time::varchar, 5) as minute,
        case when price >= 1000000 then 3 when price >= 10000 then 2 else 1 end as rank
    from bid
"""
_COUNTS = ", ".join(
    [
        "len(list(price)) as total_bids",
        *(f"sum((rank = {n})::int)::bigint as rank{n}_bids" for n in (1, 2, 3)),
    ]
)
_DISTINCT = ", ".join(
    f"len(list_distinct(coalesce(list({who}){only}, []))) as {name}_{who}s"
    for who in ("bidder", "auction")
    for name, only in [
        ("total", ""),
        *((f"rank{n}", f" filter (rank = {n})") for n in (1, 2, 3)),
    ]
)

ANSWERS = {
    "q0": "select auction, bidder, price, epoch_ms(ms) as dateTime, extra from bid",
    "q1": """
        select auction, bidder, epoch_ms(ms) as dateTime, extra,
            (price * 908 // 1000 || '.' || lpad((price * 908 % 1000)::varchar, 3, '0'))
                ::decimal(23, 3) as price
        from bid
    """,
    "q2": "select auction, price from bid where auction in (select 123 * range from range(1000))",
    "q3": """
        select name, city, state, unnest(ids) as id from person, (
            select seller, list(id) as ids from auction where category = 10 group by seller
        ) where seller = person.id and regexp_full_match(state, 'OR|ID|CA')
    """,
    "q4": """
        select category as id, list_sum(list(final))::bigint // count(*) as final from (
            select category, (
                select max(price) from bid where auction = a.id and ms between a.ms and a.expires
            ) as final from auction a
        ) where final is not null group by category
    """,
    "q5": """
        with starts as (
            select distinct (ms // 2000 - range) * 2000 as since from bid, range(5)
        ), counted as (
            select since, auction, count(*) as num from bid, starts
            where since <= ms and ms < since + 10000 group by all
        )
        select epoch_ms(since) as starttime, auction, num from counted one where not exists (
            from counted other where other.since = one.since and other.num > one.num
        )
    """,
    "q6": """
        select id, seller, list_sum(last)::bigint // len(last) as avg_price from (
            select w.id, w.seller, list(b.price order by b.bid_ms desc, b.id desc)[:11] as last
            from winners w join winners b on b.seller = w.seller
                and (b.bid_ms < w.bid_ms or b.bid_ms = w.bid_ms and b.id <= w.id)
            group by all
        )
    """,
    "q7": """
        with most as (select ms // 10000 as number, max(price) as price from bid group by all)
        select auction, b.price, bidder, epoch_ms(ms) as dateTime, extra from bid b, most m
        where b.price = m.price
            and (number = ms // 10000 or ms % 10000 = 0 and number = ms // 10000 - 1)
    """,
    "q8": """
        select id, name, epoch_ms(ms // 10000 * 10000) as stime from person p where exists (
            from auction where seller = p.id and ms // 10000 = p.ms // 10000
        )
    """,
    "q9": """
        select id, itemName, description, initialBid, reserve, epoch_ms(ms) as dateTime,
            epoch_ms(expires) as expires, seller, category, extra, id as auction, bidder, price,
            epoch_ms(bid_ms) as bid_dateTime, bid_extra
        from winners
    """,
    "q10": """
        select auction, bidder, price, epoch_ms(ms) as dateTime, extra, day as dt, minute as hm
        from ranked
    """,
    "q11": """
        with starts as (
            select distinct bidder, ms from bid b where not exists (
                from bid o where o.bidder = b.bidder and o.ms < b.ms and o.ms >= b.ms - 10000
            )
        )
        select b.bidder, count(*) as bid_count, epoch_ms(s.ms) as starttime,
            epoch_ms(max(b.ms) + 10000) as endtime
        from bid b asof join starts s on s.bidder = b.bidder and b.ms >= s.ms group by all
    """,
    "q12": """
        select bidder, count(*) as bid_count, epoch_ms(logged // 10000 * 10000) as starttime,
            epoch_ms((logged // 10000 + 1) * 10000) as endtime
        from bid group by bidder, logged // 10000
    """,
    "q13": f"""
        select auction, bidder, price, epoch_ms(ms) as dateTime, value
        from bid, (select key, max(value)::varchar as value from '{_SIDE}' group by key)
        where key = auction - auction // 10000 * 10000
    """,
    "q14": """
        select auction, bidder, q1.price, dateTime, extra,
            len(regexp_extract_all(extra, 'c')) as c_counts,
            ['nightTime', 'otherTime', 'dayTime', 'otherTime', 'nightTime'][
                1 + (hour > 6)::int + (hour > 7)::int + (hour > 18)::int + (hour > 19)::int
            ] as bidTimeType
        from (select *, date_part('hour', dateTime) as hour from q1) q1
        where price::varchar::double between 1000000.0001 and 49999999.9999
    """,
    "q15": f"select day, {_COUNTS}, {_DISTINCT} from ranked group by day",
    "q16": f"""
        select channel, day, max(minute) as minute, {_COUNTS}, {_DISTINCT}
        from ranked group by channel, day
    """,
    "q17": f"""
        select auction, day, {_COUNTS}, list_min(list(price)) as min_price,
            list_max(list(price)) as max_price, sum(price)::bigint as sum_price,
            sum(price)::double / count(*) as avg_price
        from ranked group by auction, day
    """,
    "q18": """
        select distinct on (auction, bidder) auction, bidder, price, channel, url,
            epoch_ms(ms) as dateTime, extra
        from bid order by ms desc, place desc
    """,
    "q19": """
        select auction, unnest(top, recursive := true),
            unnest(range(1, len(top) + 1)) as rank_number
        from (
            select auction, list(
                {
                    'price': price, 'dateTime': epoch_ms(ms), 'bidder': bidder,
                    'channel': channel, 'url': url, 'extra': extra
                } order by -price, ms, bidder, channel, url, extra
            )[:10] as top from bid group by auction
        )
    """,
    "q20": f"""
        select b.auction, bidder, price, channel, url, epoch_ms(b.ms) as bid_dateTime,
            b.extra as bid_extra, {_OF_AUCTION}
        from (from auction where category = 10) a, bid b where a.id = b.auction
    """,
    "q21": """
        select * from (
            select auction, bidder, price, channel, coalesce(
                (list_position(['apple', 'google', 'facebook', 'baidu'], lower(channel)) - 1)
                    ::varchar,
                nullif(split_part(split_part(url, '&channel_id=', 2), '&', 1), '')
            ) as channel_id from bid
        ) where channel_id is not null
    """,
    "q22": """
        select auction, bidder, price, channel, unnest(regexp_extract(
            url, '^https://[^/]*/([^/]*)/([^/]*)/([^/]*)/', ['dir1', 'dir2', 'dir3']
        )) from bid
    """,
    "q23": f"""
        select b.bidder, b.price, b.channel, b.url, b.extra as bid_extra, p.id as person_id,
            p.name, p.emailAddress, p.creditCard, p.city, p.state, p.extra as person_extra,
            {_OF_AUCTION}
        from auction a, person p, bid b where a.seller = p.id and b.bidder = a.seller
    """,
}


def answers(records: Iterable[LogRecord]) -> dict[str, Rows]:
    """Computes the rows of every query after these records."""
    log = pa.table(
        [pa.array(column) for column in zip(*records, strict=True)],
        names=["topic", "part", "place", "logged", "value"],
    )
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.register("log", log)
        load_events(connection)
        return {name: _rows(connection.execute(sql)) for name, sql in ANSWERS.items()}


def load_events(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the tables that the queries of `ANSWERS` read, from the relation `log`.

    `log` has the columns topic, part, place, logged and value: a record's topic, partition, offset,
    time of the log in milliseconds, and value.
    """
    for topic, columns in _EVENTS.items():
        shape = json.dumps(columns | _COMMON)
        connection.execute(
            f"""
            create table {topic} as
            select event.* exclude (dateTime), event.dateTime as ms, part, place, logged from (
                select *, json_transform(value, '{shape}') as event from log where topic = '{topic}'
            )
            """
        )
    connection.execute(_WINNERS)
    connection.execute(_RANKED)
    connection.execute(f"create view q1 as {ANSWERS['q1']}")


def _rows(found: duckdb.DuckDBPyConnection) -> Rows:
    return tuple(name for name, *_ in found.description or ()), found.fetchall()


def ensure_equal(served: Callable[[str], Rows], wanted: dict[str, Rows]) -> None:
    """Asserts that all queries have exactly these columns and rows, without overflows.

    `served` runs SQL, in which each query is named as a table.
    """
    wrong = []
    for name, (columns, rows) in wanted.items():
        listed = ", ".join(f'"{column}"' for column in columns)
        named, _ = served(f"from {name} limit 0")
        _, found = served(f"select {listed} from {name}")
        surplus, missing = Counter(map(_plain, found)), Counter(map(_plain, rows))
        # Beside a sum stands whether it fits, and here each does.
        marks = {f"{column}_overflow" for column in columns} & {*named}
        overflown = [served(f'select 1 from {name} where "{mark}"')[1] for mark in marks]
        if {*named} - marks != {*columns} or any(overflown) or surplus != missing:
            wrong.append(
                f"{name}: columns {sorted(({*named} - marks) ^ {*columns})},"
                f" {len(found)} rows for {len(rows)};"
                f" too much: {[*(surplus - missing)][:2]}, missing: {[*(missing - surplus)][:2]}"
            )
    assert wrong == [], "\n".join(wrong)


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        each.astimezone(UTC).replace(tzinfo=None)
        if isinstance(each, datetime) and each.tzinfo
        else each
        for each in row
    )
