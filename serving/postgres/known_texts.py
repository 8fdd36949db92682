"""Texts of clients that no translation of words makes DuckDB's.

asyncpg looks up types that it does not know, such as arrays, and reads its own question's columns
by their types: `oid`, `"char"`, `oid[]`. So its question is answered here. Grafana looks into the
search path by functions in places where DuckDB has none. Sources: asyncpg, introspection.py;
Grafana, postgresMetaQuery.ts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kappa.serving.postgres.answers import LocalRows
from kappa.serving.postgres.messages import binary_row
from kappa.serving.query.postgres.catalogue_sql import PUBLIC, type_rows

OID_ARRAY = 1028
_OID, _NAME, _CHAR, _INT, _TEXT, _TEXT_ARRAY = 26, 19, 18, 23, 25, 1009
_COLUMNS = (
    ("oid", _OID), ("ns", _NAME), ("name", _NAME), ("kind", _CHAR), ("basetype", _OID),
    ("elemtype", _OID), ("elemdelim", _CHAR), ("range_subtype", _OID), ("attrtypoids", OID_ARRAY),
    ("attrnames", _TEXT_ARRAY), ("depth", _INT), ("basetype_name", _TEXT),
    ("elemtype_name", _TEXT), ("range_subtype_name", _TEXT),
)  # fmt: skip


# The schemas of the search path, as Grafana looks for them.
_SEARCH_PATH = re.compile(
    r"""SELECT\s+CASE\s+WHEN\s+trim\(s\[i\]\)\s*=\s*'"\$user"'\s+THEN\s+user\s+ELSE\s+trim\(s\[i\]\)
    \s+END\s+FROM\s+generate_series\([^;]*?\)\s+as\s+i,\s+
    string_to_array\(current_setting\('search_path'\),\s*','\)\s+s""",
    re.IGNORECASE | re.VERBOSE,
)


def with_known_parts(sql: str) -> str:
    """Returns a text in which a part that is known has another form of one meaning."""
    return _SEARCH_PATH.sub(f"SELECT '{PUBLIC}'", sql) if "s[i]" in sql else sql


def looks_up_types(sql: str) -> bool:
    """Returns True for asyncpg's question about types."""
    return "typeinfo_tree" in sql and "attrtypoids" in sql


def type_columns() -> Sequence[Mapping[str, Any]]:
    """Returns the columns of the answer."""
    return [{"name": name, "wire": (oid, -1, -1)} for name, oid in _COLUMNS]


def types_named(value: str) -> LocalRows:
    """Returns the types whose numbers an SQL expression has, and of an array its element's."""
    wanted = {int(each) for each in re.findall(r"'(\d+)'", value)}
    rows = {oid: (name, element, spelled) for oid, name, _, _, element, _, spelled in type_rows()}
    elements = {rows[each][1] for each in wanted if each in rows} - {0}
    found = [*((each, 1) for each in elements), *((each, 0) for each in wanted if each in rows)]
    return LocalRows(type_columns(), [_row(oid, *rows[oid], depth) for oid, depth in found])


def _row(oid: int, name: str, element: int, spelled: str, depth: int) -> bytes:
    return binary_row(
        [
            struct.pack("!I", oid),
            b"pg_catalog",
            name.encode(),
            b"b",
            None,
            struct.pack("!I", element) if element else None,
            b"," if element else None,
            *(None, None, None),
            struct.pack("!i", depth),
            None,
            spelled.removesuffix("[]").encode() if element else None,
            None,
        ]
    )
