"""Columns for the fields of a schema, and the conversion of their values, for all formats. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.values.columns import Column, Scalar, Type, refuse_repeated
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import Check, check_of

EVENT_HINT = 'event="id string not null, amount double"'


@dataclass(frozen=True, slots=True)
class Landing:
    """The column for a field of a schema, and the conversion of the field's values.

    `type` and `nullable` are the column's type, and whether its values may be null. The function
    `land` checks a decoded value, and converts it to the value in the row.
    """

    type: Type
    nullable: bool
    land: Check


def refused_part(path: str, what: str) -> DeclarationError:
    """Returns the error for a part of a schema that cannot become a column."""
    return DeclarationError(
        f"the schema has {what} at {path}, which cannot become a column",
        hint=f"declare the columns that you need, without it: {EVENT_HINT}",
    )


def columns_of(found: Mapping[str, Landing]) -> tuple[Column, ...]:
    """Returns the columns for all fields of an event.

    `found` contains the landing (the column and the conversion function) of each field. Raises
    DeclarationError if a field cannot become a column.
    """
    columns = []
    for name, landing in found.items():
        if name.startswith("_"):
            raise DeclarationError(
                f"the schema has the field {name}, and an underscore marks the platform's columns",
                hint=f"declare the columns that you need, without it: {EVENT_HINT}",
            )
        columns.append(column_of(name, landing))
    refuse_repeated(columns, "the schema")
    return tuple(columns)


def column_of(name: str, landing: Landing) -> Column:
    """Returns the column for a field with this landing (column type and conversion function).

    Raises DeclarationError if the field cannot become a column.
    """
    if isinstance(landing.land, _Refusal):
        raise landing.land.error
    return Column(name, landing.type, landing.nullable)


def check_declared(
    columns: Sequence[Column], known: Mapping[str, Landing], what: str, *, by_schema: bool
) -> None:
    """Raises DeclarationError if declared columns do not match the fields of the schema.

    `known` contains the landing (the column and the conversion function) of each field. `by_schema`
    is True if a JSON Schema declares the columns. `what` is the name of the format in errors:
    `Avro`.
    """
    if by_schema:
        raise DeclarationError(
            f"a JSON Schema is about JSON's values, and this topic has {what}'s",
            hint="leave out event: the columns are the schema's fields",
        )
    for column in columns:
        if column.was or column.default is not None:
            raise DeclarationError(
                f"column {column.name} has {'an old name' if column.was else 'a default'}, "
                f"and {what}'s schemas have their own rules for those",
                hint='for Avro, give the field in the schema "aliases", or a "default"',
            )
        if column.name not in known:
            raise DeclarationError(
                f"column {column.name} is not a field of the schema",
                hint=f"its fields are {', '.join(known)}",
            )
        found = column_of(column.name, known[column.name])
        if str(found.type) != str(column.type):
            raise DeclarationError(
                f"column {column.name} is {column.type}, and the schema has {found.type} there",
                hint=f"declare it as it is: {found}",
            )


class _Refusal:
    """A conversion function for a field that cannot become a column. Each call raises `error`."""

    def __init__(self, error: DeclarationError) -> None:
        self.error = error

    def __call__(self, *_: Any) -> Any:
        raise self.error


def refused_landing(error: DeclarationError) -> Landing:
    """Returns the landing of a field that cannot become a column.

    A landing contains a field's conversion function; here this function raises `error`.
    """
    return Landing(Scalar("string"), nullable=True, land=_Refusal(error))


def finite_check(kind: str) -> Check:
    """Returns a function that checks the numbers of a type, and also rejects NaN."""
    check = check_of(Scalar(kind))

    def land_finite(found: Any, name: str) -> Any:
        if math.isnan(found):
            raise Rejected(Reason.OUT_OF_RANGE, f"{name} is NaN, which is not a number")
        return check(found, name)

    return land_finite
