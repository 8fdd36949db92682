"""The words of errors for values that a declaration cannot take. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType

from kappa.base.errors import DeclarationError
from kappa.base.source import Source


def described(value: object) -> str:
    """Names a value for people: what it is and what it is called, never how Python prints it.

    A text is shown as it is written.
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


def shown(value: object) -> str:
    """Shows a text, a number or a truth value as it is written, and describes any other value."""
    return repr(value) if isinstance(value, bool | int | float) else described(value)


def texts(where: str, option: str, given: object, example: str) -> tuple[str, ...]:
    """Returns the texts that an option lists.

    Raises DeclarationError, beginning with `where`, if it lists others.
    """
    if not isinstance(given, Iterable):
        raise DeclarationError(
            f"{where} has {described(given)} for {option}, which is no list of texts",
            hint=f"write {option}={example}, or leave {option} out",
        )
    listed = tuple(given)
    for each in listed:
        if not isinstance(each, str):
            raise DeclarationError(
                f"{where} has {described(each)} in {option}, which is no text",
                hint=f"write {option}={example}",
            )
    return listed
