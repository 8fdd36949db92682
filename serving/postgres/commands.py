"""The SQL commands that a session answers itself, parsed from a statement's text. Pure.

Every other statement is sent to the sandbox. The sandbox answers queries, and refuses writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kappa.base.sql import quoted
from kappa.serving.postgres.messages import SYNTAX_ERROR, UNSUPPORTED, PostgresError
from kappa.serving.query.postgres.catalogue_sql import PUBLIC
from kappa.serving.query.postgres.placeholders import SqlWord, words_of
from kappa.serving.query.postgres.wire import Copy
from kappa.serving.query.postgres.wire_types import OID

# Two questions of clients have another form here, which no translation of words would give.
# asyncpg looks up types that it does not know, such as arrays, by a recursive query over composite
# types, ranges and domains, which are not here (asyncpg, introspection.py). Grafana looks into the
# search path by functions in places where DuckDB has none (Grafana, postgresMetaQuery.ts).
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


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A query that is sent to the sandbox.

    `oids` contains the Postgres types of the query's parameters, if they are known.
    """

    sql: str
    oids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """The command that begins a transaction."""

    tag: str = "BEGIN"


@dataclass(frozen=True, slots=True)
class End:
    """The command that ends a transaction. `commits` is False for a rollback."""

    commits: bool


@dataclass(frozen=True, slots=True)
class SetValue:
    """The command that sets a setting, or resets it to its default if `value` is None.

    If `local` is True, the value applies only until the end of the transaction.
    """

    name: str
    value: str | None
    local: bool = False
    tag: str = "SET"


@dataclass(frozen=True, slots=True)
class Show:
    """The command that shows a setting, or all settings if `name` is `all`."""

    name: str


@dataclass(frozen=True, slots=True)
class Declare:
    """The command that declares a cursor over a query.

    If `hold` is True, the cursor can be used after the end of its transaction.
    """

    name: str
    sql: str
    hold: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """The command that reads rows from a cursor.

    `count` is the number of rows, or None for all remaining rows. If `moves` is True, the cursor
    skips the rows and sends nothing.
    """

    name: str
    count: int | None
    moves: bool


@dataclass(frozen=True, slots=True)
class Close:
    """The command that closes a cursor, or all cursors if `name` is None."""

    name: str | None


@dataclass(frozen=True, slots=True)
class CopyOut:
    """The command that copies the rows of a query to the client."""

    sql: str
    copy: Copy


@dataclass(frozen=True, slots=True)
class Deallocate:
    """The command that deletes a prepared statement, or all of them if `name` is None."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Discard:
    """The command that resets the session's state, or the part of it that `what` names."""

    what: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """A command that has no effect here, such as SAVEPOINT, because no row ever changes.

    `tag` is the name of the command in the answer, or "" if the text contains no statement.
    `goes_back` is True if the command makes a failed transaction usable again.
    """

    tag: str
    goes_back: bool = False


Command = (
    SelectQuery | Begin | End | SetValue | Show | Declare | Fetch | Close | CopyOut | Deallocate
    | Discard | Nothing
)  # fmt: skip


def command_of(sql: str) -> Command:
    """Parses the text of one statement, and returns its command.

    Raises PostgresError if the statement is not understood or not supported.
    """
    words = [each for each in words_of(sql) if each.kind != "space"]
    while words and words[-1].text == ";":
        words.pop()
    if not words:
        return Nothing("")
    named = [each.name for each in words]
    first, second = named[0], (*named, "", "")[1]
    match first:
        case "begin":
            return Begin()
        case "start" if second == "transaction":
            return Begin("START TRANSACTION")
        case "commit" | "end":
            return End(commits=True)
        case "rollback" | "abort":
            return Nothing("ROLLBACK", goes_back=True) if "to" in named else End(commits=False)
        case "savepoint":
            return Nothing("SAVEPOINT")
        case "release":
            return Nothing("RELEASE")
        case "set":
            return _set_of(words, named)
        case "reset":
            name = _dotted(words[1:])
            return Discard("settings") if name == "all" else SetValue(name, None, tag="RESET")
        case "show":
            return _show_of(words)
        case "declare":
            return _declare_of(sql, words, named)
        case "fetch" | "move":
            return _fetch_of(words, named)
        case "close":
            return Close(None if second == "all" else _name_at(words, 1))
        case "copy":
            return _copy_of(sql, words, named)
        case "deallocate":
            place = 2 if second == "prepare" else 1
            last = _name_at(words, place)
            return Deallocate(None if last == "all" else last)
        case "discard":
            return Discard(second)
        case "unlisten":
            return Nothing("UNLISTEN")
        case "listen":
            raise PostgresError(
                UNSUPPORTED,
                "LISTEN is not supported",
                hint="GET /api/v1/tables/TABLE/changes follows a table",
            )
        case _:
            return SelectQuery(*_known_form(sql))


def _known_form(sql: str) -> tuple[str, tuple[int, ...]]:
    """Returns the query to run instead of a given query, and the types of its parameters.

    Some client programs send fixed queries that DuckDB cannot run. Such a query is replaced. Any
    other query is returned unchanged, without types.
    """
    if "typeinfo_tree" in sql and "attrtypoids" in sql:
        return _ASYNCPG_TYPES, (_OID_ARRAY,)
    return (_SEARCH_PATH.sub(f"SELECT '{PUBLIC}'", sql) if "s[i]" in sql else sql), ()


def _set_of(words: Sequence[SqlWord], named: Sequence[str]) -> Command:
    place, local = 1, False
    if named[1:2] in (["session"], ["local"]) and len(words) > 2 and named[2] != "characteristics":
        local, place = named[1] == "local", 2
    rest = (*named[place:], "", "")
    if rest[0] in {"transaction", "session", "role"}:
        # The only level is that of a snapshot, and nothing is written at any or by any role.
        return Nothing("SET")
    if rest[:2] == ("time", "zone"):
        return SetValue("timezone", _value(words[place + 2 :]), local)
    if rest[0] == "names":
        return SetValue("client_encoding", _value(words[place + 1 :]), local)
    split = next(
        (
            each
            for each, word in enumerate(words)
            if each > place and (word.text == "=" or word.name == "to")
        ),
        None,
    )
    if split is None:
        raise _not_understood(words, "SET")
    return SetValue(_dotted(words[place:split]), _value(words[split + 1 :]), local)


def _show_of(words: Sequence[SqlWord]) -> Command:
    name = _dotted(words[1:])
    spoken = {
        "transactionisolationlevel": "transaction_isolation",
        "timezone": "TimeZone",
        "sessionauthorization": "session_authorization",
    }
    return Show(spoken.get("".join(each.name for each in words[1:]), name))


def _declare_of(sql: str, words: Sequence[SqlWord], named: Sequence[str]) -> Command:
    if "for" not in named or "cursor" not in named:
        raise _not_understood(words, "DECLARE")
    options = named[2 : named.index("for")]
    hold = "hold" in options and "without" not in options
    if "scroll" in options and "no" not in options:
        raise PostgresError(
            UNSUPPORTED, "a cursor moves forward only", hint="leave SCROLL out, and declare it anew"
        )
    return Declare(_name_at(words, 1), _slice(sql, words[named.index("for") + 1 :]), hold)


def _fetch_of(words: Sequence[SqlWord], named: Sequence[str]) -> Command:
    count: int | None = 1
    match [each.name or each.text for each in words[1:] if each.name not in {"from", "in"}]:
        case [name] | ["next" | "forward", name]:
            pass
        case ["all", name] | ["forward", "all", name]:
            count = None
        case [number, name] | ["forward", number, name] if number.isdecimal() and len(number) < 10:
            count = int(number)
        case _:
            raise PostgresError(
                "55000", "a cursor moves forward only", hint="FETCH FORWARD n FROM NAME"
            )
    return Fetch(name, count, named[0] == "move")


def _copy_of(sql: str, words: Sequence[SqlWord], named: Sequence[str]) -> Command:
    depth, to = 0, 0
    for place, word in enumerate(words):
        depth += (word.text == "(") - (word.text == ")")
        if depth == 0 and word.name == "to":
            to = place
            break
    if named[to + 1 : to + 2] != ["stdout"]:
        # A copy to the server, or to a file of the server: the sandbox refuses both.
        return SelectQuery(sql)
    source = words[1:to]
    if source and source[0].text == "(":
        copied = _slice(sql, source[1:-1])
    else:
        # TABLE or SCHEMA.TABLE, and perhaps columns in brackets.
        bracket = next((each for each, word in enumerate(source) if word.text == "("), len(source))
        columns = _slice(sql, source[bracket + 1 : -1]) or "*"
        copied = f"select {columns} from {_slice(sql, source[:bracket])}"
    return CopyOut(copied, _copy_options(words[to + 2 :]))


def _copy_options(words: Sequence[SqlWord]) -> Copy:
    form, header, given = "text", False, dict[str, str]()
    said = [each for each in words if each.text not in {"(", ")", ","} and each.name != "with"]
    place = 0
    while place < len(said):
        name = said[place].name
        if place + 1 < len(said) and said[place + 1].name == "as":
            place += 1
        value = said[place + 1] if place + 1 < len(said) else SqlWord("space", "")
        match name:
            case "format":
                form, place = (value.name or _plain(value)).lower(), place + 1
            case "csv" | "binary" | "text":
                form = name
            case "header":
                said_so = (value.name or _plain(value)).lower()
                header = said_so not in {"false", "off", "0"}
                place += said_so in {"false", "off", "0", "true", "on", "1"}
            case "delimiter" | "null":
                given[name], place = _plain(value), place + 1
            case "quote" | "escape" if _plain(value) == '"':
                place += 1
            case "encoding" if _plain(value).lower() in {"utf8", "utf-8"}:
                place += 1
            case _:
                raise PostgresError(
                    UNSUPPORTED,
                    f"COPY has no option {said[place].text[:40]} here",
                    hint="there are FORMAT, HEADER, DELIMITER and NULL",
                )
        place += 1
    if form not in {"text", "csv", "binary"}:
        raise PostgresError("22023", f'COPY format "{form[:40]}" not recognized')
    copy = Copy(
        form,
        header and form != "binary",
        given.get("delimiter", "," if form == "csv" else "\t"),
        given.get("null", "" if form == "csv" else "\\N"),
    )
    if len(copy.delimiter.encode()) != 1 or copy.delimiter in '\n\r"\\':
        raise PostgresError("22023", "COPY delimiter must be a single one-byte character")
    return copy


def _slice(sql: str, words: Sequence[SqlWord]) -> str:
    """Returns the part of an SQL text that begins and ends with the given words."""
    return sql[words[0].start : words[-1].start + len(words[-1].text)] if words else ""


def _dotted(words: Sequence[SqlWord]) -> str:
    return "".join(each.name or each.text for each in words)


def _value(words: Sequence[SqlWord]) -> str | None:
    if len(words) == 1 and words[0].name == "default":
        return None
    return "".join(", " if each.text == "," else _plain(each) for each in words)


def _plain(word: SqlWord) -> str:
    """Returns the value of a quoted text, or the name that a word contains."""
    if word.kind == "text":
        if word.text[:1] in "eE":
            escapes = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}
            inside = word.text[2:-1].replace("''", "'")
            return escapes.get(inside, inside)
        return word.text[1:-1].replace("''", "'")
    return word.name if word.text.startswith('"') else word.text


def _name_at(words: Sequence[SqlWord], place: int) -> str:
    if place >= len(words) or not words[place].name:
        raise _not_understood(words, "a name")
    return words[place].name


def _not_understood(words: Sequence[SqlWord], what: str) -> PostgresError:
    near = words[-1].text[:40] if words else ""
    return PostgresError(SYNTAX_ERROR, f"syntax error at or near {quoted(near)}: {what} is short")
