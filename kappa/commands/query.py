"""Queries, now or as of the past, and the tables that queries can name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import UsageError
from kappa.base.units import count_of
from kappa.commands.terminal.moving import moving
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
from kappa.commands.terminal.output import print_listing, say
from kappa.commands.terminal.written import ensure_shown
from kappa.serving.query.render import Form, Listing

if TYPE_CHECKING:
    from datetime import datetime

    from kappa.serving.query.pin.moments import Past
    from kappa.serving.query.pin.snapshot import Snapshot


def query(
    context: typer.Context,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="one query, in DuckDB's SQL", show_default=False)
    ],
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
            show_default=False,
            help="write the rows to a file that ends with .parquet, .csv or .jsonl",
        ),
    ] = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Answer a query from the tables that serve now, or served in the past.

    All tables of a build are read at one frontier. With --after, one that covers a write.
    """
    from kappa.serving.query.pin.moments import parse_offsets
    from kappa.serving.query.pin.snapshot import head_of
    from kappa.serving.query.query import answer_query, save_answer
    from kappa.serving.query.render import columns_of

    here = here_of(context)
    when = _moment(at_generation, at, at_offsets, at_event_time, after=after)
    if out is not None and output is not Form.TABLE:
        raise UsageError(
            f"a file's form is that of its name, and -o {output} is for stdout",
            hint=f"leave out -o {output}, or --out {out}",
        )
    if after is not None:
        ensure_shown(here, parse_offsets(after), timeout)
    elif timeout is not None:
        raise UsageError("--timeout is for --after", hint="leave it out, or give --after TOKEN")
    if out is not None:
        with moving("answering", on_terminal=True):
            saved = save_answer(here.store, sql, out, when=when, lease_seconds=here.lease_seconds)
        _say_moment(when, saved.snapshot)
        say(f"{count_of(saved.rows, 'row')} written to {out}")
        return
    with moving("answering", on_terminal=True):
        found = answer_query(here.store, sql, when=when, lease_seconds=here.lease_seconds)
    _say_moment(when, found.snapshot)
    listing = Listing(found.columns, found.rows)
    document = {
        **head_of(found.snapshot),
        "columns": columns_of(found.columns, found.types),
        "rows": listing.row_objects(),
    }
    print_listing(output, listing, document=document)


def _say_moment(when: Past | None, snapshot: Snapshot) -> None:
    """Prints the frontiers of an answer of the past to stderr."""
    if when is None:
        return
    from kappa.serving.query.pin.snapshot import head_of

    head = head_of(snapshot)
    shown = (
        f"{pipeline} as shown from {each['shown_at']} on (build {each['build']}, "
        f"{'nothing read' if each['log_time'] is None else 'log time ' + each['log_time']})"
        for pipeline, each in head["builds"].items()
    )
    say(f"generation {head['generation']}: {'; '.join(shown)}")


def tables(
    context: typer.Context,
    at_generation: PastGeneration = None,
    at: PastTime = None,
    at_offsets: PastOffsets = None,
    at_event_time: PastEventTime = None,
    output: As = Form.TABLE,
) -> None:
    """List the tables that are served, or were.

    With -o json also path and version, for Spark, Polars and others.
    """
    from kappa.serving.query.tables import served_tables, tables_listing

    here = here_of(context)
    found = served_tables(
        here.store,
        when=_moment(at_generation, at, at_offsets, at_event_time),
        lease_seconds=here.lease_seconds,
    )
    print_listing(output, tables_listing(found, columns_as_text=output is Form.TABLE))


def _moment(
    at_generation: int | None,
    at: str | None,
    at_offsets: str | None,
    at_event_time: str | None,
    *,
    after: str | None = None,
) -> Past | None:
    """Returns the moment of the past that the flags name, or None for the present.

    With `after`, the present is the moment after a write.
    """
    from kappa.serving.query.pin.moments import (
        AtEventTime,
        AtGeneration,
        AtOffsets,
        AtTime,
        parse_offsets,
    )

    asked = {
        "--at-generation": at_generation,
        "--at": at,
        "--at-offsets": at_offsets,
        "--at-event-time": at_event_time,
        "--after": after,
    }
    flags = [flag for flag, given in asked.items() if given is not None]
    if len(flags) > 1:
        raise UsageError(
            f"{' and '.join(flags)} were asked for, and an answer is of one moment",
            hint=f"leave {flags[-1]} out, or {flags[0]}",
        )
    if at_generation is not None:
        return AtGeneration(at_generation)
    if at_offsets is not None:
        return AtOffsets(parse_offsets(at_offsets))
    if at_event_time is not None:
        return AtEventTime(_parse_time(at_event_time))
    return None if at is None else AtTime(_parse_time(at))


def _parse_time(text: str) -> datetime:
    """Parses a time, and prints a note to stderr if the time has no zone."""
    from kappa.serving.query.pin.moments import parse_time

    time, with_zone = parse_time(text)
    if not with_zone:
        say(f"{text} is taken as UTC")
    return time
