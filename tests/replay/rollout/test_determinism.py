"""Laws of the lint: code that may give other rows in a replay is named, with file and line."""

from __future__ import annotations

from typing import Any

import pytest
from house import HOUSE
from source_trees import finding

from kappa import Table, Topic, ordered, pipeline
from kappa.code.project import PipelinePlace
from kappa.replay.rollout.plan.declared_pipelines import code_doubts
from kappa.replay.rollout.plan.determinism import find_doubts, spark_findings
from kappa.replay.rollout.plan.finding import Finding

SPARK = "from pyspark.sql import functions as F"
TWO_IMPORTS = "from random import choice\n    import random, json"
LIMIT = "LIMIT = int(os.environ.get('LIMIT', '1'))"
APPENDED = "R = []\nR.append(random.random())"
LINES = "\n  a,\n  current_timestamp() as t\n"
SELECTS = "def p(x):\n    return x.selectExpr(SQL)"
TOPIC = Topic("t", event="k string", key="k")


def lint(text: str, **others: str) -> tuple[Finding, ...]:
    tree = {"p": text, **others}
    files = {f"pipelines/{name}.py": each for name, each in tree.items()}
    return find_doubts("pipelines.p", "p", finding(files))


def test_a_steps_code_is_linted_and_findings_shared_with_the_function_come_once() -> None:
    steps = "def step(state, row):\n    state['n'] = helper.now() + hash(row)"
    text = f"import helper\ndef p(x):\n    return helper.now()\n{steps}"
    tree = {"pipelines/p.py": text, "helper.py": "import time\ndef now():\n    return time.time()"}

    def step(state: dict[str, Any], row: Any) -> None:
        raise NotImplementedError

    def function(t: Any) -> dict[str, Any]:
        return {"a": t}

    step.__module__, step.__qualname__ = "pipelines.p", "step"
    table = Table("a", keys=("k",), fold=ordered(step, state="n int"))
    made = pipeline(reads={"t": TOPIC}, writes=[table])(function)

    found = code_doubts(made, PipelinePlace("pipelines.p", "p"), finding(tree))

    assert [each.name for each in found] == ["helper.py:3", "pipelines/p.py:5"]


def places(text: str, **others: str) -> list[tuple[str, str]]:
    return [
        (each.name, each.message.partition(" uses ")[2].partition(",")[0])
        for each in lint(text, **others)
    ]


@pytest.mark.parametrize(
    ("head", "use", "what"),
    [
        ("import time", "time.time()", "time.time"),
        ("from time import time as t", "t()", "time.time"),
        ("import datetime", "datetime.datetime.now()", "datetime.datetime.now"),
        ("import datetime as dt", "dt.date.today()", "datetime.date.today"),
        ("from datetime import datetime", "datetime.utcnow()", "datetime.datetime.utcnow"),
        ("import time", "time.gmtime()", "time.gmtime"),
        ("import time", "time.strftime('%H')", "time.strftime"),
        ("import random", "random.random()", "random.random"),
        ("import random", "f(random)", "random"),
        ("import random", "x.map(random.choice)", "random.choice"),
        ("from random import *", "randint(1, 2)", "random.randint"),
        ("import numpy as np", "np.random.default_rng(1)", "numpy.random.default_rng"),
        ("import uuid", "uuid.uuid4()", "uuid.uuid4"),
        ("import secrets", "secrets.token_hex()", "secrets.token_hex"),
        ("import os", "os.environ['X']", "os.environ"),
        ("import os", "os.getenv('X')", "os.getenv"),
        ("import os", "os.urandom(3)", "os.urandom"),
        ("import requests", "requests.get('x')", "requests.get"),
        ("import urllib.request", "urllib.request.urlopen('x')", "urllib.request.urlopen"),
        ("from urllib import request", "request.urlopen('x')", "urllib.request.urlopen"),
        ("import httpx", "httpx.get('x')", "httpx.get"),
        ("import socket", "socket.gethostname()", "socket.gethostname"),
        ("", "open('x').read()", "open"),
        ("from pathlib import Path", "Path('x').read_text()", ".read_text()"),
        ("", "hash(x)", "hash"),
        ("import importlib", "importlib.import_module('random').random()", "random"),
        ("", "__import__('random').random()", "random"),
        (SPARK, "x.where(F.current_timestamp())", "pyspark.sql.functions.current_timestamp"),
        ("from pyspark.sql.functions import rand", "rand() < 0.1", "pyspark.sql.functions.rand"),
        (
            *("import pyspark.sql.functions as F", "F.monotonically_increasing_id()"),
            "pyspark.sql.functions.monotonically_increasing_id",
        ),
        (SPARK, "x.agg(F.collect_list('a'))", "pyspark.sql.functions.collect_list"),
        (SPARK, "x.agg(F.first('a'))", "pyspark.sql.functions.first"),
        (SPARK, "x.withColumn('t', F.unix_timestamp())", "pyspark.sql.functions.unix_timestamp"),
        (SPARK, "x.withColumn('a', F.expr('uuid()'))", "uuid in SQL"),
        ("", "x.selectExpr('a', 'CURRENT_DATE as d')", "current_date in SQL"),
        ("", "x.where(f'a < {1} and rand () < 0.5')", "rand in SQL"),
        ("", 'x.selectExpr(\'reflect("java.lang.System", "nanoTime")\')', "reflect in SQL"),
    ],
)
def test_what_may_differ_is_named(head: str, use: str, what: str) -> None:
    assert places(f"{head}\ndef p(x):\n    return {use}") == [("pipelines/p.py:3", what)]


@pytest.mark.parametrize(
    ("head", "use"),
    [
        ("import time", "time.gmtime(x)"),
        ("import time", "time.strftime('%H', x)"),
        ("import uuid", "uuid.uuid5(uuid.NAMESPACE_URL, x)"),
        ("import datetime", "datetime.datetime(2024, 1, 1)"),
        ("import os", "os.path.basename(x)"),
        ("import urllib.parse", "urllib.parse.quote(x)"),
        ("import math", "math.floor(x)"),
        (SPARK, "F.unix_timestamp('at')"),
        (SPARK, "F.col('current_date')"),
        ("", "x.selectExpr(\"'now()' as text\")"),
        ("", "x.selectExpr('`current_date` as d')"),
        ("", "x.selectExpr('knowhow(a)', 'randy(b)', 'first_name')"),
        ("", "x.where('a > 1 -- not now()')"),
        ("", "x.randint(1)"),
        ("", "x.time.time()"),
        ("import random", "[random for random in x]"),
        ("def open(name): return name", "open(x)"),
    ],
)
def test_what_gives_the_same_again_is_not(head: str, use: str) -> None:
    assert lint(f"{head}\ndef p(x):\n    return {use}") == ()


@pytest.mark.parametrize(
    ("head", "use", "kind"),
    [
        (SPARK, "x.withColumn('t', F.current_timestamp())", "CurrentTimestamp"),
        (SPARK, "x.withColumn('t', F.now())", "Now"),
        ("from pyspark.sql.functions import rand", "x.where(rand() < 0.1)", "Rand"),
        ("", "x.where('random() < 0.5')", "Rand"),
        (SPARK, "x.withColumn('i', F.monotonically_increasing_id())", "MonotonicallyIncreasingID"),
        (SPARK, "x.withColumn('t', F.curdate())", "CurrentDate"),
        ("", "x.selectExpr('uuid()')", "Uuid"),
    ],
)
def test_what_spark_finds_is_told_once(head: str, use: str, kind: str) -> None:
    found = lint(f"{head}\ndef p(x):\n    return {use}")

    assert len(found) == 1
    assert list(spark_findings([kind], found, "pipelines/p.py:2")) == []
    # A use that the lint has not found is named with the function's line.
    (told,) = spark_findings([kind, "SparkPartitionID"], found, "pipelines/p.py:2")
    assert (told.name, told.refuses) == ("pipelines/p.py:2", True)
    assert told.message.startswith("pipelines/p.py:2 uses Spark's SparkPartitionID")


def test_what_only_sounds_like_a_function_of_sparks_is_none() -> None:
    text = "import random, uuid\ndef p(x):\n    return random.random() + uuid.uuid4().int"
    found = find_doubts("pipelines.rand", "p", finding({"pipelines/rand.py": text}))

    used = [each.message.partition(" uses ")[2].partition(",")[0] for each in found]
    assert used == ["random.random", "uuid.uuid4"]
    assert len(list(spark_findings(["Rand"], found, "pipelines/rand.py:2"))) == 1


def test_the_body_of_a_udf_and_helpers_of_other_files_are_looked_at() -> None:
    tag = "@udf('string')\ndef tag(v):\n    import secrets\n    return secrets.token_hex()"
    imports = "from pyspark.sql.functions import udf\nfrom pipelines.h import stamp"
    body = "'''Time.'''\n    now = (\n        time.time()\n    )\n    return now\n"
    helper = f"import time\n\ndef stamp(x, f):\n    {body}"

    found = places(f"{imports}\n{tag}\ndef p(x):\n    return stamp(x, tag)", h=helper)

    helpers, own = ("pipelines/h.py:6", "time.time"), ("pipelines/p.py:6", "secrets.token_hex")
    assert found == [helpers, own]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        # An import without a visible use is named at its line.
        ("def p(x):\n    import requests\n    return x", 2, "requests"),
        (f"def p(x):\n    {TWO_IMPORTS}\n    return choice(x)", 4, "random.choice"),
        # What a module computes when it is imported.
        (f"import os\n{LIMIT}\ndef p(x):\n    return x.where(LIMIT)", 2, "os.environ.get"),
        (f"import random\n{APPENDED}\ndef p(x):\n    return x", 3, "random.random"),
        # A line of a text of many lines, and never one behind its end.
        (f'SQL = """{LINES}"""\n{SELECTS}', 3, "current_timestamp in SQL"),
        (f"SQL = 'a\\n\\n\\nnow()'\n{SELECTS}", 1, "now in SQL"),
    ],
)
def test_what_may_differ_is_named_at_its_line(text: str, line: int, what: str) -> None:
    assert places(text) == [(f"pipelines/p.py:{line}", what)]


@pytest.mark.parametrize(
    "text",
    [
        "def p(x):\n    import math, urllib.parse, time\n    return x",
        # What is not reached may do anything, and importing is no use.
        "import time\nT = time.time()\ndef q(x): return time.time()\ndef p(x): return x",
        "import random, time, os, requests\ndef p(x): return x",
        # A parameter is a parameter, though it is named like a module.
        "import random\ndef p(random):\n    return random.random()",
    ],
)
def test_harmless_code_is_not_named(text: str) -> None:
    assert lint(text) == ()


def test_a_module_of_the_project_that_is_named_like_a_library_is_the_projects() -> None:
    tree = {
        "pipelines/p.py": "import redis\ndef p(x):\n    return redis.clean(x)",
        "redis.py": "def clean(x): return x",
    }

    assert find_doubts("pipelines.p", "p", finding(tree)) == ()


def test_a_finding_says_what_to_do_and_what_lets_it_through() -> None:
    (found,) = lint("import time\ndef p(x):\n    return time.time()")

    assert found.message == "pipelines/p.py:3 uses time.time, which reads the clock"
    assert found.hint.startswith("take it from the record: _timestamp")
    assert (found.name, found.refuses) == ("pipelines/p.py:3", True)


def test_the_pipelines_of_this_tree_are_not_doubtful() -> None:

    from kappa.code.sources import Sources

    sources = Sources(HOUSE)
    for file in sources.pipeline_files():
        assert find_doubts(f"pipelines.{file.stem}", file.stem, sources.find) == ()
