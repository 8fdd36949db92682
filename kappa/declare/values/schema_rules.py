"""Checks the conditions of a JSON Schema other than types. Pure.

Such conditions are, for example, that a field is required, that a value may not be null, that a
value is within limits, or that an object has no other fields. The values are checked as they were
sent. Fields with old names have already been renamed (kappa/records/record.py does this).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal as Number
from typing import Any

from kappa.declare.values.columns import Scalar
from kappa.declare.values.json_schema import Field, SchemaPlace, compile_pattern
from kappa.declare.values.reason import Reason, Rejected, kind_of

# Raises Rejected, or does nothing. The column has already checked the value's type.
Rule = Callable[[Any, str], None]

# Stands for the value of a missing field.
_MISSING = object()
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def rule_of(place: SchemaPlace) -> Rule | None:
    """Returns a function that checks the value at a place in an event, beyond its type.

    The function also checks all places within the place. Returns None if no such check is needed.
    Raises Rejected if the schema's default for a field breaks the schema's conditions for that
    field.
    """
    rules = tuple(_place_rules(place))
    if not rules:
        return None

    def apply_rules(found: Any, name: str) -> None:
        for each in rules:
            each(found, name)

    return apply_rules


def _place_rules(place: SchemaPlace) -> Iterator[Rule]:
    if place.json_type == "string" and place.column == Scalar("timestamp"):
        # The column reads epoch milliseconds too.
        yield _demand_rule(lambda found: type(found) is str, "the schema wants a text")
    if place.json_type == "integer" and place.column != Scalar("bigint"):
        yield _demand_rule(lambda found: type(found) is int, "the schema wants a whole number")
    for keyword, text in place.limits:
        yield _demand_rule(
            _limit_test(keyword, json.loads(text)), f"the schema says {keyword} {text}"
        )
    if place.element is not None:
        of_element = rule_of(place.element)
        if of_element is not None or not place.element.nullable:
            yield _elements_rule(of_element, place.element.nullable)
    if place.fields:
        yield from _field_rules(place)


def _demand_rule(holds: Callable[[Any], bool], demand: str) -> Rule:
    def check_demand(found: Any, name: str) -> None:
        if not holds(found):
            raise _against_schema(name, found, demand)

    return check_demand


def _limit_test(keyword: str, value: Any) -> Callable[[Any], bool]:
    match keyword:
        case "enum" | "const":
            allowed = frozenset(map(_comparable_value, value if keyword == "enum" else [value]))
            return lambda found: _comparable_value(found) in allowed
        case "pattern":
            search = compile_pattern(value).search
            return lambda found: search(found) is not None
        case "format":
            return lambda found: _UUID.fullmatch(found) is not None
        case "minLength" | "minItems":
            return lambda found: len(found) >= value
        case "maxLength" | "maxItems":
            return lambda found: len(found) <= value
        case _:
            return _bound_test(keyword, _exact_amount(value))


def _bound_test(keyword: str, bound: Any) -> Callable[[Any], bool]:
    match keyword:
        case "minimum":
            return lambda found: _exact_amount(found) >= bound
        case "maximum":
            return lambda found: _exact_amount(found) <= bound
        case "exclusiveMinimum":
            return lambda found: _exact_amount(found) > bound
        case "exclusiveMaximum":
            return lambda found: _exact_amount(found) < bound
        case _:
            raise AssertionError(f"{keyword} is read and has no rule")


def _exact_amount(found: Any) -> Any:
    # Compared by digits: 0.1 is not less than the bound 0.1, however each number was stored.
    return Number(repr(found)) if type(found) is float else found


def _comparable_value(found: Any) -> tuple[str, Any]:
    # In JSON true is not 1, but 1.0 is.
    return (
        ("is", found)
        if found is None or type(found) in {bool, str}
        else ("amount", _exact_amount(found))
    )


def _elements_rule(of_element: Rule | None, nullable: bool) -> Rule:
    def check_elements(found: Any, name: str) -> None:
        for each in found:
            if each is not None:
                if of_element is not None:
                    of_element(each, f"an element of {name}")
            elif not nullable:
                raise _against_schema(f"an element of {name}", None, "the schema allows no null")

    return check_elements


def _field_rules(place: SchemaPlace) -> Iterator[Rule]:
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
    def check_fields(found: Any, name: str) -> None:
        for field, of_field in fields:
            value = found.get(field.name)
            if value is not None:
                if of_field is not None:
                    of_field(value, _inside_name(name, field.name))
            elif field.name not in found:
                if field.required:
                    raise _against_schema(
                        _inside_name(name, field.name), _MISSING, "the schema requires it"
                    )
            elif not field.place.nullable:
                raise _against_schema(
                    _inside_name(name, field.name), None, "the schema allows no null"
                )

    return check_fields


def _no_others(names: frozenset[str]) -> Rule:
    def check_others(found: Any, name: str) -> None:
        others = found.keys() - names
        if others:
            raise _against_schema(
                _inside_name(name, min(others)),
                found[min(others)],
                "the schema allows no other fields",
            )

    return check_others


def _inside_name(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _against_schema(name: str, found: Any, demand: str) -> Rejected:
    return Rejected(
        Reason.AGAINST_SCHEMA,
        f"{name} is {'missing' if found is _MISSING else kind_of(found)}, and {demand}",
    )
