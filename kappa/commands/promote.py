"""Commands that finish a rollout: wait, verify, promote, undo, abandon."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kappa.commands.terminal.follow import RolloutOptions, approve, follow_rollout, rollouts_printed
from kappa.commands.terminal.options import As, OnePipeline, Quiet, Reason, Timeout, Yes, here_of
from kappa.commands.terminal.output import ask_consent, say, typed
from kappa.project.project import Project
from kappa.serving.query.render import Form


def wait(
    context: typer.Context,
    pipeline: OnePipeline = None,
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Wait until a rollout serves, or has passed verification and waits for a promote.

    If the rollout has already ended, the command shows how it ended.
    """
    from kappa.replay.rollout.operator_requests import awaited_rollout

    here = here_of(context)
    options = RolloutOptions(timeout=timeout, output=output)
    with rollouts_printed(here, options) as followed:
        id_ = awaited_rollout(here.state(), pipeline).id
        followed([id_])
        ended = follow_rollout(here, id_, options, to_the_yes=True)
    if ended.waits and options.is_text:
        print(
            f"{ended.pipeline}: build {ended.build} (version {ended.version}) passed; to let it "
            f"serve: kappa promote {ended.pipeline}"
        )


def verify(
    context: typer.Context,
    pipeline: OnePipeline = None,
    reason: Reason = "",
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Verify a ready candidate again, at a newer frontier of the live build."""
    from kappa.replay.rollout.operator_requests import ask_verify
    from kappa.state.journal.events import VerifyAsked

    here = here_of(context)
    here.must_run()
    options = RolloutOptions(timeout=timeout, output=output)
    with rollouts_printed(here, options) as followed:
        record = ask_verify(here.store, pipeline, reason=reason)
        assert isinstance(record.event, VerifyAsked)
        followed([record.event.rollout])
        follow_rollout(here, record.event.rollout, options, to_the_yes=True)


def promote(
    context: typer.Context,
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PIPELINES|ROLLOUTS]...",
            help="pipelines, or numbers of rollouts; default: the only ready one",
        ),
    ] = None,
    yes: Yes = False,
    reason: Reason = "",
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Promote candidates that have passed verification, so that they serve.

    Candidates that are named together switch in one generation.
    """
    from kappa.replay.status.follow import verification_text
    from kappa.replay.status.outgoing_changes import sending_text

    here = here_of(context)
    options = RolloutOptions(yes, timeout=timeout, reason=reason, output=output)
    ready = Project(here).ready_rollouts(*(pipelines or ()))
    said = sys.stdout if options.is_text else sys.stderr
    for rollout in ready:
        said.write(verification_text(rollout))
        said.write(sending_text(here.store, here.state(), rollout, most=here.settings.alerts.most))
    ask_consent(typed("promote", " ".join(pipelines or []) or None), yes=yes, question="promote?")
    with rollouts_printed(here, options) as followed:
        followed(rollout.id for rollout in ready)
        approve(here, ready, options)


def undo(
    context: typer.Context,
    pipeline: OnePipeline = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="GENERATION",
            min=1,
            help="the build of this generation, if it is kept; default: the previous build",
        ),
    ] = None,
    yes: Yes = False,
    reason: Reason = "",
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Go back to the build that served before. Run this command again to redo.

    After an undo, a retired pipeline serves again.
    """
    from kappa.replay.rollout.operator_requests import undo_target

    here = here_of(context)
    here.must_run()
    options = RolloutOptions(yes, timeout=timeout, reason=reason, output=output)
    state = here.state()
    name, build = undo_target(state, pipeline, to)
    before = state.serving.get(name)
    instead = (
        f"instead of {before} (version {state.versions[before]})"
        if before
        else "again, after it was retired"
    )
    print(
        f"{name}: build {build} (version {state.versions[build]}) will serve {instead}",
        file=sys.stdout if options.is_text else sys.stderr,
    )
    ask_consent(typed("undo", pipeline) + ("" if to is None else f" --to {to}"), yes=yes)
    with rollouts_printed(here, options) as followed:
        id_ = Project(here).ask_undo(name, to=to, seen=state, reason=reason)
        followed([id_])
        follow_rollout(here, id_, options)


def abandon(
    context: typer.Context,
    pipeline: OnePipeline = None,
    reason: Reason = "",
    output: As = Form.TABLE,
) -> None:
    """Abandon a rollout that does not serve yet. The live build keeps serving."""
    from kappa.replay.rollout.operator_requests import abandon_rollout as give_up
    from kappa.state.journal.events import Abandoned

    here = here_of(context)
    options = RolloutOptions(output=output)
    record = give_up(here.store, pipeline, reason=reason)
    assert isinstance(record.event, Abandoned)
    with rollouts_printed(here, options) as ended:
        ended([record.event.rollout])
    if options.is_text:
        say(f"rollout {here.state().rollout(record.event.rollout).number} is given up")
