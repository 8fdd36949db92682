"""Queries, now or as of the past, and the tables that they can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from commands.options import As, PastEventTime, PastGeneration, PastOffsets, PastTime, here_of
from commands.terminal import print_listing, say
from kappa.base.errors import UsageError
from serving.query.render import Form, Listing

if TYPE_CHECKING:
    from datetime import datetime

    from serving.pin.at_log import Past


def query(
    context: typer.Context,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="one query, in DuckDB's SQL", show_default=False)
    ],
    at_generation: PastGeneration = None,
    at: PastTime = None,
    at_offsets: PastOffsets = None,
    at_event_time: PastEventTime = None,
    output: As = Form.TABLE,
) -> None:
    """Answer a query from the tables that serve now, or served in the past, all of a build at one frontier."""
    from serving.pin.past import told
    from serving.query.query import answer

    here = here_of(context)
    when = _moment(at_generation, at, at_offsets, at_event_time)
    found = answer(here.store, sql, when=when, lease_seconds=here.lease_seconds)
    if when is not None:
        read = {
            build: "nothing read" if at is None else f"log time {told(at)}"
            for build, at in found.log_time.items()
        }
        shown = (
            f"{pipeline} as shown from {found.shown_at[build]} on (build {build}, {read[build]})"
            for pipeline, build in found.serving.items()
        )
        say(f"generation {found.generation}: {'; '.join(shown)}")
    listing = Listing(found.columns, found.rows)
    document = {
        "generation": found.generation,
        "builds": {
            pipeline: {
                "build": build,
                "shown_at": found.shown_at[build],
                "log_time": None if (log_time := found.log_time[build]) is None else told(log_time),
                "offsets": found.offsets[build].plain(),
                "versions": found.versions[build],
            }
            for pipeline, build in found.serving.items()
        },
        "columns": [
            {"name": name, "type": kind}
            for name, kind in zip(found.columns, found.types, strict=True)
        ],
        "rows": listing.objects(),
    }
    print_listing(output, listing, document=document)


def tables(
    context: typer.Context,
    at_generation: PastGeneration = None,
    at: PastTime = None,
    at_offsets: PastOffsets = None,
    at_event_time: PastEventTime = None,
    output: As = Form.TABLE,
) -> None:
    """List what is served, or was; with -o json also path and version, for Spark, Polars and others."""
    from serving.query.tables import served_tables, tables_listing

    here = here_of(context)
    found = served_tables(
        here.store,
        when=_moment(at_generation, at, at_offsets, at_event_time),
        lease_seconds=here.lease_seconds,
    )
    print_listing(output, tables_listing(found, columns_as_text=output is Form.TABLE))


def _moment(
    at_generation: int | None, at: str | None, at_offsets: str | None, at_event_time: str | None
) -> Past | None:
    """Returns the moment of the past that the flags name, or None for now."""
    from serving.pin.at_log import AtEventTime, AtOffsets, parse_offsets
    from serving.pin.past import AtGeneration, AtTime

    asked = {
        "--at-generation": at_generation,
        "--at": at,
        "--at-offsets": at_offsets,
        "--at-event-time": at_event_time,
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
    """Parses a time, and notes on stderr if it has no zone."""
    from serving.pin.past import parse_time

    time, with_zone = parse_time(text)
    if not with_zone:
        say(f"{text} is taken as UTC")
    return time
