"""Replaces the words of a statement that Postgres and DuckDB understand differently. Pure.

Clients write SQL in DuckDB's dialect. This module translates only the parts that client programs
send on their own: names of `pg_catalog` and `information_schema`, types such as `regclass`,
functions that describe the session, and the schema `public`. The text is changed word by word, so
quoted texts and comments stay unchanged. A rewrite of the whole text, for example by sqlglot, would
change the meaning of DuckDB's SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kappa.base.sql import text
from kappa.serving.postgres.parameters import texts_of_array
from kappa.serving.query.postgres.catalogue_sql import (
    DATABASE,
    FUNCTIONS,
    INFORMATION,
    PUBLIC,
    RELATIONS,
    SCHEMA,
)
from kappa.serving.query.postgres.placeholders import SqlWord, joined_sql, words_of
from kappa.serving.query.postgres.wire_types import DUCKDB_TYPES

_NOTHING = SqlWord("space", "")
# Functions that SQL calls without brackets.
_BARE = frozenset(
    {"current_user", "session_user", "current_role", "current_catalog", "current_schema"}
)
# Types whose quoted value is the name of a relation, type or function.
_LOOKED_UP = frozenset({"regclass", "regtype", "regproc", "regprocedure", "regnamespace"})
# Functions that DuckDB has by another name.
_RENAMED = {
    **dict.fromkeys(("json_build_object", "jsonb_build_object"), "json_object"),
    **dict.fromkeys(("json_agg", "jsonb_agg"), "json_group_array"),
}
# Columns of `pg_type` that hold the name of a function, and are compared with 0.
_FUNCTION_COLUMNS = frozenset({"typinput", "typoutput", "typreceive", "typsend"})
_SCHEMAS = frozenset({PUBLIC, "pg_catalog", "information_schema"})
_DEFAULT_COLLATIONS = frozenset({"default", "C", "POSIX"})
SNAPSHOT_FUNCTION = "kappa_snapshot"


@dataclass(frozen=True, slots=True)
class Translated:
    """A statement that was translated for DuckDB.

    `catalogue` is True if the statement reads `pg_catalog` or `information_schema`.
    """

    sql: str
    catalogue: bool


def names_snapshot(sql: str) -> bool:
    """Returns True if an SQL text may call the function that describes the snapshot."""
    return SNAPSHOT_FUNCTION in sql.lower()


def translate(
    sql: str,
    *,
    user: str,
    setting: Callable[[str], str | None],
    process: int = 0,
    snapshot: str = "",
) -> Translated:
    """Translates a statement for DuckDB.

    `user` is the name of the session's user, and `process` is the session's number. `setting`
    returns the value of a setting, or None if there is no such setting. `snapshot` is the text that
    the function that describes the snapshot returns. Raises UsageError if the resulting text would
    be too long.
    """
    values = {
        **dict.fromkeys(("current_user", "session_user", "current_role"), text(user)),
        **dict.fromkeys(("current_catalog", "current_database"), text(DATABASE)),
        "current_schema": text(PUBLIC),
        "version": text("PostgreSQL 16.0 (Kappa, by DuckDB)"),
        "pg_backend_pid": str(process),
        "pg_is_in_recovery": "true",
        SNAPSHOT_FUNCTION: text(snapshot),
    }
    work = _Translation(words_of(sql), values, setting)
    work.translate_all()
    return Translated(joined_sql(work.written), work.catalogue)


@dataclass(slots=True)
class _Translation:
    """The translation of one statement. `written` contains the replacement of each word."""

    words: list[SqlWord]
    values: Mapping[str, str]
    setting: Callable[[str], str | None]
    written: list[str] = field(init=False)
    # The places of words that mean something.
    places: list[int] = field(init=False)
    catalogue: bool = False
    depth: int = 0
    # Whether the list of columns of the outermost query is being read.
    in_columns: bool = False

    def __post_init__(self) -> None:
        self.written = [each.text for each in self.words]
        self.places = [at for at, each in enumerate(self.words) if each.kind != "space"]

    def translate_all(self) -> None:
        """Translates all words, from the first to the last."""
        at = 0
        while at < len(self.places):
            word = self._word(at)
            self.depth += (word.text in "([") - (word.text in ")]")
            if self.depth == 0 and word.name in {"select", "from"}:
                self.in_columns = word.name == "select"
            at += self._translate_word(at)

    def _word(self, at: int) -> SqlWord:
        return self.words[self.places[at]] if 0 <= at < len(self.places) else _NOTHING

    def _marks(self, at: int, *marks: str) -> bool:
        return all(self._word(at + place).text == mark for place, mark in enumerate(marks))

    def _put(self, at: int, count: int, written: str) -> int:
        """Replaces `count` words, from the word at `at`, with the text `written`.

        Returns `count`.
        """
        first, last = self.places[at], self.places[at + count - 1]
        self.written[first : last + 1] = [written] + [""] * (last - first)
        return count

    def _put_part(self, at: int, count: int, name: str) -> int:
        """Replaces `count` words, from the word at `at`, with a name in the catalogue's schema.

        The catalogue is `pg_catalog` and `information_schema`. Returns `count`.
        """
        self.catalogue = True
        return self._put(at, count, f"{SCHEMA}.{name}")

    def _translate_word(self, at: int) -> int:
        """Translates the word at `at`, possibly together with words after it.

        Returns the number of words that were handled.
        """
        name = self._word(at).name
        if not name:
            return self._looked_up(at) or 1
        if name == "operator" and self._marks(at + 1, "("):
            return self._operator(at)
        if name == "collate" and (count := self._collation(at)):
            return self._put(at, count, "")
        if name == DATABASE and self._names_database(at):
            return self._put(at, 2, "")
        if name == "information_schema" and self._marks(at + 1, "."):
            if self._marks(at + 3, "("):
                return self._put_part(at, 3, f"_{self._word(at + 2).name}")
            relation = f"{INFORMATION}{self._word(at + 2).name}"
            return self._put_part(at, 3, f'"{relation}"')
        if name == "pg_catalog" and self._marks(at + 1, "."):
            return self._catalogue_name(at, 2)
        if name == PUBLIC and self._marks(at + 1, ".") and not self._is_behind_dot(at):
            return self._put(at, 1, "main")
        if name in _FUNCTION_COLUMNS:
            compared = 2 if self._marks(at + 1, "=") else 3
            if self._marks(at + compared, "0"):
                return self._put(at + compared, 1, "'-'")
        return 1 if self._is_behind_dot(at) else self._catalogue_name(at, 0)

    def _is_behind_dot(self, at: int) -> bool:
        return self._marks(at - 1, ".") and self.written[self.places[at - 1]] == "."

    def _names_database(self, at: int) -> bool:
        """Returns True if the word at `at` is a database, as in `"kappa"."public"."delays"`.

        The program dbt sends such names.
        """
        return (
            self._marks(at + 1, ".")
            and self._marks(at + 3, ".")
            and self._word(at + 2).name in _SCHEMAS
            and not self._is_behind_dot(at)
        )

    def _operator(self, at: int) -> int:
        """Replaces `OPERATOR(pg_catalog.~)`, which begins at `at`, with the operator `~`.

        Returns the number of words that were replaced.
        """
        count = 2
        while self._word(at + count).text not in {")", ""}:
            count += 1
        marks = "".join(
            each.text
            for each in map(self._word, range(at + 2, at + count))
            if not each.name and each.text != "."
        )
        return self._put(at, count + (self._word(at + count).text == ")"), f" {marks} ")

    def _collation(self, at: int) -> int:
        """Returns the number of words of the `collate` clause that begins at `at`.

        Returns 0 if the clause names any collation except a default collation.
        """
        if self._word(at + 1).name == "pg_catalog" and self._marks(at + 2, "."):
            return 4
        return 2 if self._word(at + 1).name in _DEFAULT_COLLATIONS else 0

    def _looked_up(self, at: int) -> int:
        """Replaces the cast of a quoted name, such as `'name'::regclass`, or a quoted array.

        The cast becomes a call that returns the number of the relation with that name. Returns the
        number of words that were replaced, or 0 if nothing was replaced.
        """
        if self._word(at).kind not in {"text", "parameter"}:
            return 0
        if self._is_array_of_any(at):
            listed = texts_of_array(self._word(at).text[1:-1].replace("''", "'"))
            values = ("null" if each is None else text(each) for each in listed)
            return self._put(at, 1, f"[{', '.join(values)}]")
        if not self._marks(at + 1, "::"):
            return 0
        place = at + 2
        if self._word(place).name == "pg_catalog" and self._marks(place + 1, "."):
            place += 2
        name = self._word(place).name
        if name not in _LOOKED_UP:
            return 0
        function = "regproc" if name == "regprocedure" else name
        value = self._word(at).text
        return self._put_part(at, place - at + 1, f"_{function}({value})")

    def _is_array_of_any(self, at: int) -> bool:
        """Returns True if the word at `at` is the array in `= any('{a,b}')`.

        DuckDB would treat this array as a text.
        """
        return (
            self._word(at).text.startswith("'{")
            and self._marks(at - 1, "(")
            and self._marks(at + 1, ")")
            and self._word(at - 2).name in {"any", "all", "some"}
        )

    def _catalogue_name(self, at: int, skipped: int) -> int:
        """Translates the name of a function, type or relation that only Postgres has.

        The name begins at `at`. `skipped` is the number of words that form the name's schema.
        Returns the number of words that were handled.
        """
        place = at + skipped
        word, count = self._word(place), skipped + 1
        name = word.name
        called = self._marks(place + 1, "(")
        if called and (value := self._called_value(place)):
            return self._put(at, skipped + value[0], value[1])
        if name in _BARE and not called and not self._marks(place + 1, "."):
            return self._put(at, count, self._shown(at, place + 1, name, self.values[name]))
        if name == "pg_get_keywords" and self._marks(place + 1, "(", ")"):
            return self._put_part(at, count + 2, name)
        if name in FUNCTIONS and called:
            return self._put_part(at, count, f"_{name}")
        if name == "format" and called and "%" in self._word(place + 2).text:
            # DuckDB's function of that name has other marks; names are quoted by neither.
            marks = self._word(place + 2).text.replace("%I", "%s").replace("%L", "%s")
            self._put(place + 2, 1, marks)
            return self._put(at, count, "printf")
        if name in _RENAMED and called:
            return self._put(at, count, _RENAMED[name])
        if name == "generate_series" and called and skipped:
            self._name_series(place)
        before = self._word(at - 1)
        if name in DUCKDB_TYPES and (
            before.text == "::" or (before.name == "as" and self._marks(place + 1, ")"))
        ):
            return self._put(at, count, DUCKDB_TYPES[name])
        if name in RELATIONS and (
            skipped or (before.name in {"from", "join"} or before.text == ",")
        ):
            return self._put_part(at, count, name)
        return self._put(at, count, word.text) if skipped else 1

    def _name_series(self, place: int) -> None:
        """Gives the column of `generate_series(...) s` the name `s`, as in Postgres.

        `place` is the place of the word `generate_series`.
        """
        depth, at = 1, place + 2
        while depth and at < len(self.places):
            depth += (self._word(at).text == "(") - (self._word(at).text == ")")
            at += 1
        alias = self._word(at)
        if alias.name and not self._marks(at + 1, "("):
            self.written[self.places[at]] = f"{alias.text}({alias.text})"

    def _called_value(self, place: int) -> tuple[int, str] | None:
        """Returns the SQL of the value that a call returns, if the call describes the session.

        `place` is the place of the function's name. Returns the number of words of the call, and
        the SQL of the value. Returns None if the call does not describe the session.
        """
        name = self._word(place).name
        if name in self.values and self._marks(place + 2, ")"):
            return 3, self._shown(place, place + 3, name, self.values[name])
        if name == "current_schemas" and self._marks(place + 3, ")"):
            implicit = self._word(place + 2).name in {"true", "t"}
            listed = ["pg_catalog", PUBLIC] if implicit else [PUBLIC]
            return 4, f"[{', '.join(map(text, listed))}]"
        if name == "current_setting" and self._word(place + 2).kind == "text":
            # The name of the setting, perhaps with a cast, and whether it may be missing.
            count = 3
            while self._word(place + count).text not in {")", ""}:
                count += 1
            inside = [self._word(place + each).text for each in range(3, count)]
            found = self.setting(self._word(place + 2).text[1:-1])
            if found is not None or "," in inside:
                value = "null" if found is None else text(found)
                return count + 1, self._shown(place, place + count + 1, name, value)
        return None

    def _shown(self, at: int, behind: int, name: str, value: str) -> str:
        """Returns the SQL of a value that replaces a function, with an alias if needed.

        If the value is an output column of the query, the alias is `name`, the name of the replaced
        function. `at` is the place of the function, and `behind` is the place after it.
        """
        before, after = self._word(at - 1), self._word(behind)
        is_column = (
            self.depth == 0
            and self.in_columns
            and (before.name == "select" or before.text == ",")
            and (after.name == "from" or after.text in {",", "", ";"})
        )
        return f"{value} as {name}" if is_column else value
