"""A place of an event by its JSON Schema, which is hashed into versions and enforced. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kappa.declare.values.columns import Column, Type


@dataclass(frozen=True, slots=True)
class Field:
    """A property of an object. `default` is the JSON text of its value if the field is missing."""

    name: str
    place: SchemaPlace
    required: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """A place of an event, and what its schema demands of the value there.

    `limits` are keywords with their values as JSON text. `closed`: an object has no other fields
    than these. `element` is the place of an array's elements.
    """

    json_type: str
    column: Type
    nullable: bool = False
    limits: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    closed: bool = False
    element: SchemaPlace | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Returns the columns of an object's fields."""
        return tuple(
            Column(
                field.name,
                field.place.column,
                field.place.nullable or not (field.required or field.default is not None),
                field.default,
            )
            for field in self.fields
        )

    def lines(self, path: str = "event") -> Iterator[str]:
        """Yields a line for each place; schemas of equal meaning have equal lines."""
        demands = [
            f"{path} {self.json_type}{' or null' if self.nullable else ''} as {self.column}",
            *(f"{keyword} {value}" for keyword, value in self.limits),
        ]
        yield ", ".join([*demands, "no other fields"] if self.closed else demands)
        for field in self.fields:
            of_field = field.place.lines(f"{path}.{field.name}")
            required = ", required" if field.required else ""
            default = "" if field.default is None else f", default {field.default}"
            yield f"{next(of_field)}{required}{default}"
            yield from of_field
        if self.element is not None:
            yield from self.element.lines(f"{path}[]")
