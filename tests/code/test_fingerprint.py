"""Laws of the version, which all that decides the rows changes, and of the rows version."""

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
from kappa.code.declaration import declaration_lines, without_checks
from kappa.code.fingerprint import (
    SEMANTICS,
    born_rows_version,
    compute_fingerprint,
    version_differences,
    version_of,
)
from kappa.code.reach import imported_files, reached_parts
from kappa.code.sources import Find, SourceFile
from kappa.engine.read.archived import archive_fingerprint
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


def finding(tree: Mapping[str, str]) -> Find:
    def find(module: str) -> SourceFile | None:
        stem = module.replace(".", "/")
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            if path in tree:
                return SourceFile(
                    module, path, tree[path].encode(), is_package=path.endswith("__init__.py")
                )
        return None

    return find


def parts(
    tree: Mapping[str, str] = TREE, module: str = "pipelines.flights", attribute: str = "flights"
) -> Mapping[str, str]:
    return reached_parts(module, attribute, finding(tree))


def edited(path: str, old: str, new: str) -> dict[str, str]:
    assert old in TREE[path]
    return {**TREE, path: TREE[path].replace(old, new)}


def reasons(tree: Mapping[str, str]) -> tuple[str, ...]:
    return version_differences(parts(), parts(tree))


def one_file(text: str, **others: str) -> Mapping[str, str]:
    return parts(
        {
            "pipelines/p.py": text,
            **{f"pipelines/{name}.py": other for name, other in others.items()},
        },
        "pipelines.p",
        "p",
    )


def test_only_what_the_function_reaches_is_a_part() -> None:
    assert set(parts()) == CODE


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pipelines/flights.py", '"""Late or not."""', ""),
        ("pipelines/flights.py", '"""Late or not."""', '"""Something else."""  # and a remark'),
        ("pipelines/flights.py", "def on_time(rows):", "def on_time(rows: object, ) -> object:"),
        (
            "pipelines/flights.py",
            "    rows = on_time(hits)",
            "\n    # a remark\n    rows: object = (on_time(\n        hits))",
        ),
        ("pipelines/flights.py", "UNUSED = 1", "UNUSED = 2"),
        ("pipelines/flights.py", "LIMIT = 15", "LIMIT: int = 0xF"),
        ("pipelines/flights.py", "import math", "import math\nimport os"),
        (
            "pipelines/flights.py",
            "import math",
            "from typing import TYPE_CHECKING\nimport math\nif TYPE_CHECKING:\n    import os",
        ),
        (
            "pipelines/flights.py",
            "UNUSED = 1",
            "UNUSED = 1\nif __name__ == '__main__':\n    print(1)",
        ),
        (
            "pipelines/flights.py",
            'Topic("hits", event="id string")',
            'Topic("hits", event="id string, x int")',
        ),
        ("pipelines/helpers.py", "return rows\n", "return None\n"),
        ("pipelines/numbers.py", "n * 2", "n * 3"),
    ],
)
def test_what_decides_no_row_changes_nothing(path: str, old: str, new: str) -> None:
    assert parts(edited(path, old, new)) == parts()


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        (
            "pipelines/flights.py",
            "rows = on_time(hits)",
            "rows = hits",
            "function flights in pipelines/flights.py changed",
        ),
        (
            "pipelines/flights.py",
            "return clean(rows, LIMIT)",
            "return clean(rows, LIMIT + 1)",
            "function on_time in pipelines/flights.py changed",
        ),
        (
            "pipelines/flights.py",
            "LIMIT = 15",
            "LIMIT = 15.0",
            "value LIMIT in pipelines/flights.py changed",
        ),
        (
            "pipelines/flights.py",
            "LIMIT = 15",
            "LIMIT = 15\nLIMIT += 1",
            "value LIMIT in pipelines/flights.py changed",
        ),
        (
            "pipelines/helpers.py",
            "delay >",
            "delay >=",
            "function clean in pipelines/helpers.py changed",
        ),
        (
            "pipelines/numbers.py",
            "n / 2",
            "n // 2",
            "function half in pipelines/numbers.py changed",
        ),
        (
            "pipelines/flights.py",
            "import math",
            "import cmath as math",
            "function flights in pipelines/flights.py changed",
        ),
        (
            "pipelines/helpers.py",
            "def other",
            "print('imported')\ndef other",
            "what importing pipelines/helpers.py does is new",
        ),
    ],
)
def test_what_decides_rows_is_a_reason(path: str, old: str, new: str, reason: str) -> None:
    assert reason in reasons(edited(path, old, new))


def test_a_name_imported_from_elsewhere_is_a_change_though_the_text_is_the_same() -> None:
    here = "from pipelines.a import f\nfrom pipelines.b import f as g\ndef p(x): return f(x), g(x)"
    swapped = (
        "from pipelines.a import f as g\nfrom pipelines.b import f\ndef p(x): return f(x), g(x)"
    )
    both = {"a": "def f(x): return 1", "b": "def f(x): return 2"}

    assert version_of(one_file(here, **both)) != version_of(one_file(swapped, **both))


def test_two_ways_to_import_the_same_thing_are_one() -> None:
    assert one_file(
        "from pyspark.sql import functions as F\ndef p(x): return F.col(x)"
    ) == one_file("import pyspark.sql.functions as F\ndef p(x): return F.col(x)")


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
        (
            "try:\n"
            "    from pipelines.h import f\n"
            "except ImportError:\n"
            "    f = None\n"
            "def p(x): return f(x)"
        ),
        (
            "from pipelines.h import f\n"
            "class C:\n"
            "    def m(self, x): return f(x)\n"
            "def p(x): return C().m(x)"
        ),
        "from pipelines.h import f\ndef wrap(g): return lambda x: f(x)\n@wrap\ndef p(x): return x",
        "from pipelines.h import f\ndef p(x, how=f): return how(x)",
        (
            "from pipelines.h import f\n"
            "def make():\n"
            "    def inner(x): return f(x)\n"
            "    return inner\n"
            "p = make()"
        ),
        (
            "from pipelines.h import f\n"
            "BY_NAME = {'f': f}\n"
            "def p(x): return [BY_NAME[n](x) for n in 'f']"
        ),
        "from pipelines.h import f\nG = 'f'\ndef p(x): return globals()[G](x)",
        "from pipelines.h import f\ndef p(x): return eval('f(x)')",
        (
            "from pipelines.h import f\n"
            "R = {}\n"
            "def keep(g):\n"
            "    R['f'] = g\n"
            "    return g\n"
            "@keep\n"
            "def hidden(x): return f(x)\n"
            "def p(x): return R['f'](x)"
        ),
        "from pipelines.h import f\nR = []\nR.append(f)\ndef p(x): return R[0](x)",
        (
            "from pipelines.h import f\n"
            "R = []\n"
            "def keep(g):\n"
            "    R.append(g)\n"
            "DONE = keep(f)\n"
            "def p(x): return R[0](x)"
        ),
        (
            "from pipelines.h import f\n"
            "class B:\n"
            "    def __init_subclass__(cls): B.last = cls\n"
            "class C(B):\n"
            "    def m(self, x): return f(x)\n"
            "def p(x): return B.last().m(x)"
        ),
        "from pipelines.h import f\ndef p(x): return (lambda y: f(y))(x)",
        (
            "from pipelines.h import f\n"
            "if f:\n"
            "    def q(x): return f(x)\n"
            "else:\n"
            "    q = None\n"
            "def p(x): return q(x)"
        ),
        (
            "from pipelines.h import f\n"
            "def p(x):\n"
            "    match x:\n"
            "        case 1:\n"
            "            return f(x)"
        ),
        "from pipelines.h import f\nclass K:\n    step = f\ndef p(x): return K.step(x)",
        (
            "import sys\n"
            "from pipelines.h import f\n"
            "def p(x): return getattr(sys.modules[__name__], 'f')(x)"
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

    assert version_differences(parts(tree, "p", "p"), parts(changed, "p", "p")) == (
        "function total in shop/sums.py changed",
    )


def test_a_local_name_is_not_the_modules() -> None:
    text = "def rows(): return 1\ndef p(hits):\n    rows = hits\n    return [rows for rows in rows]"

    assert one_file(text) == one_file(text.replace("return 1", "return 2"))


def test_what_a_class_binds_itself_is_not_looked_for_in_the_module() -> None:
    found = one_file(
        "class C:\n"
        "    one = 1\n"
        "    two = one + 1\n"
        "    @property\n"
        "    def x(self): return 1\n"
        "    @x.setter\n"
        "    def x(self, v): pass\n"
        "def p(x): return C()\n"
        "OTHER = 1"
    )

    assert set(found) == {"function pipelines/p.py:p", "class pipelines/p.py:C"}


def test_annotations_count_where_something_reads_them() -> None:
    data = (
        "from dataclasses import dataclass\n@dataclass\nclass R:\n    a: int\ndef p(x): return R(x)"
    )
    udf = (
        "from pyspark.sql.functions import pandas_udf\n"
        "@pandas_udf('long')\n"
        "def f(x: int) -> int: return x\n"
        "def p(x): return f(x)"
    )

    assert one_file(data) != one_file(data.replace("a: int", "b: int"))
    assert one_file(udf) != one_file(udf.replace("-> int", "-> float"))


def test_an_import_by_a_computed_name_is_refused_with_its_line() -> None:
    with pytest.raises(
        DeclarationError, match=r"^pipelines/p.py:3: a module is imported by a computed name"
    ):
        one_file("import importlib\ndef p(x):\n    return importlib.import_module('a' + x)")


def test_code_that_is_not_reached_may_do_anything() -> None:
    one_file(
        "import importlib\n"
        "def q(x):\n"
        "    return importlib.import_module('a' + x)\n"
        "def p(x): return x"
    )


def test_modules_that_import_one_another_are_walked_once() -> None:
    found = one_file(
        "from pipelines.a import f\ndef p(x): return f(x)",
        a="from pipelines.b import g\ndef f(x): return g(x)",
        b="import pipelines.a as a\ndef g(x): return a.f(x)",
    )

    assert set(found) == {
        "function pipelines/p.py:p",
        "function pipelines/a.py:f",
        "function pipelines/b.py:g",
    }


def test_a_helper_that_makes_tables_is_no_part_of_the_rows() -> None:
    text = (
        "from kappa import Table, pipeline\n"
        "def table(name): return Table(name)\n"
        'T = [table("a")]\n'
        "@pipeline(reads={}, writes=T)\n"
        "def p(x): return x"
    )

    assert set(one_file(text)) == {"function pipelines/p.py:p"}


def test_a_snapshot_takes_all_files_that_importing_reads() -> None:
    tree = {
        **TREE,
        "pipelines/helpers.py": "import rules.deep.one\n" + HELPERS,
        "rules/__init__.py": "",
        "rules/deep/one.py": "def f():\n    from rules import lazy",
        "rules/lazy.py": "",
        "rules/idle.py": "",
    }

    assert set(imported_files("pipelines.flights", finding(tree))) == {
        *TREE,
        "rules/__init__.py",
        "rules/deep/one.py",
        "rules/lazy.py",
    }


HITS = Topic("hits", event="id string, n int")


def declared(**changed: object) -> Mapping[str, str]:
    made = {
        "topic": HITS,
        "tables": [Table("t", keys=("id",), fold={"n": count()})],
        "views": [View("v", "select 1")],
        "on_error": "reject",
        **changed,
    }

    # `made` has values of mixed types on purpose.
    @pipeline(
        reads={"hits": made["topic"]},
        writes=[*made["tables"], *made["views"]],
        on_error=made["on_error"],
    )  # type: ignore[dict-item,misc]
    def function(hits: object) -> dict[str, object]:
        return {"t": hits}

    return compute_fingerprint(
        function, "p", "function", finding({"p.py": "def function(hits): return {}"})
    ).parts


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topic": Topic("hits", event="id string, n bigint")}, "topic hits changed"),
        ({"topic": Topic("hits", event="id string, n int", key="id")}, "topic hits changed"),
        ({"topic": Topic("hits", event="id string, n int default 0")}, "topic hits changed"),
        ({"topic": Topic("hits", event="id string, n int", was={"n": "m"})}, "topic hits changed"),
        ({"topic": Topic("hits", event="id string, n int", identity="id")}, "topic hits changed"),
        ({"tables": [Table("t", keys=("id",), fold={"n": sum_("n")})]}, "table t changed"),
        (
            {"tables": [Table("t", keys=("id",), fold={"n": count()}, checks=["n > 0"])]},
            "table t changed",
        ),
        ({"tables": [Table("t", keys=("id",), fold={"n": count()}), Table("u")]}, "table u is new"),
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
def test_rules_of_a_structs_fields_are_hashed_and_one_without_rules_as_before(
    kind: str,
) -> None:
    (free,), (bound,) = (
        Topic("hits", event=f"n {kind.format(demand)}").columns for demand in ("", " not null")
    )

    assert str(free) == f"n {free.type}"
    assert str(bound) == f"n {kind.format(' not null')}"
    assert str(bound.type) == str(free.type)
    assert Topic("hits", event=str(bound)).columns == (bound,)


def test_a_step_and_all_that_it_reaches_is_a_part_of_the_version() -> None:
    step.__module__ = "p"

    def version(code: str, state: str = "n int", over: str = "row") -> Mapping[str, str]:
        @pipeline(
            reads={"hits": HITS},
            writes=[Table("t", keys=("id",), fold=ordered(step, state=state, over=over))],
        )
        def function(hits: object) -> dict[str, object]:
            return {"t": hits}

        text = f"import helpers\ndef function(hits): return {{}}\ndef step(state, row): {code}"
        return compute_fingerprint(
            function, "p", "function", finding({"p.py": text, "helpers.py": "def f(x): return x"})
        ).parts

    before = version("state['n'] = 1")
    assert version_differences(before, version("state['n'] = 2")) == (
        "function step in p.py changed",
    )
    assert version_differences(before, version("state['n'] = helpers.f(1)")) == (
        "function f in helpers.py is new",
        "function step in p.py changed",
    )
    assert version_differences(before, version("state['n'] = 1", "n bigint")) == (
        "table t changed",
    )
    assert version_differences(before, version("state['n'] = 1", over="arrow")) == (
        "table t changed",
    )


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
    # The types are those of the lines above.
    versions = {
        version_of(
            declared(
                topic=Topic("hits", event="id string, n int, at timestamp, on timestamp", **each)
            )
        )
        for each in given
    }  # type: ignore[arg-type]

    assert len(versions) == len(given)
    assert declared(
        topic=Topic("hits", event="id string, n int", identity="id", identity_horizon="600 seconds")
    ) == declared(topic=Topic("hits", event="id string, n int", identity=["id"]))
    # A topic with none of these options has the version that it had before they existed.
    assert declared()["topic hits"] == "703d5616a4194e0c"


def test_folds_are_hashed_with_all_their_options_and_those_without_as_ever() -> None:
    folds = [
        count(),
        count("n"),
        sum_("n"),
        set_("n"),
        top_k("n"),
        top_k("n", 3, by="m"),
        hll("n"),
        theta("n", lg_k=4),
        kll("n", 1),
    ]

    said = [
        "count()",
        "count(n)",
        "sum(n)",
        "set(n, limit=1000)",
        "top_k(n, k=10)",
        "top_k(n, k=3, by=m)",
        "hll(n, lg_k=12)",
        "theta(n, lg_k=4)",
        "kll(n, rank=1.0, k=200)",
    ]
    assert [str(fold) for fold in folds] == said


def test_only_a_fold_that_serves_a_column_more_than_before_has_another_version() -> None:
    def hashed(fold: Fold) -> str:
        return declared(tables=[Table("t", keys=("id",), fold={"n": fold})])["table t"]

    assert hashed(set_("n")) == "67a4ca6d1ab67b6c"
    # It was c0ef6f0b2e50725b before there was the column of overflow.
    assert hashed(top_k("n")) == "01f41b509c9831ed"


def test_how_kafka_keeps_a_topic_is_not() -> None:
    assert (
        declared(topic=Topic("hits", event="id string, n int", config={"retention.ms": "-1"}))
        == declared()
    )


def test_the_default_policy_leaves_a_pipelines_version_as_it_was() -> None:
    assert not [part for part in declared() if "error" in part]


def test_how_much_may_be_rejected_is_not() -> None:
    def version(limit: float | None) -> Mapping[str, str]:
        @pipeline(
            reads={"hits": HITS},
            writes=[Table("t", keys=("id",), fold={"n": count()})],
            max_rejects=limit,
        )
        def function(hits: object) -> dict[str, object]:
            return {"t": hits}

        return compute_fingerprint(
            function,
            "p",
            "function",
            finding(
                {
                    "p.py": (
                        "from kappa import pipeline\n"
                        f"@pipeline(max_rejects={limit})\n"
                        "def function(hits): return {}"
                    )
                }
            ),
        ).parts

    assert version(0.01) == version(None)


def test_thresholds_are_not_for_they_are_no_reason_to_replay_what_serves() -> None:
    assert (
        declared(
            tables=[
                Table(
                    "t",
                    keys=("id",),
                    fold={"n": count()},
                    max_changed=0.05,
                    max_added=0,
                    max_removed=1,
                )
            ]
        )
        == declared()
    )


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
    """Returns three modules of functions that call one another at random, and these calls."""
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
def test_layout_and_comments_never_count(
    program: tuple[dict[str, str], dict[str, set[str]]],
) -> None:
    tree, _ = program
    spread = {
        path: "# top\n\n"
        + ast.unparse(ast.parse(text))
        .replace("):\n", "):\n    'docs'\n")
        .replace(", ", ",\n        ")
        for path, text in tree.items()
    }

    assert parts(tree, "p", "a") == parts(spread, "p", "a")


def test_a_topics_format_is_part_of_its_version_and_json_is_what_older_ones_meant() -> None:
    def topic(**more: Any) -> Topic:
        return Topic("hits", event="id string, n int", **more)

    text = "(?P<id>.*) (?P<n>.*)"
    formats = ["csv", Csv(separator=";"), Csv(fields=["id", "n"]), Text(text), Text(text, null="-")]
    topics = [topic(format="json"), *(topic(format=each) for each in formats)]

    assert declared(topic=topics[0]) == declared()
    assert len({declared(topic=each)["topic hits"] for each in topics}) == 6
    assert archive_fingerprint(topics[0]) == archive_fingerprint(topic())
    assert len({archive_fingerprint(each) for each in topics}) == 6


BEFORE = declare_delays(views={"v": "select 1 as one"}, checks=("rows > 0",))


@pytest.mark.parametrize(
    "after",
    [
        declare_delays(checks=("rows > 0",)),
        declare_delays(
            views={"v": "select 2 as one", "w": "select 1 as one"}, checks=("rows > 0",)
        ),
        declare_delays(views={"v": "select 1 as one"}),
        declare_delays(views={"v": "select 1 as one"}, checks=("rows > 1", "id <> 'keys id'")),
        declare_delays(
            views={"v": "select 1 as one"},
            checks=("rows > 0",),
            outlets=(Sink("out", of="delays"), Alert("late", of="delays", to="page")),
        ),
    ],
    ids=["no view", "other views", "no check", "other checks", "sinks and alerts"],
)
def test_what_is_only_shown_leaves_it(after: Declared) -> None:
    assert after.version != BEFORE.version
    assert after.rows_version == BEFORE.rows_version


@pytest.mark.parametrize(
    "after",
    [declare_delays(least=1), declare_delays(keys=("id", "n"))],
    ids=["code", "keys"],
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
    assert (
        without_checks(lines, checks)
        == declaration_lines(declare_delays().pipeline)["table delays"]
    )
