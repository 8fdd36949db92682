"""The app `kappa`: runs commands, shows errors, and arranges the commands in panels of the help."""

from __future__ import annotations

import io
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from kappa.base.errors import ExitCode, KappaError, did_you_mean, lacks_memory
from kappa.commands import (
    alerts,
    archive,
    attach,
    changes,
    completion,
    config,
    deploy,
    develop,
    doctor,
    export,
    graph,
    look,
    produce,
    promote,
    query,
    rejects,
    root,
    run,
    schemas,
    service,
    token,
    topics,
)
from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.output import say, set_quiet, show_failure
from kappa.replay.status.context import ProjectContext


def help_(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="such as topics create")
    ] = None,
) -> None:
    """Show the help of a command, or of all commands."""
    code = run_command([*(words or ()), "--help"])
    raise Exit(code)


# Each command stands in one panel of the help.
_PANELS = {
    "Develop": (
        develop.init,
        develop.dev,
        develop.test,
        deploy.validate,
        deploy.plan,
        produce.produce,
    ),
    "Roll out": (
        deploy.deploy,
        deploy.replay,
        deploy.branch,
        deploy.stage,
        promote.wait,
        promote.verify,
        promote.promote,
        promote.undo,
        promote.abandon,
        deploy.retry,
        look.diff,
        look.prove,
    ),
    "Query": (
        query.query,
        query.shell,
        query.tables,
        changes.changes,
        attach.attach,
        export.export,
        run.mcp,
    ),
    "Look": (look.status, look.history, look.show, graph.graph, look.logs, look.sinks),
    "Operate": (
        run.up,
        run.down,
        run.serve,
        run.collect,
        service.pause,
        service.resume,
        service.retire,
        run.gc,
        doctor.doctor,
        doctor.scrub,
    ),
    "Help": (help_, completion.completion),
}
_COMMANDS = {
    each.__name__.rstrip("_"): (each, panel)
    for panel, commands in _PANELS.items()
    for each in commands
}
_GROUPS = {
    "topics": (topics.app, "Develop"),
    "schemas": (schemas.app, "Develop"),
    "rejects": (rejects.app, "Operate"),
    "archive": (archive.app, "Operate"),
    "alerts": (alerts.app, "Look"),
    "config": (config.app, "Look"),
    "root": (root.app, "Operate"),
    "token": (token.app, "Operate"),
}


def app_of(typed: str | None = None) -> typer.Typer:
    """Returns the app with only the command `typed`, or with all commands if `typed` is None.

    If only one command is created, the app starts faster: creating all commands takes as long as a
    small query.
    """
    app = Commands(
        text="A replayable event platform: the log, the fold, the table, the query.", name="kappa"
    )
    for name, (command, panel) in _COMMANDS.items():
        if typed in {None, name}:
            app.command(name, rich_help_panel=panel)(command)
    for name, (group, panel) in _GROUPS.items():
        if typed in {None, name}:
            app.add_typer(group, name=name, rich_help_panel=panel)
    app.callback()(everywhere)
    return app


def _print_version(asked: bool) -> None:
    """Prints the version of the installed Kappa, and ends the command, if `asked` is True."""
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"kappa {version('kappa')}\n")
        raise Exit


def everywhere(
    context: typer.Context,
    project: Annotated[
        Path | None, typer.Option("--project", help="a folder in the project, instead of this one")
    ] = None,
    root: Annotated[
        str | None,
        typer.Option("--root", help="the folder of all data, instead of kappa.toml's root"),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="print Kappa's version", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Stores the values of the options that may precede every command."""
    context.obj = ProjectContext(project, root)
    # One process may run several commands.
    set_quiet(False)


def run_command(arguments: list[str]) -> int:
    """Runs a command, and returns the exit code.

    An error is printed to stderr, as a sentence and a hint.
    """
    if sys.stdout is None:
        # The parent has closed stdout: the command still runs, without an answer.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # to the end of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Data are UTF-8 in every locale of the machine.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        # Typer's own main has other exit codes for an interrupt and a broken pipe.
        with _command_line(_typed(arguments)).make_context("kappa", arguments) as context:
            context.command.invoke(context)
        sys.stdout.flush()
    except Exit as ended:
        return ended.exit_code
    except KappaError as error:
        return show_failure(error)
    except TyperException as error:
        return _misused(error)
    except (KeyboardInterrupt, Abort):
        say("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader has read enough (`kappa history | head`).
        _write_no_more()
        return ExitCode.OK
    except ImportError as error:
        # With too many open files, for example, a library in C cannot be loaded.
        return show_failure(
            KappaError(
                f"{error.name or 'a module'} cannot be loaded: {error}",
                hint="give the process more memory (ulimit -v, ulimit -d, the container's limit)"
                if lacks_memory(error)
                else "see whether files can be opened (ulimit -n), and make setup",
            )
        )
    except OSError as error:
        _write_no_more()
        return show_failure(
            KappaError(
                f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}",
                hint="see whether the disk is full or the folder may be written"
                if error.filename
                else "what there was to print may not all be written",
            )
        )
    return ExitCode.OK


def _typed(arguments: list[str]) -> str | None:
    """Returns the command that was typed, or None if the arguments do not begin with a command.

    The options `--project` and `--root` may precede the command.
    """
    match arguments:
        case ["--project" | "--root", _, *rest]:
            return _typed(rest)
        case [word, *_] if word in _COMMANDS or word in _GROUPS:
            return word
    return None


@cache
def _command_line(typed: str | None) -> TyperGroup:
    return typer.main.get_group(app_of(typed))


def _write_no_more() -> None:
    # Python would complain again at exit.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        # No file can be opened any more.
        sys.stdout = None


def _misused(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    near = getattr(error, "possibilities", None)
    say(f"error: {error.message if near else error.format_message()}")
    meant = f"did you mean {near[0]}?" if near else _near_choice(error)
    path = context.command_path if context is not None else "kappa"
    say(" ".join(filter(None, ("hint:", meant, path, "--help"))))
    return ExitCode.USAGE


def _near_choice(error: TyperException) -> str:
    """Returns a hint with the valid choice that is most similar to the word in an error.

    Returns "" if the error is not about a choice, or if no valid choice is similar.
    """
    of = getattr(getattr(error, "param", None), "type", None)
    given = re.match(r"'(.*)' is not one of ", error.message)
    return "" if given is None else did_you_mean(given[1], map(str, getattr(of, "choices", ())))
