"""The commands `kappa topics tail`, `export` and `import`, for the records of a topic."""

from __future__ import annotations

import heapq
import itertools
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.units import count_of
from kappa.commands.terminal.lines import open_lines, open_new_file
from kappa.commands.terminal.options import As, Quiet, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.commands.terminal.progress import moving
from kappa.serving.query.render import Form, Listing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kappa.replay.status.topics.records import SeenRecord
    from kappa.state.offsets import Offsets

_NEWEST = 10


class SeenAs(StrEnum):
    """The format in which records are printed."""

    TEXT = "text"
    JSONL = "jsonl"


OneTopic = Annotated[str, typer.Argument(metavar="TOPIC")]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="beginning, end, an offset, TOPIC:PARTITION=OFFSET,..., or a time",
    ),
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="this partition; repeat for more")
]


def tail(
    context: typer.Context,
    topic: OneTopic,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="keep printing new records")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "-n", "--num", min=0, help="at most so many records; without --from: the newest 10"
        ),
    ] = None,
    start: Start = None,
    partitions: Partitions = None,
    key: Annotated[str | None, typer.Option("--key", help="only records of this key")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FIELD=VALUE",
            help="only records whose event has this value; repeat for more",
        ),
    ] = None,
    output: Annotated[SeenAs, typer.Option("-o", "--output", help="what is printed")] = SeenAs.TEXT,
) -> None:
    """Show records of a topic, decoded as declared; invalid records with the reason.

    Without --from, the newest records are shown. With -o jsonl, each line is an envelope that kappa
    produce reads.
    """
    from kappa.replay.status.topics.records import (
        begin_of,
        decoder_of,
        ends_of_partitions,
        filter_of,
        following,
        newest_offsets,
        seen_line,
        seen_text,
    )

    here = here_of(context)
    log, declared = here.log(), here.declared_topic(topic)
    decode, is_wanted = decoder_of(declared), filter_of(key, where or (), declared)
    shown = seen_line if output is SeenAs.JSONL else seen_text

    def end_now() -> Offsets:
        return ends_of_partitions(topic, log.end([topic]), partitions or ())

    begin, end = begin_of(log, topic, start), end_now()
    most = _NEWEST if count is None and start is None else count
    if start is None and most is not None and key is None and not where:
        begin = newest_offsets(topic, begin, end, most)
    seen: Iterable[SeenRecord] = filter(is_wanted, map(decode, log.records([topic], begin, end)))
    if start is None and most is not None:
        # These are the newest records of all partitions, in the order of time.
        seen = heapq.nlargest(most, seen, key=lambda each: each.order_key)[::-1]
    elif most is not None:
        seen = itertools.islice(seen, most)
    for each in seen:
        sys.stdout.write(shown(each))
    if not follow:
        return
    sys.stdout.flush()
    for record in following(log, topic, end.highest_with(begin), end_now):
        if is_wanted(found := decode(record)):
            sys.stdout.write(shown(found))
            sys.stdout.flush()


def export(
    context: typer.Context,
    topic: OneTopic,
    file: Annotated[
        str, typer.Argument(help="a new file: NAME.parquet, or lines of JSON; - is stdout")
    ],
    start: Start = None,
    partitions: Partitions = None,
    decoded: Annotated[
        bool, typer.Option("--decoded", help="add each decoded event, or why the record is invalid")
    ] = False,
    _quiet: Quiet = False,
) -> None:
    """Export a topic's records to a file: offsets, timestamps, keys, values and headers.

    The command exports the committed records up to the current end of the log, byte for byte.
    """
    from kappa.replay.status.topics.records import (
        PARQUET,
        begin_of,
        count_records,
        decoder_of,
        ends_of_partitions,
        export_lines,
        export_parquet,
    )

    here = here_of(context)
    log = here.log()
    begin = begin_of(log, topic, start)
    end = ends_of_partitions(topic, log.end([topic]), partitions or ())
    total = sum(max(0, last - begin.at(topic, part)) for _, part, last in end.items())
    decode = decoder_of(here.declared_topic(topic) if decoded else None)
    with moving("exporting") as show, open_new_file(file) as made:
        records = count_records(
            log.records([topic], begin, end),
            lambda number: show(f"exporting: {number:,} of {total:,}"),
        )
        try:
            if file.endswith(PARQUET):
                count = export_parquet(records, decode, made, decoded=decoded)
            else:
                count = export_lines(records, decode, made)
        except BaseException:
            # A partial file would look complete.
            if file != "-":
                Path(file).unlink()
            raise
    say(f"written to {'stdout' if file == '-' else file}: {count_of(count, 'record')} of {topic}")


def import_(
    context: typer.Context,
    topic: OneTopic,
    file: Annotated[str, typer.Argument(help="an exported file, or - for lines on stdin")],
    partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="produce each record to its original partition"),
    ] = False,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Send exported records to a topic again, in order, and wait until all are acknowledged.

    Keys, values, headers and timestamps are kept; offsets are new.
    """
    from kappa.replay.status.topics.records import PARQUET, import_lines, import_parquet

    log = here_of(context).log()
    with moving("importing") as show:

        def acknowledged(count: int) -> None:
            show(f"importing: {count:,} acknowledged")

        if file.endswith(PARQUET):
            found = import_parquet(log, topic, Path(file), partitions=partitions, show=acknowledged)
        else:
            with open_lines(file) as lines:
                found = import_lines(log, topic, lines, partitions=partitions, show=acknowledged)
    say(f"{count_of(found.count, 'record')} acknowledged")
    print_listing(
        output,
        Listing(("topic", "partition", "next_offset"), tuple(found.offsets.items())),
        document={"acknowledged": found.count, "offsets": found.offsets.plain()},
    )
