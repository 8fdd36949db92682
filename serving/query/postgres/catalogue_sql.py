"""The relations and functions of `pg_catalog` and `information_schema`, as SQL. Pure.

The rows come from three tables that catalogue.py fills: `_relations` (oid, schema_oid, schema,
name, kind, columns), `_columns` (relation, schema, name, kind, shown, number, type, size, modifier,
spelled; `shown` is the column's name) and `_types`. A relation for things that Kappa does not have
(triggers, sequences, rules) has columns but no rows. Source: PostgreSQL 16, "System Catalogs".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.serving.query.postgres.wire_types import WIRE_TYPES

# The schema of all of it in DuckDB.
SCHEMA = "kappa_catalogue"
# The name of DuckDB's main schema in the catalogue.
PUBLIC = "public"
INFORMATION = "information_schema."
OWNER, DATABASE = "kappa", "kappa"
_OWNER_OID, DATABASE_OID, PUBLIC_OID = 10, 5, 2200
CATALOGUE_OID, INFORMATION_OID = 11, 13000


def type_rows() -> list[tuple[int, str, int, str, int, int, str]]:
    """Lists the Postgres types as rows of the table `_types`.

    A row contains the oid, the name, the size, the category, the oid of the element's type, the oid
    of the array type, and the name of the type in SQL.
    """
    found = []
    for each in WIRE_TYPES:
        found.append((each.oid, each.name, each.size, each.category, 0, each.array, each.spelled))
        if each.array:
            found.append((each.array, f"_{each.name}", -1, "A", each.oid, 0, f"{each.spelled}[]"))
    return found


def _nothing(columns: str) -> str:
    """Returns an SQL query with the given columns and without rows.

    `columns` contains the names of the columns, with spaces between them. A type follows a name
    after a colon, unless the type is text.
    """
    listed = (each.partition(":")[::2] for each in columns.split())
    kinds = {"": "varchar", "o": "bigint", "i": "integer", "b": "boolean", "l": "bigint[]"}
    return "select {} where false".format(
        ", ".join(f"null::{kinds.get(kind, kind)} as {name}" for name, kind in listed)
    )


_CLASS = f"""
select oid, name as relname, schema_oid as relnamespace, 0::bigint as reltype,
    0::bigint as reloftype, {_OWNER_OID}::bigint as relowner,
    if(kind = 'r', 2, 0)::bigint as relam, 0::bigint as relfilenode, 0::bigint as reltablespace,
    0 as relpages, -1::float as reltuples, 0 as relallvisible, 0::bigint as reltoastrelid,
    false as relhasindex, false as relisshared, 'p' as relpersistence, kind as relkind,
    columns as relnatts, 0 as relchecks, false as relhasrules, false as relhastriggers,
    false as relhassubclass, false as relrowsecurity, false as relforcerowsecurity,
    true as relispopulated, 'n' as relreplident, false as relispartition, 0::bigint as relrewrite,
    0::bigint as relfrozenxid, 0::bigint as relminmxid, null::varchar[] as relacl,
    null::varchar[] as reloptions, null::varchar as relpartbound, false as relhasoids,
    0::bigint as xmin, 1259::bigint as tableoid
from {SCHEMA}._relations"""
_NAMESPACE = f"""
select distinct schema_oid as oid, schema as nspname, {_OWNER_OID}::bigint as nspowner,
    null::varchar[] as nspacl, 0::bigint as xmin
from (select schema_oid, schema from {SCHEMA}._relations
    union all values ({PUBLIC_OID}, '{PUBLIC}'), ({CATALOGUE_OID}, 'pg_catalog'),
        ({INFORMATION_OID}, 'information_schema'))"""
_ATTRIBUTE = f"""
select relation as attrelid, shown as attname, type as atttypid, -1 as attstattarget,
    size as attlen, number as attnum, if(spelled like '%[]', 1, 0) as attndims, -1 as attcacheoff,
    modifier as atttypmod, size > 0 as attbyval, 'p' as attstorage, '' as attcompression,
    'i' as attalign, false as attnotnull, false as atthasdef, false as atthasmissing,
    '' as attidentity, '' as attgenerated, false as attisdropped, true as attislocal,
    0 as attinhcount, 0::bigint as attcollation, null::varchar[] as attacl,
    null::varchar[] as attoptions, null::varchar[] as attfdwoptions, null::varchar as attmissingval
from {SCHEMA}._columns"""
# The name of a type in the names of its functions: `int4recv`, but `date_recv`.
_CALLED = (
    "name || if(name in ('json', 'jsonb', 'date', 'time', 'timetz', 'timestamp', 'timestamptz', "
    "'interval', 'numeric', 'uuid', 'record', 'void'), '_', '')"
)
_TYPE = f"""
select oid, name as typname, {CATALOGUE_OID}::bigint as typnamespace,
    {_OWNER_OID}::bigint as typowner, size as typlen, size > 0 and size <= 8 as typbyval,
    if(category = 'P', 'p', 'b') as typtype, category as typcategory, false as typispreferred,
    true as typisdefined, ',' as typdelim, 0::bigint as typrelid,
    if(element = 0, '-', 'array_subscript_handler') as typsubscript, element as typelem,
    array_oid as typarray, if(element = 0, {_CALLED} || 'in', 'array_in') as typinput,
    if(element = 0, {_CALLED} || 'out', 'array_out') as typoutput,
    if(element = 0, {_CALLED} || 'recv', 'array_recv') as typreceive,
    if(element = 0, {_CALLED} || 'send', 'array_send') as typsend, '-' as typmodin,
    '-' as typmodout, '-' as typanalyze, 'i' as typalign, 'p' as typstorage, false as typnotnull,
    0::bigint as typbasetype, -1 as typtypmod, 0 as typndims, 0::bigint as typcollation,
    null::varchar as typdefaultbin, null::varchar as typdefault, null::varchar[] as typacl
from {SCHEMA}._types"""
_ROLE = f"""
select {_OWNER_OID}::bigint as oid, '{OWNER}' as rolname, false as rolsuper, true as rolinherit,
    false as rolcreaterole, false as rolcreatedb, true as rolcanlogin, false as rolreplication,
    -1 as rolconnlimit, '********' as rolpassword, null::timestamptz as rolvaliduntil,
    false as rolbypassrls, null::varchar[] as rolconfig"""
_DATABASE = f"""
select {DATABASE_OID}::bigint as oid, '{DATABASE}' as datname, {_OWNER_OID}::bigint as datdba,
    6 as encoding, 'c' as datlocprovider, false as datistemplate, true as datallowconn,
    -1 as datconnlimit, 0::bigint as datfrozenxid, 0::bigint as datminmxid,
    1663::bigint as dattablespace, 'C.UTF-8' as datcollate, 'C.UTF-8' as datctype,
    null::varchar as daticulocale, null::varchar as daticurules, null::varchar as datcollversion,
    null::varchar[] as datacl"""

# Each relation of `pg_catalog`, and of `information_schema` with that name before its own.
RELATIONS: Mapping[str, str] = {
    "pg_class": _CLASS,
    "pg_namespace": _NAMESPACE,
    "pg_attribute": _ATTRIBUTE,
    "pg_type": _TYPE,
    "pg_roles": _ROLE,
    "pg_authid": _ROLE,
    "pg_database": _DATABASE,
    "pg_user": f"select '{OWNER}' as usename, {_OWNER_OID}::bigint as usesysid, false as "
    "usecreatedb, false as usesuper, false as userepl, false as usebypassrls, '********' as "
    "passwd, null::timestamptz as valuntil, null::varchar[] as useconfig",
    "pg_tables": f"select schema as schemaname, name as tablename, '{OWNER}' as tableowner, "
    "null::varchar as tablespace, false as hasindexes, false as hasrules, false as hastriggers, "
    f"false as rowsecurity from {SCHEMA}._relations where kind = 'r'",
    "pg_views": f"select schema as schemaname, name as viewname, '{OWNER}' as viewowner, "
    f"null::varchar as definition from {SCHEMA}._relations where kind = 'v'",
    "pg_am": "select 2::bigint as oid, 'heap' as amname, 'heap_tableam_handler' as amhandler, "
    "'t' as amtype",
    "pg_tablespace": f"select 1663::bigint as oid, 'pg_default' as spcname, {_OWNER_OID}::bigint "
    "as spcowner, null::varchar[] as spcacl, null::varchar[] as spcoptions",
    "pg_collation": "select 100::bigint as oid, 'default' as collname, 11::bigint as "
    "collnamespace, 10::bigint as collowner, 'd' as collprovider, true as collisdeterministic, "
    "-1 as collencoding, 'C' as collcollate, 'C' as collctype, null::varchar as colliculocale",
    "pg_get_keywords": "select keyword_name as word, if(keyword_category = 'reserved', 'R', 'U') "
    "as catcode, keyword_category as catdesc from duckdb_keywords()",
    "pg_timezone_names": "select 'UTC' as name, 'UTC' as abbrev, interval 0 hour as utc_offset, "
    "false as is_dst",
    "pg_settings": "select * from (values ('server_version', '16.0'), ('server_encoding', 'UTF8'),"
    " ('max_index_keys', '32'), ('standard_conforming_strings', 'on')) as _s(name, setting)",
    "pg_index": _nothing(
        "indexrelid:o indrelid:o indnatts:i indnkeyatts:i indisunique:b indnullsnotdistinct:b "
        "indisprimary:b indisexclusion:b indimmediate:b indisclustered:b indisvalid:b "
        "indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:l indcollation:l "
        "indclass:l indoption:l indexprs indpred"
    ),
    "pg_constraint": _nothing(
        "oid:o conname connamespace:o contype condeferrable:b condeferred:b convalidated:b "
        "conrelid:o contypid:o conindid:o conparentid:o confrelid:o confupdtype confdeltype "
        "confmatchtype conislocal:b coninhcount:i connoinherit:b conkey:l confkey:l conpfeqop:l "
        "conexclop:l confdelsetcols:l conbin"
    ),
    "pg_attrdef": _nothing("oid:o adrelid:o adnum:i adbin"),
    "pg_description": _nothing("objoid:o classoid:o objsubid:i description"),
    "pg_shdescription": _nothing("objoid:o classoid:o description"),
    "pg_enum": _nothing("oid:o enumtypid:o enumsortorder:float enumlabel"),
    "pg_range": _nothing(
        "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical rngsubdiff"
    ),
    "pg_inherits": _nothing("inhrelid:o inhparent:o inhseqno:i inhdetachpending:b"),
    "pg_depend": _nothing(
        "classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype"
    ),
    "pg_proc": _nothing(
        "oid:o proname pronamespace:o proowner:o prolang:o prokind provolatile proretset:b "
        "prosecdef:b prorettype:o proargtypes:l proallargtypes:l proargmodes:varchar[] "
        "proargnames:varchar[] pronargs:i pronargdefaults:i provariadic:o prosrc proacl:varchar[]"
    ),
    "pg_operator": _nothing("oid:o oprname oprnamespace:o oprleft:o oprright:o oprresult:o"),
    "pg_opclass": _nothing("oid:o opcmethod:o opcname opcnamespace:o opcintype:o opcdefault:b"),
    "pg_opfamily": _nothing("oid:o opfmethod:o opfname opfnamespace:o opfowner:o"),
    "pg_language": _nothing("oid:o lanname lanowner:o"),
    "pg_cast": _nothing("oid:o castsource:o casttarget:o castfunc:o castcontext castmethod"),
    "pg_trigger": _nothing(
        "oid:o tgrelid:o tgparentid:o tgname tgfoid:o tgtype:i tgenabled tgisinternal:b "
        "tgconstrrelid:o tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:i "
        "tgattr:l tgqual"
    ),
    "pg_rewrite": _nothing("oid:o rulename ev_class:o ev_type ev_enabled is_instead:b"),
    "pg_rules": _nothing("schemaname tablename rulename definition"),
    "pg_policy": _nothing(
        "oid:o polname polrelid:o polcmd polpermissive:b polroles:l polqual polwithcheck"
    ),
    "pg_sequence": _nothing(
        "seqrelid:o seqtypid:o seqstart:o seqincrement:o seqmax:o seqmin:o seqcache:o seqcycle:b"
    ),
    "pg_sequences": _nothing("schemaname sequencename sequenceowner last_value:o"),
    "pg_indexes": _nothing("schemaname tablename indexname tablespace indexdef"),
    "pg_matviews": _nothing("schemaname matviewname matviewowner ispopulated:b definition"),
    "pg_extension": _nothing("oid:o extname extowner:o extnamespace:o extversion"),
    "pg_foreign_table": _nothing("ftrelid:o ftserver:o ftoptions:varchar[]"),
    "pg_foreign_server": _nothing("oid:o srvname srvowner:o srvfdw:o srvoptions:varchar[]"),
    "pg_foreign_data_wrapper": _nothing("oid:o fdwname fdwowner:o"),
    "pg_partitioned_table": _nothing(
        "partrelid:o partstrat partnatts:i partdefid:o partattrs:l partclass:l partexprs"
    ),
    "pg_statistic_ext": _nothing(
        "oid:o stxrelid:o stxname stxnamespace:o stxowner:o stxstattarget:i stxkeys:l "
        "stxkind:varchar[]"
    ),
    "pg_publication": _nothing("oid:o pubname pubowner:o puballtables:b"),
    "pg_publication_rel": _nothing("oid:o prpubid:o prrelid:o prqual prattrs:l"),
    "pg_publication_namespace": _nothing("oid:o pnpubid:o pnnspid:o"),
    "pg_auth_members": _nothing("oid:o roleid:o member:o grantor:o admin_option:b"),
    "pg_db_role_setting": _nothing("setdatabase:o setrole:o setconfig:varchar[]"),
    "pg_default_acl": _nothing(
        "oid:o defaclrole:o defaclnamespace:o defaclobjtype defaclacl:varchar[]"
    ),
    "pg_event_trigger": _nothing("oid:o evtname evtevent evtowner:o"),
    "pg_stat_activity": _nothing("datid:o datname pid:i usename application_name state query"),
    "pg_stat_user_tables": _nothing("relid:o schemaname relname n_live_tup:o"),
    "pg_stat_all_tables": _nothing("relid:o schemaname relname n_live_tup:o"),
    "pg_stats": _nothing("schemaname tablename attname n_distinct:float"),
    "pg_locks": _nothing("locktype relation:o pid:i mode granted:b"),
    "pg_prepared_statements": _nothing("name statement"),
    "pg_cursors": _nothing("name statement"),
    "information_schema.schemata": f"select '{DATABASE}' as catalog_name, nspname as schema_name, "
    f"'{OWNER}' as schema_owner, null::varchar as default_character_set_name, null::varchar as "
    f"sql_path from ({_NAMESPACE})",
    "information_schema.tables": f"select '{DATABASE}' as table_catalog, schema as table_schema, "
    "name as table_name, if(kind = 'v', 'VIEW', 'BASE TABLE') as table_type, null::varchar as "
    "self_referencing_column_name, null::varchar as reference_generation, 'NO' as "
    "is_insertable_into, 'NO' as is_typed, null::varchar as commit_action "
    f"from {SCHEMA}._relations",
    "information_schema.views": f"select '{DATABASE}' as table_catalog, schema as table_schema, "
    "name as table_name, null::varchar as view_definition, 'NONE' as check_option, 'NO' as "
    f"is_updatable, 'NO' as is_insertable_into from {SCHEMA}._relations where kind = 'v'",
    "information_schema.columns": f"""
select '{DATABASE}' as table_catalog, schema as table_schema, name as table_name,
    shown as column_name, number as ordinal_position, null::varchar as column_default,
    'YES' as is_nullable,
    case when spelled like '%[]' then 'ARRAY' when spelled like 'numeric%' then 'numeric'
        else spelled end as data_type,
    null::integer as character_maximum_length, null::integer as character_octet_length,
    case spelled when 'smallint' then 16 when 'integer' then 32 when 'bigint' then 64
        when 'real' then 24 when 'double precision' then 53
        else if(type = 1700 and modifier > 0, (modifier - 4) >> 16, null) end
        as numeric_precision,
    if(type in (20, 21, 23, 700, 701), 2, if(type = 1700, 10, null)) as numeric_precision_radix,
    if(type in (20, 21, 23), 0, if(type = 1700 and modifier > 0, (modifier - 4) & 65535, null))
        as numeric_scale,
    if(type in (1083, 1114, 1184, 1186), 6, if(type = 1082, 0, null)) as datetime_precision,
    null::varchar as interval_type, null::varchar as character_set_name,
    null::varchar as collation_name, null::varchar as domain_name,
    '{DATABASE}' as udt_catalog, 'pg_catalog' as udt_schema,
    (select t.name from {SCHEMA}._types t where t.oid = type) as udt_name,
    number::varchar as dtd_identifier, 'NO' as is_self_referencing, 'NO' as is_identity,
    null::varchar as identity_generation, 'NEVER' as is_generated,
    null::varchar as generation_expression, 'NO' as is_updatable
from {SCHEMA}._columns""",
    **{
        f"information_schema.{name}": _nothing(columns)
        for name, columns in {
            "table_constraints": "constraint_catalog constraint_schema constraint_name "
            "table_catalog table_schema table_name constraint_type is_deferrable "
            "initially_deferred",
            "key_column_usage": "constraint_catalog constraint_schema constraint_name "
            "table_catalog table_schema table_name column_name ordinal_position:i "
            "position_in_unique_constraint:i",
            "referential_constraints": "constraint_catalog constraint_schema constraint_name "
            "unique_constraint_catalog unique_constraint_schema unique_constraint_name "
            "match_option update_rule delete_rule",
            "constraint_column_usage": "table_catalog table_schema table_name column_name "
            "constraint_catalog constraint_schema constraint_name",
            "check_constraints": "constraint_catalog constraint_schema constraint_name "
            "check_clause",
            "routines": "specific_catalog specific_schema specific_name routine_catalog "
            "routine_schema routine_name routine_type data_type",
            "parameters": "specific_catalog specific_schema specific_name ordinal_position:i "
            "parameter_mode parameter_name data_type",
            "sequences": "sequence_catalog sequence_schema sequence_name data_type",
            "triggers": "trigger_catalog trigger_schema trigger_name event_object_table",
            "table_privileges": "grantor grantee table_catalog table_schema table_name "
            "privilege_type is_grantable",
            "role_table_grants": "grantor grantee table_catalog table_schema table_name "
            "privilege_type is_grantable",
            "element_types": "object_catalog object_schema object_name object_type "
            "collection_type_identifier data_type",
        }.items()
    },
}

_PRIVILEGE = "regexp_matches(upper({}), 'SELECT|USAGE|CONNECT|MEMBER')"


def _null(*counts: int) -> tuple[str, ...]:
    """Returns the parameters and body of an SQL function that always returns null.

    `counts` contains the numbers of parameters with which the function can be called. Returns one
    text for each number.
    """
    return tuple(
        f"({', '.join(f'_a{place}' for place in range(count))}) as null::varchar"
        for count in counts
    )


def _may(*counts: int) -> tuple[str, ...]:
    return tuple(
        f"({', '.join(f'_a{place}' for place in range(count))}) as "
        + _PRIVILEGE.format(f"_a{count - 1}")
        for count in counts
    )


_BARE = "regexp_replace(replace(_t, '\"', ''), '^([^.]*[.])?', '')"
_OF_SCHEMA = (
    "(not contains(_t, '.') or schema = split_part(replace(_t, '\"', ''), '.', 1) "
    f"or (split_part(replace(_t, '\"', ''), '.', 1) = 'main' and schema = '{PUBLIC}'))"
)
_CLASS_OF = (
    f"(_t) as (select oid from (select oid, name, schema from {SCHEMA}._relations union all "
    "values (1259, 'pg_class', 'pg_catalog'), (1247, 'pg_type', 'pg_catalog'), "
    "(1255, 'pg_proc', 'pg_catalog'), (2615, 'pg_namespace', 'pg_catalog'), "
    "(1249, 'pg_attribute', 'pg_catalog')) "
    f"where name = {_BARE} and {_OF_SCHEMA} order by schema <> '{PUBLIC}' limit 1)"
)
_TYPE_OF = (
    f"(_t) as (select oid from {SCHEMA}._types where name = {_BARE} or spelled = lower(_t) limit 1)"
)
_SIZE = ("(_a) as 0::bigint", "(_a, _b) as 0::bigint")

# Each function: its forms, each with its arguments. A macro's name has an underscore before, so
# that no macro has the name of a function of DuckDB's that a query may not call.
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "format_type": (
        (
            "(_o, _m) as (select if(oid = 1700 and _m > 0, 'numeric(' || ((_m - 4) >> 16) || ',' "
            f"|| ((_m - 4) & 65535) || ')', spelled) from {SCHEMA}._types where oid = _o)"
        ),
    ),
    "pg_table_is_visible": (
        (
            f"(_o) as exists(select 1 from {SCHEMA}._relations r where r.oid = _o and r.schema = "
            f"'{PUBLIC}')"
        ),
    ),
    "pg_type_is_visible": ("(_o) as true",),
    "pg_function_is_visible": ("(_o) as true",),
    "pg_collation_is_visible": ("(_o) as true",),
    "pg_operator_is_visible": ("(_o) as true",),
    "pg_get_userbyid": (f"(_o) as '{OWNER}'",),
    "pg_get_expr": _null(2, 3),
    "pg_get_viewdef": _null(1, 2),
    "pg_get_constraintdef": _null(1, 2),
    "pg_get_indexdef": _null(1, 3),
    "pg_get_functiondef": _null(1),
    "pg_get_function_result": _null(1),
    "pg_get_function_arguments": _null(1),
    "pg_get_function_identity_arguments": _null(1),
    "pg_get_ruledef": _null(1, 2),
    "pg_get_triggerdef": _null(1, 2),
    "pg_get_partkeydef": _null(1),
    "pg_get_serial_sequence": _null(2),
    "pg_get_statisticsobjdef_columns": _null(1),
    "obj_description": _null(1, 2),
    "col_description": _null(2),
    "shobj_description": _null(2),
    "pg_encoding_to_char": ("(_e) as 'UTF8'",),
    "has_table_privilege": _may(2, 3),
    "has_any_column_privilege": _may(2, 3),
    "has_column_privilege": _may(3, 4),
    "has_schema_privilege": _may(2, 3),
    "has_database_privilege": _may(2, 3),
    "has_sequence_privilege": _may(2, 3),
    "has_function_privilege": _may(2, 3),
    "pg_has_role": _may(2, 3),
    "pg_relation_size": _SIZE,
    "pg_total_relation_size": _SIZE,
    "pg_table_size": _SIZE,
    "pg_indexes_size": _SIZE,
    "pg_database_size": _SIZE,
    "pg_size_pretty": ("(_a) as _a || ' bytes'",),
    "pg_tablespace_location": ("(_a) as ''",),
    "pg_my_temp_schema": ("() as 0::bigint",),
    "pg_is_other_temp_schema": ("(_a) as false",),
    "pg_relation_is_publishable": ("(_a) as false",),
    "pg_partition_ancestors": _null(1),
    "pg_postmaster_start_time": ("() as null::timestamptz",),
    "pg_advisory_unlock_all": _null(0),
    "inet_server_addr": _null(0),
    "inet_client_addr": _null(0),
    "inet_server_port": ("() as null::integer",),
    "regclass": (_CLASS_OF,),
    "to_regclass": (_CLASS_OF,),
    "regtype": (_TYPE_OF,),
    "to_regtype": (_TYPE_OF,),
    # Columns of functions hold names.
    "regproc": (f"(_t) as {_BARE}",),
    "regnamespace": (
        f"(_t) as (select schema_oid from {SCHEMA}._relations where schema = _t limit 1)",
    ),
    # JDBC reads keys by it, and there are none.
    "_pg_expandarray": ("(_a) as {'x': 0::bigint, 'n': 0::bigint}",),
    "array_upper": ("(_a, _d) as nullif(len(_a), 0)",),
    "array_lower": ("(_a, _d) as if(len(_a) > 0, 1, null)",),
    "parse_ident": ("(_t) as string_split(replace(_t, '\"', ''), '.')",),
    "quote_ident": (
        (
            "(_t) as if(regexp_full_match(_t, '[a-z_][a-z0-9_]*'), _t, "
            "'\"' || replace(_t, '\"', '\"\"') || '\"')"
        ),
    ),
    "quote_literal": ("(_t) as '''' || replace(_t, '''', '''''') || ''''",),
    "set_config": ("(_n, _v, _l) as _v",),
}


def creation_sql(names: Iterable[str]) -> str:
    """Returns the SQL commands that create relations and functions of `pg_catalog` by name.

    Relations of `information_schema` are created in the same way. A name in `names` that belongs to
    neither schema is ignored.
    """
    named = set(names)
    commands = [
        *(
            f'create or replace view {SCHEMA}."{name}" as {sql}'
            for name, sql in RELATIONS.items()
            if name in named
        ),
        *(
            f"create or replace macro {SCHEMA}._{name}{', '.join(forms)}"
            for name, forms in FUNCTIONS.items()
            if name in named
        ),
    ]
    return ";\n".join(commands)
