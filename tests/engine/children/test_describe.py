"""Descriptions of functions: columns and types, or an error that names the user's line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kappa.base.errors import DeclarationError, KappaError
from kappa.base.settings import Settings
from kappa.code.fingerprint import compute_fingerprint, declared_rows_version
from kappa.code.project import load_project
from kappa.declare.values.columns import parse_type
from kappa.replay.rollout.plan.declared_pipelines import (
    Outputs,
    PipelineToDescribe,
    describe_functions,
)
from kappa.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.children.describe import Description

pytestmark = pytest.mark.jvm

HEAD = """
from pyspark.sql import DataFrame, Window, functions as F
from kappa import Table, Topic, count, max_, pipeline, sum_

HITS = Topic(
    "hits",
    event="id string not null, n int, price decimal(10,2), tags array<string>, at timestamp",
)
PAGES = Topic("pages", kind="compacted", key="page", event="page string")

@F.udf("int")
def plus(n):
    return n + 1
"""
FUNCTION = """
@pipeline(reads={{"hits": HITS}}, writes=[Table("rows")])
def web(hits):
    {body}
"""
FIRST_LINE = (HEAD + FUNCTION).count("\n", 0, (HEAD + FUNCTION).index("    {body}")) + 1


@pytest.fixture
def described(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], Description]]:
    """Yields a function that describes the one pipeline of a file, in this process's session."""
    from kappa.engine.children.call_guard import Watch
    from kappa.engine.children.describe import describe

    def answer(text: str) -> Description:
        (tmp_path / "pipelines").mkdir(exist_ok=True)
        (tmp_path / "pipelines" / "web.py").write_text(HEAD + text, encoding="utf-8")
        return describe(spark, load_project(tmp_path).pipelines["web"], Watch(tmp_path))

    yield answer
    assert spark.range(3).count() == 3, "what a description watches is as it was, afterwards"


ORDERED = """
from kappa import ordered

MORE = Topic("more", event="id string not null, n int")

def step(state, row):
    state["last"] = row["n"]

LAST = Table("last", keys=("id",), fold=ordered(step, state="last int"))

@pipeline(reads={{"hits": HITS, "more": MORE}}, writes=[LAST])
def web(hits, more):
    return {{"last": {frame}}}
"""


def body(text: str) -> str:
    return FUNCTION.format(body=text.replace("\n", "\n    "))


def rows(frame: str) -> str:
    """Returns a pipeline whose one table has the rows of `frame`."""
    return body(f'return {{"rows": {frame}}}')


def keyed(key: str, frame: str) -> str:
    """Returns a pipeline whose one table folds the rows of `frame` by a key."""
    return (
        '@pipeline(reads={"hits": HITS}, writes=[\n'
        f'    Table("rows", keys=("{key}",), fold={{"n": count(), "m": max_("at")}})])\n'
        f'def web(hits):\n    return {{"rows": {frame}}}'
    )


Described = Callable[[str], "Description"]


def test_the_columns_of_a_table_are_those_the_function_returns(described: Described) -> None:
    columns = 'hits.select("id", plus("n").alias("m"), F.col("price") * 2, F.explode("tags").alias'
    found = described(rows(f'{columns}("tag"), "_offset").withColumnRenamed("(price * 2)", "p")'))

    assert dict(found.tables["rows"]) == {
        "id": "string",
        "m": "int",
        "p": "decimal(12,2)",
        "tag": "string",
        "_offset": "bigint",
    }


@pytest.mark.parametrize(
    "frame",
    [
        "hits",
        (
            'hits.where("n > 1").filter(F.col("id").isNotNull())'
            '.withColumn("m", F.when(F.col("n") > 1, 1))'
        ),
        "hits.union(hits.where('n > 1'))",
        "hits.select('id').unionByName(hits.selectExpr('cast(n as string) id'))",
        (
            "hits.select('id', F.transform('tags', lambda tag: F.upper(tag)).alias('t'),"
            " F.aggregate(F.array('n'), F.lit(0), lambda a, b: a + b).alias('s'))"
        ),
        "hits.unpivot('id', ['n'], 'what', 'value')",
        "hits.na.fill(0).na.drop()",
        "hits.alias('h').select('h.id')",
        "hits.hint('broadcast')",
    ],
)
def test_what_looks_at_one_row_is_allowed(described: Described, frame: str) -> None:
    assert described(rows(frame)).tables["rows"]


def test_a_union_of_two_topics_has_no_order_to_fold_in(described: Described) -> None:
    """A union of two topics is refused, because it has no order in which to fold (law 4).

    Before, the first slice with a key in both topics stopped the job.
    """
    union = 'hits.select("id", "n").union(more.select("id", "n"))'
    said = r"web\.py:\d+: table last is folded in the order .*topics hits and more, which have no"

    with pytest.raises(DeclarationError, match=said) as refused:
        described(ORDERED.format(frame=union))

    assert "one topic" in refused.value.hint


@pytest.mark.parametrize("frame", ["more", 'more.where("n > 1").union(more.where("n < 1"))'])
def test_rows_of_one_topic_have_an_order_to_fold_in(described: Described, frame: str) -> None:
    assert ("n", "int") in described(ORDERED.format(frame=frame)).tables["last"]


@pytest.mark.parametrize(
    ("frame", "said", "hint"),
    [
        *(
            (f"hits.{grouped}", "groups rows", "keys=")
            for grouped in (
                'groupBy("id").agg(F.sum("n").alias("n"))',
                'select(F.count("*").alias("n"))',
                'agg(F.max("n").alias("n"))',
                'cube("id").count()',
                'groupBy("id").applyInPandas(lambda pdf: pdf, "id string")',
            )
        ),
        ('hits.join(hits.select("id"), "id")', "joins", "View("),
        ('hits.crossJoin(hits.select(F.col("id").alias("x")))', "joins", "View("),
        (
            'hits.withColumn("r", F.row_number().over(Window.partitionBy("id").orderBy("n")))',
            "window",
            "date_trunc",
        ),
        ("hits.distinct()", "repeated", "keys"),
        ('hits.dropDuplicates(["id"])', "repeated", "keys"),
        ('hits.orderBy("n")', "sorts", "View"),
        ("hits.limit(1)", "only some", "where"),
        ("hits.sample(0.5)", "at random", "condition"),
        ("hits.exceptAll(hits)", "compares", "View"),
        ("hits.repartition(3)", "spreads", "leave it out"),
        ("hits.mapInPandas(lambda frames: frames, hits.schema)", "many rows at once", "udf"),
        ('hits.where(hits.select(F.col("n")).limit(1).scalar() == 1)', "subquery", "View"),
        *(
            (f'hits.select("id").union(hits.sparkSession.{made})', "not come from its", "topic")
            for made in (
                'range(3).selectExpr("string(id)")',
                'createDataFrame([("a",)], "id string")',
            )
        ),
        ("hits.observe('o', F.count('*').alias('c'))", "counts rows", "keys"),
    ],
)
def test_what_looks_beyond_a_row_is_refused_with_its_line_and_another_way(
    described: Described, frame: str, said: str, hint: str
) -> None:
    has_a_call = "F.count" not in frame.partition("hits.select(")[2]
    text = f'first = hits.where("n > 0")\nhits = (\n    {frame}\n)\nreturn {{"rows": hits}}'
    with pytest.raises(DeclarationError, match=said) as refused:
        described(body(text))

    line = FIRST_LINE + 2 if has_a_call else FIRST_LINE - 2
    assert f"pipelines/web.py:{line}: the function of pipeline web" in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("column", "kinds"),
    [
        ('"now", F.current_timestamp()', ("CurrentTimestamp",)),
        ('"now", F.expr("now() > at")', ("Now",)),
        ('"id", F.uuid()).where(F.rand() < 0.5', ("Rand", "Uuid")),
        ('"x", F.monotonically_increasing_id() + 1', ("MonotonicallyIncreasingID",)),
        ('"x", F.udf(lambda n: n, "int").asNondeterministic()("n")', ("PythonUDF",)),
        ('"x", plus("n")', ()),
    ],
)
def test_what_gives_another_value_each_time_is_told(
    described: Described, column: str, kinds: tuple[str, ...]
) -> None:
    assert described(rows(f"hits.withColumn({column})")).changing == kinds


LOOKS = "count() collect() toPandas() show() rdd first() write.save('x') isEmpty() cache()"


@pytest.mark.parametrize("call", LOOKS.split())
def test_a_function_may_not_look_at_its_rows(described: Described, call: str) -> None:
    said = f"web.py:{FIRST_LINE}: the function looks at its rows by"
    with pytest.raises(DeclarationError, match=said):
        described(body(f'hits.{call}\nreturn {{"rows": hits}}'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (body("return [hits]"), "returns a list"),
        (body("pass"), "returns nothing"),
        (body("return {}"), "no rows for table rows"),
        (rows('hits, "rosw": hits'), "returns rows for 'rosw', which it does not write"),
        (rows("1"), "returns a int for table rows"),
        (rows('hits.select("nn")'), "nn"),
        (rows('hits.select("id", F.lit(1).alias("ID"))'), "the column ID twice"),
        (rows('hits.select(F.col("n") + 1)'), "not the name of a stored column"),
        (rows('hits.select(F.lit(1).alias("_n"))'), "_n"),
        (rows('hits.select(F.lit(None).alias("x"))'), "x of type void"),
        (rows('hits.select(F.create_map("id", "n").alias("x"))'), "x of type map<string,int>"),
        (
            body("return 1 / 0"),
            f"web.py:{FIRST_LINE}: the function of pipeline web fails: ZeroDivisionError",
        ),
        (body("raise SystemExit"), "fails: SystemExit"),
        (
            (
                '@pipeline(reads={"hits": HITS, "pages": PAGES},'
                ' writes=[Table("rows"), Table("p", latest=PAGES)])\n'
                'def web(hits):\n    return {"rows": hits, "p": hits}'
            ),
            "takes them from its topic",
        ),
    ],
)
def test_what_a_function_returns_must_fit_its_tables(
    described: Described, text: str, said: str
) -> None:
    with pytest.raises(DeclarationError, match=said) as refused:
        described(text)

    assert "pipelines/web.py:" in refused.value.message
    assert "\n" not in refused.value.message


def test_a_keyed_table_takes_only_what_its_keys_and_folds_name(described: Described) -> None:
    found = described(keyed("id", 'hits.withColumn("x", F.create_map("id", "n"))'))

    assert found.tables == {"rows": [("id", "string"), ("at", "timestamp")]}


def test_a_typo_in_a_key_names_the_columns_that_are_returned(described: Described) -> None:
    """The hint lists all returned columns, so that it includes the intended one."""
    with pytest.raises(DeclarationError, match="needs column idd for its key idd") as refused:
        described(keyed("idd", 'hits.select("n", "id", "at")'))

    assert refused.value.hint == "did you mean id? it returns n, id, at"


@pytest.mark.parametrize(
    ("returned", "lineage"),
    [
        (
            'hits.select("id", (F.col("n") + F.col("price")).alias("v"))',
            {"id": "id", "v": "n price"},
        ),
        ('hits.where("n > 1").withColumn("w", F.length("id")).select("w")', {"w": "id"}),
        ('hits.select(F.explode("tags").alias("tag"), "id")', {"tag": "tags", "id": "id"}),
        ('hits.select("id").union(hits.select(F.col("n").cast("string")))', {"id": "id n"}),
        ('hits.select(plus("n").alias("m"), F.lit(1).alias("one"))', {"m": "n", "one": ""}),
        ('hits.alias("h").selectExpr("h.id as n", "n as id")', {"n": "id", "id": "n"}),
        ('hits.select(F.struct("id", "n").alias("s")).select("s.n")', {"n": "id n"}),
        ('hits.select(F.col("_offset").alias("at"), "id")', {"at": "_offset", "id": "id"}),
    ],
)
def test_columns_have_the_fields_of_their_values(
    described: Callable[[str], Description], returned: str, lineage: dict[str, str]
) -> None:
    """Fields that only choose rows are not sources; a struct has the sources of all its parts."""
    found = described(rows(returned)).lineage

    assert found == {
        "rows": {
            column: [("hits", field) for field in fields.split()]
            for column, fields in lineage.items()
        }
    }


def described_version(project: Path, name: str = "web") -> PipelineToDescribe:
    loaded = load_project(project)
    pipeline, place = loaded.pipelines[name], loaded.places[name]
    parts = compute_fingerprint(pipeline, place.module, place.attribute, loaded.sources.find).parts
    return PipelineToDescribe(pipeline, place.module, declared_rows_version(pipeline, parts))


def learn(project: Path, store: Store, *names: str) -> Mapping[str, Outputs | DeclarationError]:
    """Learns what pipelines return; the default is `web`."""
    wanted = {name: described_version(project, name) for name in names or ("web",)}
    return describe_functions(Settings(project=project), store, project, wanted)


def test_a_child_process_answers_once_per_version_and_keeps_no_refusal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is not stored; an answer in another format is requested again.

    The child prints nothing.
    """
    file, wrong = (tmp_path / "pipelines" / name for name in ("web.py", "wrong.py"))
    file.parent.mkdir()
    (tmp_path / "kappa.toml").touch()
    file.write_text(
        HEAD + body('print("talk")\nreturn {"rows": hits.select("id", plus("n").alias("m"))}'),
        encoding="utf-8",
    )
    refused = body('return {"rows": hits.distinct()}').replace("def web", "def wrong")
    wrong.write_text(HEAD + refused.replace('"rows"', '"others"'), encoding="utf-8")
    store = Store(tmp_path / "root")
    expected = Outputs(
        {"rows": {"id": parse_type("string"), "m": parse_type("int")}},
        lineage={"rows": {"id": (("hits", "id"),), "m": (("hits", "n"),)}},
    )

    found = learn(tmp_path, store, "web", "wrong")
    assert found["web"] == expected
    refusal = found["wrong"]
    assert isinstance(refusal, DeclarationError)
    assert refusal.message.startswith(
        f"{wrong}:{FIRST_LINE}: the function of pipeline wrong drops repeated rows"
    )
    assert capfd.readouterr() == ("", "")
    # No second process could start.
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert learn(tmp_path, store)["web"] == expected
    with pytest.raises(FileNotFoundError, match="/nonexistent"):
        learn(tmp_path, store, "wrong")
    file.write_text(file.read_text(encoding="utf-8") + "\n# a remark\n", encoding="utf-8")
    assert learn(tmp_path, store)["web"] == expected
    store.put_json(f"cache/describe/{described_version(tmp_path).rows_version}.json", {"format": 0})
    with pytest.raises(FileNotFoundError, match="/nonexistent"):
        learn(tmp_path, store)


def test_a_child_process_that_dies_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's death is reported in one sentence.

    This test needs no JVM; in `make faults`, a function ends the real child.
    """
    file, dying = tmp_path / "pipelines" / "web.py", tmp_path / "dying"
    file.parent.mkdir()
    (tmp_path / "kappa.toml").touch()
    file.write_text(HEAD + body('return {"rows": hits}'), encoding="utf-8")
    dying.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))

    with pytest.raises(
        KappaError, match="Spark gave no answer about web: it ended with 3 and said nothing"
    ):
        learn(tmp_path, Store(tmp_path / "root"))


@pytest.mark.sweep
def test_a_function_that_ends_its_child_process_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "pipelines" / "web.py"
    file.parent.mkdir()
    (tmp_path / "kappa.toml").touch()
    file.write_text(HEAD + body("import os\nos._exit(3)"), encoding="utf-8")

    refusal = learn(tmp_path, Store(tmp_path / "root"))["web"]
    assert isinstance(refusal, DeclarationError)
    assert "the function of pipeline web ended its process, on no rows" in refusal.message


@pytest.mark.parametrize(
    "text",
    [
        "int",
        "LONG",
        "string",
        "binary",
        "decimal(10, 2)",
        "array<string>",
        "struct<a:int,b:array<double>>",
        "a int, b string not null",
        "timestamp",
    ],
)
def test_a_type_is_read_without_a_session_as_spark_reads_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    from pyspark import SparkContext

    from kappa.code.importer import read_type

    by_spark = read_type(text)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)

    assert read_type(text) == by_spark
