"""The hash of a table's rows, which does not depend on their order. Proofs compare this hash.

Each value of a row is written as text, preceded by the length of the text in bytes and a colon. A
null is `~`. The text depends on the type:

 string                     the string itself, in UTF-8
 whole number, decimal      its digits; a decimal has as many digits after the point as its scale
 float, double              the shortest text that reads back as the same number, as DuckDB
                            writes it; -0.0 as 0.0, and each NaN as nan
 boolean, date              true, false; 2026-01-31, infinity, -infinity
 timestamp                  microseconds since 1970-01-01T00:00:00Z; infinity, -infinity
 binary                     hexadecimal digits, in upper case
 array, struct              JSON, as DuckDB's `to_json` writes it where the time zone is UTC,
                            with -0.0 and NaN changed as for a double

The text of a row is the concatenation of the texts of its served columns, in the order of the
columns' names. The SHA-256 of this text is split into four 64-bit numbers (big-endian). Each of the
four numbers is summed over all rows, modulo 2^64, so each occurrence of a row counts. The hash of
the table is the four sums as 64 hexadecimal digits. The hash of several tables is the SHA-256 of
one line per table, in the order of the tables' names. A line is the name, the number of rows and
the hash, separated by spaces, with a newline at the end.

A column is not hashed if its values depend on chance or on the order in which rows are folded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from kappa.base.errors import DeclarationError
from kappa.base.sql import quoted, text
from kappa.declare.folds.exactness import CLOSE, Exactness
from kappa.declare.values.columns import Array, Decimal, Scalar, Struct, Type, parse_type
from kappa.state.table import TableBirth

_WORDS = 4
_MODULUS = 1 << 64
_WHY = {Exactness.ROUNDED: "a sum of doubles", Exactness.APPROXIMATE: "an approximate quantile"}
_WITHIN = {
    _WHY[Exactness.ROUNDED]: f"{CLOSE:g}",
    _WHY[Exactness.APPROXIMATE]: "the error of its sketch",
}


def hash_sql(columns: Iterable[tuple[str, str]], source: str) -> str:
    """Returns a DuckDB query that counts and hashes the rows in `source`.

    The query returns the number of rows, and the four sums from which `table_hash` computes the
    hash. `columns` are pairs of name and Spark type. `source` is SQL that can follow `from`.
    """
    row = " || ".join(_value_sql(quoted(name), kind) for name, kind in sorted(columns)) or "''"
    words = (
        f"sum(('0x' || substr(digest, {16 * word + 1}, 16))::ubigint::hugeint) % "
        f"{_MODULUS}::hugeint"
        for word in range(_WORDS)
    )
    sums = ", ".join(f"coalesce({each}, 0::hugeint)" for each in words)
    return f"select count(*), {sums} from (select sha256({row}) as digest from {source})"


def table_hash(sums: Iterable[int]) -> str:
    """Returns the hash of a table as 64 hexadecimal digits.

    `sums` are the four sums that the query of `hash_sql` returns.
    """
    return "".join(f"{each:016x}" for each in sums)


def hash_of_all(tables: Iterable[tuple[str, int, str]]) -> str:
    """Returns the hash of several tables, given as (name, number of rows, hash)."""
    return hashlib.sha256(
        "".join(f"{name} {rows} {each}\n" for name, rows, each in sorted(tables)).encode()
    ).hexdigest()


def left_out_of(table: TableBirth) -> dict[str, str]:
    """Returns the columns whose values may depend on the order of rows or on chance.

    The result maps each such column to the reason, such as `a sum of doubles`.
    """
    return {
        column: _WHY[table.exactness(column)]
        for column in table.fold
        if table.exactness(column) in _WHY
    }


def tolerance_text(why: str) -> str:
    """Describes in words the tolerance with which two values of a column are compared.

    `why` is the reason for which `left_out_of` returns the column.
    """
    return _WITHIN[why]


def _value_sql(column: str, kind: str) -> str:
    shown = f"hex({column})" if kind == "binary" else _plain_sql(column, _parsed_type(kind))
    return f"coalesce(strlen({shown}) || ':' || {shown}, '~')"


def _plain_sql(column: str, kind: Type | None) -> str:
    match kind:
        case Scalar("string"):
            return column
        case Scalar("float" | "double"):
            return f"cast({_one_of_equals(column, kind)} as varchar)"
        case Scalar("timestamp"):
            # An infinite timestamp has no number.
            finite = f"cast(epoch_us({column}) as varchar)"
            return f"case when isfinite({column}) then {finite} else cast({column} as varchar) end"
        case Scalar() | Decimal():
            return f"cast({column} as varchar)"
        case Array() | Struct():
            return f"cast(to_json({_one_of_equals(column, kind)}) as varchar)"
        case None:
            return f"cast(to_json({column}) as varchar)"


def _one_of_equals(sql: str, kind: Type, level: int = 0) -> str:
    """Returns SQL that converts a value so that equal numbers have the same text.

    All NaNs become the same NaN, and -0.0 becomes 0.0, also within arrays and structs.
    """
    match kind:
        case Scalar("float" | "double" as name):
            # Adding 0 takes the sign from -0.0, and changes nothing else.
            return f"case when isnan({sql}) then 'nan'::{name} else {sql} + 0 end"
        case Array(element):
            each = f"_e{level}"
            one = _one_of_equals(each, element, level + 1)
            return sql if one == each else f"list_transform({sql}, lambda {each}: {one})"
        case Struct(fields):
            parts = {each.name: f"struct_extract({sql}, {text(each.name)})" for each in fields}
            changed = {f.name: _one_of_equals(parts[f.name], f.type, level) for f in fields}
            if changed == parts:
                return sql
            packed = ", ".join(f"{quoted(name)} := {each}" for name, each in changed.items())
            return f"case when {sql} is not null then struct_pack({packed}) end"
        case _:
            return sql


def _parsed_type(kind: str) -> Type | None:
    try:
        return parse_type(kind)
    except DeclarationError:
        # The headers of rejects contain bytes, which are not a type of events.
        return None
