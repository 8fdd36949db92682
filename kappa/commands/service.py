"""Commands that take a whole pipeline out of service, pause it or resume it."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from kappa.commands.terminal.options import As, Reason, Yes, here_of
from kappa.commands.terminal.output import ask_consent, print_listing, typed
from kappa.serving.query.render import Form

ThePipeline = Annotated[str, typer.Argument(help="the pipeline")]


def retire(
    context: typer.Context,
    pipeline: ThePipeline,
    yes: Yes = False,
    reason: Reason = "",
    output: As = Form.TABLE,
) -> None:
    """Take a pipeline out of service: the new generation has none of its tables and views.

    The command first lists these tables and views, and their readers. The build is kept for
    `rollout.soak`: within that time, `kappa undo` lets the build serve again. Then its data are
    deleted.
    """
    from kappa.replay.rollout.pipeline_retirement import (
        ask_retire,
        may_retire,
        preview_retirement,
        retirement_text,
    )
    from kappa.replay.rollout.rollout_numbers import serving_pipeline
    from kappa.replay.status.listings import retirement_listing

    here = here_of(context)
    is_text = output is Form.TABLE
    state, kept_seconds = here.state(), here.settings.rollout.soak_seconds
    pipeline = serving_pipeline(state, pipeline)
    if may_retire(state, pipeline):
        leaving = preview_retirement(
            here.store, state, pipeline, kept_seconds=kept_seconds, now=time.time()
        )
        said = sys.stdout if is_text else sys.stderr
        said.write(retirement_text(leaving))
        said.flush()
        ask_consent(typed("retire", pipeline), yes=yes)
        ask_retire(here.store, pipeline, kept_seconds=kept_seconds, seen=state, reason=reason)
    now = here.state()
    if is_text:
        retirement = now.retirements[pipeline]
        print(f"{pipeline} was {retirement.text}; {retirement.way_back}")
    else:
        print_listing(output, retirement_listing(now, pipeline))


def pause(context: typer.Context, pipeline: ThePipeline, reason: Reason = "") -> None:
    """Stop the jobs of a pipeline until `kappa resume`; its tables still serve.

    The tables keep the rows of their last frontier. The pipeline stays paused after `kappa down`.
    While it is paused, it cannot be deployed, but an undo is possible.
    """
    from kappa.replay.rollout.operator_requests import ask_pause
    from kappa.replay.rollout.rollout_numbers import serving_pipeline

    here = here_of(context)
    pipeline = serving_pipeline(here.state(), pipeline)
    ask_pause(here.store, pipeline, reason=reason)
    found = here.state().paused[pipeline]
    print(f"{pipeline} is {found.text}; its tables serve as they are: kappa resume {pipeline}")


def resume(context: typer.Context, pipeline: ThePipeline, reason: Reason = "") -> None:
    """Resume a paused pipeline: its jobs continue where they stopped."""
    from kappa.replay.rollout.operator_requests import ask_resume
    from kappa.replay.rollout.rollout_numbers import serving_pipeline

    here = here_of(context)
    pipeline = serving_pipeline(here.state(), pipeline)
    record = ask_resume(here.store, pipeline, reason=reason)
    print(
        f"{pipeline} is not paused"
        if record is None
        else f"{pipeline} is resumed: its jobs continue from their frontiers"
    )
