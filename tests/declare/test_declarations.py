"""Declarations are checked when they are made, and errors point at the user's line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kappa import (
    Fold,
    Table,
    Topic,
    View,
    avg_,
    count,
    hll,
    kll,
    max_,
    min_,
    ordered,
    pipeline,
    set_,
    sum_,
    theta,
    top_k,
)
from kappa.base.errors import DeclarationError
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.options import Thresholds
from kappa.declare.pipeline import ORIGIN_COLUMNS
from kappa.declare.values.columns import parse_columns, parse_type
from kappa.tables.shape import table_births

HITS = Topic(
    "web.hits",
    partitions=4,
    key="visitor",
    event=(
        "id string not null, visitor string, n int, price decimal(20,2), x double, "
        "tags array<string>"
    ),
)
PAGES = Topic("web.pages", kind="compacted", key="page", event="page string not null, title string")

TIMED_PAGES = Topic("pages", kind="compacted", key="page", event="page string, at timestamp")


def function(hits: Any) -> dict[str, Any]:
    return {"t": hits}


def nothing() -> dict[str, Any]:
    return {}


def declared(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "reads": {"hits": HITS},
        "writes": [Table("t", keys=("id",), fold={"rows": count()})],
        **changed,
    }
    return pipeline(**given)(function)


def step(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    state["n"] = row["n"]


def stepping(name: str, *, keys: tuple[str, ...] = ("visitor",), emits: str | None = None) -> Table:
    return Table(name, keys=keys, fold=ordered(step, state="last int", emits=emits))


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("topic name", lambda: Topic("a/b", event="x int"), "valid name of a Kafka topic"),
    ("topic kind", lambda: Topic("a", event="x int", kind="kept"), "kind 'kept'"),
    ("no partition", lambda: Topic("a", event="x int", partitions=0), "0 partitions"),
    ("unknown key", lambda: Topic("a", event="x int", key="y"), "no column y"),
    ("key type", lambda: Topic("a", event="x double", key="x"), "key of type double"),
    (
        "compacted without key",
        lambda: Topic("a", event="x int", kind="compacted"),
        "compacted and has no key",
    ),
    ("type", lambda: Topic("a", event="x map<string,int>"), "type map"),
    ("empty event", lambda: Topic("a", event=""), "column name is expected"),
    ("digit first", lambda: Topic("a", event="1st string"), "begins with a letter or _"),
    ("column twice", lambda: Topic("a", event="x int, X int"), "declared twice"),
    ("hidden column", lambda: Topic("a", event="_x int"), "underscore"),
    ("trailing text", lambda: Topic("a", event="x int y"), "not expected"),
    (
        "a default that is not a literal",
        lambda: Topic("a", event="x timestamp default now()"),
        "default of x is `now`, which is not a literal",
    ),
    ("no default", lambda: Topic("a", event="x int default"), "default of x is missing"),
    ("half a text", lambda: Topic("a", event="x string default 'y"), "not a literal"),
    (
        "a default of another type",
        lambda: Topic("a", event="x int default '1'"),
        "default of x is the text",
    ),
    (
        "a default out of range",
        lambda: Topic("a", event="x tinyint default 128"),
        "default of x is 128, beyond",
    ),
    (
        "a default without its zone",
        lambda: Topic("a", event="x timestamp default timestamp '2024-01-01 00:00:00'"),
        "not a time with zone",
    ),
    (
        "null by default",
        lambda: Topic("a", event="x int not null default null"),
        "not null, and null by default",
    ),
    (
        "two defaults",
        lambda: Topic("a", event="x int default 1 default 2"),
        "`default` is not expected",
    ),
    (
        "a default inside",
        lambda: Topic("a", event="x struct<y:int default 1>"),
        "y in x has a default",
    ),
    (
        "old name of no column",
        lambda: Topic("a", event="x int", was={"y": "z"}),
        "was names y, which is not a column",
    ),
    (
        "old name inside a column",
        lambda: Topic("a", event="x struct<y:int>", was={"x.y": "z"}),
        "was names x.y",
    ),
    (
        "old name that is a column",
        lambda: Topic("a", event="x int, y int", was={"x": "y"}),
        "x was y, which is a column",
    ),
    (
        "a column's own name as its old one",
        lambda: Topic("a", event="x int", was={"x": "x"}),
        "x was x, which is a column",
    ),
    (
        "one old name of two columns",
        lambda: Topic("a", event="x int, y int", was={"x": "z", "y": ("w", "z")}),
        "y was z, which is what x was already",
    ),
    (
        "an old name that is none",
        lambda: Topic("a", event="x int", was={"x": ("y", "")}),
        "x was '', which is not a name",
    ),
    (
        "lateness alone",
        lambda: Topic("a", event="at timestamp", lateness="1 hour"),
        "lateness alone",
    ),
    (
        "event_time alone",
        lambda: Topic("a", event="at timestamp", event_time="at"),
        "event_time alone",
    ),
    (
        "event_time of nothing",
        lambda: Topic("a", event="at timestamp", event_time="on", lateness="1 hour"),
        "no column on, its event_time",
    ),
    (
        "event_time of a day",
        lambda: Topic("a", event="at date", event_time="at", lateness="1 hour"),
        "not a timestamp",
    ),
    (
        "lateness in words",
        lambda: Topic("a", event="at timestamp", event_time="at", lateness="a while"),
        "'a while', which is not a duration",
    ),
    ("expire alone", lambda: Table("t", expire="at"), "declares expire alone"),
    ("after alone", lambda: Table("t", after="1 hour"), "declares after alone"),
    (
        "after in words",
        lambda: Table("t", expire="at", after="a while"),
        "'a while', which is not a duration",
    ),
    (
        "after for ever",
        lambda: Table("t", expire="at", after="36501 days"),
        "longer than a log is kept",
    ),
    (
        "expire by the platform's column",
        lambda: Table("t", expire="_timestamp", after="1 hour"),
        "not a column of its rows",
    ),
    (
        "expire by a value",
        lambda: Table("t", keys=("k",), fold={"n": count()}, expire="n", after="1 hour"),
        "not one of its keys",
    ),
    (
        "expiring emitted rows",
        lambda: Table("t", emitted="at timestamp", expire="at", after="1 hour"),
        "is emitted, and its rows cannot expire",
    ),
    (
        "expiring state",
        lambda: Table(
            "t", keys=("k",), fold=ordered(step, state="n int"), expire="k", after="1 hour"
        ),
        "folded by a step, and its rows cannot expire",
    ),
    (
        "expiry without a log's clock",
        lambda: pipeline(
            reads={"pages": TIMED_PAGES},
            writes=[Table("t", latest=TIMED_PAGES, expire="at", after="1 hour")],
        )(nothing),
        "reads compacted topics alone",
    ),
    (
        "expire by no column of the topic",
        lambda: Table("t", latest=PAGES, expire="at", after="1 hour"),
        "topic web.pages has no such column",
    ),
    (
        "expire by no time of the topic",
        lambda: Table("t", latest=PAGES, expire="title", after="1 hour"),
        "of type string and no timestamp",
    ),
    (
        "identity of nothing",
        lambda: Topic("a", event="x int", identity=("x", "y")),
        "no column y, its identity",
    ),
    (
        "identity twice",
        lambda: Topic("a", event="x int", identity=("x", "x")),
        "a column twice in its identity",
    ),
    (
        "inexact identity",
        lambda: Topic("a", event="x double", identity="x"),
        "an identity of type double",
    ),
    (
        "horizon alone",
        lambda: Topic("a", event="x int", identity_horizon="1 hour"),
        "identity_horizon alone",
    ),
    (
        "horizon of nothing",
        lambda: Topic("a", event="x int", identity="x", identity_horizon="0 minutes"),
        "within which no record is a duplicate",
    ),
    (
        "compacted identity",
        lambda: Topic("a", event="x int", kind="compacted", key="x", identity="x"),
        "compaction takes away",
    ),
    (
        "producers' time",
        lambda: Topic(
            "a", event="x int", identity="x", config={"message.timestamp.type": "CreateTime"}
        ),
        "go by the broker's time",
    ),
    ("table name", lambda: Table("T"), "valid name of a table"),
    ("platform's table", lambda: Table("rejects"), "belongs to the platform"),
    ("keys as text", lambda: Table("t", keys="id", fold={"n": count()}), "keys='id'"),
    ("keys alone", lambda: Table("t", keys=("id",)), "keys and no fold"),
    ("fold alone", lambda: Table("t", fold={"n": count()}), "fold and no keys"),
    ("no fold", lambda: Table("t", keys=("id",), fold={"n": "count"}), "not a fold"),  # type: ignore[dict-item]  # the mistake under test
    ("latest and keys", lambda: Table("t", keys=("id",), latest=PAGES), "both latest and keys"),
    ("latest of no key", lambda: Table("t", latest=Topic("a", event="x int")), "has no key"),
    (
        "a share beyond 1",
        lambda: Table("t", keys=("id",), fold={"n": count()}, max_changed=5),
        "max_changed=5, which is not a share",
    ),
    (
        "a share below 0",
        lambda: Table("t", max_removed=-0.1),
        "max_removed=-0.1, which is not a share",
    ),
    (
        "a share that is no number",
        lambda: Table("t", max_added="5%"),
        "max_added='5%', which is not a share",
    ),  # type: ignore[arg-type]  # the mistake under test
    (
        "a share that is not a number",
        lambda: Table("t", max_added=float("nan")),
        "max_added=nan, which is not a share",
    ),
    (
        "a share that is true",
        lambda: Table("t", max_added=True),
        "max_added=True, which is not a share",
    ),
    ("changed rows without keys", lambda: Table("t", max_changed=0.1), "max_changed and no keys"),
    (
        "a step by the name of a lambda",
        lambda: ordered(lambda *_: None, state="n int"),
        "<lambda> is not a step",
    ),
    (
        "a step over what is not there",
        lambda: ordered(step, state="n int", over="polars"),
        "is called over .polars.",
    ),
    (
        "a step that is woken by no time",
        lambda: ordered(step, state="n int, at timestamp", on_time="n"),
        "is woken by 'n', which is not a timestamp of its state",
    ),
    (
        "a step that is woken by no column",
        lambda: ordered(step, state="n int", on_time=["n"]),
        "is woken by a list, which is not a timestamp of its state",
    ),
    (
        "a step that is woken over batches",
        lambda: ordered(step, state="at timestamp", over="arrow", on_time="at"),
        "is woken on time, and is called over arrow",
    ),
    ("a step that is no function", lambda: ordered(max, state="n int"), "max is not a step"),
    ("a state that is no DDL", lambda: ordered(step, state="n"), "the state of step: "),
    (
        "a state that is not null",
        lambda: ordered(step, state="n int not null"),
        "has the column n int not null",
    ),
    (
        "a state with a default",
        lambda: ordered(step, state="n int default 0"),
        "has the column n int default 0",
    ),
    (
        "a step and no keys",
        lambda: Table("t", fold=ordered(step, state="n int")),
        "fold and no keys",
    ),
    (
        "a state's column that is a key",
        lambda: Table("t", keys=("n",), fold=ordered(step, state="n int")),
        "column n twice",
    ),
    (
        "a hidden state",
        lambda: Table("t", keys=("id",), fold=ordered(step, state="n int, `_n` int")),
        "underscore",
    ),
    (
        "emitted and folded",
        lambda: Table("t", keys=("id",), fold={"n": count()}, emitted="n int"),
        "is emitted, and its rows are appended",
    ),
    (
        "emitted by nobody",
        lambda: declared(writes=[Table("t"), Table("e", emitted="n int")]),
        "e is emitted by no ordered fold",
    ),
    (
        "emitted twice",
        lambda: declared(
            writes=[stepping("t", emits="e"), stepping("u", emits="e"), Table("e", emitted="n int")]
        ),
        "e is emitted by t and by u",
    ),
    (
        "emits into nothing",
        lambda: declared(writes=[stepping("t", emits="e")]),
        "emits rows into e, which pipeline function does not write",
    ),
    (
        "emits into a table of the function",
        lambda: declared(writes=[stepping("t", emits="e"), Table("e")]),
        "emits rows into e, which pipeline function does not write",
    ),
    ("a set of nothing", lambda: set_("n", limit=0), "set_ has limit=0"),
    ("a set without a limit", lambda: set_("n", limit=None), "set_ has limit=None"),  # type: ignore[arg-type]  # the mistake under test
    ("no top row", lambda: top_k("n", 0, by="x"), "top_k has k=0"),
    ("top rows by the way", lambda: top_k("n", "x"), "top_k has k='x'"),  # type: ignore[arg-type]  # the mistake under test
    ("a sketch of nothing", lambda: hll("n", lg_k=3), "hll has lg_k=3"),
    ("a sketch beyond memory", lambda: theta("n", lg_k=27), "theta has lg_k=27"),
    (
        "a rank in per cent",
        lambda: kll("n", 99),
        "kll has rank=99, which is not a number from 0 to 1",
    ),
    ("a rank that is true", lambda: kll("n", rank=True), "kll has rank=True"),
    ("a quantile of nothing", lambda: kll("n", 0.5, k=7), "kll has k=7"),
    (
        "a mark of overflow that is a key",
        lambda: Table("t", keys=("v_overflow",), fold={"v": set_("n")}),
        "column v_overflow twice",
    ),
    (
        "a mark of overflow that is a fold",
        lambda: Table("t", keys=("id",), fold={"v": top_k("n"), "v_overflow": count()}),
        "column v_overflow twice",
    ),
    ("view", lambda: View("v", " "), "no query"),
    ("no topic", lambda: declared(reads={}), "reads no topic"),
    ("no table", lambda: declared(writes=[]), "writes no table"),
    (
        "a topic written",
        lambda: declared(writes=[HITS]),
        "pipeline function writes topic web.hits, which is not a Table or View",
    ),
    (
        "text written",
        lambda: declared(writes=[Table("t"), "u"]),
        "pipeline function writes 'u', which is not a Table or View",
    ),
    (
        "a table read",
        lambda: declared(reads={"hits": Table("t")}),
        "pipeline function reads hits, which is table t and no Topic",
    ),
    (
        "a class read",
        lambda: declared(reads={"hits": Table}),
        "pipeline function reads hits, which is the class Table and no Topic",
    ),
    ("policy", lambda: declared(on_error="skip"), "pipeline function has on_error='skip'"),
    (
        "same table twice",
        lambda: declared(writes=[Table("t"), View("t", "select 1")]),
        "writes t twice",
    ),
    ("parameter", lambda: declared(reads={"clicks": HITS}), "parameter hits"),
    ("compacted history", lambda: declared(reads={"hits": PAGES}), "history cannot be replayed"),
    ("idle topic", lambda: declared(reads={"hits": HITS, "pages": PAGES}), "does nothing with it"),
    (
        "latest not read",
        lambda: declared(writes=[Table("t"), Table("p", latest=PAGES)]),
        "does not read",
    ),
]


@pytest.mark.parametrize(
    ("declare", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_cannot_be_meant_is_refused_with_the_users_line(
    declare: Callable[[], Any], said: str
) -> None:
    with pytest.raises(DeclarationError, match=said) as refused:
        declare()

    assert refused.value.message.startswith(f"{__file__}:")


T = Table("t")


def folded(**fold: Any) -> Table:
    return Table("t", keys=("id",), fold=fold)


# What was given instead is named, never printed whole, and the hint says what to type.
NEAR_MISSES: list[tuple[Callable[[], Any], str, str]] = [
    (
        lambda: folded(a=max_(3)),  # type: ignore[arg-type]  # the mistakes under test, from here on
        "table t folds column a by max of an int, which is not the name of a column",
        'sum_("ms")',
    ),
    (
        lambda: folded(a=avg_(HITS)),
        "by avg of topic web.hits, which is not the name of a column",
        'sum_("ms")',
    ),  # type: ignore[arg-type]
    (
        lambda: folded(a=max_(None)),
        "by max of None, which is not the name of a column",
        'sum_("ms")',
    ),  # type: ignore[arg-type]
    (
        lambda: folded(a=count(3)),
        "by count of an int, which is not the name of a column",
        'sum_("ms")',
    ),  # type: ignore[arg-type]
    (
        lambda: folded(a=top_k("n", by=3)),
        "by top_k of an int, which is not the name of a column",
        'sum_("ms")',
    ),  # type: ignore[arg-type]
    (lambda: folded(a=count), "column a by count, but count is not called", "write count()"),
    (lambda: folded(a=max_), "but max_ is not called", 'write max_("ms")'),
    (lambda: folded(a=kll), "but kll is not called", 'write kll("ms", 0.5)'),
    (lambda: folded(a=step), "by the function step, which is not a fold", "use count()"),
    (lambda: folded(a=HITS), "column a by topic web.hits, which is not a fold", "use count()"),
    (lambda: folded(a=3), "column a by an int, which is not a fold", "use count()"),
    (
        lambda: Table("t", keys=("id",), fold=count()),  # type: ignore[arg-type]
        "table t has a Count for fold, which names no column",
        'fold={"rows": count()}',
    ),
    (lambda: Table("t", latest=T), "latest of table t, which is no Topic", "latest=TOPIC"),  # type: ignore[arg-type]
    (lambda: Table(HITS), "topic web.hits is not a valid name of a table", "lower case letters"),  # type: ignore[arg-type]
    (lambda: Topic(T, event="x int"), "table t is not a valid name of a Kafka topic", "letters"),  # type: ignore[arg-type]
    (lambda: Table("t", keys=(HITS,)), "topic web.hits in keys, which is not text", 'keys=("id",)'),  # type: ignore[arg-type]
    (
        lambda: Table("t", keys=None),
        "None for keys, which is not a list of texts",
        "leave keys out",
    ),  # type: ignore[arg-type]
    (
        lambda: Table("t", checks=[3]),
        "an int in checks, which is not text",
        'checks=["visits > 0"]',
    ),  # type: ignore[list-item]
    (
        lambda: Topic("a", event="x int", identity=3),  # type: ignore[arg-type]
        "topic a has an int for identity, which is not a list of texts",
        'identity=("id",)',
    ),
    (lambda: Topic("a", event="x int", key=HITS), "no column topic web.hits, its key", "are x"),  # type: ignore[arg-type]
    (
        lambda: Topic("a", event="x int", event_time=HITS, lateness="1 hour"),  # type: ignore[arg-type]
        "no column topic web.hits, its event_time",
        "are x",
    ),
    (lambda: View("x", HITS), "view x has topic web.hits for its query", 'View("x", "select'),  # type: ignore[arg-type]
    (lambda: View("x", " "), "view x has no query", 'View("x", "select'),
    (lambda: Table("t", emitted=3), "table t has an int for its columns", '"visits bigint'),  # type: ignore[arg-type]
    (
        lambda: Topic("a", event="größe string"),
        "the column name größe has other characters than letters a to z, digits and _",
        "write it in backquotes: `größe`",
    ),
    (lambda: Topic("a", event="ärger string"), "column name ärger has", "backquotes: `ärger`"),
    (lambda: Topic("a", event="x int, a-b int"), "column name a-b has", "backquotes: `a-b`"),
    (lambda: Topic("a", event="x größe"), "x has the type größe, which", "use one of"),
    (lambda: Topic("a", event="s struct<größe:int>"), "name größe has", "no field of a struct"),
    (
        lambda: Topic("a", event="s array<struct<t:struct<`größe`:int>>>"),
        "s.t has a field größe, and only a column of its own may",
        "leave größe out",
    ),
    (lambda: declared(reads=HITS), "function reads topic web.hits, which has", 'reads={"events"'),
    (lambda: declared(reads=[HITS]), "function reads a list, which has no", 'reads={"events"'),
    (lambda: declared(writes=T), "writes table t, which is not in a list", "writes=[TABLE]"),
    (lambda: declared(writes="t"), "writes 't', which is not in a list", "writes=[TABLE]"),
    (lambda: declared(reads={"hits": 3}), "hits, which is an int and no Topic", '"hits": TOPIC'),
    (lambda: declared(reads={3: HITS}), "reads a dict, which has no", 'reads={"events"'),
    (lambda: declared(on_error=HITS), "has on_error=topic web.hits", '"reject" or "stop"'),
    (lambda: declared(on_error=["stop"]), "has on_error=a list", '"reject" or "stop"'),
    (lambda: declared(max_rejects=HITS), "has max_rejects=topic web.hits, which", "0.01"),
    (lambda: Table("t", max_added=HITS), "has max_added=topic web.hits, which", "0.05"),  # type: ignore[arg-type]
    (lambda: Topic("a", event=HITS), "event is topic web.hits, which declares nothing", "DDL"),  # type: ignore[arg-type]
    (lambda: Topic("a", event="x int", kind=["retained"]), "the kind a list", '"retained"'),  # type: ignore[arg-type]
    (lambda: Topic("a", event="x int", partitions=HITS), "has topic web.hits partitions", "from 1"),  # type: ignore[arg-type]
    (lambda: Topic("a", event="x int", archive=HITS), "archive=topic web.hits", "archive is True"),  # type: ignore[arg-type]
    (lambda: Topic("a", event="x int", config="a=b"), "has 'a=b' for config", "write config={"),  # type: ignore[arg-type]
    (lambda: Topic("a", event="x int", was="y"), "was is 'y', which gives no", "write was={"),  # type: ignore[arg-type]
    (
        lambda: Topic("a", event="x int", was={"x": 3}),
        "x was 3, which is not a name",
        "write was={",
    ),  # type: ignore[dict-item]
    (lambda: ordered(step, state="n int", emits=T), "emits table t, which is", 'emits="regulars"'),  # type: ignore[arg-type]
    (lambda: ordered(step, state="n int", over=T), "called over table t", '"row"'),  # type: ignore[arg-type]
    (lambda: ordered(HITS, state="n int"), "topic web.hits is not a step", "give a function"),  # type: ignore[arg-type]
    (lambda: declared(name=3), "an int is not a valid pipeline name", "lower case letters"),
]


def test_a_name_in_backquotes_is_the_columns_name() -> None:
    topic = Topic("a", event="`größe` string, `a-b` int", key="größe", identity="a-b")

    assert [column.name for column in topic.columns] == ["größe", "a-b"]


@pytest.mark.parametrize(
    ("declare", "said", "hint"), NEAR_MISSES, ids=[case[1] for case in NEAR_MISSES]
)
def test_a_near_miss_is_named_and_the_hint_says_what_to_type(
    declare: Callable[[], Any], said: str, hint: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()

    assert refused.value.message.startswith(f"{__file__}:")
    assert said in refused.value.message
    assert hint in refused.value.hint


def test_a_declared_pipeline_is_a_value() -> None:
    made = declared(
        reads={"hits": HITS, "pages": PAGES},
        writes=[Table("t"), Table("p", latest=PAGES), View("v", "select 1;")],
    )

    assert made.name == "function"
    assert made.inputs == {"hits": (HITS,)}
    assert [table.name for table in made.function_tables] == ["t"]
    assert [table.name for table in made.latest_tables] == ["p"]
    assert made.views[0].sql == "select 1"


@pytest.mark.parametrize(
    "text", ["string", "decimal(10,2)", "array<struct<a:int,b:array<timestamp>>>"]
)
def test_a_type_is_spelled_as_it_is_read(text: str) -> None:
    assert str(parse_type(text)) == text


def test_sparks_other_spellings_are_the_same_types() -> None:
    assert parse_columns("a long not null, b: INTEGER") == parse_columns("a bigint NOT NULL, b int")


def test_a_default_is_a_literal_of_sql_before_or_after_not_null() -> None:
    ddl = (
        "a string not null default 'it''s', b int default -7 not null, c double default 1.5e3, "
        "d boolean default TRUE, e date default date '2024-01-01', f string default null, "
        'g string default "\\t\'"'
    )

    assert [(column.default, column.nullable) for column in parse_columns(ddl)] == [
        ('"it\'s"', False),
        ("-7", False),
        ("1.5e3", True),
        ("true", True),
        ('"2024-01-01"', True),
        (None, True),
        ('"\\t\'"', True),
    ]


OUTPUT = {column.name: column.type for column in HITS.columns}


def stored(fold: Fold) -> str:
    return dict(
        table_births(declared(writes=[Table("t", keys=("id",), fold={"v": fold})]), {"t": OUTPUT})[
            0
        ].columns
    )["v"]


def test_folds_decide_the_stored_type() -> None:
    assert [
        stored(fold)
        for fold in (
            count(),
            count("tags"),
            sum_("n"),
            sum_("price"),
            sum_("x"),
            min_("id"),
            max_("price"),
        )
    ] == [
        "bigint",
        "bigint",
        "bigint",
        "decimal(30,2)",
        "double",
        "string",
        "decimal(20,2)",
    ]


@pytest.mark.parametrize("fold", [sum_("id"), max_("tags"), sum_("missing")])
def test_a_fold_that_does_not_fit_its_column_is_refused_with_the_tables_line(fold: Fold) -> None:
    with pytest.raises(DeclarationError, match=f"{__file__}:"):
        stored(fold)


def test_a_latest_table_hides_its_order_and_its_tombstones() -> None:
    made = declared(writes=[Table("t"), Table("h", latest=HITS)])

    latest = table_births(made, {"t": OUTPUT})[1]

    assert [name for name, _ in latest.columns if name.startswith("_")] == [
        "_log_time",
        "_partition",
        "_offset",
        "_deleted",
    ]
    assert [name for name, _ in latest.served] == [column.name for column in HITS.columns]


ORIGIN = {**OUTPUT, **{name: parse_type(kind) for name, kind in ORIGIN_COLUMNS}}


def test_a_table_that_a_step_folds_keeps_its_state_and_where_its_last_row_stands() -> None:
    made = declared(writes=[stepping("t", emits="e"), Table("e", emitted="who string, n int")])

    folded, emitted, _ = table_births(made, {"t": ORIGIN})

    assert folded.columns == (
        ("visitor", "string"),
        ("last", "int"),
        ("_topic", "string"),
        ("_partition", "int"),
        ("_offset", "bigint"),
        ("_first_offset", "bigint"),
        ("_deleted", "boolean"),
    )
    assert folded.steps_over == tuple((name, str(kind)) for name, kind in ORIGIN.items())
    assert (emitted.columns, emitted.keys, emitted.steps_over) == (
        (("who", "string"), ("n", "int")),
        (),
        (),
    )
    assert made.function_tables == made.tables[:1]


@pytest.mark.parametrize(
    ("keys", "output", "said"),
    [
        (("id",), ORIGIN, "its keys id do not have the topic's key among them"),
        (
            ("visitor",),
            OUTPUT,
            "needs column _topic string for its order, and the function does not return it",
        ),
        (
            ("visitor",),
            {**ORIGIN, "_offset": parse_type("int")},
            "needs column _offset bigint for its order, and the function returns it as int",
        ),
        (("visitor", "x"), ORIGIN, "key x of type double"),
    ],
)
def test_an_order_that_is_none_is_refused_with_the_tables_line(
    keys: tuple[str, ...], output: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeclarationError, match=f"{__file__}:.*{said}"):
        table_births(declared(writes=[stepping("t", keys=keys)]), {"t": output})


TIMED = {**OUTPUT, "at": parse_type("timestamp")}
PLACED = {**TIMED, **{name: parse_type(kind) for name, kind in FOLD_ORDER_COLUMNS}}


def test_rows_that_expire_are_stored_without_what_judges_them() -> None:
    expiring = Table("t", expire="at", after="1 hour")

    born, _ = table_births(declared(writes=[expiring]), {"t": PLACED})

    assert [name for name, _ in born.columns] == list(TIMED)
    assert born.expiry == expiring.expiry


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (OUTPUT, "needs column at for expire"),
        ({**PLACED, "at": parse_type("date")}, "of type date and no timestamp"),
        (TIMED, "needs column _log_time bigint for expire"),
    ],
)
def test_rows_that_cannot_expire_are_refused_with_the_tables_line(
    output: dict[str, Any], said: str
) -> None:
    expiring = Table("t", expire="at", after="1 hour")

    with pytest.raises(DeclarationError, match=f"{__file__}:.*{said}"):
        table_births(declared(writes=[expiring]), {"t": output})


def test_thresholds_are_part_of_the_birth_of_every_kind_of_table() -> None:
    tables = [
        Table("t", max_added=0),
        Table("k", keys=("id",), fold={"rows": count()}, max_changed=0.05),
        Table("p", latest=PAGES, max_removed=1),
    ]
    made = declared(reads={"hits": HITS, "pages": PAGES}, writes=tables)

    births = table_births(made, {"t": OUTPUT, "k": OUTPUT})

    assert [birth.thresholds for birth in births] == [
        Thresholds(max_added=0),
        Thresholds(max_changed=0.05),
        Thresholds(max_removed=1),
        Thresholds(),
    ]
