"""The commands `kappa query`, `shell` and `tables`, which read tables of now or of the past."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import UsageError
from kappa.base.units import count_of
from kappa.commands.terminal.moment import ensure_shown, moment_text, read_time
from kappa.commands.terminal.options import (
    After,
    As,
    PastEventTime,
    PastGeneration,
    PastOffsets,
    PastTime,
    Quiet,
    WaitSeconds,
    here_of,
)
from kappa.commands.terminal.output import print_listing, print_report, say
from kappa.commands.terminal.progress import moving
from kappa.serving.query.render import Form

if TYPE_CHECKING:
    from kappa.project.answers import QueryResult
    from kappa.serving.query.pin.moments import Past
    from kappa.serving.query.pin.snapshot import Snapshot
    from kappa.serving.query.statements import SqlStatement


def query(
    context: typer.Context,
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="[SQL]",
            help="one query, in DuckDB's SQL; - reads stdin. Without it: stdin, or on a terminal "
            "kappa shell",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="read the SQL from a file")
    ] = None,
    at_generation: PastGeneration = None,
    at: PastTime = None,
    at_offsets: PastOffsets = None,
    at_event_time: PastEventTime = None,
    after: After = None,
    timeout: WaitSeconds = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="write the rows to a file that ends with .parquet, .csv or .jsonl",
        ),
    ] = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Answer a query from the tables that are served now, or were served in the past.

    All tables of a build are read at one frontier. With --after, this frontier includes the records
    of a write token. Several statements in a file or on stdin are answered in order, from one
    snapshot.
    """
    from kappa.project.project import Project
    from kappa.serving.query.pin.moments import parse_offsets
    from kappa.serving.query.query import save_answer

    here = here_of(context)
    when = _moment(at_generation, at, at_offsets, at_event_time, after=after)
    if out is not None and output is not Form.TABLE:
        raise UsageError(
            f"a file's form is that of its name, and -o {output} is for stdout",
            hint=f"leave out -o {output}, or --out {out}",
        )
    if timeout is not None and after is None:
        raise UsageError("--timeout is for --after", hint="leave it out, or give --after TOKEN")
    if sql is None and file is None and sys.stdin is not None and sys.stdin.isatty():
        if out is not None or after is not None or output is not Form.TABLE:
            raise UsageError("no SQL was given", hint='kappa query "select ...", or -f FILE')
        _open_shell(context, when)
        return
    statements = _read_statements(sql, file)
    if after is not None:
        ensure_shown(here, parse_offsets(after), timeout)
    if out is not None:
        if len(statements) > 1:
            raise UsageError(
                f"a file has one answer, and these are {len(statements)} statements",
                hint=f"leave out --out {out}, or give one statement",
            )
        with moving("answering", on_terminal=True):
            saved = save_answer(
                here.store, statements[0].text, out, when=when, lease_seconds=here.lease_seconds
            )
        _say_moment(when, saved.snapshot)
        say(f"{count_of(saved.rows, 'row')} written to {out}")
        return
    with moving("answering", on_terminal=True):
        found = Project(here).query_each(statements, when=when)
    _say_moment(when, found[0].snapshot)
    for number, answer in enumerate(found):
        if number and output is Form.TABLE:
            sys.stdout.write("\n")
        _print_answer(output, answer)


def shell(context: typer.Context) -> None:
    r"""Open an SQL prompt on a snapshot of the served tables.

    All answers come from this snapshot until `\pin` pins a new snapshot. `\?` lists the commands.
    """
    _open_shell(context, None)


def _open_shell(context: typer.Context, when: Past | None) -> None:
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the shell needs a terminal",
            hint="kappa query -f FILE, or kappa query - for stdin, answers SQL without one",
        )
    from kappa.commands.prompt.shell import open_shell

    open_shell(here_of(context), when)


def _read_statements(sql: str | None, file: Path | None) -> tuple[SqlStatement, ...]:
    """Returns the SQL statements in the argument, in a file, or on stdin.

    Raises UsageError if there are no statements, or if both an argument and a file are given.
    """
    from kappa.serving.query.statements import SqlStatement, split_statements

    if sql is not None and file is not None:
        raise UsageError(
            f"SQL was given twice: as an argument, and by -f {file}", hint="leave one of them out"
        )
    if sql is not None and sql != "-":
        # DuckDB says what is wrong with an argument that is no single query.
        return (SqlStatement(sql, 1),)
    text = _read_text(None if sql is not None or str(file) == "-" else file)
    statements = split_statements(text).whole
    if not statements:
        raise UsageError(
            f"there is no SQL in {file or 'stdin'}",
            hint='kappa query "select ..." takes a query; kappa shell opens a prompt on a terminal',
        )
    return statements


def _read_text(file: Path | None) -> str:
    try:
        if file is not None:
            return file.read_bytes().decode()
        return "" if sys.stdin is None else sys.stdin.buffer.read().decode()
    except OSError as error:
        raise UsageError(
            f"{file or 'stdin'} cannot be read: {error.strerror}", hint="name a file of SQL"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file or 'stdin'} is not text in UTF-8: byte {error.start}", hint="write it as UTF-8"
        ) from error


def _print_answer(output: Form, answer: QueryResult) -> None:
    document = answer.document if output is Form.JSON else None
    print_listing(output, answer.listing, document=document)


def _say_moment(when: Past | None, snapshot: Snapshot) -> None:
    """Prints the generation and the frontiers of a snapshot to stderr, if `when` is not None."""
    if when is not None:
        say(moment_text(snapshot))


def tables(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]",
            help="describe this table or view, or PIPELINE.TABLE, instead of listing all",
        ),
    ] = None,
    at_generation: PastGeneration = None,
    at: PastTime = None,
    at_offsets: PastOffsets = None,
    at_event_time: PastEventTime = None,
    output: As = Form.TABLE,
) -> None:
    """List the served tables, now or in the past, or describe one table.

    With -o json, the list contains paths and versions, for Spark, Polars and others. The
    description of a table contains its columns with types and folds, its rows and files, its writer
    and its readers.
    """
    from kappa.project.project import Project

    project = Project(here_of(context))
    when = _moment(at_generation, at, at_offsets, at_event_time)
    if table is not None:
        print_report(output, project.table(table, when=when))
        return
    found = project.tables(when=when)
    print_listing(output, found.listing if output is Form.TABLE else found.whole_listing)


def _moment(
    at_generation: int | None,
    at: str | None,
    at_offsets: str | None,
    at_event_time: str | None,
    *,
    after: str | None = None,
) -> Past | None:
    """Returns the moment of the past that the options of a command specify.

    Returns None if the options specify no moment, so that the present is read. Raises UsageError if
    more than one option is given. The write token `after` counts as an option, because it asks for
    a moment after a write.
    """
    from kappa.serving.query.pin.moments import ensure_one_moment, past_moment

    asked = {
        "--at-generation": at_generation,
        "--at": at,
        "--at-offsets": at_offsets,
        "--at-event-time": at_event_time,
        "--after": after,
    }
    ensure_one_moment(asked)
    return past_moment(
        at_generation,
        None if at is None else read_time(at),
        at_offsets,
        None if at_event_time is None else read_time(at_event_time),
    )
