"""Commands that prepare or start rollouts: validate, plan, deploy, replay, branch and others."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from typer.exceptions import Exit

from kappa.base.errors import ExitCode, SettingsError, Unreachable, UsageError
from kappa.commands.terminal.follow import (
    RolloutOptions,
    follow_each,
    follow_until_approved,
    rollouts_printed,
)
from kappa.commands.terminal.options import (
    AcceptGap,
    Allow,
    AllowBreaking,
    As,
    AutoPromote,
    OneDeclared,
    Quiet,
    Reason,
    SomePipelines,
    Timeout,
    Yes,
    here_of,
)
from kappa.commands.terminal.output import (
    ask_consent,
    is_quiet,
    print_listing,
    print_plan,
    say,
    typed,
)
from kappa.commands.terminal.progress import moving
from kappa.project.project import Project
from kappa.serving.query.render import Form, render_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kappa.project.project_plan import ProjectPlan
    from kappa.replay.rollout.plan.finding import Allowances
    from kappa.replay.rollout.plan.validate import ValidationResult
    from kappa.replay.status.context import ProjectContext

SavedPlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="apply a saved plan without a question; a stale plan is refused",
    ),
]


def validate(
    context: typer.Context,
    pipelines: SomePipelines = None,
    allow: Allow = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Check the project's files. No broker is needed.

    The command checks the declarations, keys, folds, views, determinism and boards, and the topics
    of the collector.
    """
    from kappa.replay.rollout.plan.validate import (
        ensure_valid,
        validated_document,
        validated_listing,
        validated_text,
        with_mistakes_of_files,
    )
    from kappa.serving.collect.declared_topics import (
        ensure_collectable,
        ensure_no_sink,
        ensure_topic_fields,
    )
    from kappa.serving.collect.pulled.source import sources_of

    here = here_of(context)
    accepted = _accepted(allow)
    try:
        collected = here.settings.collect
        if not pipelines:
            sources_of(collected)
    except SettingsError as error:
        raise with_mistakes_of_files(error, here.start) from None
    found = _validate_files(here, pipelines or (), accepted, "validating")
    sys.stdout.write(
        validated_text(found)
        if output is Form.TABLE
        else render_listing(output, validated_listing(found), document=validated_document(found))
    )
    ensure_valid(found)
    if not pipelines and collected.topics:
        ensure_collectable(collected.topics, here.topics)
        ensure_no_sink(collected.topics, here.topic_readers.values())
        ensure_topic_fields(collected.pull, here.topics)


def plan(
    context: typer.Context,
    pipelines: SomePipelines = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="exit with 3 if there are changes")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="save the plan, for: kappa deploy --plan FILE"),
    ] = None,
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Show what a deploy would do, why, and which refusals would stop it."""
    from kappa.replay.rollout.plan.plan_text import plan_listing

    accepted = _accepted(allow, gap=accept_gap, breaking=allow_breaking)
    here, is_text = here_of(context), output is Form.TABLE
    if here.bootstrap_servers is None:
        _plan_code(here, pipelines or (), accepted, sys.stdout if is_text else sys.stderr)
    planned = Project(here).plan_accepting(pipelines or (), accepting=accepted, showing=moving)
    made = planned.made
    if is_text:
        print_plan(made, sys.stdout)
    else:
        print_listing(output, plan_listing(made), document=planned.document)
    if is_text:
        made.raise_shown_refusal()
    made.ensure_possible()
    if out is not None:
        planned.save(out)
        say(f"saved; to apply it: kappa deploy --plan {out}")
    if detailed_exitcode and made.has_changes:
        raise Exit(ExitCode.CHANGES_PENDING)


def _plan_code(
    here: ProjectContext, pipelines: Sequence[str], accepted: Allowances, stream: TextIO
) -> NoReturn:
    """Prints the part of a plan for which no broker is needed, and then raises Unreachable.

    If a pipeline is refused, raises UsageError instead.
    """
    from kappa.replay.rollout.plan.validate import ensure_valid, served_versions, validated_text

    found = _validate_files(here, pipelines, accepted, "planning")
    stream.write(validated_text(found, served_versions(here.state(), here.store)))
    stream.flush()
    ensure_valid(found)
    raise Unreachable(
        "kappa is not up: only the code was looked at; topics, samples of their records, and the "
        "cost of a replay were not",
        hint="start it with: kappa up -d",
    )


def _validate_files(
    here: ProjectContext, pipelines: Sequence[str], accepted: Allowances, doing: str
) -> tuple[ValidationResult, ...]:
    """Validates the project's files, and returns the results.

    A progress line is shown for each step; `doing` is the text at its beginning.
    """
    from kappa.replay.rollout.plan.validate import validate_project

    with moving(doing) as show:
        return validate_project(
            here.settings,
            here.store,
            only=pipelines,
            accepting=accepted,
            show=lambda step: show(f"{doing}: {step}"),
        )


def deploy(
    context: typer.Context,
    pipelines: SomePipelines = None,
    saved: SavedPlanFile = None,
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    reason: Reason = "",
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Deploy the project's pipelines: replay next to the live builds, verify, promote."""
    accepted = _accepted(allow, gap=accept_gap, breaking=allow_breaking)
    options = RolloutOptions(yes, yes or auto_promote, timeout, reason, output)
    if saved is None:
        roll_out(
            here_of(context),
            "deploy",
            pipelines or (),
            options,
            _plan_of(pipelines or (), accepted),
        )
    else:
        _refuse_beside_plan("deploy", saved, pipelines or (), accepted)
        apply_saved(here_of(context), saved, replace(options, auto_promote=True))


def _refuse_beside_plan(
    command: str, saved: Path, pipelines: Sequence[str], accepted: Allowances
) -> None:
    """Raises UsageError if the user gave pipelines or allowances in addition to a saved plan.

    A saved plan already contains its pipelines and its allowances (the refusals that the user has
    permitted).
    """
    from kappa.replay.rollout.plan.finding import Allowances

    if pipelines or accepted != Allowances():
        raise UsageError(
            "a saved plan already names its pipelines and its allowances",
            hint=f"kappa {command} --plan {saved}; or plan again: kappa plan --out {saved}",
        )


def replay(
    context: typer.Context,
    pipeline: OneDeclared,
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    reason: Reason = "",
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Rebuild a pipeline with the same code from the beginning of the log, verify and promote."""
    accepted = _accepted(allow, gap=accept_gap, breaking=allow_breaking)
    roll_out(
        here_of(context),
        "replay",
        (pipeline,),
        RolloutOptions(yes, yes or auto_promote, timeout, reason, output),
        _plan_of((pipeline,), accepted, again=True),
    )


def branch(
    context: typer.Context,
    pipeline: OneDeclared,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="OFFSETS",
            help="topic:partition=offset,... of every partition; or now: those of the live build",
        ),
    ],
    allow_breaking: AllowBreaking = False,
    allow: Allow = None,
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    reason: Reason = "",
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Start a build with the present code from the tables of the live build at these offsets.

    A branch is for changes that concern only the future: rows from before the offsets stay as they
    are. Topics, tables, keys, folds and columns must be the same. A branch is promoted like any
    other build, and every list marks it as a branch. A branch has the same version as
    every other build of the same code, so kappa deploy of the same code changes nothing afterwards.
    kappa replay folds the whole log with this code, from its beginning.
    """
    from kappa.replay.rollout.plan.branch import Branching
    from kappa.serving.query.pin.moments import parse_offsets

    branching = Branching(None if start == "now" else parse_offsets(start))
    accepted = _accepted(allow, breaking=allow_breaking)
    roll_out(
        here_of(context),
        f"branch --from {start}",
        (pipeline,),
        RolloutOptions(yes, yes or auto_promote, timeout, reason, output),
        _plan_of((pipeline,), accepted, branching=branching),
    )


def retry(
    context: typer.Context,
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE|ROLLOUT", help="the pipeline, or the number of its last rollout"
        ),
    ],
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    reason: Reason = "",
    timeout: Timeout = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Start a failed or abandoned rollout again, as a new build of the same code.

    The refusals that the user permitted for the earlier rollout are permitted again.
    """
    from kappa.replay.rollout.plan.retry import ended_without_serving

    here = here_of(context)
    pipeline = ended_without_serving(here.state(), pipeline).pipeline
    roll_out(
        here,
        "retry",
        (pipeline,),
        RolloutOptions(yes, yes or auto_promote, timeout, reason, output),
        lambda project: project.plan_retry(pipeline, showing=moving),
    )


def stage(
    context: typer.Context,
    pipelines: SomePipelines = None,
    saved: SavedPlanFile = None,
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    yes: Yes = False,
    reason: Reason = "",
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Start the rollouts of a deploy, and return without waiting.

    Kappa builds and verifies the candidates. Then they wait for `kappa promote`.
    """
    accepted = _accepted(allow, gap=accept_gap, breaking=allow_breaking)
    here = here_of(context)
    options = RolloutOptions(yes, reason=reason, output=output)
    if saved is not None:
        _refuse_beside_plan("stage", saved, pipelines or (), accepted)
    with rollouts_printed(here, options) as begun:
        ids = (
            plan_and_begin(
                here, "stage", pipelines or (), options, _plan_of(pipelines or (), accepted)
            )
            if saved is None
            else begin_saved(here, saved, options)
        )
        begun(ids)
    for id_ in ids if options.is_text else ():
        number = here.state().rollout(id_).number
        say(f"rollout {number} has begun: kappa wait {number} follows it")


def _accepted(
    allow: Sequence[str] | None, *, gap: bool = False, breaking: bool = False
) -> Allowances:
    """Parses the options with which a user permits refused steps of a plan.

    `allow` contains the values of `--allow`. `gap` and `breaking` are the values of `--accept-gap`
    and `--allow-breaking`. Raises UsageError if a value of `--allow` is not valid.
    """
    from kappa.replay.rollout.plan.finding import parse_allowances

    return parse_allowances(gap=gap, breaking=breaking, allow=allow or ())


def _plan_of(
    pipelines: Sequence[str], accepted: Allowances, **how: Any
) -> Callable[[Project], ProjectPlan]:
    """Returns a function that computes a plan of these pipelines for a project.

    `how` are further arguments of `Project.plan_accepting`.
    """
    return lambda project: project.plan_accepting(
        pipelines, accepting=accepted, showing=moving, **how
    )


def roll_out(
    here: ProjectContext,
    command: str,
    pipelines: Sequence[str],
    options: RolloutOptions,
    plan_with: Callable[[Project], ProjectPlan],
) -> None:
    """Plans rollouts, asks the user for a yes, starts the rollouts, and follows them.

    Each rollout is followed until it serves. Rollouts that wait for a promote are promoted if the
    user agrees.
    """
    with rollouts_printed(here, options) as begun:
        ids = plan_and_begin(here, command, pipelines, options, plan_with)
        begun(ids)
        follow_until_approved(here, ids, options)


def plan_and_begin(
    here: ProjectContext,
    command: str,
    pipelines: Sequence[str],
    options: RolloutOptions,
    plan_with: Callable[[Project], ProjectPlan],
) -> tuple[int, ...]:
    """Plans, asks the user for a yes, checks the law of slices, and starts the planned rollouts.

    `command` is the command that the user typed, for hints. `plan_with` computes the plan. Returns
    the ids of the rollouts, or () if the plan contains no changes.
    """
    from kappa.code.spark_child import one_child

    here.must_run()
    with one_child(here.settings):
        planned = plan_with(Project(here))
        print_plan(planned.made, sys.stdout if options.is_text else sys.stderr)
        planned.made.raise_shown_refusal()
        if not planned.has_changes:
            return ()
        ask_consent(typed(command, " ".join(pipelines) or None), yes=options.yes)
        return _begun(planned, options)


def apply_saved(here: ProjectContext, file: Path, options: RolloutOptions) -> None:
    """Starts the rollouts of a saved plan, and follows the rollouts until their builds serve.

    Asks no question, because the user agreed by saving the plan. Raises Conflict if the saved plan
    is out of date.
    """
    with rollouts_printed(here, options) as begun:
        ids = begin_saved(here, file, options)
        begun(ids)
        follow_each(here, ids, options)


def begin_saved(here: ProjectContext, file: Path, options: RolloutOptions) -> tuple[int, ...]:
    """Starts the rollouts of a saved plan, and returns their ids.

    Raises Conflict if the saved plan is out of date.
    """
    here.must_run()
    planned = Project(here).read_plan(file, showing=moving)
    print_plan(planned.made, sys.stdout if options.is_text else sys.stderr)
    planned.made.raise_shown_refusal()
    return _begun(planned, options)


def _begun(planned: ProjectPlan, options: RolloutOptions) -> tuple[int, ...]:
    return planned.begin(
        auto_promote=options.auto_promote,
        reason=options.reason,
        say=(lambda _line: None) if is_quiet() else say,
        showing=moving,
    )
