"""Alerts: declarations of messages about the changes of a served table. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.options import describe_value, wanted_part, words_of

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
OPS = ("insert", "update", "delete")
PAGE = "page"
COMMAND = "command:"
# The name of the messages about the platform itself.
KAPPA = "kappa"
# Names that services give to parameters whose values are secrets.
_SECRET = re.compile(r"token|secret|passw|credential|key|signature|^(sig|auth)$", re.IGNORECASE)


class AlertBirth(Struct, frozen=True):
    """An alert in a build's birth certificate: its table, address, columns and condition."""

    name: str
    of: str
    to: str
    columns: tuple[str, ...] | None = None
    where: str | None = None
    on: tuple[str, ...] = OPS


@dataclass(frozen=True, slots=True, init=False)
class Alert:
    """A message for each row that enters, changes in, or leaves a table or maintained view.

    `name` is the name of the alert, and `of` is the name of the table or view. `to` is the address:
    the URL of a webhook; `command:NAME` for the command that the settings contain under this name;
    or `page` for Kappa's own page. A URL may contain no secret; secrets belong in the settings.

    `where` is a condition for rows, in DuckDB's SQL. A row that begins to meet the condition counts
    as inserted; a row that no longer meets the condition counts as deleted. `columns` names the
    columns of a message, in addition to the keys. `on` lists the kinds of change that are sent:
    "insert", "update", "delete". An alert has no influence on rows: if two versions differ only in
    alerts, nothing is replayed.

    Example:
        Alert(
            "busy-page",
            of="page_visits",
            to="https://hooks.example.org/pages",
            where="visits > 100",
            columns=["visits"],
            on=["insert"],
        )
    """

    name: str
    of: str
    to: str
    columns: tuple[str, ...] | None
    where: str | None
    on: tuple[str, ...]
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str,
        *,
        of: str,
        to: str,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        on: Sequence[str] = OPS,
    ) -> None:
        source = Source.of_caller()
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise DeclarationError(
                f"{source}: {describe_value(name)} is not a valid alert name",
                hint="use lower case letters, digits, dashes and underscores, a letter first",
            )
        described_as = f"{source}: alert {name}"
        if name == KAPPA:
            raise DeclarationError(
                f"{described_as} has the name of Kappa's own messages",
                hint="give it another name",
            )
        ensure_address(described_as, to)
        ops = words_of(described_as, "on", on, '["insert", "delete"]')
        wrong = next((each for each in ops if each not in OPS), None)
        if wrong is not None or not ops or len(set(ops)) < len(ops):
            what = "no change" if not ops else "a change twice" if wrong is None else repr(wrong)
            raise DeclarationError(
                f"{described_as} has {what} among its on",
                hint='on lists "insert", "update", "delete", or some of them',
            )
        part = wanted_part(described_as, of, columns, where)
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "of", part.of)
        set_field(self, "to", to)
        set_field(self, "columns", part.columns)
        set_field(self, "where", part.where)
        set_field(self, "on", tuple(op for op in OPS if op in ops))
        set_field(self, "source", source)

    @property
    def part_name(self) -> str:
        """Returns the name of the alert in a version's list of its parts: `alert NAME`."""
        return f"alert {self.name}"

    @property
    def outlet_birth(self) -> AlertBirth:
        """Returns the form of the alert that a build's birth certificate stores."""
        return AlertBirth(self.name, self.of, self.to, self.columns, self.where, self.on)


def ensure_address(described_as: str, to: object) -> None:
    """Raises DeclarationError if the address `to` of an alert is not valid.

    The URL of a webhook is not valid if it may contain a secret. `described_as` begins the message
    of the error, and describes what has the address.
    """
    if to == PAGE:
        return
    if isinstance(to, str) and to.startswith(COMMAND):
        if not _NAME.fullmatch(to.removeprefix(COMMAND)):
            raise DeclarationError(
                f"{described_as} goes to {to!r}, which names no command",
                hint='write to="command:NAME", and give the command in kappa.toml',
            )
        return
    try:
        url = urlsplit(to) if isinstance(to, str) else None
        host = None if url is None else url.hostname
        if url is not None:
            # `urlsplit` checks a port only when the port is read.
            _ = url.port
    except ValueError:
        url, host = None, None
    if url is None or not host or url.scheme not in {"http", "https"} or not _is_plain(to):
        raise DeclarationError(
            f"{described_as} goes to {describe_value(to)}, which is not an address",
            hint='write to="https://...", to="command:NAME" or to="page"',
        )
    named = [name for name, _ in parse_qsl(url.query) if _SECRET.search(name)]
    secret = (
        "a user" if url.username is not None or url.password is not None else "".join(named[:1])
    )
    if secret:
        raise DeclarationError(
            f"{described_as} goes to a URL with {secret} in it",
            hint="a version may have no secret: leave it out, and give it in the settings",
        )


def _is_plain(to: object) -> bool:
    return isinstance(to, str) and all(" " < letter < "\x7f" for letter in to)
