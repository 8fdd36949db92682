"""Completes a command line: `kappa __complete WORDS...` prints one possible word per line.

A shell runs this command at each TAB, so this module imports neither Typer nor the commands. The
commands are listed in words.json, which `make docs` writes. The names of pipelines, tables, topics,
builds, rollouts, generations and tokens are read from the newest records of the root, and from the
project's files.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kappa.code.names import declared_names
from kappa.state.names import RootNames, read_names, read_token_names

# The last line of an answer: whether the shell completes names of files, too.
FILES, NO_FILES = ":files", ":words"
_WORDS = Path(__file__).with_name("words.json")
# Things that are files or folders.
_FILES = {"FILE", "TO", "PROJECT", "ROOT"}
# A word, and a few words about the word.
Candidate = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TypedLine:
    """A command line up to the word that is to be completed.

    `command` describes the command. `of` contains the kinds of names that can complete the word,
    such as `TABLE`. `choices` contains the fixed words that can complete the word. `flags` contains
    the values of `--project` and `--root`, if the line contains these options.
    """

    command: Mapping[str, Any]
    of: tuple[str, ...]
    choices: tuple[str, ...]
    flags: Mapping[str, str]


def complete(words: Sequence[str], commands: Mapping[str, Any]) -> list[str]:
    """Returns the lines that a shell reads to complete the last of `words`.

    `words` are the words that were typed after `kappa`. A line is a word, optionally followed by a
    tab and a description. The last line tells the shell whether to complete file names, too.
    """
    # Bash makes three words of --at=TIME.
    *before, word = [each for each in words if each != "="] or [""]
    line = _parse_line(before, commands)
    found: list[Candidate] = []
    if word.startswith("-"):
        found += [(each, about["help"]) for each, about in line.command["options"].items()]
    else:
        found += [(each, about["help"]) for each, about in line.command["commands"].items()]
        found += [(each, "") for each in line.choices]
        if names := [each for each in line.of if each in _SOURCES]:
            live = LiveNames.around(Path.cwd(), line.flags)
            found += [each for name in names for each in _SOURCES[name](live)]
    unique = dict(reversed([each for each in found if each[0].startswith(word)]))
    shown = [f"{each}\t{about}" if about else each for each, about in reversed(unique.items())]
    return [*shown, FILES if _FILES & {*line.of} else NO_FILES]


def _parse_line(before: Sequence[str], commands: Mapping[str, Any]) -> TypedLine:
    """Parses the words before the word that is to be completed."""
    command, arguments, flags = commands, 0, dict[str, str]()
    rest = iter(before)
    for word in rest:
        if word.startswith("-"):
            option = command["options"].get(word)
            if option is not None and "of" in option:
                value = next(rest, None)
                if value is None:
                    return TypedLine(_nothing(), *_things(option), flags)
                flags[word] = value
        elif word in command["commands"]:
            command = command["commands"][word]
        elif command is commands["commands"].get("help"):
            # The words after `help` are a command.
            command = {**_nothing(), "commands": {}}
        elif command["commands"]:
            # No command has that name.
            command = _nothing()
        else:
            arguments += 1
        if command is commands["commands"].get("help"):
            command = {**command, "commands": commands["commands"]}
    known = command["arguments"]
    if not known or (arguments >= len(known) and not known[-1]["many"]):
        return TypedLine(command, (), (), flags)
    return TypedLine(command, *_things(known[min(arguments, len(known) - 1)]), flags)


def _nothing() -> dict[str, Any]:
    return {"options": {}, "commands": {}, "arguments": []}


def _things(parameter: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the possible values of a parameter: the kinds of names, and the fixed choices."""
    return tuple(parameter["of"].split("|")), tuple(parameter.get("choices", ()))


_SOURCES: Mapping[str, Callable[[Any], Iterator[Candidate]]] = {
    "PIPELINE": lambda live: live.pipelines(),
    "TABLE": lambda live: live.tables(),
    "TOPIC": lambda live: live.topics(),
    "BUILD": lambda live: live.builds(),
    "ROLLOUT": lambda live: live.rollouts(),
    "GENERATION": lambda live: live.generations(),
    "PROCESS": lambda live: live.processes(),
    "ALERT": lambda live: live.alerts(),
    "TEMPLATE": lambda live: live.templates(),
    "TOKEN": lambda live: live.tokens(),
}


def print_completions(words: Sequence[str]) -> None:
    """Prints the lines of `complete` for the typed words.

    If the descriptions of the commands in words.json cannot be read, there are no completions.
    """
    try:
        lines = complete(words, json.loads(_WORDS.read_bytes()))
    except (OSError, ValueError):
        lines = [NO_FILES]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


_FILE = "kappa.toml"
_SHOWN = 50


@dataclass(frozen=True)
class LiveNames:
    """The names of things in a project and its root, for the completion of command lines.

    Each kind of names is read when it is first needed. The methods that yield names yield pairs
    (name, description).
    """

    project: Path | None
    root: Path | None

    @classmethod
    def around(cls, folder: Path, flags: Mapping[str, str]) -> LiveNames:
        """Finds the project and the root of a command that is typed in `folder`.

        `flags` contains the values of `--project` and `--root`, if the command line contains these
        options. The result has no project if there is none, and no root if the root is in a bucket.
        """
        start = (folder / Path(flags.get("--project", ".")).expanduser()).absolute()
        project = next((each for each in (start, *start.parents) if (each / _FILE).is_file()), None)
        if project is None:
            return cls(None, None)
        by_variable = next(
            (value for name, value in os.environ.items() if name.upper() == "KAPPA__ROOT"), None
        )
        given = flags.get("--root") or by_variable or _root_in(project / _FILE)
        return cls(project, None if "://" in given else project / given)

    @cached_property
    def _in_root(self) -> RootNames:
        return RootNames() if self.root is None else read_names(self.root)

    @cached_property
    def _declared(self) -> set[tuple[str, str]]:
        return set() if self.project is None else declared_names(self.project)

    def pipelines(self) -> Iterator[tuple[str, str]]:
        """Yields (name, description) for each pipeline that is declared or served."""
        for name in sorted({*self._in_root.serving, *self._names("pipeline")}):
            build = self._in_root.serving.get(name)
            yield name, f"pipeline, build {build}" if build else "pipeline, not served"

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yields (name, description) for each served table and view."""
        for name, pipeline in sorted(self._in_root.tables()):
            yield name, f"table of {pipeline}"

    def topics(self) -> Iterator[tuple[str, str]]:
        """Yields (name, description) for each topic that is declared or used by a serving build."""
        for name in sorted({*self._in_root.topics(), *self._names("topic")}):
            yield name, "topic"

    def builds(self) -> Iterator[tuple[str, str]]:
        """Yields (id, description) for each build in the root, with the serving builds first."""
        serving = {build: name for name, build in self._in_root.serving.items()}
        for build in sorted(self._in_root.builds, key=lambda each: (each not in serving, each)):
            yield build, "build, serves" if build in serving else "build"

    def rollouts(self) -> Iterator[tuple[str, str]]:
        """Yields (number, description) for the newest rollouts, newest first."""
        for number, pipeline in self._in_root.rollouts[:_SHOWN]:
            yield str(number), f"rollout of {pipeline}"

    def generations(self) -> Iterator[tuple[str, str]]:
        """Yields (number, description) for the newest generations, newest first."""
        newest = self._in_root.generation
        for number in range(newest, max(0, newest - _SHOWN), -1):
            yield str(number), "generation"

    def alerts(self) -> Iterator[tuple[str, str]]:
        """Yields (name, description) for each alert of a serving build."""
        for name in sorted({*self._in_root.alerts()}):
            yield name, "alert"

    def processes(self) -> Iterator[tuple[str, str]]:
        """Yields (name, description) for each process of the platform that has written a log."""
        logs = [] if self.root is None else sorted((self.root / "logs").glob("*.log"))
        for path in logs:
            yield path.stem, "log"

    def templates(self) -> Iterator[tuple[str, str]]:
        """Yields (name, description) for each template of a new project."""
        from kappa.code.new_project import template_names

        for name in template_names():
            yield name, "template"

    def tokens(self) -> Iterator[tuple[str, str]]:
        """Yields (name, description) for each token of a network client in the root."""
        for name in () if self.root is None else read_token_names(self.root):
            yield name, "token"

    def _names(self, kind: str) -> set[str]:
        return {name for each, name in self._declared if each == kind}


def _root_in(file: Path) -> str:
    """Returns the root that a file kappa.toml names, or the default root."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("root")
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, str) else ".kappa"
