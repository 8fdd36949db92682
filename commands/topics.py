"""Topics: create and list them, and produce records to them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from commands.terminal.lines import open_lines
from commands.terminal.moving import moving
from commands.terminal.options import As, WaitSeconds, here_of
from commands.terminal.output import print_listing, say
from commands.terminal.written import ensure_some_reads, ensure_written_shown
from kappa.base.errors import UsageError
from serving.query.render import Form, Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kappa.declare.topic import Topic


app = typer.Typer(
    no_args_is_help=True, help="The topics that the project declares, and those on the broker."
)


@app.command("create")
def create_topics(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAMES]...", show_default=False, help="all declared ones, if none is named"
        ),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Make the declared topics on the broker; one that is there stays as it is."""
    here = here_of(context)
    declared = [_declared(name, here.topics) for name in names or here.topics]
    log = here.log()
    by_brokers_time = {
        topic.name
        for pipeline in here.pipelines.values()
        for topic in pipeline.topics
        if pipeline.needs_brokers_time(topic)
    }
    made = [
        (topic, log.create(topic, brokers_time=topic.name in by_brokers_time)) for topic in declared
    ]
    print_listing(
        output,
        Listing(
            ("topic", "kind", "partitions", "id"),
            tuple((topic.name, topic.kind, facts.partitions, facts.id) for topic, facts in made),
        ),
    )


@app.command("list")
def list_topics(context: typer.Context, output: As = Form.TABLE) -> None:
    """List the topics on the broker, and those that are only declared."""
    from replay.look.listings import topics_listing

    here = here_of(context)
    print_listing(output, topics_listing(here.log(), here.topics))


def produce(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="the topic", show_default=False)],
    file: Annotated[
        str, typer.Argument(help="a file with a record a line, or - for stdin", show_default=False)
    ],
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
            "--wait", help="wait also until what serves and reads the topic shows all of them"
        ),
    ] = False,
    timeout: WaitSeconds = None,
    output: As = Form.TABLE,
) -> None:
    """Send records to a topic, one a line, and wait until all are acknowledged.

    Prints a write token, with which a query waits for them: kappa query --after TOKEN.
    """
    from kappa.lines.envelope import envelope_record
    from kappa.lines.produce import event_record, produce_lines
    from serving.pin.at_log import written_offsets

    here = here_of(context)
    if timeout is not None and not wait:
        raise UsageError("--timeout is for --wait", hint="leave it out, or give --wait")
    log = here.log()
    if wait:
        ensure_some_reads(here, topic)
    declared = None if envelope else here.topics.get(topic)
    with open_lines(file) as lines, moving("producing") as show:
        acknowledged = produce_lines(
            log,
            topic,
            lines,
            envelope_record if envelope else lambda line: event_record(line, declared),
            on_progress=lambda count: show(f"{count:,} acknowledged"),
        )
    token = written_offsets(acknowledged.offsets) if acknowledged.count else None
    say(f"{acknowledged.count} records acknowledged")
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


def _declared(name: str, known: Mapping[str, Topic]) -> Topic:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise UsageError(
            f"the project declares no topic {name}",
            hint=f"did you mean {near[0]}?"
            if near
            else f"it declares {', '.join(known) or 'none'}",
        )
    return known[name]
