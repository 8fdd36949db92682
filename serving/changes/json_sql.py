"""The SQL that writes a row as an object of JSON, as answers of HTTP have it. Pure.

DuckDB writes a million rows in a second, Python in ten. Texts of values are those of
serving/query/render.py, which has the table of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kappa.base.errors import DeclarationError
from kappa.base.sql import quoted, text
from kappa.declare.formats.key_formats import KEY_TYPES
from kappa.values.columns import Array, Decimal, Scalar, Struct, Type, parse_type


def object_sql(row: str, columns: Iterable[tuple[str, str]]) -> str:
    """Returns the expression for the JSON object of a struct's fields.

    `row` is the struct's expression, and `columns` are (name, Spark's simple type).
    """
    fields = ", ".join(
        f"{text(name)}, {_value(f'{row}.{quoted(name)}', _type_of(kind))}" for name, kind in columns
    )
    return f"json_object({fields})"


def key_sql(row: str, columns: Sequence[tuple[str, str]]) -> str:
    """Returns the expression for the key of a record with a struct's fields.

    No two rows have one key: a text that looks like an object is in one, and so is null.
    """
    whole = f"{object_sql(row, columns)}::varchar"
    if len(columns) > 1 or columns[0][1] not in KEY_TYPES:
        return whole
    one = f"{row}.{quoted(columns[0][0])}::varchar"
    return f"case when {one} is null or starts_with({one}, '{{') then {whole} else {one} end"


def _type_of(kind: str) -> Type:
    try:
        return parse_type(kind)
    except DeclarationError:
        # What a view computes may have types that no event has: they are written as text.
        return Scalar(kind)


def _value(sql: str, kind: Type) -> str:
    """Returns the expression for a value of a type, such that DuckDB writes it as we do."""
    match kind:
        case Scalar("float" | "double"):
            named = " ".join(
                f"when {sql} = {text(each)}::double then {text(name)}::json"
                for each, name in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))
            )
            return f"case {named} else to_json({sql}) end"
        case Scalar("timestamp"):
            return _moment(f"timezone('UTC', {sql})") + " || 'Z'"
        case Scalar("timestamp_ntz"):
            return _moment(sql)
        case Scalar("binary"):
            return f"to_base64({sql})"
        case Scalar("boolean" | "string" | "tinyint" | "smallint" | "int" | "bigint"):
            return sql
        case Scalar() | Decimal():
            return f"cast({sql} as varchar)"
        case Array(element):
            each = f"list_transform({sql}, lambda _e: {_json(element)})"
            return f"case when {sql} is not null then {each} end"
        case Struct(fields):
            inside = ", ".join(
                f"{text(each.name)}, {_value(f'{sql}.{quoted(each.name)}', each.type)}"
                for each in fields
            )
            return f"case when {sql} is not null then json_object({inside}) end"


def _json(element: Type) -> str:
    return f"to_json({_value('_e', element)})"


def _moment(sql: str) -> str:
    # Python leaves the fraction out where it is zero.
    return rf"regexp_replace(strftime({sql}, '%Y-%m-%dT%H:%M:%S.%f'), '\.000000$', '')"
