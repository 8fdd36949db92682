"""Laws of the terminal: tables fit, states have colours, and pipes get plain text."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
import typer
from rich.cells import cell_len

from kappa.base.errors import KappaError
from kappa.commands.app import app_of
from kappa.commands.terminal import output
from kappa.commands.terminal.colour import has_colour, paint_plan, paint_rows, paint_state
from kappa.serving.query.render import Form, Listing, render_listing

WIDE = "function web in pipelines/web.py changed, and so did the table page_hits"
HISTORY = Listing(
    ("rollout", "at", "by", "pipeline", "state", "why", "proof"),
    (
        (1, "2026-11-30T05:00:11.123+00:00", "ada@home.example", "web", "served", WIDE, {"a": 1}),
        (2, "2026-11-30T05:01:11.123+00:00", "ada@home.example", "web", "failed", None, None),
    ),
    wide=frozenset({"proof"}),
    is_report=True,
    least=("by",),
    times=frozenset({"at"}),
    empty="nothing was deployed yet",
)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def table(listing: Listing, width: int | None = None) -> list[str]:
    return render_listing(Form.TABLE, listing, width=width).splitlines()


def commands(app: typer.Typer) -> Iterator[Callable[..., object]]:
    yield from (each.callback for each in app.registered_commands if each.callback is not None)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance)


# A command that calls one of these waits.
WAITS = (
    *("moving(", "bar(", "roll_out(", "follow_rollout(", "plan_and_begin(", "approve("),
    *("ensure_shown(", "showing=moving", "_validate_files("),
)


def test_a_command_that_waits_can_be_quiet() -> None:
    found = {
        each.__name__: (
            any(call in inspect.getsource(each) for call in WAITS),
            "_quiet" in inspect.signature(each).parameters,
        )
        for each in commands(app_of())
    }

    assert [name for name, (waits, quiet) in found.items() if waits != quiet] == []
    assert len([name for name, (waits, _) in found.items() if waits]) > 20


def test_a_pipe_has_the_whole_table() -> None:
    assert table(HISTORY) == [
        "rollout  at                    by                pipeline  state   why",
        "───────  ────────────────────  ────────────────  ────────  ──────  " + "─" * len(WIDE),
        f"      1  2026-11-30T05:00:11Z  ada@home.example  web       served  {WIDE}",
        "      2  2026-11-30T05:01:11Z  ada@home.example  web       failed",
    ]


def test_texts_are_cut_before_columns_go() -> None:
    assert table(HISTORY, 90)[2:] == [
        (
            "      1  2026-11-30T05:00:11Z  ada@home.example  web       served  "
            "function web in pipeli…"
        ),
        "      2  2026-11-30T05:01:11Z  ada@home.example  web       failed",
    ]


def test_the_least_columns_go_before_all_is_cut() -> None:
    assert table(HISTORY, 72) == [
        "rollout  at                    pipeline  state   why",
        "───────  ────────────────────  ────────  ──────  ───────────────────────",
        "      1  2026-11-30T05:00:11Z  web       served  function web in pipeli…",
        "      2  2026-11-30T05:01:11Z  web       failed",
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = Listing(("a", "b"), (("日本語" * 30, "x" * 300), ("y", 123)), is_report=True)

    for listing in (HISTORY, wide):
        assert max(map(cell_len, table(listing, width))) <= width


def test_notes_stand_below_a_table_that_is_too_wide() -> None:
    listing = Listing(
        ("build", "state", "note"),
        (("web-1", "serving", "its job died twice, " * 5), ("web-2", "kept", "")),
        is_report=True,
        below="note",
        labels="build",
    )

    assert table(listing, 40) == [
        "build  state",
        "─────  ───────",
        "web-1  serving",
        "web-2  kept",
        f"web-1: {'its job died twice, ' * 5}",
    ]
    assert "note" in table(listing, 200)[0]


def test_rows_of_a_user_are_never_cut() -> None:
    rows = Listing(("page", "hits"), (("/" * 100, None),))

    assert table(rows, 20) == table(rows)
    assert table(rows)[-1].endswith("  null")


def test_an_empty_report_says_so() -> None:
    empty = Listing(("a",), (), empty="no rejects")

    assert table(empty) == ["no rejects"]
    assert render_listing(Form.JSON, empty) == "[]\n"
    assert render_listing(Form.CSV, empty) == "a\n"


def test_machines_get_times_and_nulls_unchanged() -> None:
    line = render_listing(Form.JSONL, HISTORY).splitlines()[1]

    assert '"at": "2026-11-30T05:01:11.123+00:00"' in line
    assert '"why": null' in line
    assert datetime.fromisoformat("2026-11-30T05:01:11.123+00:00").year == 2026


@pytest.mark.parametrize(
    ("text", "colour"),
    [
        ("serving", "32"),
        ("serving, paused", "33"),
        ("replaying, 40 % read", "33"),
        ("stopped", "31"),
        ("not equal", "31"),
        ("kept", "2"),
    ],
)
def test_a_state_has_its_colour(text: str, colour: str) -> None:
    assert paint_state("state", text) == f"\x1b[{colour}m{text}\x1b[0m"
    assert paint_state("pipeline", text) == text


def test_colours_change_no_width() -> None:
    plain = table(HISTORY, 100)
    painted = render_listing(Form.TABLE, HISTORY, width=100, paint=paint_state).splitlines()

    assert painted[2].replace("\x1b[32mserved\x1b[0m", "served") == plain[2]
    assert painted[:2] == plain[:2]


def test_a_plan_shows_what_comes_and_what_goes() -> None:
    text = (
        "web: changed\n  function web:\n    +new\n    -old\n     same\n  refused: no\n  cost: 1\n"
    )

    assert paint_plan(text).splitlines() == [
        "web: changed",
        "  function web:",
        "\x1b[32m    +new\x1b[0m",
        "\x1b[31m    -old\x1b[0m",
        "     same",
        "\x1b[31m  refused: no\x1b[0m",
        "  cost: 1",
    ]


def test_rows_of_a_comparison_have_the_colour_of_their_kind() -> None:
    text = (
        "hits: 2 rows\n  added:\n    page\n    ────\n    /a\n  removed, 1 of them:\n    /b\nend\n"
    )
    lines = paint_rows(text).splitlines()

    assert lines[1:5] == [f"\x1b[32m{line}\x1b[0m" for line in text.splitlines()[1:5]]
    assert lines[5:7] == [f"\x1b[31m{line}\x1b[0m" for line in text.splitlines()[5:7]]
    assert (lines[0], lines[7]) == ("hits: 2 rows", "end")


def test_pipes_and_no_color_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert has_colour(Terminal())
    assert not has_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())


def test_an_error_is_red_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    said = {}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        output.show_failure(KappaError("it failed", hint="try again"))
        said[type(stream)] = stream.getvalue()

    assert said[Terminal] == "\x1b[31merror:\x1b[0m it failed\n\x1b[36mhint:\x1b[0m try again\n"
    assert said[io.StringIO] == "error: it failed\nhint: try again\n"


def test_a_report_on_a_terminal_fits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_listing(Form.TABLE, HISTORY)
    output.print_listing(Form.JSON, HISTORY)

    lines = stream.getvalue().splitlines()
    assert max(map(len, lines[:4])) <= 60
    assert any(WIDE in line for line in lines[4:])
