"""A program that generates reference pages from the code: commands, declarations, and Python.

It also generates the words for the completion of command lines. `make docs` runs the program.
tests/test_docs.py fails if a generated file is out of date.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import typer

import kappa
from kappa import Project
from kappa.commands.examples import EXAMPLES
from kappa.project.answers import PinnedTables, QueryResult
from kappa.project.project_plan import ProjectPlan
from kappa.testing import Event, law_of_slices, law_of_views, read_events, some_events, tables_of

ROOT = Path(__file__).parent.parent
GENERATED = "<!-- Written by `make docs`. Change the code, not this page. -->"
_EXAMPLE = "Example:"
_PYTHON_HEAD = (
    "A program opens a project with `kappa.Project.open`. The commands use the same objects. See\n"
    "[use a project from Python](../howto/python.md). All examples together are one program."
)
_HEAD = (
    "A pipeline's file imports these names from `kappa`. All examples together are one file, in\n"
    "which `VISITS` is the topic below, and `web` is the pipeline."
)


def pages() -> dict[str, str]:
    """Returns the content of each generated file, by its path in the repository."""
    return {
        "docs/reference/commands.md": _commands(),
        "docs/reference/declarations.md": _declarations(),
        "docs/reference/python.md": _python(),
        "kappa/commands/words.json": _words(),
    }


def _words() -> str:
    """Returns the words for kappa/commands/complete.py as JSON, with one command per line."""
    from kappa.commands.app import app_of  # noqa: PLC0415  # only these words need the program

    words = _words_of(typer.main.get_command(app_of()))
    return re.sub(r'(?<=[{,]) ?("[a-z]+": \{"help")', r"\n\1", json.dumps(words)) + "\n"


def _words_of(command: Any) -> dict[str, Any]:
    options = {
        word: _parameter_words(option)
        for option in command.params
        if option.param_type_name == "option" and not option.hidden
        for word in (*option.opts, *option.secondary_opts)
    }
    return {
        "help": _first_line(command.help),
        "commands": {
            name: _words_of(each)
            for name, each in getattr(command, "commands", {}).items()
            if not each.hidden
        },
        "options": {**options, "--help": {"help": "print the help"}},
        "arguments": [
            {**_parameter_words(each), "many": each.nargs == -1}
            for each in command.params
            if each.param_type_name == "argument"
        ],
    }


def _parameter_words(parameter: Any) -> dict[str, Any]:
    """Returns the words that complete a parameter: its kind of object, or its choices.

    The parameter's metavar gives the kind of object, such as PIPELINE.
    """
    words = {"help": _first_line(getattr(parameter, "help", ""))}
    if getattr(parameter, "is_flag", False):
        return words
    metavar = parameter.metavar or parameter.name.upper()
    of = "|".join(re.sub("(?<!S)S$", "", name) for name in re.findall("[A-Z]+", metavar))
    choices = [str(each) for each in getattr(parameter.type, "choices", ())]
    return {**words, "of": of, **({"choices": choices} if choices else {})}


def _first_line(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _commands() -> str:
    from kappa.commands.app import app_of  # noqa: PLC0415  # only this page needs the program

    root = typer.main.get_command(app_of())
    head = ["# Commands", GENERATED, (root.help or "").strip(), _options(root)]
    return "\n\n".join([*head, *_below(root, "kappa")]) + "\n"


def _below(group: Any, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        yield f"## {path} {name}"
        if hasattr(command, "commands"):
            yield _prose(command.help)
            yield from _below(command, f"{path} {name}")
            continue
        usage = [_argument(each) for each in command.params if each.param_type_name == "argument"]
        example = EXAMPLES[f"{path} {name}".removeprefix("kappa ")]
        yield f"```text\n{' '.join([path, name, *usage])}\n```"
        yield f"Example: `{example}`"
        yield _prose(command.help)
        if options := _options(command):
            yield options


def _argument(argument: Any) -> str:
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _options(command: Any) -> str:
    rows = [
        f"| {', '.join(f'`{word}`' for word in option.opts)} | {_prose(option.help)} |"
        for option in command.params
        if option.param_type_name == "option" and not option.hidden and option.name != "help"
    ]
    return "\n".join(["| option | what it does |", "|---|---|", *rows]) if rows else ""


def _prose(text: str | None) -> str:
    return dedent(text or "").strip().replace("|", "\\|")


def entries() -> dict[str, dict[str, Any]]:
    """Returns the entries of the page of declarations: for each title, the objects by name."""
    first = ["Topic", "Table", "View", "pipeline", "ordered", "sequence", "follows", "absent"]
    first += ["Sink", "Alert"]
    windows = ["tumble", "hop", "sessions", "session"]
    formats = ["Json", "Csv", "Text", "Avro", "Protobuf", "Debezium", "Subject"]
    values = {*first, *windows, *formats, "Fold", "Ordered", "Pipeline"}
    folds = [name for name in kappa.__all__ if name not in values]
    named = {"Declarations": first, "Formats": formats, "Folds": folds, "Windows": windows}
    testing = {
        each.__name__: each
        for each in (tables_of, law_of_slices, law_of_views, some_events, read_events, Event)
    }
    return {
        title: {name: getattr(kappa, name) for name in names} for title, names in named.items()
    } | {"Testing": testing}


def example_of(thing: Any) -> str:
    """Returns the code in the `Example:` at the end of a docstring, or "" without an example."""
    return dedent((inspect.getdoc(thing) or "").partition(f"\n\n{_EXAMPLE}\n")[2])


def _declarations() -> str:
    parts = ["# Declarations", GENERATED, _HEAD]
    for title, listed in entries().items():
        parts += [f"## {title}", *(["From `kappa.testing`:"] if title == "Testing" else [])]
        parts += [part for name, thing in listed.items() for part in _entry(name, thing)]
    return "\n\n".join(parts) + "\n"


def python_entries() -> dict[str, Any]:
    """Returns the entries of the page of `kappa.Project`, in the order of the examples."""
    methods = ("open", "deploy", "produce", "query", "pin", "changes", "exporter", "tables")
    methods += ("table", "status", "history", "rejects", "plan", "stage", "diff", "promote", "undo")
    return {
        **{f"Project.{name}": getattr(Project, name) for name in methods},
        "ProjectPlan": ProjectPlan,
        "QueryResult": QueryResult,
        "PinnedTables": PinnedTables,
        "kappa.connect": kappa.connect,
    }


def _python() -> str:
    parts = ["# Python", GENERATED, _PYTHON_HEAD]
    for name, thing in python_entries().items():
        parts += [f"## {name}", *_entry(name, thing)[1:]]
        if inspect.isclass(thing):
            # A program gets values of these classes, and makes none.
            del parts[-3]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, thing: Any) -> list[str]:
    parameters = [
        each for each in inspect.signature(thing).parameters.values() if each.name != "self"
    ]
    lines = [f"    {_parameter(each)}," for each in parameters]
    star = next((n for n, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    if star is not None and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        lines.insert(star, "    *,")
    call = "\n".join([f"{name}(", *lines, ")"])
    what = (inspect.getdoc(thing) or "").partition(f"\n\n{_EXAMPLE}")[0]
    example = f"```python\n{example_of(thing)}\n```"
    return [f"### {name}", f"```text\n{call}\n```", what, example]


def _parameter(parameter: inspect.Parameter) -> str:
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    default = getattr(parameter.default, "value", parameter.default)
    name = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + parameter.name
    return f"{name}{kind}" + ("" if default is parameter.empty else f" = {default!r}")


if __name__ == "__main__":
    for name, text in pages().items():
        (ROOT / name).write_text(text, encoding="utf-8")
        print(name)
    sys.exit(0)
