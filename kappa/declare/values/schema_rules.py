"""The rules of a JSON Schema beside types: presence, null, limits, no other fields. Pure.

The rules check the sent values of fields under the present names (kappa/records/record.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal as Number
from typing import Any

from kappa.declare.values.columns import Scalar
from kappa.declare.values.json_schema import Field, SchemaPlace, expression
from kappa.declare.values.reason import Reason, Rejected, kind_of

# Raises Rejected, or does nothing. The column has already checked the value's type.
Rule = Callable[[Any, str], None]

# Stands for the value of a missing field.
_MISSING = object()
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def rule_of(place: SchemaPlace) -> Rule | None:
    """Makes the rule of a place and all places below. Returns None if types alone decide.

    Raises Rejected if a default breaks the rule.
    """
    rules = tuple(_rules(place))
    if not rules:
        return None

    def rule(found: Any, name: str) -> None:
        for each in rules:
            each(found, name)

    return rule


def _rules(place: SchemaPlace) -> Iterator[Rule]:
    if place.json_type == "string" and place.column == Scalar("timestamp"):
        # The column reads epoch milliseconds too.
        yield _demanding(lambda found: type(found) is str, "the schema wants a text")
    if place.json_type == "integer" and place.column != Scalar("bigint"):
        yield _demanding(lambda found: type(found) is int, "the schema wants a whole number")
    for keyword, text in place.limits:
        yield _demanding(_limit(keyword, json.loads(text)), f"the schema says {keyword} {text}")
    if place.element is not None:
        of_element = rule_of(place.element)
        if of_element is not None or not place.element.nullable:
            yield _elements(of_element, place.element.nullable)
    if place.fields:
        yield from _fields(place)


def _demanding(holds: Callable[[Any], bool], demand: str) -> Rule:
    def rule(found: Any, name: str) -> None:
        if not holds(found):
            raise _against(name, found, demand)

    return rule


def _limit(keyword: str, value: Any) -> Callable[[Any], bool]:
    match keyword:
        case "enum" | "const":
            allowed = frozenset(map(_comparable, value if keyword == "enum" else [value]))
            return lambda found: _comparable(found) in allowed
        case "pattern":
            search = expression(value).search
            return lambda found: search(found) is not None
        case "format":
            return lambda found: _UUID.fullmatch(found) is not None
        case "minLength" | "minItems":
            return lambda found: len(found) >= value
        case "maxLength" | "maxItems":
            return lambda found: len(found) <= value
        case _:
            return _bound(keyword, _amount(value))


def _bound(keyword: str, bound: Any) -> Callable[[Any], bool]:
    match keyword:
        case "minimum":
            return lambda found: _amount(found) >= bound
        case "maximum":
            return lambda found: _amount(found) <= bound
        case "exclusiveMinimum":
            return lambda found: _amount(found) > bound
        case "exclusiveMaximum":
            return lambda found: _amount(found) < bound
        case _:
            raise AssertionError(f"{keyword} is read and has no rule")


def _amount(found: Any) -> Any:
    # Compared by digits: 0.1 is not less than the bound 0.1, however each number was stored.
    return Number(repr(found)) if type(found) is float else found


def _comparable(found: Any) -> tuple[str, Any]:
    # In JSON true is not 1, but 1.0 is.
    return (
        ("is", found) if found is None or type(found) in {bool, str} else ("amount", _amount(found))
    )


def _elements(of_element: Rule | None, nullable: bool) -> Rule:
    def rule(found: Any, name: str) -> None:
        for each in found:
            if each is not None:
                if of_element is not None:
                    of_element(each, f"an element of {name}")
            elif not nullable:
                raise _against(f"an element of {name}", None, "the schema allows no null")

    return rule


def _fields(place: SchemaPlace) -> Iterator[Rule]:
    rules = tuple((field, rule_of(field.place)) for field in place.fields)
    for field, of_field in rules:
        if of_field is not None and field.default is not None:
            of_field(json.loads(field.default), f"the default of {field.name}")
    # The column itself refuses a missing field or a null that it may not have.
    checked = tuple(
        (field, of_field)
        for field, of_field in rules
        if of_field is not None
        or (field.required is field.place.nullable and field.default is None)
    )
    if checked:
        yield _each_field(checked)
    if place.closed:
        yield _no_others(frozenset(field.name for field in place.fields))


def _each_field(fields: tuple[tuple[Field, Rule | None], ...]) -> Rule:
    def rule(found: Any, name: str) -> None:
        for field, of_field in fields:
            value = found.get(field.name)
            if value is not None:
                if of_field is not None:
                    of_field(value, _inside(name, field.name))
            elif field.name not in found:
                if field.required:
                    raise _against(_inside(name, field.name), _MISSING, "the schema requires it")
            elif not field.place.nullable:
                raise _against(_inside(name, field.name), None, "the schema allows no null")

    return rule


def _no_others(names: frozenset[str]) -> Rule:
    def rule(found: Any, name: str) -> None:
        others = found.keys() - names
        if others:
            raise _against(
                _inside(name, min(others)), found[min(others)], "the schema allows no other fields"
            )

    return rule


def _inside(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _against(name: str, found: Any, demand: str) -> Rejected:
    return Rejected(
        Reason.AGAINST_SCHEMA,
        f"{name} is {'missing' if found is _MISSING else kind_of(found)}, and {demand}",
    )
