"""Declarations are checked when they are made, and errors name the user's line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kappa import (
    Fold,
    Table,
    Topic,
    View,
    absent,
    avg_,
    count,
    follows,
    hll,
    kll,
    max_,
    min_,
    ordered,
    pipeline,
    sequence,
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


# Declarations that are made when they are called: of a topic a, a table t, the pipeline, a step.
Declare = Callable[[], Any]


def topic(event: Any, **more: Any) -> Declare:
    return lambda: Topic("a", event=event, **more)


def table(**more: Any) -> Declare:
    return lambda: Table("t", **more)


def keyed(**more: Any) -> Declare:
    return lambda: Table("t", **{"keys": ("id",), "fold": {"n": count()}, **more})


def piped(**changed: Any) -> Declare:
    return lambda: declared(**changed)


def writing(*writes: Any) -> Declare:
    return piped(writes=[*writes])


def stepped(state: str, **more: Any) -> Declare:
    return lambda: ordered(step, state=state, **more)


def step(state: dict[str, Any], row: Mapping[str, Any]) -> None:
    state["n"] = row["n"]


def is_odd(row: Mapping[str, Any]) -> bool:
    return row["n"] % 2 == 1


def no_row() -> bool:
    return True


def sequenced(*parts: Any, **more: Any) -> Declare:
    return lambda: sequence(*parts, **{"emits": "e", **more})


ODD_OR_NOT = follows(is_odd, optional=True)


def stepping(name: str, *, keys: tuple[str, ...] = ("visitor",), emits: str | None = None) -> Table:
    return Table(name, keys=keys, fold=ordered(step, state="last int", emits=emits))


T = Table("t")
EMITTED = Table("e", emitted="n int")
HOUR = "1 hour"
REFUSED: list[tuple[Declare, str]] = [
    (lambda: Topic("a/b", event="x int"), "valid name of a Kafka topic"),
    (topic("x int", kind="kept"), "kind 'kept'"),
    (topic("x int", partitions=0), "0 partitions"),
    (topic("x int", key="y"), "no column y"),
    (topic("x double", key="x"), "key of type double"),
    (topic("x int", kind="compacted"), "compacted and has no key"),
    (topic("x map<string,int>"), "type map"),
    (topic(""), "column name is expected"),
    (topic("1st string"), "begins with a letter or _"),
    (topic("x int, X int"), "declared twice"),
    (topic("_x int"), "underscore"),
    (topic("x int y"), "not expected"),
    (topic("x timestamp default now()"), "default of x is `now`, which is not a literal"),
    (topic("x int default"), "default of x is missing"),
    (topic("x string default 'y"), "not a literal"),
    (topic("x int default '1'"), "default of x is the text"),
    (topic("x tinyint default 128"), "default of x is 128, beyond"),
    (topic("x timestamp default timestamp '2024-01-01 00:00:00'"), "not a time with zone"),
    (topic("x int not null default null"), "not null, and null by default"),
    (topic("x int default 1 default 2"), "`default` is not expected"),
    (topic("x struct<y:int default 1>"), "y in x has a default"),
    (topic("x int", was={"y": "z"}), "was names y, which is not a column"),
    (topic("x struct<y:int>", was={"x.y": "z"}), "was names x.y"),
    (topic("x int, y int", was={"x": "y"}), "x was y, which is a column"),
    (topic("x int", was={"x": "x"}), "x was x, which is a column"),
    (
        topic("x int, y int", was={"x": "z", "y": ("w", "z")}),
        "y was z, which is what x was already",
    ),
    (topic("x int", was={"x": ("y", "")}), "x was '', which is not a name"),
    (topic("at timestamp", lateness=HOUR), "lateness alone"),
    (topic("at timestamp", event_time="at"), "event_time alone"),
    (topic("at timestamp", event_time="on", lateness=HOUR), "no column on, its event_time"),
    (topic("at date", event_time="at", lateness=HOUR), "not a timestamp"),
    (topic("at timestamp", event_time="at", lateness="a while"), "'a while', which is not a dur"),
    (topic("x int", identity=("x", "y")), "no column y, its identity"),
    (topic("x int", identity=("x", "x")), "a column twice in its identity"),
    (topic("x double", identity="x"), "an identity of type double"),
    (topic("x int", identity_horizon=HOUR), "identity_horizon alone"),
    (topic("x int", identity="x", identity_horizon="0 m"), "within which no record is a duplicate"),
    (topic("x int", kind="compacted", key="x", identity="x"), "compaction takes away"),
    (
        topic("x int", identity="x", config={"message.timestamp.type": "CreateTime"}),
        "go by the broker's time",
    ),
    (table(expire="at"), "declares expire alone"),
    (table(after=HOUR), "declares after alone"),
    (table(expire="at", after="a while"), "'a while', which is not a duration"),
    (table(expire="at", after="36501 days"), "longer than a log is kept"),
    (table(expire="_timestamp", after=HOUR), "not a column of its rows"),
    (keyed(expire="n", after=HOUR), "not one of its keys"),
    (table(emitted="at timestamp", expire="at", after=HOUR), "is emitted, and its rows cannot exp"),
    (
        keyed(fold=ordered(step, state="n int"), expire="id", after=HOUR),
        "folded by a step, and its rows cannot expire",
    ),
    (
        lambda: pipeline(
            reads={"pages": TIMED_PAGES},
            writes=[Table("t", latest=TIMED_PAGES, expire="at", after="1 hour")],
        )(nothing),
        "reads compacted topics alone",
    ),
    (table(latest=PAGES, expire="at", after=HOUR), "topic web.pages has no such column"),
    (table(latest=PAGES, expire="title", after=HOUR), "of type string and no timestamp"),
    (lambda: Table("T"), "valid name of a table"),
    (lambda: Table("rejects"), "belongs to the platform"),
    (keyed(keys="id"), "keys='id'"),
    (table(keys=("id",)), "keys and no fold"),
    (table(fold={"n": count()}), "fold and no keys"),
    (keyed(fold={"n": "count"}), "not a fold"),
    (table(keys=("id",), latest=PAGES), "both latest and keys"),
    (table(latest=Topic("a", event="x int")), "has no key"),
    (keyed(max_changed=5), "max_changed=5, which is not a share"),
    (table(max_removed=-0.1), "max_removed=-0.1, which is not a share"),
    (table(max_added="5%"), "max_added='5%', which is not a share"),
    (table(max_added=float("nan")), "max_added=nan, which is not a share"),
    (table(max_added=True), "max_added=True, which is not a share"),
    (table(max_changed=0.1), "max_changed and no keys"),
    (lambda: ordered(lambda *_: None, state="n int"), "<lambda> is not a step"),
    (stepped("n int", over="polars"), "is called over 'polars'"),
    (
        stepped("n int, at timestamp", on_time="n"),
        "is woken by 'n', which is not a timestamp of its state",
    ),
    (stepped("n int", on_time=["n"]), "is woken by a list, which is not a timestamp of its state"),
    (
        stepped("at timestamp", over="arrow", on_time="at"),
        "is woken on time, and is called over arrow",
    ),
    (
        stepped("at timestamp", over="keys", on_time="at"),
        "is woken on time, and is called over keys",
    ),
    (lambda: ordered(max, state="n int"), "max is not a step"),
    (sequenced(is_odd), "fewer than two rows has no order"),
    (sequenced(), "fewer than two rows has no order"),
    (sequenced(is_odd, lambda row: row), "<lambda> is not a condition"),
    (sequenced(is_odd, "n = 1"), "'n = 1' is not a condition"),
    (sequenced(is_odd, no_row), "no_row takes 0 arguments"),
    (sequenced(is_odd, is_odd, within="soon"), "within='soon', which is not a duration"),
    (sequenced(is_odd, is_odd, emits=T), "emits table t, which is no name"),
    (sequenced(is_odd, is_odd, keeps="_n int"), "underscore"),
    (sequenced(is_odd, is_odd, keeps="`a-b` int"), "keeps a-b, which is no name of a kept value"),
    (sequenced(ODD_OR_NOT, is_odd), "is_odd, the first or last part of a sequence, is optional"),
    (sequenced(is_odd, ODD_OR_NOT), "is_odd, the first or last part of a sequence, is optional"),
    (lambda: sequence(absent(is_odd), is_odd, emits="e"), "begins with an absence"),
    (lambda: sequence(is_odd, absent(is_odd), emits="e"), "says for how long: no match would end"),
    (
        lambda: sequence(is_odd, absent(is_odd, lasting=HOUR), is_odd, emits="e"),
        "the absence of is_odd has lasting, and a part follows it",
    ),
    (lambda: absent(is_odd, lasting=""), "lasting='', which is not a duration"),
    (lambda: follows(is_odd, times=0), "has times=0"),
    (lambda: follows(is_odd, times=1_000_000), "has times=1000000"),
    (stepped("n"), "the state of step: "),
    (stepped("n int not null"), "has the column n int not null"),
    (stepped("n int default 0"), "has the column n int default 0"),
    (table(fold=ordered(step, state="n int")), "fold and no keys"),
    (keyed(keys=("n",), fold=ordered(step, state="n int")), "column n twice"),
    (lambda: ordered(step, state="n int, `_n` int"), "underscore"),
    (keyed(emitted="n int"), "is emitted, and its rows are appended"),
    (writing(T, EMITTED), "e is emitted by no ordered fold"),
    (writing(stepping("t", emits="e"), stepping("u", emits="e"), EMITTED), "emitted by t and by u"),
    *(
        (
            writing(stepping("t", emits="e"), *more),
            "emits rows into e, which pipeline function does",
        )
        for more in ((), (Table("e"),))
    ),
    (lambda: set_("n", limit=0), "set_ has limit=0"),
    (lambda: set_("n", limit=None), "set_ has limit=None"),  # type: ignore[arg-type]  # the mistake under test
    (lambda: top_k("n", 0, by="x"), "top_k has k=0"),
    (lambda: top_k("n", "x"), "top_k has k='x'"),  # type: ignore[arg-type]  # the mistake under test
    (lambda: hll("n", lg_k=3), "hll has lg_k=3"),
    (lambda: theta("n", lg_k=27), "theta has lg_k=27"),
    (lambda: kll("n", 99), "kll has rank=99, which is not a number from 0 to 1"),
    (lambda: kll("n", rank=True), "kll has rank=True"),
    (lambda: kll("n", 0.5, k=7), "kll has k=7"),
    (keyed(keys=("v_overflow",), fold={"v": set_("n")}), "column v_overflow twice"),
    (keyed(fold={"v": top_k("n"), "v_overflow": count()}), "column v_overflow twice"),
    (lambda: View("v", " "), "no query"),
    (piped(reads={}), "reads no topic"),
    (writing(), "writes no table"),
    (writing(HITS), "pipeline function writes topic web.hits, which is not a Table or View"),
    (writing(T, "u"), "pipeline function writes 'u', which is not a Table or View"),
    (piped(reads={"hits": T}), "pipeline function reads hits, which is table t and no Topic"),
    (piped(reads={"hits": Table}), "reads hits, which is the class Table and no Topic"),
    (piped(on_error="skip"), "pipeline function has on_error='skip'"),
    (writing(T, View("t", "select 1")), "writes t twice"),
    (piped(reads={"clicks": HITS}), "parameter hits"),
    (piped(reads={"hits": PAGES}), "history cannot be replayed"),
    (piped(reads={"hits": HITS, "pages": PAGES}), "does nothing with it"),
    (writing(T, Table("p", latest=PAGES)), "does not read"),
]


@pytest.mark.parametrize(("declare", "said"), REFUSED, ids=[case[1] for case in REFUSED])
def test_what_cannot_be_meant_is_refused_with_the_users_line(declare: Declare, said: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()

    assert refused.value.message.startswith(f"{__file__}:")
    assert said in refused.value.message


def folded(**fold: Any) -> Declare:
    return table(keys=("id",), fold=fold)


# What was given instead is named, never printed whole, and the hint says what to type.
NEAR_MISSES: list[tuple[Declare, str, str]] = [
    *(
        (
            folded(a=make(given)),
            f"by {said}, which is not",
            "sum_(",
        )
        for make, given, said in (
            (max_, 3, "max of an int"),
            (avg_, HITS, "avg of topic web.hits"),
            (max_, None, "max of None"),
            (count, 3, "count of an int"),
        )
    ),
    (folded(a=top_k("n", by=3)), "by top_k of an int, which is not the name", "sum_("),  # type: ignore[arg-type]
    (folded(a=count), "column a by count, but count is not called", "write count()"),
    (folded(a=max_), "but max_ is not called", 'write max_("ms")'),
    (folded(a=kll), "but kll is not called", 'write kll("ms", 0.5)'),
    (folded(a=step), "by the function step, which is not a fold", "use count()"),
    (folded(a=HITS), "column a by topic web.hits, which is not a fold", "use count()"),
    (folded(a=3), "column a by an int, which is not a fold", "use count()"),
    (keyed(fold=count()), "has a Count for fold, which names no column", 'fold={"rows": count()}'),
    (table(latest=T), "latest of table t, which is no Topic", "latest=TOPIC"),
    (lambda: Table(HITS), "topic web.hits is not a valid name of a table", "lower case letters"),  # type: ignore[arg-type]
    (lambda: Topic(T, event="x int"), "table t is not a valid name of a Kafka topic", "letters"),  # type: ignore[arg-type]
    (table(keys=(HITS,)), "topic web.hits in keys, which is not text", 'keys=("id",)'),
    (table(keys=None), "None for keys, which is not a list of texts", "leave keys out"),
    (table(checks=[3]), "an int in checks, which is not text", 'checks=["visits > 0"]'),
    (topic("x int", identity=3), "an int for identity, which is not a list", 'identity=("id",)'),
    (topic("x int", key=HITS), "no column topic web.hits, its key", "are x"),
    (topic("x int", event_time=HITS, lateness=HOUR), "topic web.hits, its event_time", "are x"),
    (lambda: View("x", HITS), "view x has topic web.hits for its query", 'View("x", "select'),  # type: ignore[arg-type]
    (lambda: View("x", " "), "view x has no query", 'View("x", "select'),
    (table(emitted=3), "table t has an int for its columns", '"visits bigint'),
    (
        topic("größe string"),
        "the column name größe has other characters than letters a to z, digits and _",
        "write it in backquotes: `größe`",
    ),
    (topic("ärger string"), "column name ärger has", "backquotes: `ärger`"),
    (topic("x int, a-b int"), "column name a-b has", "backquotes: `a-b`"),
    (topic("x größe"), "x has the type größe, which", "use one of"),
    (topic("x strin"), "x has the type strin, which", "did you mean string? use one of"),
    (topic("at datetime"), "at has the type datetime, which", "did you mean timestamp? use one of"),
    (
        topic("x int no null"),
        "`no` is not expected after column x in",
        "did you mean not null? sep",
    ),
    (topic("visitor string", key="visiter"), "has no column visiter, its key", "mean visitor? its"),
    (topic("at timestamp", event_time="att", lateness=HOUR), "no column att, its", "mean at? its"),
    (
        table(keys=("k",), fold={"most": max("x")}),
        "by 'x', which is not a fold",
        "Python's own max",
    ),
    (topic("s struct<größe:int>"), "name größe has", "no field of a struct"),
    (
        topic("s array<struct<t:struct<`größe`:int>>>"),
        "s.t has a field größe, and only a column of its own may",
        "leave größe out",
    ),
    (piped(reads=HITS), "function reads topic web.hits, which has", 'reads={"events"'),
    (piped(reads=[HITS]), "function reads a list, which has no", 'reads={"events"'),
    (piped(writes=T), "writes table t, which is not in a list", "writes=[TABLE]"),
    (piped(writes="t"), "writes 't', which is not in a list", "writes=[TABLE]"),
    (piped(reads={"hits": 3}), "hits, which is an int and no Topic", '"hits": TOPIC'),
    (piped(reads={3: HITS}), "reads a dict, which has no", 'reads={"events"'),
    (piped(on_error=HITS), "has on_error=topic web.hits", '"reject" or "stop"'),
    (piped(on_error=["stop"]), "has on_error=a list", '"reject" or "stop"'),
    (piped(max_rejects=HITS), "has max_rejects=topic web.hits, which", "0.01"),
    (table(max_added=HITS), "has max_added=topic web.hits, which", "0.05"),
    (topic(HITS), "event is topic web.hits, which declares nothing", "DDL"),
    (topic("x int", kind=["retained"]), "the kind a list", '"retained"'),
    (topic("x int", partitions=HITS), "has topic web.hits partitions", "from 1"),
    (topic("x int", archive=HITS), "archive=topic web.hits", "archive is True"),
    (topic("x int", config="a=b"), "has 'a=b' for config", "write config={"),
    (topic("x int", was="y"), "was is 'y', which gives no", "write was={"),
    (topic("x int", was={"x": 3}), "x was 3, which is not a name", "write was={"),
    (stepped("n int", emits=T), "emits table t, which is", 'emits="regulars"'),
    (stepped("n int", over=T), "called over table t", '"row"'),
    (lambda: ordered(HITS, state="n int"), "topic web.hits is not a step", "give a function"),  # type: ignore[arg-type]
    (piped(name=3), "an int is not a valid pipeline name", "lower case letters"),
]


def test_a_name_in_backquotes_is_the_columns_name() -> None:
    topic = Topic("a", event="`größe` string, `a-b` int", key="größe", identity="a-b")

    assert [column.name for column in topic.columns] == ["größe", "a-b"]


@pytest.mark.parametrize(
    ("declare", "said", "hint"), NEAR_MISSES, ids=[case[1] for case in NEAR_MISSES]
)
def test_a_near_miss_is_named_and_the_hint_says_what_to_type(
    declare: Declare, said: str, hint: str
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
    born = table_births(declared(writes=[keyed(fold={"v": fold})()]), {"t": OUTPUT})[0]
    return dict(born.columns)["v"]


@pytest.mark.parametrize(
    ("fold", "kind"),
    [
        (count(), "bigint"),
        (count("tags"), "bigint"),
        (sum_("n"), "bigint"),
        (sum_("price"), "decimal(30,2)"),
        (sum_("x"), "double"),
        (min_("id"), "string"),
        (max_("price"), "decimal(20,2)"),
    ],
    ids=str,
)
def test_folds_decide_the_stored_type(fold: Fold, kind: str) -> None:
    assert stored(fold) == kind


@pytest.mark.parametrize("fold", [sum_("id"), max_("tags"), sum_("missing")])
def test_a_fold_that_does_not_fit_its_column_is_refused_with_the_tables_line(fold: Fold) -> None:
    with pytest.raises(DeclarationError, match=f"{__file__}:"):
        stored(fold)


def test_a_latest_table_hides_its_order_and_its_tombstones() -> None:
    made = declared(writes=[Table("t"), Table("h", latest=HITS)])

    latest = table_births(made, {"t": OUTPUT})[1]

    hidden = [name for name, _ in latest.columns if name.startswith("_")]
    assert hidden == ["_log_time", "_partition", "_offset", "_deleted"]
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
    assert emitted.columns == (("who", "string"), ("n", "int"))
    assert (emitted.keys, emitted.steps_over) == ((), ())
    assert made.function_tables == made.tables[:1]


@pytest.mark.parametrize(
    ("keys", "output", "said"),
    [
        (("id",), ORIGIN, "its keys id do not have the topic's key among them"),
        (("visitor",), OUTPUT, "needs column _topic string for its order, and the function does"),
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

    given = [{"max_added": 0}, {"max_changed": 0.05}, {"max_removed": 1}, {}]
    assert [birth.thresholds for birth in births] == [Thresholds(**each) for each in given]
