"""Each fold declares its exactness, which comparisons and reports use (law 8)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from births import make_birth
from house import HOUSE
from msgspec.structs import replace

from kappa import Table, Topic, avg_, count, count_distinct, hll, kll, pipeline, sum_
from kappa.base.errors import KappaError
from kappa.code.fingerprint import declaration_lines
from kappa.declare.folds.exactness import Exactness
from kappa.declare.folds.registry import KINDS
from kappa.declare.values.columns import parse_type
from kappa.state.build import Birth, put_birth, read_birth
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import table_births

GUARANTEES = HOUSE / "docs" / "explain" / "guarantees.md"
FOLDED = {
    "rows": count(),
    "x": sum_("x"),
    "n": sum_("n"),
    "half": kll("x", 0.5),
    "names": hll("k", lg_k=10),
    "mean_x": avg_("x"),
    "mean_n": avg_("n"),
    "distinct": count_distinct("n"),
}


@pipeline(
    reads={"events": Topic("events", event="k string, x double, n int")},
    writes=[Table("t", keys=("k",), fold=FOLDED)],
)
def folded(events: object) -> dict[str, object]:
    return {}


def born() -> TableBirth:
    returned = {"k": "string", "x": "double", "n": "int"}
    types = {name: parse_type(kind) for name, kind in returned.items()}
    return table_births(folded, {"t": types})[0]


def test_only_sums_of_doubles_are_rounded_and_only_sketches_with_chance_approximate() -> None:
    table = born()

    said = {column: table.exactness(column) for column, _ in table.served}

    columns = ("k", "rows", "n", "n_overflow", "x_overflow", "mean_n", "distinct")
    exact = dict.fromkeys(columns, Exactness.EXACT)
    assert said == {
        **exact,
        "x": Exactness.ROUNDED,
        "mean_x": Exactness.ROUNDED,
        "half": Exactness.APPROXIMATE,
        "names": Exactness.ESTIMATED,
    }
    assert [name for name, _ in table.compared if name not in said] == ["_half_low", "_half_high"]


@pytest.mark.parametrize(
    ("column", "one", "other", "equal"),
    [
        ("x", 1.0, 1.0 + 1e-10, True),
        ("x", 1.0, 1.0 + 1e-8, False),
        ("x", None, 0.0, False),
        ("x", None, None, True),
        ("mean_x", 1.0, 1.0 + 1e-10, True),
        ("mean_n", 1.0, 1.0 + 1e-10, False),
        ("names", 5, 5, True),
        ("names", 5, 6, False),
        ("half", (3.0, 1.0, 5.0), (6.0, 5.0, 9.0), True),
        ("half", (3.0, 1.0, 5.0), (6.0, 5.5, 9.0), False),
        ("half", (None, None, None), (6.0, 5.5, 9.0), False),
        ("half", (None, None, None), (None, None, None), True),
    ],
)
def test_the_law_of_slices_takes_two_values_for_equal_as_their_fold_says(
    column: str, one: Any, other: Any, equal: bool
) -> None:
    def row(value: Any) -> dict[str, Any]:
        values = value if isinstance(value, tuple) else (value,)
        return dict(zip((column, "_half_low", "_half_high"), values, strict=False))

    exactness = born().exactness(column)
    assert exactness.are_equal(column, row(one), row(other)) is equal
    assert exactness.are_equal(column, row(other), row(one)) is equal


def test_a_birth_certificate_keeps_the_options_of_folds_and_an_old_one_has_none(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    made = make_birth("b", (born(), replace(born(), name="old", fold={}, options={})))
    put_birth(store, made)
    read = read_birth(store, "b")
    assert read == made
    assert read.tables[0].options == {
        "half": {"rank": 0.5, "k": 200},
        "names": {"lg_k": 10},
        "distinct": {"limit": 10_000},
    }

    document = store.get_json("builds/b/birth.json")
    assert isinstance(document, dict)
    del document["tables"][1]["options"]
    store.put_json("builds/b/birth.json", document)

    assert read_birth(store, "b") == made


@pytest.mark.parametrize(
    ("libraries", "newer", "hint"),
    [
        ({"kappa": "9.1"}, "a newer Kappa (9.1)", "pip install kappa==9.1, or a newer one"),
        ({}, "a newer Kappa", "install the Kappa that made it, or a newer one"),
    ],
)
def test_a_birth_with_a_fold_that_is_not_known_names_the_kappa_that_knows_it(
    tmp_path: Path, libraries: dict[str, str], newer: str, hint: str
) -> None:
    store = Store(tmp_path)
    table = replace(born(), fold={"half": ("median", "x")})
    put_birth(
        store,
        Birth("b", "p", "v", {}, 1, {}, "m", (), (table,), {}, {}, libraries, "then", "ada"),
    )

    with pytest.raises(KappaError) as refused:
        read_birth(store, "b")

    assert refused.value.message == (
        f"build b was made by {newer}: its table t folds half by 'median', "
        "which this one does not know"
    )
    assert refused.value.hint == hint


def test_a_declared_fold_that_is_not_exact_says_so() -> None:
    lines = declaration_lines(folded)["table t"].splitlines()

    assert lines == [
        "keys k",
        "rows = count()",
        "x = sum(x)",
        "n = sum(n)",
        "half = kll(x, rank=0.5, k=200), approximate",
        "names = hll(k, lg_k=10), estimated",
        "mean_x = avg(x)",
        "mean_n = avg(n)",
        "distinct = count_distinct(n, limit=10000)",
    ]


def test_the_guarantees_tell_of_each_fold_what_it_is() -> None:
    rows = re.findall(
        r"^\| `([a-z_]+?)_?\(.*?\| ([a-z]+)[ ;,|]",
        GUARANTEES.read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert dict(rows) == {
        kind: str(fold("x").value_exactness("f", {})) for kind, fold in KINDS.items()
    }
