"""SQL that converts DuckDB's values for Python, JSON, Arrow and Parquet without loss. Pure.

DuckDB's types have values that the types of these targets cannot represent: infinite times, years
before 1 and after 9999, nanoseconds, months, 39 digits. If a target cannot represent a value, the
SQL converts the value to text, or fails with an error that names the column.
docs/reference/values.md documents these texts. DuckDB casts each text back to the same value:

    date, timestamp            ISO 8601; a year before 1 as in -0043; `infinity` and `-infinity`
    time                       as DuckDB writes times, with the zone of a time that has a zone
    interval                   as DuckDB writes intervals: `1 month 14 days 12:34:56.789`
    decimal                    all digits, with the number of digits after the point that the
                               type declares
    bit, bignum, uuid, enum    as DuckDB writes these types
    geometry                   well-known text
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kappa.base.errors import UsageError
from kappa.base.sql import quoted, text

# A DuckDBPyType: `id` is the kind of type, `children` are the parts.
DuckType = Any

_NUMBERS = frozenset(
    {"boolean", "tinyint", "smallint", "integer", "bigint", "hugeint"}
    | {"utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"}
)
_FLOATS = frozenset({"float", "double"})
_MOMENTS = frozenset(
    {"timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"}
)
# Types that DuckDB writes as text and reads back without a loss.
_AS_DUCKDB_WRITES = frozenset(
    {"time", "time_ns", "time with time zone", "bit", "bignum", "uuid", "enum", "geometry"}
)
_HUGE = frozenset({"hugeint", "uhugeint"})
_PLAIN = _NUMBERS | _FLOATS | {"decimal", "varchar", "blob", '"null"'}
# DuckDB does not read back longer hours before a colon.
_MOST_HOURS = 99_999
# An interval of Arrow's counts nanoseconds in 64 bits.
_ARROW_HOURS = 2_562_046
_CAST = "cast it to another type in the query, such as {}::varchar"


def text_sql(sql: str, kind: DuckType) -> str:
    """Returns SQL that converts a value of DuckDB, such as a time, to text. Null remains null."""
    match str(kind.id):
        case "date":
            written = f"strftime({sql}, '%Y-%m-%d')"
            before = f"{sql} < date '0001-01-01'"
            return f"case when {before} then {_year_padded(written)} else {written} end"
        case "timestamp_ns":
            # This type has no years before 1 and none after 9999.
            return _moment_text(sql, "%n", f"epoch_ns({sql}) % 1000000000")
        case "timestamp with time zone":
            # A cast of ICU's rounds times that are far away, and fails on some.
            finite = _micros_text(f"make_timestamp(epoch_us({sql}))")
            return f"case when isfinite({sql}) then {finite} || 'Z' else {sql}::varchar end"
        case "timestamp":
            return _micros_text(sql)
        case "timestamp_s" | "timestamp_ms":
            return _micros_text(f"{sql}::timestamp")
        case "interval":
            return _interval_text(sql)
        case "decimal":
            whole = f"{sql}::varchar"
            parts = dict(kind.children)
            # DuckDB leaves out the zero before the point if there is no place for one.
            return (
                rf"regexp_replace({whole}, '^(-?)[.]', '\1' || '0.')"
                if parts["precision"] == parts["scale"]
                else whole
            )
        case _:
            return f"{sql}::varchar"


def json_sql(sql: str, kind: DuckType, column: str) -> str:
    """Returns SQL that prepares a value so that `to_json` or `json_object` writes it without loss.

    Raises UsageError, with the name of the `column`, if JSON cannot represent the column's type.
    """
    match str(kind.id):
        case "float" | "double":
            named = " ".join(
                f"when {sql} = {text(each)}::double then {text(name)}::json"
                for each, name in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"'))
            )
            return f"case {named} else to_json({sql}) end"
        case "blob":
            return f"to_base64({sql})"
        case number if number in _NUMBERS or number == '"null"':
            return sql
        case "list" | "array":
            child = dict(kind.children)["child"]
            return _of_list(sql, kind, lambda each: f"to_json({json_sql(each, child, column)})")
        case "map":
            return f"to_json({_of_map(sql, kind, column)})"
        case "struct":
            return _json_struct(sql, kind, column)
        case "union":
            members = " ".join(
                f"when {text(name)} then json_object({text(name)}, "
                f"{json_sql(f'union_extract({sql}, {text(name)})', each, column)})"
                for name, each in kind.children[1:]
            )
            return f"case union_tag({sql})::varchar {members} end"
        case _:
            _ensure_known(kind, column)
            return text_sql(sql, kind)


def python_sql(sql: str, kind: DuckType, column: str, *, times: bool) -> tuple[str, bool]:
    """Returns SQL that converts a value so that Python receives the value without loss.

    The second value is True if the SQL returns JSON text. With `times`, Python receives dates and
    timestamps within its range as Python objects, and all other dates and timestamps as text.
    Without `times`, Python receives all dates and timestamps as text. Raises UsageError, with the
    name of the `column`, under the same conditions as `json_sql`.
    """
    if _has_kind(kind, {"map", "union"}):
        # Python would get the value of a union without its name, and two lists for some maps.
        return f"to_json({json_sql(sql, kind, column)})::varchar", True
    return _python_expression(sql, kind, column, times=times), False


def arrow_sql(sql: str, kind: DuckType, column: str, *, parquet: bool) -> str:
    """Returns SQL that converts a value so that Arrow can represent the value without loss.

    With `parquet`, a Parquet file can represent the value too. Values of a type that Arrow or
    Parquet lacks become text or JSON. Raises UsageError, with the name of the `column`, under the
    same conditions as `json_sql`. If a number or an interval is too large, the query fails with an
    error that names the column.
    """
    match str(kind.id):
        case huge if huge in _HUGE:
            most = f"{'9' * 38}::hugeint"
            fits = f"{sql} <= {most}" if huge == "uhugeint" else f"{sql} between -{most} and {most}"
            return (
                f"case when {sql} is null or {fits} then {sql}::decimal(38, 0) else "
                f"{_refusal_sql(column, sql, 'has more than 38 digits')} end"
            )
        case "interval" if not parquet:
            fits = f"abs(date_part('hour', {sql})) <= {_ARROW_HOURS}"
            return (
                f"case when {sql} is null or {fits} then {sql} else "
                f"{_refusal_sql(column, _interval_text(sql), 'has more hours than Arrow counts')} "
                "end"
            )
        case "timestamp_s" | "timestamp_ms" if parquet:
            return f"{sql}::timestamp"
        case "interval" | "time_ns" if parquet:
            return text_sql(sql, kind)
        case "time with time zone" | "bit" | "bignum" | "geometry":
            return text_sql(sql, kind)
        case "union":
            is_same = all(
                arrow_sql("x", each, column, parquet=parquet) == "x"
                for _, each in kind.children[1:]
            )
            # A union whose members change is another union, which SQL cannot name.
            return sql if is_same and not parquet else f"{json_sql(sql, kind, column)}::varchar"
        case "list" | "array" | "struct" | "map":
            return _rebuilt_sql(
                sql, kind, lambda each, part: arrow_sql(each, part, column, parquet=parquet)
            )
        case _:
            _ensure_known(kind, column)
            return sql


def _python_expression(sql: str, kind: DuckType, column: str, *, times: bool) -> str:
    match str(kind.id):
        case moment if times and (moment == "date" or moment in _MOMENTS):
            both = f"union(_at {kind}, _text varchar)"
            return (
                f"case when {_is_pythons(sql, moment)} then {sql}::{both} "
                f"else ({text_sql(sql, kind)})::{both} end"
            )
        case "list" | "array" | "struct":
            return _rebuilt_sql(
                sql, kind, lambda each, part: _python_expression(each, part, column, times=times)
            )
        case plain if plain in _PLAIN:
            return sql
        case _:
            _ensure_known(kind, column)
            return text_sql(sql, kind)


def _is_pythons(sql: str, moment: str) -> str:
    """Returns the SQL condition that Python can represent a date or timestamp without loss."""
    if moment == "date":
        return f"{sql} between date '0001-01-01' and date '9999-12-31'"
    zone = "+00" if moment == "timestamp with time zone" else ""
    kind = "timestamptz" if zone else "timestamp"
    first, last = f"0001-01-01 00:00:00{zone}", f"9999-12-31 23:59:59.999999{zone}"
    if moment == "timestamp_ns":
        return f"isfinite({sql}) and epoch_ns({sql}) % 1000 = 0"
    return f"{sql} between {text(first)}::{kind} and {text(last)}::{kind}"


def _micros_text(sql: str) -> str:
    written = _moment_text(sql, "%f", f"epoch_us({sql}) % 1000000")
    before = f"{sql} < timestamp '0001-01-01'"
    return f"case when {before} then {_year_padded(written)} else {written} end"


def _moment_text(sql: str, places: str, fraction: str) -> str:
    """Returns SQL that formats a timestamp in ISO 8601. A fraction of 0 is left out."""
    whole = "%Y-%m-%dT%H:%M:%S"
    return (
        f"case when {fraction} = 0 then strftime({sql}, '{whole}') "
        f"else strftime({sql}, '{whole}.{places}') end"
    )


def _year_padded(sql: str) -> str:
    """Returns SQL that pads the year of a time before the year 1 to at least four digits."""
    for digits in (1, 2, 3):
        zeros = "0" * (4 - digits)
        sql = rf"regexp_replace({sql}, '^-([0-9]{{{digits}}})-', '-{zeros}\1-')"
    return sql


def _interval_text(sql: str) -> str:
    parts = " || ' ' || ".join(
        f"date_part({text(name)}, {sql}) || {text(f' {plural}')}"
        for name, plural in (
            ("year", "years"),
            ("month", "months"),
            ("day", "days"),
            ("hour", "hours"),
            ("minute", "minutes"),
            ("microsecond", "microseconds"),
        )
    )
    return (
        f"case when abs(date_part('hour', {sql})) <= {_MOST_HOURS} then {sql}::varchar "
        f"else {parts} end"
    )


def _json_struct(sql: str, kind: DuckType, column: str) -> str:
    if _is_unnamed(kind):
        inside = ", ".join(
            f"to_json({json_sql(f'struct_extract({sql}, {place})', each, column)})"
            for place, (_, each) in enumerate(kind.children, 1)
        )
        made = f"json_array({inside})"
    else:
        inside = ", ".join(
            f"{text(name)}, {json_sql(_field_sql(sql, name), each, column)}"
            for name, each in kind.children
        )
        made = f"json_object({inside})"
    return f"case when {sql} is not null then {made} end"


def _rebuilt_sql(sql: str, kind: DuckType, change: Callable[[str, DuckType], str]) -> str:
    """Returns SQL for a list, struct or map whose elements or fields are converted by `change`.

    `change` receives the SQL and the type of an element or field, and returns the SQL of the
    converted value. If `change` leaves all of them unchanged, the result is `sql` itself.
    """
    match str(kind.id):
        case "list" | "array":
            child = dict(kind.children)["child"]
            return (
                sql
                if change("x", child) == "x"
                else _of_list(sql, kind, lambda each: change(each, child))
            )
        case "map":
            parts = dict(kind.children)
            if all(change("x", each) == "x" for each in parts.values()):
                return sql
            each = _lambda_variable(kind)
            pair = ", ".join(
                f"{name} := {change(_field_sql(each, name), parts[name])}"
                for name in ("key", "value")
            )
            return (
                f"case when {sql} is not null then map_from_entries(list_transform(map_entries"
                f"({sql}), lambda {each}: struct_pack({pair}))) end"
            )
        case _:
            if all(change("x", each) == "x" for _, each in kind.children):
                return sql
            if _is_unnamed(kind):
                fields = ", ".join(
                    change(f"struct_extract({sql}, {place})", each)
                    for place, (_, each) in enumerate(kind.children, 1)
                )
                return f"case when {sql} is not null then row({fields}) end"
            fields = ", ".join(
                f"{quoted(name)} := {change(_field_sql(sql, name), each)}"
                for name, each in kind.children
            )
            return f"case when {sql} is not null then struct_pack({fields}) end"


def _of_list(sql: str, kind: DuckType, change: Callable[[str], str]) -> str:
    each, child = _lambda_variable(kind), dict(kind.children)["child"]
    # DuckDB transforms no array, only a list.
    listed = f"{sql}::{child}[]" if str(kind.id) == "array" else sql
    changed = f"list_transform({listed}, lambda {each}: {change(each)})"
    return f"case when {sql} is not null then {changed} end"


def _of_map(sql: str, kind: DuckType, column: str) -> str:
    """Returns SQL that converts a map to a map from texts to JSON.

    A key that is not a text becomes its JSON text.
    """
    each, parts = _lambda_variable(kind), dict(kind.children)
    key = json_sql(_field_sql(each, "key"), parts["key"], column)
    # The text of JSON, without quotes if the JSON is a text.
    key_text = f"to_json({key})->>'$'"
    value = f"to_json({json_sql(_field_sql(each, 'value'), parts['value'], column)})"
    return (
        f"case when {sql} is not null then map_from_entries(list_transform(map_entries({sql}), "
        f"lambda {each}: struct_pack(key := {key_text}, value := {value}))) end"
    )


def _lambda_variable(kind: DuckType) -> str:
    """Returns a name for the parameter of an SQL lambda. The names of nested lambdas differ."""
    return f"_e{_type_depth(kind)}"


def _type_depth(kind: DuckType) -> int:
    parts = _type_parts(kind)
    return 1 + max(map(_type_depth, parts)) if parts else 0


def _has_kind(kind: DuckType, kinds: set[str]) -> bool:
    return str(kind.id) in kinds or any(_has_kind(each, kinds) for each in _type_parts(kind))


def _type_parts(kind: DuckType) -> list[DuckType]:
    match str(kind.id):
        case "list" | "array":
            return [dict(kind.children)["child"]]
        case "map" | "struct":
            return [each for _, each in kind.children]
        case "union":
            return [each for _, each in kind.children[1:]]
        case _:
            return []


def _is_unnamed(kind: DuckType) -> bool:
    return all(not name for name, _ in kind.children)


def _field_sql(sql: str, name: str) -> str:
    return f"struct_extract({sql}, {text(name)})"


def _refusal_sql(column: str, shown: str, why: str) -> str:
    named = text(f"column {column} holds ")
    more = text(f", which {why}: {_CAST.format(column)}")
    return f"error({named} || {shown} || {more})"


def _ensure_known(kind: DuckType, column: str) -> None:
    name = str(kind.id)
    if name in _PLAIN | _MOMENTS | _AS_DUCKDB_WRITES | {"date", "interval"}:
        return
    raise UsageError(
        f"column {column} is of DuckDB's type {kind}, which an answer cannot have",
        hint=_CAST.format(column),
    )
