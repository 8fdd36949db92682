"""Converts errors of Python in a file of declarations to errors with a correction.

Three kinds of error are converted: a call without a required argument, a call with an unknown
argument or with too many arguments, and the use of a name that does not exist.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from textwrap import dedent
from types import FrameType, ModuleType
from typing import Any

from kappa.base.errors import DeclarationError, did_you_mean, near_or_all
from kappa.declare import public_names

_CALL = re.compile(r"(\w+)(?:\.__init__)?\(\) (missing|got an unexpected keyword argument) (.+)")
_BY_PLACE = re.compile(r"(\w+)(?:\.__init__)?\(\) takes .*positional arguments? but \d+")
_QUOTED = re.compile(r"'(\w+)'")
_COUNTED = (
    'count each value, and keep the greatest counts in a view: keys=("page", "visitor"), '
    'fold={"visits": count()}; or take a sample: sample("visitor", 10_000); top_k ranks rows, '
    "and does not count them"
)
# What other systems have, and Kappa has not: docs/explain/decisions/0018 has the reasons.
_ABSENT: Mapping[str, str] = dict.fromkeys(
    ("frequent", "heavy_hitters", "approx_top_k", "count_min"), _COUNTED
)


def explained_misuse(error: BaseException, where: str) -> DeclarationError | None:
    """Converts an error of Python to a DeclarationError with a correction.

    `where` is the `file:line` at which the error was raised. Returns None unless the error is a
    call with wrong arguments or the use of an unknown name.
    """
    match error:
        case TypeError():
            return _explained_call(str(error), where)
        case NameError(name=str(name)):
            hint = f"import it: from kappa import {name}" if name in public_names.__all__ else ""
            return DeclarationError(
                f"{where}: there is no name {name}",
                hint=hint
                or _hint(name, [*_names_at(error), *public_names.__all__], "define or import it"),
            )
        case AttributeError(name=str(name), obj=of) if inspect.ismodule(of):
            return no_name_in(of, name, where)
        case _:
            return None


def no_name_in(module: ModuleType, name: str, where: str) -> DeclarationError:
    """Returns the error for code that uses a name which the module `module` does not contain.

    `where` is the `file:line` at which the code uses the name.
    """
    # Some modules make the names of `__all__` only when they are asked for.
    names = {*dir(module), *getattr(module, "__all__", ())}
    there = [each for each in sorted(names) if not each.startswith("_")]
    return DeclarationError(
        f"{where}: module {module.__name__} has no {name}",
        hint=_hint(name, there, "fix the import"),
    )


def _hint(name: str, known: Iterable[str], otherwise: str) -> str:
    return _ABSENT.get(name) or did_you_mean(name, known) or otherwise


def _names_at(error: BaseException) -> Mapping[str, Any]:
    frame: FrameType | None = None
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
    return {} if frame is None else {**frame.f_globals, **frame.f_locals}


def _explained_call(told: str, where: str) -> DeclarationError | None:
    by_place = _BY_PLACE.match(told)
    if by_place is not None and by_place[1] in public_names.__all__:
        name = by_place[1]
        return DeclarationError(
            f"{where}: {name} has an argument too many, or without its name",
            hint=f"such as {_example(name, getattr(public_names, name))}",
        )
    found = _CALL.match(told)
    if found is None or found[1] not in public_names.__all__:
        return None
    name, arguments = found[1], _QUOTED.findall(found[3])
    called = getattr(public_names, name)
    if found[2] == "missing":
        return DeclarationError(
            f"{where}: {name} needs {' and '.join(arguments)}",
            hint=f"such as {_example(name, called)}",
        )
    known = list(inspect.signature(called).parameters)
    return DeclarationError(
        f"{where}: {name} has no option {arguments[0]}", hint=near_or_all(arguments[0], known)
    )


def _example(name: str, called: Any) -> str:
    """Returns a call of the function or class `called`, from the example in its docstring.

    The result is the first such call. If the docstring contains no such call, returns `NAME(...)`.
    """
    text = (inspect.getdoc(called) or "").partition("Example:\n")[2]
    for node in ast.walk(ast.parse(dedent(text))):
        match node:
            case ast.Call(func=ast.Name(id=found)) if found == name:
                return ast.unparse(node).replace("'", '"')
    return f"{name}(...)"
