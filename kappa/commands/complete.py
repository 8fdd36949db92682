"""The words that complete a command line: `kappa __complete WORDS...` prints one a line.

Shells ask at each TAB, so this module imports neither Typer nor the commands: words.json has the
commands, and `make docs` writes that file. The names of pipelines, tables, topics, builds, rollouts
and generations are read from the newest records of the root, and from the project's files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The last line of an answer: whether the shell completes names of files, too.
FILES, NO_FILES = ":files", ":words"
_WORDS = Path(__file__).with_name("words.json")
# Things that are files or folders.
_FILES = {"FILE", "TO", "PROJECT", "ROOT"}
# A word, and a few words about the word.
Candidate = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TypedLine:
    """A command line up to the word that is completed.

    `of` are the things that complete the word, as a metavar names the things; `choices` are the
    words of a list. `flags` has the project and the root that the line gives.
    """

    command: Mapping[str, Any]
    of: tuple[str, ...]
    choices: tuple[str, ...]
    flags: Mapping[str, str]


def complete(words: Sequence[str], commands: Mapping[str, Any]) -> list[str]:
    """Returns the lines that complete the last of the words typed after `kappa`."""
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
            from kappa.commands.live_names import LiveNames  # files are read then

            live = LiveNames.around(Path.cwd(), line.flags)
            found += [each for name in names for each in _SOURCES[name](live)]
    unique = dict(reversed([each for each in found if each[0].startswith(word)]))
    shown = [f"{each}\t{about}" if about else each for each, about in reversed(unique.items())]
    return [*shown, FILES if _FILES & {*line.of} else NO_FILES]


def _parse_line(before: Sequence[str], commands: Mapping[str, Any]) -> TypedLine:
    """Reads the words before the completed word."""
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
    """Returns what a parameter's value may be: things by the metavar, and choices."""
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
}


def print_completions(words: Sequence[str]) -> None:
    """Prints the completions of a line. A mistake in the project completes nothing."""
    try:
        lines = complete(words, json.loads(_WORDS.read_bytes()))
    except (OSError, ValueError):
        lines = [NO_FILES]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
