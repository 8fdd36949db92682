"""Commands for the development of a project: init, dev, test."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import Unreachable, UsageError
from kappa.commands.terminal.options import here_of
from kappa.commands.terminal.output import console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kappa.develop.run_text import Line
    from kappa.kafka.client import Log
    from kappa.replay.status.context import ProjectContext


def init(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="the folder to make; . is this folder")],
    template: Annotated[
        str,
        typer.Option(
            "--template",
            "-t",
            help="the template: ab-test, ads, cdc, connect, empty, facts, fraud, iot, learner, "
            "operations, page-hits, recommend, searches, sessions, shop or trending",
        ),
    ] = "page-hits",
) -> None:
    """Make a project: a pipeline, sample events, tests, a board, and notes for CI and assistants.

    Existing files are never changed: if one of the files exists, nothing is written.
    """
    from kappa.code.new_project import create_project, next_commands

    here = here_of(context)
    if here.root_flag is not None:
        raise UsageError(
            "a new project has no root yet, so --root names none",
            hint="make the project first, then set root in its kappa.toml",
        )
    written = create_project(name, template, beside=here.start)
    folder = here.start / name
    goes = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    lines = [
        f"made from template {template}:",
        *(f"  {path}" for path in written),
        "",
        "next:",
        *(f"  {command}" for command in (*goes, *next_commands(template))),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def dev(context: typer.Context) -> None:
    """Watch the project's files: at each save, show the plan, the errors and the rows that change.

    The pipelines run on a sample of the topics, or on the events in events/ if there is no broker
    or no topic. Nothing is deployed. Keys: r runs the pipelines again, d shows the diff in full, q
    quits.
    """
    from kappa.commands.terminal.progress import moving
    from kappa.develop.child import scratch_child

    here = here_of(context)
    with scratch_child(here.settings) as scratch:
        # The child boots meanwhile.
        from kappa.develop.loop import run_loop

        run_loop(here.settings, scratch, lambda: _open_log(here), _show, moving)


def test(
    context: typer.Context,
    update: Annotated[
        bool, typer.Option("--update", help="write the files of rows that differ")
    ] = False,  # noqa: PT028  # a command, and no test of pytest
) -> None:
    """Run the project's tests: compare rows, check the law of slices, and run pytest.

    The events in events/ must give the rows in tests/rows/, and the events in tests/NAME/events/
    must give the rows in tests/NAME/rows/. Then pytest runs tests/. All tests use one Spark.
    """
    from kappa.commands.terminal.progress import moving
    from kappa.engine.spark.session import booting_session

    settings = here_of(context).settings
    with booting_session(settings.jars) as session:
        # The JVM boots meanwhile.
        from kappa.develop.suite import run_tests

        run_tests(settings, session, update=update, show=_show, step=moving)


def _open_log(here: ProjectContext) -> Log | None:
    from kappa.develop.child import has_root

    # Without a root and a cluster nothing is up, and none is made.
    if here.settings.kafka.bootstrap_servers is None and not has_root(here.settings):
        return None
    try:
        return here.log(looks=True)
    except Unreachable:
        return None


def _show(lines: Iterable[Line]) -> None:
    from rich.text import Text

    out = console(stderr=False)
    for style, line in lines:
        out.print(Text(line, style), soft_wrap=True)
