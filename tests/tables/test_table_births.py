"""The columns and types of a build's tables follow from its folds (kappa/tables/shape.py).

A fold that does not fit its column is refused with the table's line.
"""

from __future__ import annotations

import pytest

from kappa import (
    Fold,
    Table,
    Topic,
    and_,
    avg_,
    count,
    first,
    hll,
    kll,
    latest,
    max_,
    min_,
    or_,
    pipeline,
    set_,
    sum_,
    theta,
    top_k,
)
from kappa.base.errors import DeclarationError
from kappa.declare.values.columns import Type, parse_columns, parse_type
from kappa.tables.shape import table_births

EVENTS = Topic("events", event="k string")
NUMBERS = "x double, n int, d decimal(12,3), wide decimal(38,0)"
OTHERS = "k string, b boolean, l array<int>, at timestamp"
OUTPUT = {column.name: column.type for column in parse_columns(f"{NUMBERS}, {OTHERS}")}
PLACE = {"_log_time": "bigint", "_topic": "string", "_partition": "int", "_offset": "bigint"}
ORDER = {name: parse_type(text) for name, text in PLACE.items()}


def columns(fold: Fold, *, key: str = "k", output: dict[str, Type] = OUTPUT) -> dict[str, str]:
    @pipeline(reads={"events": EVENTS}, writes=[Table("t", keys=(key,), fold={"f": fold})])
    def p(events: object) -> dict[str, object]:
        return {}

    born, _rejects = table_births(p, {"t": output})
    return dict(born.columns)


@pytest.mark.parametrize(
    ("fold", "kind"),
    [
        *((count(), "bigint"), (count("l"), "bigint"), (min_("k"), "string")),
        *((max_("at"), "timestamp"), (min_("wide"), "decimal(38,0)")),
        *((and_("b"), "boolean"), (or_("b"), "boolean")),
    ],
)
def test_a_folded_column_has_the_type_of_its_fold(fold: Fold, kind: str) -> None:
    assert columns(fold) == {"k": "string", "f": kind}


GONE = "and the function does not return it"


@pytest.mark.parametrize(
    ("fold", "why"),
    [
        (sum_("k"), r"folds f = sum\(k\) over the type string"),
        (avg_("k"), r"folds f = avg\(k\) over the type string"),
        (avg_("wide"), r"sums wide of type decimal\(38,0\), which has no digits left for a sum"),
        (sum_("wide"), r"sums wide of type decimal\(38,0\), which has no digits left for a sum"),
        (min_("b"), r"folds f = min\(b\) over the type boolean, which has no order"),
        (max_("l"), r"folds f = max\(l\) over the type array<int>, which has no order"),
        (and_("n"), r"folds f = and\(n\) over the type int"),
        (or_("k"), r"folds f = or\(k\) over the type string"),
        (set_("l"), r"folds f = set\(l, limit=1000\) over the type array<int>"),
        (hll("l"), r"folds f = hll\(l, lg_k=12\) over the type array<int>"),
        (theta("l"), r"folds f = theta\(l, lg_k=12\) over the type array<int>"),
        (kll("at", 0.5), r"folds f = kll\(at, rank=0.5, k=200\) over the type timestamp"),
        (top_k("l"), r"folds f = top_k\(l, k=10\) over the type array<int>, which has no order"),
        (top_k("n", by="b"), r"folds f = top_k\(n, k=10, by=b\) over the type boolean, which has"),
        (top_k("n", by="gone"), rf"needs column gone for f = top_k\(n, k=10, by=gone\), {GONE}"),
        (top_k("l", by="n"), r"needs column _log_time bigint for f = top_k\(l, k=10, by=n\)"),
        (count("gone"), rf"needs column gone for f = count\(gone\), {GONE}"),
    ],
)
def test_a_fold_over_what_it_cannot_fold_is_refused_with_the_line(fold: Fold, why: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_table_births\.py:\d+: table t {why}"):
        columns(fold)


@pytest.mark.parametrize(("fold", "kind"), [(first("l"), "array<int>"), (latest("x"), "double")])
def test_a_fold_by_order_keeps_the_order_of_its_value_hidden(fold: Fold, kind: str) -> None:
    hidden = {f"_f{name}": str(of) for name, of in ORDER.items()}
    assert columns(fold, output=OUTPUT | ORDER) == {"k": "string", "f": kind, **hidden}


OVERFLOW = {"f_overflow": "boolean"}
CUT = {"f_overflow": "boolean", "_f_cut": "boolean"}
SKETCH = {"_f_sketch": "binary"}
WHERE = "log_time:bigint,topic:string,partition:int,offset:bigint"


@pytest.mark.parametrize(
    ("fold", "kept"),
    [
        (set_("d"), {"f": "array<decimal(12,3)>", "f_overflow": "boolean"}),
        (set_("k"), {"f": "array<string>", **CUT}),
        (hll("b"), {"f": "bigint", **SKETCH}),
        (theta("at"), {"f": "bigint", **SKETCH}),
        (kll("n", 0.5), {**dict.fromkeys(("f", "_f_low", "_f_high"), "bigint"), **SKETCH}),
        (kll("d", 1), {**dict.fromkeys(("f", "_f_low", "_f_high"), "double"), **SKETCH}),
        (
            top_k("l", by="d"),
            {
                "f": "array<array<int>>",
                "_f_top": f"array<struct<by:decimal(12,3),{WHERE},value:array<int>>>",
                **CUT,
            },
        ),
        (
            top_k("k"),
            {
                "f": "array<string>",
                "_f_top": f"array<struct<by:string,{WHERE},value:string>>",
                **CUT,
            },
        ),
    ],
)
def test_combined_fold_keeps_what_it_needs(fold: Fold, kept: dict[str, str]) -> None:
    """The table keeps these columns in addition to the served columns."""
    assert columns(fold, output=OUTPUT | ORDER) == {"k": "string", **kept}


@pytest.mark.parametrize(
    ("fold", "kept"),
    [
        (sum_("n"), {"f": "bigint", "_f_sum": "decimal(37,0)", **OVERFLOW}),
        (sum_("d"), {"f": "decimal(22,3)", "_f_sum": "decimal(37,3)", **OVERFLOW}),
        (
            sum_("d27"),
            {**dict.fromkeys(("f", "_f_sum"), "decimal(37,7)"), "_f_carry": "bigint", **OVERFLOW},
        ),
        (sum_("x"), {**dict.fromkeys(("f", "_f_sum", "_f_large"), "double"), **OVERFLOW}),
        (avg_("n"), {"f": "double", "_f_sum": "decimal(37,0)", "_f_count": "bigint"}),
    ],
)
def test_a_sum_is_kept_wider_than_it_is_served(fold: Fold, kept: dict[str, str]) -> None:
    output = {**OUTPUT, "d27": parse_type("decimal(27,7)")}
    assert columns(fold, output=output) == {"k": "string", **kept}


@pytest.mark.parametrize("lost", ORDER)
def test_a_fold_by_order_needs_the_order_in_the_rows(lost: str) -> None:
    gone = rf"table t needs column {lost} \w+ for f = latest\(x\), {GONE}"
    others = {name: kind for name, kind in ORDER.items() if name != lost}
    with pytest.raises(DeclarationError, match=gone) as refused:
        columns(latest("x"), output=OUTPUT | others)
    assert "'_log_time', '_topic', '_partition', '_offset'" in refused.value.hint

    other = rf"needs column {lost} .* and the function returns it as date"
    with pytest.raises(DeclarationError, match=other):
        columns(latest("x"), output=OUTPUT | ORDER | {lost: parse_type("date")})


@pytest.mark.parametrize("key", ["x", "l"])
def test_a_key_without_exact_equality_is_refused(key: str) -> None:
    inexact = f"has the key {key} of type .* which has no exact equality"
    with pytest.raises(DeclarationError, match=inexact):
        columns(count(), key=key)
