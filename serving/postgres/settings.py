"""The settings of a session: those that clients read, and those that affect answers.

`kappa.at` and `kappa.generation` select a moment of the past. Most settings of Postgres have no
effect here. They are stored only so that a client can read the value that it has set. A setting
that would change the text form of values accepts only its default value.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping

from kappa.base.errors import UsageError, near_or_all
from kappa.serving.postgres.messages import PostgresError
from kappa.serving.query.pin.moments import AtGeneration, AtTime, Past, parse_time

AT, GENERATION, SNAPSHOT = "kappa.at", "kappa.generation", "kappa.snapshot"
# What begins so is ours: a slip must not read the present in place of the past.
_OURS = "kappa."
# The version of Postgres whose protocol and catalogue this is.
VERSION = "16.0"

# The settings that a client is told at its start, in the spelling that clients look for.
_TOLD = {
    "server_version": VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "default_transaction_read_only": "on",
    "in_hot_standby": "on",
    "application_name": "",
    "session_authorization": "",
}
_OTHERS = {
    "search_path": '"$user", public',
    "transaction_isolation": "repeatable read",
    "default_transaction_isolation": "repeatable read",
    "transaction_read_only": "on",
    "server_version_num": "160000",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "row_security": "on",
    "lc_collate": "C.UTF-8",
    "lc_ctype": "C.UTF-8",
    "lc_messages": "C.UTF-8",
    "lc_monetary": "C.UTF-8",
    "jit": "off",
    "ssl": "off",
    AT: "",
    GENERATION: "",
}
_SPELLED = {name.lower(): name for name in _TOLD}
# Cannot be set, as in Postgres.
_FIXED = frozenset(
    {"server_version", "server_version_num", "server_encoding", "integer_datetimes"}
    | {"is_superuser", "in_hot_standby", "max_identifier_length", "max_index_keys"}
    | {"lc_collate", "lc_ctype", "ssl", SNAPSHOT}
)
# The only values of settings that decide how values are written, in small letters.
_ONLY: Mapping[str, frozenset[str]] = {
    "client_encoding": frozenset({"utf8", "utf-8", "unicode"}),
    "intervalstyle": frozenset({"postgres"}),
    "bytea_output": frozenset({"hex"}),
    "standard_conforming_strings": frozenset({"on", "true", "1"}),
}
_UTC = frozenset({"utc", "gmt", "etc/utc", "etc/gmt", "zulu", "uct"})
_LONGEST = 1000
_MOST = 200


class SessionSettings:
    """The values of a session's settings. Names are not case-sensitive."""

    def __init__(self, user: str) -> None:
        self._defaults = {name.lower(): value for name, value in (_TOLD | _OTHERS).items()}
        self._defaults["session_authorization"] = user
        self._values = dict(self._defaults)
        # The values before the transaction; None outside of one.
        self._before: dict[str, str] | None = None
        # The values that go with the transaction, after `SET LOCAL`.
        self._local: dict[str, str] = {}
        self._shown = ChainMap(self._local, self._values)

    def told(self) -> Iterator[tuple[str, str]]:
        """Yields the name and value of each setting that a client is sent when it connects."""
        for name in _TOLD:
            yield name, self._shown[name.lower()]

    def value(self, name: str) -> str:
        """Returns the value of a setting. Raises PostgresError if the name is not known."""
        found = self._shown.get(name.lower())
        if found is None:
            raise PostgresError(
                "42704",
                f'unrecognized configuration parameter "{name}"',
                hint="SHOW ALL lists all; describe TABLE shows the columns of a table",
            )
        return found

    def all(self) -> list[tuple[str, str]]:
        """Lists all settings, as pairs of name and value."""
        return sorted(self._shown.items())

    def put(self, name: str, value: str | None, *, local: bool = False) -> tuple[str, str] | None:
        """Sets a setting, or resets the setting to its default if `value` is None.

        If `local` is True, the value is valid until the end of the transaction. Returns the name
        and the value if the protocol requires that the client be informed of this setting, and
        otherwise None. Raises PostgresError if the setting cannot have the value.
        """
        key = name.lower()
        value = self._defaults.get(key, "") if value is None else value
        if key in _FIXED:
            raise PostgresError("55P02", f'parameter "{name}" cannot be changed')
        if key.startswith(_OURS) and key not in self._defaults:
            raise PostgresError(
                "42704",
                f'unrecognized configuration parameter "{name}"',
                hint=near_or_all(key, (AT, GENERATION)),
            )
        if len(value) > _LONGEST or (key not in self._shown and len(self._shown) >= _MOST):
            raise PostgresError("54000", f'parameter "{name}" is too long, or one too many')
        only = _ONLY.get(key)
        if only is not None and value.lower() not in only:
            raise PostgresError(
                "22023",
                f'parameter "{name}" is {self._shown[key]} here, and cannot be {value[:80]}',
            )
        if key == "datestyle" and not value.lower().startswith("iso"):
            raise PostgresError("22023", f"dates are written as ISO here, and not as {value[:80]}")
        if key in {AT, GENERATION}:
            _ensure_moment(key, value)
            # Of two moments the last one that was set counts.
            self._store(GENERATION if key == AT else AT, "", local=local)
        self._store(key, "UTC" if key == "timezone" else value, local=local)
        return (_SPELLED[key], self._shown[key]) if key in _SPELLED else None

    def is_kept_in_utc(self, name: str, value: str | None) -> bool:
        """Returns True if a client sets a time zone other than UTC.

        The server sends times in UTC all the same.
        """
        return name.lower() == "timezone" and (value or "utc").lower() not in _UTC

    def when(self) -> Past | None:
        """Returns the moment of the past that the settings select, or None for now."""
        if at := self._shown[AT]:
            return AtTime(parse_time(at)[0])
        if generation := self._shown[GENERATION]:
            return AtGeneration(int(generation))
        return None

    def begin(self) -> None:
        """Stores the present values when a transaction begins, so that a rollback restores them."""
        self._before = dict(self._values)

    def end(self, *, committed: bool) -> None:
        """Ends a transaction.

        A rollback (`committed` is False) restores the values from before the transaction. In any
        case, the values that were set with `LOCAL` are removed.
        """
        if self._before is not None and not committed:
            self._values.clear()
            self._values.update(self._before)
        self._before = None
        self._local.clear()

    def reset(self) -> None:
        """Resets all settings to their defaults."""
        self._local.clear()
        self._values.clear()
        self._values.update(self._defaults)

    def _store(self, key: str, value: str, *, local: bool) -> None:
        if not local:
            self._local.pop(key, None)
            self._values[key] = value
        elif self._before is not None:
            self._local[key] = value


def _ensure_moment(key: str, value: str) -> None:
    if not value:
        return
    try:
        if key == AT:
            parse_time(value)
    except UsageError as error:
        raise PostgresError("22023", error.message, hint=error.hint) from error
    if key == GENERATION and not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise PostgresError(
            "22023",
            f"{value[:80]!r} is not a generation",
            hint="SHOW kappa.snapshot names the one read",
        )
