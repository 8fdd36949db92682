"""The command `kappa produce`: sends the events in a file, or from stdin, to a topic."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import UsageError
from kappa.commands.terminal.lines import open_lines
from kappa.commands.terminal.moment import ensure_some_reads, ensure_written_shown
from kappa.commands.terminal.options import As, Quiet, WaitSeconds, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.commands.terminal.progress import bar
from kappa.records.lines.form import Given
from kappa.serving.query.render import Form, Listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kappa.declare.topic import Topic
    from kappa.records.lines.input_events import Placed


def produce(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="the topic")],
    file: Annotated[str, typer.Argument(help="a file of events, or - for stdin")],
    given: Annotated[
        Given | None,
        typer.Option(
            "--from",
            help="the form of the file: lines, each of them a record as it is; or events as jsonl, "
            "csv with a header, or parquet; default: by the file's name and the topic",
        ),
    ] = None,
    envelope: Annotated[
        bool,
        typer.Option(
            "--envelope",
            help='a line is {"key", "value", "timestamp", "headers", "partition"}; "value": '
            "null is a tombstone",
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="wait also until all live builds that read the topic show the events"
        ),
    ] = False,
    timeout: WaitSeconds = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Send the events of a file to a topic, and wait until all are acknowledged.

    Prints a write token. A query with the token waits until readers see the events: kappa
    query
    --after TOKEN.
    """
    from kappa.project.project import Project

    here = here_of(context)
    if timeout is not None and not wait:
        raise UsageError("--timeout is for --wait", hint="leave it out, or give --wait")
    if envelope and given is not None:
        raise UsageError(
            f"--envelope and --from {given} were asked for",
            hint="an envelope is a line of JSON of its own: leave --from out",
        )
    here.log()
    if wait:
        ensure_some_reads(here, topic)
    declared = here.declared_topic(topic)
    opened = _envelopes(file) if envelope else _events(file, topic, declared, given)
    with opened as events, bar("producing", events.total) as show:
        acknowledged = Project(here).produce_placed(
            topic, events.placed, on_progress=lambda count: show(count, events.taken)
        )
    token = acknowledged.token
    say(f"{acknowledged.count} record{'' if acknowledged.count == 1 else 's'} acknowledged")
    if token is not None:
        say(f"token {token}: kappa query --after {token} waits for them")
    print_listing(
        output,
        Listing(("topic", "partition", "next_offset"), tuple(acknowledged.offsets.items())),
        document={
            "acknowledged": acknowledged.count,
            "offsets": acknowledged.offsets.plain(),
            "token": token,
        },
    )
    if wait and token is not None:
        ensure_written_shown(here, acknowledged, timeout)


@dataclass(slots=True)
class _Events:
    """The records of a file, with the size of the file and the size of the part read so far.

    `placed` yields the records. `total` is the size of the file, and `taken` is the size of the
    part that has been read. Both are in bytes, or in rows for a Parquet file. `total` is None for
    stdin, whose size is not known.
    """

    placed: Iterable[Placed] = ()
    total: int | None = None
    taken: int = 0

    def counted(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yields the given lines, and adds the size of each line in bytes to `taken`."""
        for line in lines:
            self.taken += len(line)
            yield line

    def each(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        """Yields the given records, and adds 1 to `taken` for each record."""
        for each in placed:
            self.taken += 1
            yield each


@contextlib.contextmanager
def _lines(file: str) -> Iterator[tuple[_Events, Iterable[bytes]]]:
    with open_lines(file) as lines:
        events = _Events(total=None if file == "-" else Path(file).stat().st_size)
        yield events, events.counted(lines)


@contextlib.contextmanager
def _envelopes(file: str) -> Iterator[_Events]:
    from kappa.records.lines.envelope import envelope_record
    from kappa.records.lines.input_events import placed_lines

    with _lines(file) as (events, lines):
        events.placed = placed_lines(lines, envelope_record, _named(file))
        yield events


@contextlib.contextmanager
def _events(
    file: str, topic: str, declared: Topic | None, given: Given | None
) -> Iterator[_Events]:
    from kappa.records.lines import input_events as made
    from kappa.records.lines.produce import line_records, placed_events

    form = made.given_as(file, declared) if given is None else given
    if form is Given.LINES:
        with _lines(file) as (events, lines):
            events.placed = made.placed_lines(lines, line_records(declared), _named(file))
            yield events
        return
    if declared is None:
        raise UsageError(
            f"the project declares no topic {topic} that a pipeline reads, so no event can be made",
            hint="declare it; or send lines that are records: --from lines",
        )
    if form is Given.PARQUET:
        from kappa.records.lines.parquet import row_count

        if file == "-":
            raise UsageError(
                "Parquet cannot be read from stdin: its end is read first", hint="give a file"
            )
        events = _Events(total=row_count(Path(file)))
        events.placed = events.each(made.parquet_events(declared, Path(file)))
        yield events
        return
    with _lines(file) as (events, lines):
        events.placed = placed_events(form, declared, lines, _named(file))
        yield events


def _named(file: str) -> str:
    return "" if file == "-" else file
