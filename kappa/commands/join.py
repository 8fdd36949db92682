"""`kappa topics join`: the recorded step by which topics join a pattern."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.base.errors import UsageError
from kappa.base.units import count_of
from kappa.commands.terminal.options import As, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.serving.query.render import Form, Listing


def join_topics(
    context: typer.Context,
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATTERNS]...", show_default=False, help="all declared ones, if none is given"
        ),
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(
            "--leave", metavar="TOPIC", show_default=False, help="leave it out; again for more"
        ),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Record the topics that declared patterns match now: write them to the project.

    The file is part of the project, as its code is. A topic that joins is new in each pipeline that
    reads by the pattern, so its next deploy replays. One that has joined stays until it is left.
    """
    from kappa.code.project import load_pipelines
    from kappa.declare.topic_patterns import before_joining, joined_path, put_joined
    from kappa.replay.status.topics.join import join_topics
    from kappa.state.build import read_birth

    here = here_of(context)
    with before_joining():
        pipelines = load_pipelines(here.settings.project)
    declared = {each.name: each for every in pipelines.values() for each in every.patterns}
    for pattern in patterns or ():
        if pattern not in declared:
            raise UsageError(
                f"the project declares no topics by the pattern {pattern}",
                hint=f"it declares {', '.join(declared) or 'none by a pattern'}",
            )
    chosen = patterns or list(declared)
    if not chosen:
        raise UsageError(
            "the project declares no topics by a pattern",
            hint=r'declare them: Topic(pattern="logs\\..*", event="...")',
        )
    if leave and len(chosen) > 1:
        raise UsageError("--leave is for one pattern", hint="name the pattern, too")
    births = [read_birth(here.store, build) for build in here.state().wanted_builds()]
    sinks = {sink.name for every in pipelines.values() for sink in every.sinks}
    sinks |= {sink.topic for birth in births for sink in birth.sinks}
    there = here.log().topics()
    found = [join_topics(declared[pattern], there, sinks, leave or ()) for pattern in chosen]
    for each in found:
        put_joined(here.settings.project, each.topics)
        say(
            f"{joined_path(each.topics.pattern)} lists {count_of(len(each.topics.topics), 'topic')}"
        )
    print_listing(
        output,
        Listing(
            ("pattern", "topic", "partitions", "state"),
            tuple(
                (
                    each.topics.pattern,
                    name,
                    next((one.partitions for one in each.topics.topics if one.name == name), None),
                    str(state),
                )
                for each in found
                for name, state in each.became.items()
            ),
        ),
    )
