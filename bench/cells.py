"""The cells: each task, its size, its rivals, and the SQL for its result over the topic. Pure.

A cell is one size of one task. Each task is implemented three times: as a pipeline for Kappa, as a
script for each rival (scripts/), and as SQL for the oracle (oracle.py), which checks all results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

PARTITIONS = 4
# Between one event and the next, by the event's own time.
STEP_MS = 10
# Kappa is measured against the others.
KAPPA = "kappa"
# Fewer are left to the tail by a catch-up, and there is nothing to measure (engine.tail_records).
_FEWEST_EVENTS = 100_001

# Ten minutes of the events' own time.
WINDOW_MS = 600_000

_TOPIC = """
BIDS = Topic(
    "{topic}", kind="{kind}", partitions=4, key="bidder",
    event='''auction bigint not null, bidder bigint not null, price bigint not null,
        channel string, url string, dateTime bigint not null, extra string''',
)
"""

_TOTALS = (
    "from kappa import Table, Topic, count, max_, min_, pipeline, sum_\n"
    + _TOPIC
    + """

FOLD = {{
    "bids": count(), "total": sum_("price"), "lowest": min_("price"), "highest": max_("price")
}}


@pipeline(reads={{"bids": BIDS}}, writes=[Table("totals", keys=("bidder",), fold=FOLD)])
def bench(bids):
    return {{"totals": bids.select("bidder", "price")}}
"""
)

_TOTALS_WANTED = (
    "select bidder, count(*) as bids, sum(price)::bigint as total, min(price) as lowest, "
    "max(price) as highest from bids group by bidder"
)

# A second stage by the same key.
_STAGES = _TOTALS.replace("import Table, Topic,", "import Table, Topic, View,", 1).replace(
    "fold=FOLD)])",
    """fold=FOLD), View(
    "spread",
    "select bidder, highest - lowest as spread, total / bids as mean from totals",
    keys=("bidder",),
)])""",
    1,
)

# An auction is open for an hour of the events' own time.
OPEN_MS = 3_600_000
# Query 4 of Nexmark, whose auctions are made of their bids: the winning bid of each auction, and
# what is paid on average in each category.
WINNING = f"""
select a.auction, a.category, max(b.price) as price, count(*) as bids
from auctions a
join bids b on b.auction = a.auction and b.ms between a.opened and a.opened + {OPEN_MS}
group by all
"""
_AUCTIONS = (
    "from kappa import Table, Topic, View, max_, min_, pipeline\n"
    + _TOPIC
    + """
FOLD = {{"category": max_("category"), "opened": min_("ms")}}
TABLES = [Table("bids"), Table("auctions", keys=("auction",), fold=FOLD)]
VIEWS = []


@pipeline(reads={{"bids": BIDS}}, writes=[*TABLES, *VIEWS])
def bench(bids):
    return {{
        "bids": bids.selectExpr("auction", "price", "dateTime as ms"),
        "auctions": bids.selectExpr("auction", "auction % 50 as category", "dateTime as ms"),
    }}
"""
)
_Q4 = _AUCTIONS.replace(
    "VIEWS = []",
    f'''VIEWS = [
    View("winning", """{WINNING}""", keys=("auction",)),
    View(
        "by_category",
        "select category, avg(price) as price, count(*) as auctions from winning group by category",
        keys=("category",),
    ),
]''',
    1,
)
_AUCTIONS_RETURN = {
    "bids": "auction bigint, price bigint, ms bigint",
    "auctions": "auction bigint, category bigint, ms bigint",
}
_AUCTIONS_WANTED = {
    "bids": "select auction, price, ms from bids",
    "auctions": (
        "select auction, auction % 50 as category, min(ms) as opened from bids group by auction"
    ),
}
_WINNING_WANTED = f"""
    select auction, auction % 50 as category, max(price) as price, count(*) as bids
    from (select *, min(ms) over (partition by auction) as opened from bids)
    where ms <= opened + {OPEN_MS} group by auction"""

_PROJECTION = (
    "from kappa import Table, Topic, pipeline\n"
    + _TOPIC
    + """

@pipeline(reads={{"bids": BIDS}}, writes=[Table("euros")])
def bench(bids):
    euros = "price * 908 div 1000 as euros"
    return {{"euros": bids.selectExpr("auction", "bidder", euros, "dateTime as ms")}}
"""
)

_WINDOWS = (
    "from kappa import Table, Topic, count, pipeline, sum_\n"
    + _TOPIC
    + """
FOLD = {{"bids": count(), "total": sum_("price")}}


@pipeline(reads={{"bids": BIDS}}, writes=[Table("windows", keys=("bidder", "began"), fold=FOLD)])
def bench(bids):
    began = "dateTime - dateTime % {window_ms} as began"
    return {{"windows": bids.selectExpr("bidder", began, "price")}}
"""
)

_LATEST = (
    "from kappa import Table, Topic, pipeline\n"
    + _TOPIC
    + """

@pipeline(reads={{"bids": BIDS}}, writes=[Table("latest", latest=BIDS)])
def bench():
    return {{}}
"""
)

_SESSIONS = (
    "from kappa import Table, Topic, ordered, pipeline\n"
    + _TOPIC
    + """
GAP_MS = {gap_ms}
STATE = "began bigint, ended bigint, bids bigint, total bigint"


def follow(session, bid):
    if session["ended"] is None or bid["dateTime"] - session["ended"] > GAP_MS:
        if session["ended"] is not None:
            yield {{"bidder": bid["bidder"], **session}}
        session.update(began=bid["dateTime"], ended=bid["dateTime"], bids=0, total=0)
    session["ended"] = max(session["ended"], bid["dateTime"])
    session["bids"] += 1
    session["total"] += bid["price"]


@pipeline(
    reads={{"bids": BIDS}},
    writes=[
        Table(
            "open_sessions", keys=("bidder",), fold=ordered(follow, state=STATE, emits="sessions")
        ),
        Table("sessions", emitted=f"bidder bigint, {{STATE}}"),
    ],
)
def bench(bids):
    place = ("_topic", "_partition", "_offset")
    return {{"open_sessions": bids.select("bidder", "price", "dateTime", *place)}}
"""
)

# The same by a step over whole columns of many keys.
_SESSIONS_BY_KEYS = (
    _SESSIONS.replace("\n\nGAP_MS", "\nimport numpy as np\nimport pyarrow as pa\n\nGAP_MS", 1)
    .replace('emits="sessions"', 'emits="sessions", over="keys"', 1)
    .replace(
        _SESSIONS[_SESSIONS.index("def follow") : _SESSIONS.index("@pipeline")],
        """def follow(states, bids):
    of, at, price = (bids[name].to_numpy() for name in ("_state", "dateTime", "price"))
    is_first = np.r_[True, of[1:] != of[:-1]]
    is_open = states["ended"].is_valid().to_numpy()
    ended = states["ended"].fill_null(0).to_numpy()
    # The greatest time so far in the key: keys have ranges of times that do not overlap.
    latest = np.where(is_first, np.maximum(at, ended[of]), at)
    range_of_key = of * (1 + latest.max() - latest.min())
    latest = np.maximum.accumulate(latest + range_of_key) - range_of_key
    before = np.r_[0, latest[:-1]]
    before[is_first] = ended
    begins = at - before > GAP_MS
    begins[is_first] |= ~is_open
    first = np.flatnonzero(begins | is_first)
    key, goes_on = of[first], ~begins[first]
    stored = {{name: states[name].fill_null(0).to_numpy() for name in ("began", "bids", "total")}}
    runs = pa.table({{
        "bidder": states["bidder"].take(pa.array(key)),
        "began": np.where(goes_on, stored["began"][key], at[first]),
        "ended": latest[np.r_[first[1:], len(at)] - 1],
        "bids": np.diff(np.r_[first, len(at)]) + goes_on * stored["bids"][key],
        "total": np.add.reduceat(price, first) + goes_on * stored["total"][key],
    }})
    is_last = np.r_[key[1:] != key[:-1], True]
    is_over = is_open & begins[is_first]
    return runs.filter(pa.array(is_last)), pa.concat_tables(
        [states.filter(pa.array(is_over)), runs.filter(pa.array(~is_last))]
    )


""",
        1,
    )
)
# The same by Kappa's own sessions, whose times are timestamps.
_SESSIONS_BUILT_IN = (
    "from kappa import Table, Topic, count, pipeline, sessions, sum_\n"
    "from pyspark.sql import functions as F\n"
    + _TOPIC
    + """

@pipeline(
    reads={{"bids": BIDS}},
    writes=[
        Table(
            "open_sessions",
            keys=("bidder",),
            fold=sessions(
                "at",
                "{gap_ms} ms",
                {{"bids": count(), "total": sum_("price")}},
                emits="sessions",
            ),
        ),
        Table(
            "sessions",
            emitted="bidder bigint, since timestamp, last timestamp, bids bigint, total bigint",
        ),
    ],
)
def bench(bids):
    place = ("_topic", "_partition", "_offset")
    at = F.timestamp_millis("dateTime").alias("at")
    return {{"open_sessions": bids.select("bidder", "price", at, *place)}}
"""
)

# A session ends if the key's next event in the log is later than the gap after the greatest time.
_ALL_SESSIONS = """
    with marked as (
        select *, coalesce(ms - max(ms) over own > {gap_ms}, true)::int as begins
        from bids window own as (
            partition by bidder order by "offset" rows between unbounded preceding and 1 preceding
        )
    ),
    numbered as (
        select *, sum(begins) over (partition by bidder order by "offset") as session from marked
    ),
    whole as (
        select bidder, session, arg_min(ms, "offset") as began, max(ms) as ended,
            count(*) as bids, sum(price)::bigint as total,
            session = max(session) over (partition by bidder) as is_open
        from numbered group by bidder, session
    )
    select bidder, began, ended, bids, total from whole where """


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the benchmarks.

    `pipeline` is the text of a pipeline's file. `returns` contains, per table, the columns that the
    pipeline's function returns, as DDL. `wanted` contains, per table, SQL for the expected rows.
    `slowest` is the lowest rate, in events per second, that is expected of a rival; it determines
    the time limit of a run.
    """

    name: str
    what: str
    pipeline: str
    returns: Mapping[str, str]
    wanted: Mapping[str, str]
    slowest: int


TASKS = {
    task.name: task
    for task in (
        Task(
            "totals",
            "count, sum, min and max by key",
            _TOTALS,
            {"totals": "bidder bigint, price bigint"},
            {"totals": _TOTALS_WANTED},
            slowest=20_000,
        ),
        Task(
            "stages",
            "the same, and a maintained view over them",
            _STAGES,
            {"totals": "bidder bigint, price bigint"},
            {
                "totals": _TOTALS_WANTED,
                "spread": (
                    "select bidder, max(price) - min(price) as spread, "
                    "sum(price)::bigint / count(*) as mean from bids group by bidder"
                ),
            },
            slowest=20_000,
        ),
        Task(
            "auctions",
            "bids, and their auctions",
            _AUCTIONS,
            _AUCTIONS_RETURN,
            _AUCTIONS_WANTED,
            slowest=10_000,
        ),
        Task(
            "q4",
            "the same, with the winning bid of each and their average by category",
            _Q4,
            _AUCTIONS_RETURN,
            {
                **_AUCTIONS_WANTED,
                "winning": _WINNING_WANTED,
                "by_category": (
                    "select category, avg(price) as price, count(*) as auctions "
                    f"from ({_WINNING_WANTED}) group by category"
                ),
            },
            slowest=10_000,
        ),
        Task(
            "projection",
            "a projection, row by row",
            _PROJECTION,
            {"euros": "auction bigint, bidder bigint, euros bigint, ms bigint"},
            {"euros": "select auction, bidder, price * 908 // 1000 as euros, ms from bids"},
            slowest=20_000,
        ),
        Task(
            "windows",
            "count and sum by key and ten minutes",
            _WINDOWS,
            {"windows": "bidder bigint, began bigint, price bigint"},
            {
                "windows": (
                    "select bidder, ms - ms % {window_ms} as began, count(*) as bids, "
                    "sum(price)::bigint as total from bids group by all"
                )
            },
            slowest=10_000,
        ),
        Task(
            "latest",
            "the latest event of each key, of a compacted topic",
            _LATEST,
            {},
            # A key's events lie in one partition.
            {
                "latest": (
                    'select * exclude ("offset", "partition", ms), ms as "dateTime" from bids '
                    'qualify row_number() over (partition by bidder order by "offset" desc) = 1'
                )
            },
            slowest=10_000,
        ),
        Task(
            "sessions",
            "sessions with a gap, by an ordered fold",
            _SESSIONS,
            {
                "open_sessions": (
                    "bidder bigint, price bigint, dateTime bigint, _topic string, _partition int, "
                    "_offset bigint"
                )
            },
            {"open_sessions": _ALL_SESSIONS + "is_open", "sessions": _ALL_SESSIONS + "not is_open"},
            slowest=2_000,
        ),
    )
}


@dataclass(frozen=True)
class Way:
    """A variant of the pipeline with which Kappa computes a task.

    `pipeline` is the text of the pipeline's file. `returns` contains, per table, the columns that
    the pipeline's function returns, as DDL. `served` is SQL that converts a served row to the form
    that the task expects.
    """

    task: str
    pipeline: str
    returns: Mapping[str, str]
    served: str = "*"


# By the rival's name.
WAYS = {
    "kappa-keys": Way("sessions", _SESSIONS_BY_KEYS, TASKS["sessions"].returns),
    "kappa-sessions": Way(
        "sessions",
        _SESSIONS_BUILT_IN,
        {
            table: columns.replace("dateTime bigint", "at timestamp")
            for table, columns in TASKS["sessions"].returns.items()
        },
        "bidder, epoch_ms(since) as began, epoch_ms(last) as ended, bids, total",
    ),
}
# What a rival that only consumes must have seen: it is the limit, and computes nothing.
CONSUMED = {
    "consumed": (
        'select "partition", count(*) as records, sum(bytes)::bigint as bytes from log group by '
        '"partition"'
    )
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A size of a task, measured in `rounds` rounds. `keys` is the maximum number of keys."""

    name: str
    task: str
    events: int
    keys: int
    rounds: int
    rivals: tuple[str, ...]

    @property
    def topic(self) -> str:
        """Returns the name of the events' topic. Cells of the same size and kind share a topic."""
        return f"bids.{self.events}.{self.keys}{'' if self.kind == 'retained' else '.compacted'}"

    @property
    def kind(self) -> str:
        """Returns the kind of the topic, `compacted` or `retained`, as the task requires it."""
        return "compacted" if self.task == "latest" else "retained"

    @property
    def gap_ms(self) -> int:
        """Returns the gap of the sessions, in milliseconds.

        The gap is twice the mean time between two events of a key, but at most an eighth of the
        time that the topic covers. So some sessions end even if keys have few events.
        """
        return min(2 * STEP_MS * self.keys, STEP_MS * self.events // 8)

    def fill(self, text: str) -> str:
        """Replaces the placeholders in a text of the task with the values of this cell."""
        return text.format(
            topic=self.topic, kind=self.kind, gap_ms=self.gap_ms, window_ms=WINDOW_MS
        )

    def sized(self, *, events: int | None, rounds: int | None) -> Cell:
        """Returns this cell with other numbers of events and rounds. None means no change."""
        return replace(self, events=events or self.events, rounds=rounds or self.rounds)


_ALL = (
    KAPPA,
    "spark",
    "spark-once",
    "polars",
    "flink",
    "flink-streaming",
    "streams",
    "consume-c",
    "consume",
)
_PYTHON_RIVALS = ("quix", "pathway")
CELLS = {
    cell.name: cell
    for cell in (
        Cell("standard", "totals", 5_000_000, 16_384, 5, (*_ALL, *_PYTHON_RIVALS)),
        Cell("keys", "totals", 5_000_000, 500_000, 5, (*_ALL, *_PYTHON_RIVALS)),
        Cell("warm", "totals", 10_000_000, 100_000, 5, (KAPPA, "spark", "consume-c", "consume")),
        Cell("large", "totals", 20_000_000, 16_384, 3, _ALL),
        Cell("huge", "totals", 50_000_000, 500_000, 2, _ALL),
        Cell(
            "projection",
            "projection",
            5_000_000,
            16_384,
            5,
            (KAPPA, "spark", "polars", "flink", "consume-c"),
        ),
        Cell(
            "windows",
            "windows",
            5_000_000,
            16_384,
            5,
            (KAPPA, "spark", "polars", "flink", "consume-c"),
        ),
        Cell("latest", "latest", 5_000_000, 500_000, 5, (KAPPA, "spark", "consume-c")),
        Cell("archive", "totals", 20_000_000, 16_384, 2, (KAPPA, "kappa-archive", "consume-c")),
        Cell("quick", "totals", 500_000, 16_384, 2, (KAPPA, "spark", "consume")),
        Cell("ordered-large", "sessions", 2_000_000, 16_384, 3, (KAPPA, *WAYS)),
        # So many events meet 1,026,000 of the keys or so.
        Cell("ordered-million", "sessions", 4_000_000, 1_050_000, 1, (KAPPA, *WAYS)),
    )
}
# Cells that one name asks for.
GROUPS = {**{name: (name,) for name in CELLS}, "ordered": ("ordered-large", "ordered-million")}


def ensure_enough(events: int) -> None:
    """Raises SystemExit if a cell with `events` events is too small to measure."""
    if events < _FEWEST_EVENTS:
        raise SystemExit(f"{events} events are too few to measure: give at least {_FEWEST_EVENTS}")
