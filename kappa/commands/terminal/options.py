"""The options and arguments that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.base.errors import UsageError
from kappa.commands.terminal.output import set_quiet
from kappa.replay.status.context import ProjectContext
from kappa.serving.query.render import Form

As = Annotated[Form, typer.Option("-o", "--output", help="the form of the output")]


Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


AutoPromote = Annotated[
    bool,
    typer.Option(
        "--auto-promote",
        help="ask about the plan only: a candidate that passes verification serves",
    ),
]


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="show no progress", callback=set_quiet)]


Reason = Annotated[
    str, typer.Option("--reason", "-m", metavar="TEXT", help="why; the history keeps it")
]


Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, help="stop waiting after so many seconds; the rollout goes on"
    ),
]


AllowBreaking = Annotated[
    bool,
    typer.Option("--allow-breaking", help="allow changes that may break readers of the tables"),
]


AcceptGap = Annotated[
    bool,
    typer.Option(
        "--accept-gap",
        help="replay a topic that has lost its beginning; the history records this for good",
    ),
]


Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="NAME=REASON",
        help="allow what the plan refuses under that name; the reason is kept",
    ),
]


PastGeneration = Annotated[
    int | None,
    typer.Option(
        "--at-generation",
        min=1,
        help="the tables as this generation showed them last, while they are kept",
    ),
]


PastTime = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="the tables as they were served then, while kept (ISO 8601; in UTC by default)",
    ),
]


PastOffsets = Annotated[
    str | None,
    typer.Option(
        "--at-offsets",
        metavar="TOPIC:PARTITION=OFFSET,...",
        help="the tables of now, as they were at exactly these offsets, while they are kept",
    ),
]


PastEventTime = Annotated[
    str | None,
    typer.Option(
        "--at-event-time",
        metavar="TIME",
        help="the tables of now, as they were once all records up to this log time were "
        "folded, while they are kept; log time is the running maximum of the records' timestamps",
    ),
]


After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="TOKEN",
        help="wait until readers see these offsets: the write token that kappa produce prints",
    ),
]


WaitSeconds = Annotated[
    float | None,
    typer.Option("--timeout", min=0, help="stop waiting after so many seconds; default: 30"),
]


OfBuild = Annotated[
    str | None,
    typer.Option(
        "--build",
        metavar="BUILD|ROLLOUT",
        help="the rejects of this build, such as a candidate, in place of the serving build's",
    ),
]


def refuse_numbers(context: typer.Context, given: str | list[str] | None) -> object:
    """Returns `given`, the names of pipelines, unchanged.

    Raises UsageError if a name consists of digits, because a number stands for a rollout.
    """
    from kappa.replay.rollout.rollout_numbers import is_number  # most commands do not need this

    for name in [given] if isinstance(given, str) else given or ():
        if is_number(name):
            raise UsageError(
                f"{name} is the number of a rollout, and kappa {context.info_name} takes names of "
                "pipelines, as the project declares them",
                hint="kappa history shows which pipeline that rollout is of",
            )
    return given


OnePipeline = Annotated[
    str | None,
    typer.Argument(
        metavar="[PIPELINE|ROLLOUT]", help="one pipeline, or the number of one of its rollouts"
    ),
]
OneDeclared = Annotated[str, typer.Argument(help="the pipeline", callback=refuse_numbers)]
SomePipelines = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PIPELINES]...", help="pipelines; all, if none is named", callback=refuse_numbers
    ),
]


def here_of(context: typer.Context) -> ProjectContext:
    """Returns the project and the root of this command, as one object.

    The callback of the app has stored this object in `context`.
    """
    here = context.obj
    assert isinstance(here, ProjectContext), "the callback has run"
    return here
