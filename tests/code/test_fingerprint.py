"""Laws of the version and the rows version: everything that decides the rows changes them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from overlays import born
from overlays import declared as declare_delays
from source_trees import finding

from kappa import (
    Alert,
    Csv,
    Fold,
    Sink,
    Table,
    Text,
    Topic,
    View,
    count,
    hll,
    kll,
    ordered,
    pipeline,
    set_,
    sum_,
    theta,
    top_k,
)
from kappa.base.errors import DeclarationError
from kappa.code import fingerprint as fingerprints
from kappa.code.fingerprint import (
    SEMANTICS,
    born_rows_version,
    compute_fingerprint,
    declaration_lines,
    version_differences,
    version_of,
    without_checks,
)
from kappa.code.reach import imported_files, reached_parts
from kappa.engine.read.archive_reader import archive_fingerprint
from kappa.replay.rollout.plan.facts import Declared

FLIGHTS = '''
"""Flights."""
import math
from kappa import Table, Topic, pipeline
from pipelines.helpers import clean
import pipelines.numbers

LIMIT = 15
UNUSED = 1
HITS = Topic("hits", event="id string")

def on_time(rows):
    """Late or not."""
    return clean(rows, LIMIT)

def unused(rows):
    return UNUSED

@pipeline(reads={"hits": HITS}, writes=[Table("delays")])
def flights(hits):
    rows = on_time(hits)
    return {"delays": rows.where(pipelines.numbers.half(3) > math.floor(2.5))}
'''
HELPERS = """
def clean(rows, limit):
    return rows.where(f"delay > {limit}")

def other(rows):
    return rows
"""
NUMBERS = """
def half(n):
    return n / 2

def double(n):
    return n * 2
"""
TREE = {
    "pipelines/flights.py": FLIGHTS,
    "pipelines/helpers.py": HELPERS,
    "pipelines/numbers.py": NUMBERS,
}
CODE = {
    "function pipelines/flights.py:flights",
    "function pipelines/flights.py:on_time",
    "value pipelines/flights.py:LIMIT",
    "function pipelines/helpers.py:clean",
    "function pipelines/numbers.py:half",
}


def parts(
    tree: Mapping[str, str] = TREE, module: str = "pipelines.flights", attribute: str = "flights"
) -> Mapping[str, str]:
    return reached_parts(module, attribute, finding(tree))


def edited(file: str, old: str, new: str) -> dict[str, str]:
    path = f"pipelines/{file}.py"
    assert old in TREE[path]
    return {**TREE, path: TREE[path].replace(old, new)}


def reasons(tree: Mapping[str, str]) -> tuple[str, ...]:
    return version_differences(parts(), parts(tree))


def one_file(text: str, **others: str) -> Mapping[str, str]:
    tree = {"p": text, **others}
    files = {f"pipelines/{name}.py": each for name, each in tree.items()}
    return parts(files, "pipelines.p", "p")


def test_only_what_the_function_reaches_is_a_part() -> None:
    assert set(parts()) == CODE


SPREAD = "\n    # a remark\n    rows: object = (on_time(\n        hits))"
TYPES_ALONE = "from typing import TYPE_CHECKING\nimport math\nif TYPE_CHECKING:\n    import os"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("flights", '"""Late or not."""', ""),
        ("flights", '"""Late or not."""', '"""Something else."""  # and a remark'),
        ("flights", "def on_time(rows):", "def on_time(rows: object, ) -> object:"),
        ("flights", "    rows = on_time(hits)", SPREAD),
        ("flights", "UNUSED = 1", "UNUSED = 2"),
        ("flights", "LIMIT = 15", "LIMIT: int = 0xF"),
        ("flights", "import math", "import math\nimport os"),
        ("flights", "import math", TYPES_ALONE),
        ("flights", "UNUSED = 1", "UNUSED = 1\nif __name__ == '__main__':\n    print(1)"),
        ("flights", '"hits", event="id string"', '"hits", event="id string, x int"'),
        ("helpers", "return rows\n", "return None\n"),
        ("numbers", "n * 2", "n * 3"),
    ],
)
def test_what_decides_no_row_changes_nothing(file: str, old: str, new: str) -> None:
    assert parts(edited(file, old, new)) == parts()


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("flights", "rows = on_time(hits)", "rows = hits", "function flights in {} changed"),
        ("flights", "rows, LIMIT)", "rows, LIMIT + 1)", "function on_time in {} changed"),
        ("flights", "LIMIT = 15", "LIMIT = 15.0", "value LIMIT in {} changed"),
        ("flights", "LIMIT = 15", "LIMIT = 15\nLIMIT += 1", "value LIMIT in {} changed"),
        ("helpers", "delay >", "delay >=", "function clean in {} changed"),
        ("numbers", "n / 2", "n // 2", "function half in {} changed"),
        ("flights", "import math", "import cmath as math", "function flights in {} changed"),
        ("helpers", "def other", "print('imported')\ndef other", "what importing {} does is new"),
    ],
)
def test_what_decides_rows_is_a_reason(file: str, old: str, new: str, reason: str) -> None:
    assert reason.format(f"pipelines/{file}.py") in reasons(edited(file, old, new))


def test_a_name_imported_from_elsewhere_is_a_change_though_the_text_is_the_same() -> None:
    here = "from pipelines.a import f\nfrom pipelines.b import f as g\ndef p(x): return f(x), g(x)"
    swapped = here.replace("import f as g", "import f").replace("import f\n", "import f as g\n", 1)
    both = {"a": "def f(x): return 1", "b": "def f(x): return 2"}

    assert version_of(one_file(here, **both)) != version_of(one_file(swapped, **both))


def test_two_ways_to_import_the_same_thing_are_one() -> None:
    ways = ("from pyspark.sql import functions as F", "import pyspark.sql.functions as F")
    one, other = (one_file(f"{way}\ndef p(x): return F.col(x)") for way in ways)

    assert one == other


IMPORT = "from pipelines.h import f\n"
KEPT = "def keep(g):\n    R['f'] = g\n    return g\n"
LAST = "class B:\n    def __init_subclass__(cls): B.last = cls\nclass C(B):\n"


@pytest.mark.parametrize(
    "text",
    [
        "import pipelines.h as h\ndef p(x): return h.f(x)",
        "import pipelines.h\ndef p(x): return pipelines.h.f(x)",
        "from pipelines import h\ndef p(x): return h.f(x)",
        "from . import h\ndef p(x): return h.f(x)",
        "from .h import f\ndef p(x): return f(x)",
        "from pipelines.h import f as g\ndef p(x): return g(x)",
        "from pipelines.h import *\ndef p(x): return f(x)",
        "def p(x):\n    from pipelines.h import f\n    return f(x)",
        "def p(x):\n    import pipelines.h as h\n    return h.f(x)",
        "import importlib\ndef p(x): return importlib.import_module('pipelines.h').f(x)",
        "import pipelines.h as h\ndef p(x): return getattr(h, 'f')(x)",
        "from pipelines import h\nALL = [h]\ndef p(x): return ALL[0].f(x)",
        f"try:\n    {IMPORT}except ImportError:\n    f = None\ndef p(x): return f(x)",
        f"import sys\n{IMPORT}def p(x): return getattr(sys.modules[__name__], 'f')(x)",
        *(
            IMPORT + text
            for text in (
                "class C:\n    def m(self, x): return f(x)\ndef p(x): return C().m(x)",
                "def wrap(g): return lambda x: f(x)\n@wrap\ndef p(x): return x",
                "def p(x, how=f): return how(x)",
                "def make():\n    def inner(x): return f(x)\n    return inner\np = make()",
                "BY_NAME = {'f': f}\ndef p(x): return [BY_NAME[n](x) for n in 'f']",
                "G = 'f'\ndef p(x): return globals()[G](x)",
                "def p(x): return eval('f(x)')",
                f"R = {{}}\n{KEPT}@keep\ndef hidden(x): return f(x)\ndef p(x): return R['f'](x)",
                "R = []\nR.append(f)\ndef p(x): return R[0](x)",
                "R = []\ndef keep(g):\n    R.append(g)\nDONE = keep(f)\ndef p(x): return R[0](x)",
                f"{LAST}    def m(self, x): return f(x)\ndef p(x): return B.last().m(x)",
                "def p(x): return (lambda y: f(y))(x)",
                "if f:\n    def q(x): return f(x)\nelse:\n    q = None\ndef p(x): return q(x)",
                "def p(x):\n    match x:\n        case 1:\n            return f(x)",
                "class K:\n    step = f\ndef p(x): return K.step(x)",
            )
        ),
    ],
)
def test_every_way_to_a_helper_is_followed(text: str) -> None:
    before = one_file(text, h="def f(x): return g(x)\ndef g(x): return 1")
    after = one_file(text, h="def f(x): return g(x)\ndef g(x): return 2")

    assert any("pipelines/h.py" in reason for reason in version_differences(before, after))


def test_a_package_that_passes_a_name_on_is_followed() -> None:
    tree = {
        "p.py": "from shop import total\ndef p(x): return total(x)",
        "shop/__init__.py": "from .sums import total",
        "shop/sums.py": "def total(x): return x",
    }
    changed = {**tree, "shop/sums.py": "def total(x): return -x"}

    found = version_differences(parts(tree, "p", "p"), parts(changed, "p", "p"))
    assert found == ("function total in shop/sums.py changed",)


def test_a_local_name_is_not_the_modules() -> None:
    text = "def rows(): return 1\ndef p(hits):\n    rows = hits\n    return [rows for rows in rows]"

    assert one_file(text) == one_file(text.replace("return 1", "return 2"))


def test_what_a_class_binds_itself_is_not_looked_for_in_the_module() -> None:
    body = "    one = 1\n    two = one + 1\n    @property\n    def x(self): return 1\n"
    setter = "    @x.setter\n    def x(self, v): pass\n"
    found = one_file(f"class C:\n{body}{setter}def p(x): return C()\nOTHER = 1")

    assert set(found) == {"function pipelines/p.py:p", "class pipelines/p.py:C"}


def test_annotations_count_where_something_reads_them() -> None:
    fields = "@dataclass\nclass R:\n    a: int\ndef p(x): return R(x)"
    data = f"from dataclasses import dataclass\n{fields}"
    decorated = "@pandas_udf('long')\ndef f(x: int) -> int: return x\ndef p(x): return f(x)"
    udf = f"from pyspark.sql.functions import pandas_udf\n{decorated}"

    assert one_file(data) != one_file(data.replace("a: int", "b: int"))
    assert one_file(udf) != one_file(udf.replace("-> int", "-> float"))


def test_an_import_by_a_computed_name_is_refused_with_its_line() -> None:
    computed = r"^pipelines/p.py:3: a module is imported by a computed name"
    with pytest.raises(DeclarationError, match=computed):
        one_file("import importlib\ndef p(x):\n    return importlib.import_module('a' + x)")


def test_code_that_is_not_reached_may_do_anything() -> None:
    unreached = "def q(x):\n    return importlib.import_module('a' + x)"
    one_file(f"import importlib\n{unreached}\ndef p(x): return x")


def test_modules_that_import_one_another_are_walked_once() -> None:
    found = one_file(
        "from pipelines.a import f\ndef p(x): return f(x)",
        a="from pipelines.b import g\ndef f(x): return g(x)",
        b="import pipelines.a as a\ndef g(x): return a.f(x)",
    )

    functions = ("p.py:p", "a.py:f", "b.py:g")
    assert set(found) == {f"function pipelines/{each}" for each in functions}


def test_a_helper_that_makes_tables_is_no_part_of_the_rows() -> None:
    made = 'def table(name): return Table(name)\nT = [table("a")]'
    declaration = "@pipeline(reads={}, writes=T)\ndef p(x): return x"
    text = f"from kappa import Table, pipeline\n{made}\n{declaration}"

    assert set(one_file(text)) == {"function pipelines/p.py:p"}


def test_a_snapshot_takes_all_files_that_importing_reads() -> None:
    read = {"rules/__init__.py": "", "rules/lazy.py": ""}
    tree = {
        **TREE,
        **read,
        "pipelines/helpers.py": "import rules.deep.one\n" + HELPERS,
        "rules/deep/one.py": "def f():\n    from rules import lazy",
        "rules/idle.py": "",
    }

    found = imported_files("pipelines.flights", finding(tree))
    assert set(found) == {*TREE, *read, "rules/deep/one.py"}


EVENT = "id string, n int"
HITS = Topic("hits", event=EVENT)


def hits(**changed: Any) -> Topic:
    return Topic("hits", event=EVENT, **changed)


def counted(**changed: Any) -> Table:
    return Table("t", keys=("id",), fold={"n": count()}, **changed)


def declared(**changed: Any) -> Mapping[str, str]:
    views = [View("v", "select 1")]
    made = {"topic": HITS, "tables": [counted()], "views": views, "on_error": "reject", **changed}
    more = {"max_rejects": made["max_rejects"]} if "max_rejects" in made else {}

    # `made` has values of mixed types on purpose.
    @pipeline(
        reads={"hits": made["topic"]},
        writes=[*made["tables"], *made["views"]],
        on_error=made["on_error"],
        **more,
    )  # type: ignore[dict-item,misc]
    def function(hits: object) -> dict[str, object]:
        return {"t": hits}

    code = f"{made.get('decorated', '')}def function(hits): return {{}}"
    return compute_fingerprint(function, "p", "function", finding({"p.py": code})).parts


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topic": Topic("hits", event="id string, n bigint")}, "topic hits changed"),
        ({"topic": hits(key="id")}, "topic hits changed"),
        ({"topic": Topic("hits", event="id string, n int default 0")}, "topic hits changed"),
        ({"topic": hits(was={"n": "m"})}, "topic hits changed"),
        ({"topic": hits(identity="id")}, "topic hits changed"),
        ({"tables": [Table("t", keys=("id",), fold={"n": sum_("n")})]}, "table t changed"),
        ({"tables": [counted(checks=["n > 0"])]}, "table t changed"),
        ({"tables": [counted(), Table("u")]}, "table u is new"),
        ({"views": []}, "view v is gone"),
        ({"views": [View("v", "select 2")]}, "view v changed"),
        ({"on_error": "stop"}, "the policy on_error is new"),
    ],
)
def test_declarations_are_a_part_of_the_version(changed: dict[str, object], reason: str) -> None:
    assert version_differences(declared(), declared(**changed)) == (reason,)


def test_a_column_that_says_nothing_of_older_events_is_hashed_as_ever() -> None:
    (column,) = Topic("hits", event="n decimal(10,2) not null").columns

    assert str(column) == "n decimal(10,2) not null"


def step(state: dict[str, object], row: Mapping[str, object]) -> None:
    state["n"] = row["n"]


@pytest.mark.parametrize(
    "kind", ["struct<a:int{}>", "array<struct<a:int{}>>", "struct<b:struct<a:int{}>,c:string>"]
)
def test_rules_of_struct_fields_are_hashed(kind: str) -> None:
    """The rules of a struct's fields are hashed; a struct without rules is hashed as before."""
    (free,), (bound,) = (
        Topic("hits", event=f"n {kind.format(demand)}").columns for demand in ("", " not null")
    )

    assert str(free) == f"n {free.type}"
    assert str(bound) == f"n {kind.format(' not null')}"
    assert str(bound.type) == str(free.type)
    assert Topic("hits", event=str(bound)).columns == (bound,)


@pytest.mark.parametrize(
    ("changed", "reasons_given"),
    [
        ({"code": "state['n'] = 2"}, ("function step in p.py changed",)),
        (
            {"code": "state['n'] = helpers.f(1)"},
            ("function f in helpers.py is new", "function step in p.py changed"),
        ),
        ({"state": "n bigint"}, ("table t changed",)),
        ({"over": "arrow"}, ("table t changed",)),
    ],
)
def test_a_step_and_all_that_it_reaches_is_a_part_of_the_version(
    changed: dict[str, str], reasons_given: tuple[str, ...]
) -> None:
    step.__module__ = "p"

    def version(
        code: str = "state['n'] = 1", state: str = "n int", over: str = "row"
    ) -> Mapping[str, str]:
        fold = ordered(step, state=state, over=over)

        @pipeline(reads={"hits": HITS}, writes=[Table("t", keys=("id",), fold=fold)])
        def function(hits: object) -> dict[str, object]:
            return {"t": hits}

        text = f"import helpers\ndef function(hits): return {{}}\ndef step(state, row): {code}"
        files = finding({"p.py": text, "helpers.py": "def f(x): return x"})
        return compute_fingerprint(function, "p", "function", files).parts

    assert version_differences(version(), version(**changed)) == reasons_given


def test_lateness_and_identity_are_a_part_each_where_they_are_declared() -> None:
    given: list[dict[str, object]] = [
        {},
        {"event_time": "at", "lateness": "1 hour"},
        {"event_time": "on", "lateness": "1 hour"},
        {"event_time": "at", "lateness": "2 hours"},
        {"identity": "id"},
        {"identity": ("id", "n")},
        {"identity": "id", "identity_horizon": "1 hour"},
        {"event_time": "at", "lateness": "1 hour", "identity": "id"},
    ]
    event = "id string, n int, at timestamp, on timestamp"
    versions = {version_of(declared(topic=Topic("hits", event=event, **each))) for each in given}  # type: ignore[arg-type]

    assert len(versions) == len(given)
    of_ten_minutes = declared(topic=hits(identity="id", identity_horizon="600 seconds"))
    assert of_ten_minutes == declared(topic=hits(identity=["id"]))
    # A topic with none of these options has the version that it had before they existed.
    assert declared()["topic hits"] == "703d5616a4194e0c"


@pytest.mark.parametrize(
    ("fold", "said"),
    [
        (count(), "count()"),
        (count("n"), "count(n)"),
        (sum_("n"), "sum(n)"),
        (set_("n"), "set(n, limit=1000)"),
        (top_k("n"), "top_k(n, k=10)"),
        (top_k("n", 3, by="m"), "top_k(n, k=3, by=m)"),
        (hll("n"), "hll(n, lg_k=12)"),
        (theta("n", lg_k=4), "theta(n, lg_k=4)"),
        (kll("n", 1), "kll(n, rank=1.0, k=200)"),
    ],
)
def test_folds_are_hashed_with_all_their_options(fold: Fold, said: str) -> None:
    """All options of a fold are hashed; a fold without options is hashed as before."""
    assert str(fold) == said


def test_only_a_fold_that_serves_a_column_more_than_before_has_another_version() -> None:
    def hashed(fold: Fold) -> str:
        return declared(tables=[Table("t", keys=("id",), fold={"n": fold})])["table t"]

    assert hashed(set_("n")) == "67a4ca6d1ab67b6c"
    # It was c0ef6f0b2e50725b before there was the column of overflow.
    assert hashed(top_k("n")) == "01f41b509c9831ed"


def test_the_default_policy_leaves_a_pipelines_version_as_it_was() -> None:
    assert not [part for part in declared() if "error" in part]


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": hits(config={"retention.ms": "-1"})},
        {"tables": [counted(max_changed=0.05, max_added=0, max_removed=1)]},
        {
            "max_rejects": 0.01,
            "decorated": "from kappa import pipeline\n@pipeline(max_rejects=0.01)\n",
        },
    ],
    ids=["how Kafka keeps a topic", "thresholds", "how much may be rejected"],
)
def test_what_is_no_reason_to_replay_is_no_part(changed: dict[str, Any]) -> None:
    assert declared(**changed) == declared()


def test_what_the_platform_means_by_rows_is_a_part_of_the_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = declared()
    monkeypatch.setattr(fingerprints, "SEMANTICS", SEMANTICS + 1)

    assert version_differences(before, declared()) == (
        f"what Kappa means by a valid record and a fold changed ({SEMANTICS} to {SEMANTICS + 1})",
    )
    assert version_of(before) != version_of(declared())


NAMES = tuple("abcdef")


@st.composite
def _programs(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Draws three modules of functions that call each other at random, and returns the calls."""
    calls = {name: draw(st.sets(st.sampled_from(NAMES), max_size=2)) for name in NAMES}
    homes = {name: draw(st.sampled_from(("p", "q", "r"))) for name in NAMES}
    homes["a"] = "p"
    tree = {}
    for module in ("p", "q", "r"):
        mine = [name for name in NAMES if homes[name] == module]
        others = {homes[called] for name in mine for called in calls[name]} - {module}
        lines = [f"import {other}" for other in sorted(others)]
        for number, name in enumerate(mine):
            called = [
                each if homes[each] == module else f"{homes[each]}.{each}"
                for each in sorted(calls[name])
            ]
            lines.append(
                f"def {name}(x):\n"
                f"    return [{', '.join([*(f'{each}(x)' for each in called), f'K_{name}'])}]\n"
                f"K_{name} = {number}"
            )
        tree[f"{module}.py"] = "\n".join(lines)
    return tree, calls


@pytest.mark.law
@examples(40)
@given(_programs(), st.sampled_from(NAMES))
def test_a_change_counts_exactly_where_it_is_reached(
    program: tuple[dict[str, str], dict[str, set[str]]], name: str
) -> None:
    tree, calls = program
    reached, waiting = set(), ["a"]
    while waiting:
        each = waiting.pop()
        if each not in reached:
            reached.add(each)
            waiting.extend(calls[each])
    changed = {path: text.replace(f"K_{name} = ", f"K_{name} = 1") for path, text in tree.items()}

    assert (parts(tree, "p", "a") != parts(changed, "p", "a")) == (name in reached)


@pytest.mark.law
@examples(40)
@given(_programs())
def test_layout_and_comments_are_free(program: tuple[dict[str, str], dict[str, set[str]]]) -> None:
    """Layout and comments never change the version."""
    tree, _ = program
    spread = {}
    for path, text in tree.items():
        plain = ast.unparse(ast.parse(text)).replace("):\n", "):\n    'docs'\n")
        spread[path] = "# top\n\n" + plain.replace(", ", ",\n        ")

    assert parts(tree, "p", "a") == parts(spread, "p", "a")


def test_a_topics_format_is_part_of_its_version_and_json_is_what_older_ones_meant() -> None:

    text = "(?P<id>.*) (?P<n>.*)"
    formats = ["csv", Csv(separator=";"), Csv(fields=["id", "n"]), Text(text), Text(text, null="-")]
    topics = [hits(format="json"), *(hits(format=each) for each in formats)]

    assert declared(topic=topics[0]) == declared()
    assert len({declared(topic=each)["topic hits"] for each in topics}) == 6
    assert archive_fingerprint(topics[0]) == archive_fingerprint(hits())
    assert len({archive_fingerprint(each) for each in topics}) == 6


VIEW = {"v": "select 1 as one"}
CHECKS = ("rows > 0",)
BEFORE = declare_delays(views=VIEW, checks=CHECKS)
OUTLETS = (Sink("out", of="delays"), Alert("late", of="delays", to="page"))


@pytest.mark.parametrize(
    "after",
    [
        declare_delays(checks=CHECKS),
        declare_delays(views={"v": "select 2 as one", "w": "select 1 as one"}, checks=CHECKS),
        declare_delays(views=VIEW),
        declare_delays(views=VIEW, checks=("rows > 1", "id <> 'keys id'")),
        declare_delays(views=VIEW, checks=CHECKS, outlets=OUTLETS),
    ],
    ids=["no view", "other views", "no check", "other checks", "sinks and alerts"],
)
def test_what_is_only_shown_leaves_it(after: Declared) -> None:
    assert after.version != BEFORE.version
    assert after.rows_version == BEFORE.rows_version


@pytest.mark.parametrize(
    "after", [declare_delays(least=1), declare_delays(keys=("id", "n"))], ids=["code", "keys"]
)
def test_what_decides_rows_changes_it(after: Declared) -> None:
    assert after.rows_version != declare_delays().rows_version


def test_a_build_has_that_of_its_declaration() -> None:
    for each in (BEFORE, declare_delays(), declare_delays(least=1)):
        assert born_rows_version(born("a", each)) == each.rows_version


def test_a_build_without_kept_declarations_shares_it_with_no_other_version() -> None:
    old = replace(born("a", BEFORE), declarations={})

    assert born_rows_version(old) != BEFORE.rows_version


@given(checks=st.lists(st.text(min_size=1, alphabet="ab \n>keys1"), max_size=3))
def test_whatever_checks_say_they_leave_no_line_behind(checks: list[str]) -> None:
    table = declare_delays(checks=tuple(checks)).pipeline

    lines = declaration_lines(table)["table delays"]
    plain = declaration_lines(declare_delays().pipeline)["table delays"]
    assert without_checks(lines, checks) == plain
