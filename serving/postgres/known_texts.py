"""Questions of clients that no translation of words makes DuckDB's: each has another form here.

asyncpg looks up types that it does not know, such as arrays, by a recursive query over composite
types, ranges and domains, which are not here. Grafana looks into the search path by functions in
places where DuckDB has none. Sources: asyncpg, introspection.py; Grafana, postgresMetaQuery.ts.
"""

from __future__ import annotations

import re

from kappa.serving.query.postgres.catalogue_sql import PUBLIC
from kappa.serving.query.postgres.wire_types import OID

# asyncpg reads lists of these two types alone before it has an answer.
_OID_ARRAY, _TEXT_ARRAY = OID.array, "varchar[]"
# asyncpg compares `kind` and `elemdelim` as bytes. An element comes before its array.
_ASYNCPG_TYPES = f"""
select found.oid, 'pg_catalog' as ns, found.typname as name, 'b'::blob as kind,
    null::bigint as basetype, element.oid as elemtype,
    case when element.oid is not null then ','::blob end as elemdelim,
    null::bigint as range_subtype, null::{_TEXT_ARRAY} as attrtypoids,
    null::{_TEXT_ARRAY} as attrnames, depth, null::varchar as basetype_name,
    element.typname as elemtype_name, null::varchar as range_subtype_name
from (
    select oid, typname, typelem, 0 as depth from pg_catalog.pg_type where oid = any($1)
    union all
    select oid, typname, typelem, 1 from pg_catalog.pg_type where oid in (
        select typelem from pg_catalog.pg_type where oid = any($1))
) as found left join pg_catalog.pg_type as element on element.oid = found.typelem
order by depth desc"""
# The schemas of the search path, as Grafana looks for them.
_SEARCH_PATH = re.compile(
    r"""SELECT\s+CASE\s+WHEN\s+trim\(s\[i\]\)\s*=\s*'"\$user"'\s+THEN\s+user\s+ELSE\s+trim\(s\[i\]\)
    \s+END\s+FROM\s+generate_series\([^;]*?\)\s+as\s+i,\s+
    string_to_array\(current_setting\('search_path'\),\s*','\)\s+s""",
    re.IGNORECASE | re.VERBOSE,
)


def known_form(sql: str) -> tuple[str, tuple[int, ...]]:
    """Returns the form of a query that is known here, and the types of its parameters.

    Any other query comes back as it is, without types.
    """
    if "typeinfo_tree" in sql and "attrtypoids" in sql:
        return _ASYNCPG_TYPES, (_OID_ARRAY,)
    return (_SEARCH_PATH.sub(f"SELECT '{PUBLIC}'", sql) if "s[i]" in sql else sql), ()
