"""The process of an untrusted query.

The process reads the request, confines itself and answers. Four barriers keep a query to the tables
of its snapshot, and each alone would do:

- The parser's tree is checked (serving/query/reader/sql_rules.py).
- DuckDB may open only the snapshot's files, and that setting is locked.
- The kernel allows the same files only (confine.py).
- The process has nothing to give: no environment, no open file but the socket to the server, and an
empty working folder.

The process writes the complete answer, so the server only passes bytes on. Then the process ends.
"""

from __future__ import annotations

# A hint's nearest name needs this module, and a confined process cannot load any more.
import difflib  # noqa: F401
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kappa.base.duck import (
    DUCKDB_ERRORS,
    CatalogError,
    Connection,
    OutOfMemory,
    Setting,
    open_connection,
)
from kappa.base.errors import Damaged, KappaError, UsageError
from kappa.base.sql import text
from kappa.declare.options import REJECTS
from kappa.serving.access.roles import Forbidden
from kappa.serving.query.reader.errors import RetiredRelation, damage_in_message
from kappa.serving.query.reader.query_files import tables_read
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.reader.relations import Relations, TableFiles, data_files, put_relations
from kappa.serving.query.reader.sql_rules import (
    UnknownTable,
    ensure_allowed,
    nested_too_deeply_error,
)
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.sandbox import confine
from kappa.serving.query.sandbox.answer_writers import ARROW_ERRORS, PieceFile, write_answer
from kappa.serving.query.sandbox.frames import (
    ACCEPTED,
    ENDED,
    NAMED,
    REFUSED,
    put_frame,
    take_frame,
)
from kappa.tables.parquet import literal

_CONFIGURED: dict[str, Setting] = {
    "threads": 1,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    # Otherwise an unknown table's name could refer to a variable of this file.
    "python_enable_replacements": False,
    "python_scan_all_frames": False,
}
# Values whose Python types are imported at the first use, which needs files: it is done before
# the process confines itself.
_WARM = (
    "select now(), now()::timestamp, 1.5::decimal(9, 2), uuid(), interval 1 day, "
    "date '2013-01-01', time '05:00', [1], {'a': 1}, 'x'::blob, '1'::hugeint, map {'a': 1}"
)
_THREADS = 2
# DuckDB exceeds its own limit somewhat, and this program needs memory, too.
_DUCKDBS_SHARE = 0.75
_PATTERN = re.compile(r"[*?\[]")
_REQUEST_BYTES = 1 << 28
_LONGEST_SENTENCE = 2000


def answer_one(way_back: int, parent: int) -> None:
    """Waits for a query and answers the query; the process has no other purpose."""
    confine.tie_to_parent(parent)
    confine.close_all_but(way_back)
    os.environ.clear()
    connection = open_connection(_CONFIGURED)
    connection.execute(_WARM).fetchall()
    connection.execute(_WARM).to_arrow_table()
    asked = take_frame(lambda count: os.read(way_back, count), most=_REQUEST_BYTES)
    if asked is None:
        return
    put_frame(way_back, ACCEPTED)
    request = json.loads(asked[1])
    try:
        ended = _answer_request(connection, request, way_back)
    except KappaError as error:
        told = {
            "kind": _error_kind(error),
            "message": _shortened_text(error.message),
            "hint": _shortened_text(error.hint),
        }
        put_frame(way_back, REFUSED, json.dumps(told).encode())
    except MemoryError:
        put_frame(
            way_back, REFUSED, json.dumps({"kind": "too_much", "message": "", "hint": ""}).encode()
        )
    else:
        put_frame(way_back, ENDED, json.dumps(ended).encode())


def _error_kind(error: KappaError) -> str:
    if isinstance(error.__cause__, OutOfMemory):
        return "too_much"
    match error:
        case Forbidden():
            return "forbidden"
        case UsageError():
            return "usage"
        case Damaged():
            return "damaged"
        case _:
            return "failed"


def _shortened_text(told: str) -> str:
    """Returns a long sentence without the middle.

    An error may repeat a long name of the query.
    """
    half = _LONGEST_SENTENCE // 2
    return told if len(told) <= _LONGEST_SENTENCE else f"{told[:half]} ... {told[-half:]}"


def _answer_request(
    connection: Connection, request: Mapping[str, Any], way_back: int
) -> Mapping[str, Any]:
    found = [
        Relations(
            each["pipeline"],
            {
                name: TableFiles(table["sql"], tuple(table["paths"]))
                for name, table in each["tables"].items()
            },
            each["views"],
            frozenset(each["hidden"]),
        )
        for each in request["relations"]
    ]
    # The nursery's error output is a file of the server's, which a query must not write to.
    os.dup2(1, 2)
    paths = [path for each in found for table in each.tables.values() for path in table.paths]
    confine.limit_process(memory=request["memory"], cpu_seconds=request["cpu_seconds"])
    # Files that are fetched later are below a folder of this query's alone.
    readable = paths if request["folder"] is None else [request["folder"]]
    confine.confine_process(readable, _listed_folders(paths))
    reader = Reader(connection, served=bool(found))
    left = tuple(RetiredRelation(**each) for each in request["left"])
    reader.left = lambda: left
    reader.files = lambda: data_files(found)
    for name, value in (
        ("threads", str(_THREADS)),
        ("memory_limit", text(f"{int(request['memory'] * _DUCKDBS_SHARE)}B")),
    ):
        reader.run_command(f"set {name} = {value}")
    # For a path with a star, DuckDB checks both the pattern and the file that it finds. If a
    # file is gone, DuckDB looks for a folder, and then names the file.
    spelled = sorted({*paths, *map(literal, paths)})
    for setting, suffix in (("allowed_paths", ""), ("allowed_directories", "/")):
        listed = ", ".join(text(f"{each}{suffix}") for each in spelled)
        reader.run_command(f"set {setting} = [{listed}]")
    reader.run_command("set enable_external_access = false")
    sql = _ensure_query_allowed(reader, request, found)
    if request["waits"]:
        # The server checks or fetches the files of these tables, or ends this process. Relations
        # over others that are not fetched are broken, and not named.
        put_frame(
            way_back,
            NAMED,
            json.dumps(tables_read(reader.parser_tree, request["sql"], found)).encode(),
        )
        if take_frame(lambda count: os.read(way_back, count), most=0) is None:
            return {}
    put_relations(reader, found)
    # Names are looked up by a setting, until here.
    reader.run_command("set lock_configuration = true")
    if reader.broken:
        _ensure_query_allowed(reader, request, found)
    try:
        return write_answer(connection, sql, request, PieceFile(way_back, request["bytes"]))
    except DUCKDB_ERRORS as error:
        if isinstance(error, CatalogError):
            reader.ensure_names_served(request["sql"])
        raise reader.explain_error(error) from error
    except ARROW_ERRORS as error:
        # Arrow passes DuckDB's message on, as an error of Arrow's.
        if (damage := damage_in_message(str(error), reader.files())) is not None:
            raise damage from error
        raise UsageError(
            f"the result cannot be written as {request['form']}: {error}",
            hint="cast the column to another type in the query, or ask for JSON",
        ) from error


def _listed_folders(paths: Sequence[str]) -> frozenset[str]:
    """Returns the folders that DuckDB lists to find these files.

    DuckDB takes the name of a folder for a pattern if the name contains a star.
    """
    patterns = (Path(path).parts for path in paths)
    firsts = (
        (parts, next((place for place, part in enumerate(parts) if _PATTERN.search(part)), None))
        for parts in patterns
    )
    return frozenset(str(Path(*parts[:first])) for parts, first in firsts if first is not None)


def _ensure_query_allowed(
    reader: Reader, request: Mapping[str, Any], found: Sequence[Relations]
) -> str:
    """Returns the text of the single statement of a request.

    Raises UsageError if the statement is not allowed, and Forbidden if it names a table that the
    client may not read. DuckDB's two parses of the text must agree: as statements, and as a tree.
    """
    sql: str = request["sql"]
    query = reader.only_select(sql)
    try:
        tree = reader.parser_tree(sql)
    except RecursionError:
        raise nested_too_deeply_error() from None
    catalogue = {("main", name) for each in found for name in each.public_names} | {
        (schema_of(each.pipeline), name) for each in found for name in each.named
    }
    # A broken relation is left out: its name might be that of a relation of DuckDB's own.
    catalogue -= {
        (schema, each.name)
        for each in reader.broken
        for schema in ("main", schema_of(each.pipeline))
    }
    if any(REJECTS in each.named for each in found):
        catalogue.add(("main", REJECTS))
    try:
        ensure_allowed(tree, catalogue)
    except UsageError as error:
        reader.ensure_names_served(sql)
        if isinstance(error, UnknownTable) and request["reader"]:
            # Whether there is such a table is not told.
            names = sorted({name for each in found for name in each.named})
            raise Forbidden(
                f"{request['reader']} may not read {error.name}",
                hint=f"of the tables that are served it may read {', '.join(names) or 'none'}",
            ) from error
        raise
    return query
