"""Options that several declarations share, and texts that show wrong values in errors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType

from msgspec import Struct

from kappa.base.errors import DeclarationError
from kappa.base.source import Source

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Every build has this table; no declared table may have its name.
REJECTS = "rejects"
# The column that marks a row that readers do not see.
DELETED = "_deleted"


@contextmanager
def error_prefix(prefix: str) -> Iterator[None]:
    """Adds `prefix: ` to the message of each DeclarationError that the block raises."""
    try:
        yield
    except DeclarationError as error:
        raise DeclarationError(f"{prefix}: {error.message}", hint=error.hint) from None


def describe_value(value: object) -> str:
    """Describes a value for an error message.

    A text or None is shown as Python code. Any other object is described by its type, and by its
    name if it has one; the object's `repr` is never shown.
    """
    if isinstance(getattr(value, "source", None), Source):
        return f"{type(value).__name__.lower()} {getattr(value, 'name', '')}"
    if value is None or isinstance(value, str):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, FunctionType | BuiltinFunctionType):
        return f"the function {value.__name__}"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def option_text(value: object) -> str:
    """Returns an option's value as a text for an error message.

    A text, a number or a boolean is shown as Python code, and any other value is described.
    """
    return repr(value) if isinstance(value, bool | int | float) else describe_value(value)


def listed_texts(where: str, option: str, given: object, example: str) -> tuple[str, ...]:
    """Returns the value of an option that must be a list of texts.

    Raises DeclarationError, with a message that begins with `where`, if `given` is not a list of
    texts. `example` is a valid list, for the hint.
    """
    if not isinstance(given, Iterable):
        raise DeclarationError(
            f"{where} has {describe_value(given)} for {option}, which is not a list of texts",
            hint=f"write {option}={example}, or leave {option} out",
        )
    listed = tuple(given)
    for each in listed:
        if not isinstance(each, str):
            raise DeclarationError(
                f"{where} has {describe_value(each)} in {option}, which is not text",
                hint=f"write {option}={example}",
            )
    return listed


class Thresholds(Struct, frozen=True):
    """The largest changes that a candidate may make to a table, compared with the live build.

    They are shares of the live build's rows: of rows that the candidate adds, removes and changes.
    None means no limit.
    """

    max_added: float | None = None
    max_removed: float | None = None
    max_changed: float | None = None


def check_name(source: Source, what: str, name: object) -> None:
    """Raises DeclarationError if a name is not valid for a table or a view."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(
            f"{source}: {describe_value(name)} is not a valid name of a {what}",
            hint="use lower case letters, digits and underscores, a letter first",
        )
    if name == REJECTS:
        raise DeclarationError(
            f"{source}: the name {REJECTS} belongs to the platform",
            hint=f"choose another name for the {what}",
        )


def thresholds_of(
    where: str, added: object, removed: object, changed: object, *, keyed: bool
) -> Thresholds:
    """Checks the options `max_added`, `max_removed` and `max_changed`, and returns them.

    `keyed` is True if the rows have keys; only such rows can be changed. Raises DeclarationError,
    with a message that begins with `where`, if a value is not a share (0 to 1), or if `max_changed`
    is given for rows without keys.
    """
    thresholds = Thresholds(
        _checked_share(where, "max_added", added),
        _checked_share(where, "max_removed", removed),
        _checked_share(where, "max_changed", changed),
    )
    if changed is not None and not keyed:
        raise DeclarationError(
            f"{where} has max_changed and no keys, "
            "so no row of it is ever the changed one of another",
            hint="use max_added and max_removed",
        )
    return thresholds


def _checked_share(where: str, threshold: str, share: object) -> float | None:
    if share is None:
        return None
    # True is a number to Python. NaN is between no two numbers, and would never be exceeded.
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise DeclarationError(
            f"{where} has {threshold}={option_text(share)}, which is not a share of its rows",
            hint=f"give a number from 0 to 1: {threshold}=0.05 is 5 %",
        )
    # The birth certificate writes a share with a point.
    return float(share)


def words_of(where: str, what: str, words: Sequence[str], example: str) -> tuple[str, ...]:
    """Returns the value of an option that must be a list of texts, and not a single text.

    `what` is the name of the option, and `words` is its value. Raises DeclarationError, with a
    message that begins with `where`, if `words` is a single text, or is not a list of texts.
    `example` is a valid list, for the hint.
    """
    # A lone string is a sequence of letters: the commonest mistake with tuples of one element.
    if isinstance(words, str):
        raise DeclarationError(f"{where} has {what}={words!r}", hint=f"write {what}=({words!r},)")
    return listed_texts(where, what, words, example)


@dataclass(frozen=True, slots=True)
class WantedPart:
    """The part of a table that a sink or an alert uses.

    `of` is the name of the table. `columns` is None for all columns, and `where` is None for all
    rows.
    """

    of: str
    columns: tuple[str, ...] | None
    where: str | None


def wanted_part(described_as: str, of: object, columns: object, where: object) -> WantedPart:
    """Checks the options of a sink or an alert, and returns the part of the table that it uses.

    Raises DeclarationError, with a message that begins with `described_as`, if an option is not
    valid.
    """
    if not isinstance(of, str) or not of:
        raise DeclarationError(
            f"{described_as} is of {describe_value(of)}, which is not a valid table name",
            hint='name the table or maintained view that it follows: of="page_visits"',
        )
    if where is not None and (not isinstance(where, str) or not where.strip()):
        given = (
            "no condition" if isinstance(where, str) else f"{describe_value(where)} for its where"
        )
        raise DeclarationError(
            f"{described_as} has {given}",
            hint='write the condition as text: where="visits > 100", or leave where out',
        )
    if columns is None:
        return WantedPart(of, None, where)
    listed = words_of(described_as, "columns", columns, '["visits"]')  # type: ignore[arg-type]  # it looks itself
    if len(set(listed)) < len(listed):
        raise DeclarationError(f"{described_as} has a column twice among its columns")
    return WantedPart(of, listed, where)
