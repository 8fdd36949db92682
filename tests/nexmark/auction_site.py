"""Nexmark's queries as one pipeline. Each query is a stored table or a maintained view.

The queries are those of https://github.com/nexmark/nexmark, with their columns. Processing time is
the log's time here (q12). If a query leaves open which of several rows comes first, as q9 and q19
do for equal prices, the rows' own values decide.
"""

from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, avg_, count, hop, max_, min_, ordered, pipeline, sum_, tumble

FOREVER = {"retention.ms": "-1"}  # Events are of 2015.
PERSON = Topic(
    "person",
    key="id",
    event="""
        id bigint not null, name string, emailAddress string, creditCard string, city string,
        state string, dateTime timestamp, extra string
    """,
    config=FOREVER,
)
AUCTION = Topic(
    "auction",
    partitions=2,
    key="id",
    event="""
        id bigint not null, itemName string, description string, initialBid bigint, reserve bigint,
        dateTime timestamp, expires timestamp, seller bigint, category bigint, extra string
    """,
    config=FOREVER,
)
BID = Topic(
    "bid",
    partitions=3,
    key="bidder",
    event="""
        auction bigint, bidder bigint not null, price bigint, channel string, url string,
        dateTime timestamp, extra string
    """,
    config=FOREVER,
)
# What q15, q16 and q17 call ranks: of low, middle and high prices.
RANKS = ("price < 10000", "price >= 10000 and price < 1000000", "price >= 1000000")
DISTINCT = ", ".join(
    f"count(distinct {who}){where} as {name}_{who}s"
    for who in ("bidder", "auction")
    for name, where in [
        ("total", ""),
        *((f"rank{n}", f" filter (where {rank})") for n, rank in enumerate(RANKS, 1)),
    ]
)
COUNTS = ", ".join(
    ["count(*) as total_bids"]
    + [f"count(*) filter (where {rank}) as rank{n}_bids" for n, rank in enumerate(RANKS, 1)]
)


def last_bid(state, row):
    """Keeps the last bid by its own time; of two bids at the same time, the later record."""
    if state["dateTime"] is None or row["dateTime"] >= state["dateTime"]:
        state.update({name: row[name] for name in state})


@pipeline(
    reads={"person": PERSON, "auction": AUCTION, "bid": BID},
    writes=[
        Table("person", latest=PERSON),
        Table("auction", latest=AUCTION),
        Table("bid"),
        Table("q0"),
        Table("q1"),
        Table("q2"),
        View(
            "q3",
            """
            select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id
            where a.category = 10 and p.state in ('OR', 'ID', 'CA')
            """,
            keys=("id",),
        ),
        View(
            "q4",
            "select category as id, (sum(price) // count(*))::bigint as final from q9 group by all",
            keys=("id",),
        ),
        Table("auction_windows", keys=("starttime", "auction"), fold={"num": count()}),
        View(
            "q5",
            """
            select starttime, auction, num from auction_windows
            qualify num = max(num) over (partition by starttime)
            """,
            keys=("starttime", "auction"),
            by=("starttime",),
        ),
        View(
            "q6",
            """
            select seller, id, (sum(price) over last // count(*) over last)::bigint as avg_price
            from q9 window last as (
                partition by seller order by bid_dateTime, id
                rows between 10 preceding and current row
            )
            """,
            keys=("seller", "id"),
            by=("seller",),
        ),
        Table("highest", keys=("starttime",), fold={"price": max_("price")}),
        View(
            "q7",
            """
            select b.auction, b.price, b.bidder, b.dateTime, b.extra from bid b
            join highest h on b.price = h.price
                and b.dateTime between h.starttime and h.starttime + interval 10 seconds
            """,
            by=("auction",),
        ),
        View(
            "q8",
            """
            select distinct p.id, p.name, time_bucket(interval 10 seconds, p.dateTime) as stime
            from person p join auction a on a.seller = p.id
                and time_bucket(interval 10 seconds, a.dateTime)
                    = time_bucket(interval 10 seconds, p.dateTime)
            """,
            keys=("id",),
        ),
        View(
            "q9",
            """
            select a.*, b.auction, b.bidder, b.price, b.dateTime as bid_dateTime,
                b.extra as bid_extra
            from auction a join bid b
                on b.auction = a.id and b.dateTime between a.dateTime and a.expires
            qualify row_number() over (
                partition by a.id order by b.price desc, b.dateTime, b.bidder, b.extra
            ) = 1
            """,
            keys=("id",),
        ),
        Table("q10"),
        View(
            "q11",
            """
            with marked as (
                select bidder, dateTime, coalesce(
                    dateTime - lag(dateTime) over (partition by bidder order by dateTime)
                        > interval 10 seconds, true
                ) as begins from bid
            ), numbered as (
                select bidder, dateTime, count_if(begins) over (
                    partition by bidder order by dateTime
                ) as number from marked
            )
            select bidder, count(*) as bid_count, min(dateTime) as starttime,
                max(dateTime) + interval 10 seconds as endtime
            from numbered group by bidder, number
            """,
            keys=("bidder", "starttime"),
            by=("bidder",),
        ),
        Table(
            "q12",
            keys=("bidder", "starttime"),
            fold={"bid_count": count(), "endtime": max_("endtime")},
        ),
        Table("side", file="side_input.csv", keys=("key",), columns="key bigint, value string"),
        View(
            "q13",
            """
            select b.auction, b.bidder, b.price, b.dateTime, s.value
            from bid b join side s on b.auction % 10000 = s.key
            """,
            by=("auction",),
        ),
        Table("q14"),
        View("q15", f"select dt as day, {COUNTS}, {DISTINCT} from q10 group by dt", keys=("day",)),
        View(
            "q16",
            f"""
            select channel, strftime(dateTime, '%Y-%m-%d') as day,
                max(strftime(dateTime, '%H:%M')) as minute, {COUNTS}, {DISTINCT}
            from bid group by 1, 2
            """,
            keys=("channel", "day"),
            by=("channel",),
        ),
        Table(
            "q17",
            keys=("auction", "day"),
            fold={
                "total_bids": count(),
                **{f"rank{n}_bids": count(f"rank{n}") for n in (1, 2, 3)},
                "min_price": min_("price"),
                "max_price": max_("price"),
                "avg_price": avg_("price"),
                "sum_price": sum_("price"),
            },
        ),
        Table(
            "q18",
            keys=("bidder", "auction"),
            fold=ordered(
                last_bid,
                state="price bigint, channel string, url string, dateTime timestamp, extra string",
            ),
        ),
        View(
            "q19",
            """
            select *, row_number() over (
                partition by auction order by price desc, dateTime, bidder, channel, url, extra
            ) as rank_number from bid qualify rank_number <= 10
            """,
            keys=("auction", "rank_number"),
            by=("auction",),
        ),
        View(
            "q20",
            """
            select b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime as bid_dateTime,
                b.extra as bid_extra, a.itemName, a.description, a.initialBid, a.reserve,
                a.dateTime as auction_dateTime, a.expires, a.seller, a.category,
                a.extra as auction_extra
            from bid b join auction a on b.auction = a.id where a.category = 10
            """,
            by=("auction",),
        ),
        Table("q21"),
        Table("q22"),
        View(
            "q23",
            """
            select b.bidder, b.price, b.channel, b.url, b.extra as bid_extra, p.id as person_id,
                p.name, p.emailAddress, p.creditCard, p.city, p.state, p.extra as person_extra,
                a.itemName, a.description, a.initialBid, a.reserve,
                a.dateTime as auction_dateTime, a.expires, a.seller, a.category,
                a.extra as auction_extra
            from bid b join person p on p.id = b.bidder join auction a on a.seller = b.bidder
            """,
            by=("bidder",),
        ),
    ],
)
def auction_site(bid: DataFrame) -> dict[str, DataFrame]:
    """Answers Nexmark's queries about bids; the views answer those about all events."""
    bids = bid.select([column.name for column in BID.columns])
    by_channel = ("auction", "bidder", "price", "channel")
    plain = bids.select("auction", "bidder", "price", "dateTime", "extra")
    day, minute = F.date_format("dateTime", "yyyy-MM-dd"), F.date_format("dateTime", "HH:mm")
    euros = F.col("price").cast("decimal(19,0)") * F.lit(Decimal("0.908"))
    in_euros = plain.withColumn("price", euros)
    hour = F.hour("dateTime")
    time_type = (
        F.when(hour.between(8, 18), "dayTime")
        .when((hour <= 6) | (hour >= 20), "nightTime")
        .otherwise("otherTime")
    )
    channel_id = F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2)
    hot_channels = F.array(*map(F.lit, ("apple", "google", "facebook", "baidu")))
    hot_id = F.array_position(hot_channels, F.lower("channel")) - 1
    folders = F.split("url", "/")
    began = tumble("_timestamp", "10 seconds")
    return {
        "bid": bids,
        "q0": plain,
        "q1": in_euros,
        "q2": bids.where("auction % 123 = 0").select("auction", "price"),
        "auction_windows": bids.withColumn(
            "starttime", F.explode(hop("dateTime", "10 seconds", every="2 seconds"))
        ),
        "highest": bids.withColumn("starttime", tumble("dateTime", "10 seconds")),
        "q10": plain.withColumns({"dt": day, "hm": minute}),
        "q12": bid.withColumns(
            {"starttime": began, "endtime": began + F.expr("interval 10 seconds")}
        ),
        "q14": in_euros.where("price > 1000000 and price < 50000000").withColumns(
            {
                "bidTimeType": time_type,
                "c_counts": F.length(F.regexp_replace("extra", "[^c]", "")).cast("bigint"),
            }
        ),
        "q17": bids.withColumns(
            {"day": day} | {f"rank{n}": F.when(F.expr(rank), 1) for n, rank in enumerate(RANKS, 1)}
        ),
        "q18": bid,
        "q21": bids.select(
            *by_channel,
            F.when(hot_id >= 0, hot_id.cast("string"))
            .when(channel_id != "", channel_id)
            .alias("channel_id"),
        ).where("channel_id is not null"),
        "q22": bids.select(
            *by_channel,
            *(folders[number].alias(f"dir{number - 2}") for number in (3, 4, 5)),
        ),
    }
