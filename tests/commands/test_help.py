"""Laws of the help: each command has an example that parses, and prose breaks only at the width."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import typer

from kappa.commands.app import app_of, run_command
from kappa.commands.examples import EXAMPLES, OF_PANEL

Shown = Callable[..., str]
ROOT = typer.main.get_group(app_of())


def commands_below(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields each command and each group, with the words after `kappa`."""
    for name, command in group.commands.items():
        yield " ".join((*path, name)), command
        yield from commands_below(command, (*path, name)) if hasattr(command, "commands") else ()


COMMANDS = dict(commands_below(ROOT))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Returns a function that runs a command on a terminal of 80 columns; it returns the output."""
    monkeypatch.setenv("COLUMNS", "80")

    def show(*words: str, code: int = 0) -> str:
        assert run_command([*words]) == code
        said = capsys.readouterr()
        return said.out or said.err

    return show


def test_every_command_has_an_example() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", EXAMPLES)
def test_an_example_is_a_command_line(command: str) -> None:
    """The real parser parses it up to the command itself, without running it."""
    # `eval "$(kappa ...)"` runs what the quotes hold.
    kappa, *words = shlex.split(re.sub(r'^eval "\$\((.*)\)"$', r"\1", EXAMPLES[command]))
    context = ROOT.make_context("kappa", words)
    while hasattr(context.command, "commands"):
        name, found, rest = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = found.make_context(name, rest, parent=context)

    assert kappa == "kappa"
    assert context.command_path.removeprefix("kappa ").startswith(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_the_example(shown: Shown, command: str) -> None:
    text = shown(*command.split(), "--help")

    assert text.startswith(f"Example: {EXAMPLES[command]}\n\nUsage: kappa {command} ")
    assert shown(*command.split(), "-h") == text
    assert shown("help", *command.split()) == text


def test_each_panel_has_an_example(shown: Shown) -> None:
    text = shown("--help")
    panels = dict(re.findall(r"^(\w[\w ]+):\n(.*?)(?=^\w|\Z)", text, re.MULTILINE | re.DOTALL))

    assert {name: EXAMPLES[command] for name, command in OF_PANEL.items()} == {
        name: match[1]
        for name, body in panels.items()
        if (match := re.search(r"^  Example: (.*)$", body, re.MULTILINE))
    }
    assert {*OF_PANEL, "Options"} == panels.keys()


def test_a_bare_name_prints_the_help(shown: Shown) -> None:
    assert shown() == shown("--help") == shown("help")
    assert shown("topics") == shown("topics", "--help")


def test_brackets_stay_in_the_prose(shown: Shown) -> None:
    assert "if kappa.toml names topics in [collect]." in shown("collect", "--help")
    assert "[TABLE]" in shown("tables", "--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_prose_breaks_only_at_the_width(shown: Shown, command: str) -> None:
    """A line of a paragraph ends where the next word would not fit."""
    text = shown(*command.split(), "--help").partition("\n\n")[2].partition("\n\n")[2]
    prose = re.split(r"^\w+:$", text, maxsplit=1, flags=re.MULTILINE)[0]
    for paragraph in prose.strip("\n").split("\n\n"):
        lines = paragraph.splitlines()
        for line, following in pairwise(lines):
            assert len(f"{line} {following.split()[0]}") > 78, paragraph


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["stauts"], "No such command 'stauts' of kappa", "did you mean status? kappa --help"),
        (
            ["topics", "lst"],
            "No such command 'lst' of kappa topics",
            "did you mean list? kappa topics --help",
        ),
        (["help", "topic"], "No such command 'topic'", "did you mean topics? kappa --help"),
        (["query", "--ot", "x"], "No such option: --ot", "did you mean --out? kappa query --help"),
        (["zzzz"], "No such command 'zzzz' of kappa", "hint: kappa --help"),
        (["attach", "polar"], "Invalid value", "did you mean polars? kappa attach --help"),
        (["logs", "--level", "warn"], "Invalid value", "did you mean warning? kappa logs --help"),
        (["attach", "excel"], "Invalid value", "hint: kappa attach --help"),
    ],
)
def test_a_wrong_word_gets_the_nearest(
    shown: Shown, words: list[str], error: str, hint: str
) -> None:
    text = shown(*words, code=2)

    assert text.startswith(f"error: {error}")
    assert text.endswith(f"{hint}\n")
