"""The command line: each command parses, calls one function, and renders what it gives. stdout is the answer, stderr the talk.

Nothing is decided here. What a command needs is imported in it, so that none pays for another: `kappa query` starts no JVM
and imports no Spark, `kappa --help` neither that nor DuckDB. Exit codes: kappa/base/errors.py. Read next: serving/query/query.py for
what is read, replay/plan/plan.py and replay/plan/stage.py for what is changed.
"""

# ruff: noqa: PLC0415  # imports inside commands are the point of this file: none pays for another

from __future__ import annotations

import contextlib
import difflib
import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from kappa.base.errors import ConsentNeeded, ExitCode, KappaError, UsageError
from replay.look.here import Here
from serving.query.render import Form, Listing, rendered

if TYPE_CHECKING:
    from rich.console import Console

    from replay.plan.plan import Plan
    from replay.preflight.finding import Accepting
    from replay.preflight.observed import Observed
    from replay.rollout.rollout import Rollout
    from serving.pin.at_log import Past

_Known = TypeVar("_Known")
_WATCH_SECONDS = 1.0

app = typer.Typer(
    name="kappa",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A replayable event platform: the log, the fold, the table, the query.",
)
topics_app = typer.Typer(
    no_args_is_help=True, help="The topics that the project declares, and those on the broker."
)
app.add_typer(topics_app, name="topics")


class _Rejects(TyperGroup):
    """`kappa rejects [PIPELINE]` is `kappa rejects list [PIPELINE]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer has no public name for that type.
        return super().parse_args(
            ctx,
            args if args and (args[0] in self.commands or args[0] == "--help") else ["list", *args],
        )


rejects_app = typer.Typer(
    cls=_Rejects,
    help="The records that were not valid: list and show them, export them to mend them, and redrive what is mended.",
)
app.add_typer(rejects_app, name="rejects")

archive_app = typer.Typer(
    no_args_is_help=True,
    help="The archives of topics that are declared with archive=True: what they hold, and whether it is what the topics are.",
)
app.add_typer(archive_app, name="archive")

As = Annotated[Form, typer.Option("-o", "--output", help="what is printed")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]
AutoPromote = Annotated[
    bool,
    typer.Option(
        "--auto-promote", help="ask about the plan only: what passes its verification serves"
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0, help="stop waiting after so many seconds; the rollout goes on"
    ),
]
AllowBreaking = Annotated[
    bool,
    typer.Option(
        "--allow-breaking", help="let changes through that may break what reads the tables"
    ),
]
AcceptGap = Annotated[
    bool,
    typer.Option(
        "--accept-gap",
        help="replay a topic that has lost its beginning; the history tells it for ever",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="NAME=REASON",
        show_default=False,
        help="let through what the plan refuses under that name; the reason is kept",
    ),
]
PastGeneration = Annotated[
    int | None,
    typer.Option(
        "--at-generation",
        min=1,
        help="of what that generation showed last, as long as it is kept",
        show_default=False,
    ),
]
PastTime = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="of what was served then (ISO 8601; UTC without a zone), as long as it is kept",
        show_default=False,
    ),
]
OfBuild = Annotated[
    str | None,
    typer.Option(
        "--build",
        help="those of this build, such as a candidate that is on its way, and not of what serves",
        show_default=False,
    ),
]
PastOffsets = Annotated[
    str | None,
    typer.Option(
        "--at-offsets",
        metavar="TOPIC:PARTITION=OFFSET,...",
        help="of what serves, as it stood exactly there, as long as it is kept",
        show_default=False,
    ),
]
PastEventTime = Annotated[
    str | None,
    typer.Option(
        "--at-event-time",
        metavar="TIME",
        help="of what serves, as it stood when it had folded what its log held up to that time (log time: the running maximum of the records' timestamps), as long as it is kept",
        show_default=False,
    ),
]
OnePipeline = Annotated[
    str | None, typer.Argument(metavar="[PIPELINE]", show_default=False, help="one pipeline")
]


@app.callback()
def everywhere(
    context: typer.Context,
    project: Annotated[
        Path | None,
        typer.Option(
            "--project", help="a folder in the project, instead of this one", show_default=False
        ),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            "--root", help="where everything lies, instead of kappa.toml's root", show_default=False
        ),
    ] = None,
) -> None:
    """Takes the flags that go before every command."""
    context.obj = Here(project, root)


@app.command()
def up(
    context: typer.Context,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="in the background; returns when it is ready")
    ] = False,
) -> None:
    """Start the platform: the broker (unless one is configured), a job for each build, the controller, HTTP."""
    from replay.run import supervisor
    from replay.run.http_process import served_at

    here = _here(context)
    with _talk().status("starting") if detach else contextlib.nullcontext():
        started = supervisor.up(here.settings, detach=detach)
    if started is not None:
        url = served_at(here.store)
        _say(
            f"kappa is up: process {started.pid}, Kafka at {started.bootstrap_servers}{f', HTTP at {url}' if url else ''}"
        )


@app.command()
def down(context: typer.Context) -> None:
    """Stop the platform; everything is kept."""
    from replay.run import supervisor

    with _talk().status("ending"):
        was_up = supervisor.down(_here(context).settings)
    _say("kappa is down" if was_up else "kappa was not up")


@app.command()
def serve(
    context: typer.Context,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            show_default=False,
            help="where, instead of serve.listen; port 0: any that is free",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            show_default=False,
            help="who asks has to bring it; KAPPA__SERVE__TOKEN is not seen by other users",
        ),
    ] = None,
) -> None:
    """Serve HTTP alone, without the rest of the platform: queries of strangers, and looks at what runs. `kappa up` does it too."""
    from replay.run.serve import serve as serve_http

    serve_http(_here(context), listen=listen, token=token, say=_say)


@topics_app.command("create")
def topics_create(
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
    here = _here(context)
    declared = [_named(name, here.topics, "topic") for name in names or here.topics]
    log = here.log()
    made = [(topic, log.create(topic)) for topic in declared]
    _print(
        output,
        Listing(
            ("topic", "kind", "partitions", "id"),
            tuple((topic.name, topic.kind, facts.partitions, facts.id) for topic, facts in made),
        ),
    )


@topics_app.command("list")
def topics_list(context: typer.Context, output: As = Form.TABLE) -> None:
    """List the topics on the broker, and those that are only declared."""
    from replay.look.listings import topics_listing

    here = _here(context)
    _print(output, topics_listing(here.log(), here.topics))


@archive_app.command("status")
def archive_status(context: typer.Context, output: As = Form.TABLE) -> None:
    """Show each archive: from where to where it goes, how far it is behind its topic, and what hinders it."""
    from replay.look.archive import archive_listing
    from replay.look.archive import archive_status as look

    here = _here(context)
    _print(
        output,
        archive_listing(
            look(
                here.settings,
                here.store,
                here.topics,
                here.log() if here.bootstrap_servers else None,
            )
        ),
    )


@archive_app.command("verify")
def archive_verify(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", show_default=False, help="that of one topic")
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Check that archives have no gap and nothing twice, and decode again what topics still have, to compare it (exit code 4 where it differs)."""
    from kappa.base.errors import VerificationFailed
    from kappa.tables.archive import folder
    from replay.look.archive import checked_listing, verify_archives

    here = _here(context)
    with _talk().status("reading"):
        found = tuple(verify_archives(here.settings, here.store, here.topics, here.log(), topic))
    _print(output, checked_listing(found))
    wrong = [each for each in found if each.found.wrong is not None]
    if wrong:
        where = f"topic {wrong[0].topic} partition {wrong[0].found.partition}"
        kept = here.store.path(folder(wrong[0].topic, wrong[0].fingerprint))
        hint = f"move {kept} away, and it is made again from what the topic has"
        raise VerificationFailed(
            f"the archive of {where} is not what it should be: {wrong[0].found.wrong}", hint=hint
        )


@app.command()
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
            help='a line is {"key", "value", "timestamp", "headers", "partition"}; "value": null is a tombstone',
        ),
    ] = False,
    output: As = Form.TABLE,
) -> None:
    """Send records to a topic, one a line, and wait until all are acknowledged."""
    from kappa.log.envelope import envelope_record, event_record, produce_lines

    here = _here(context)
    log = here.log()
    declared = None if envelope else here.topics.get(topic)
    with _lines(file) as lines, _talk().status("") as moving:
        acknowledged = produce_lines(
            log,
            topic,
            lines,
            envelope_record if envelope else lambda line: event_record(line, declared),
            on_progress=lambda count: moving.update(f"{count:,} acknowledged"),
        )
    _say(f"{acknowledged.count} records acknowledged")
    _print(
        output,
        Listing(("topic", "partition", "next_offset"), tuple(acknowledged.offsets.items())),
        document={"acknowledged": acknowledged.count, "offsets": acknowledged.offsets.plain()},
    )


@app.command()
def plan(
    context: typer.Context,
    pipeline: OnePipeline = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="exit with 3 where there are changes")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            show_default=False,
            help="save the plan, for: kappa deploy --plan FILE",
        ),
    ] = None,
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    output: As = Form.TABLE,
) -> None:
    """Show what a deploy would do, why, and what stands in the way."""
    from replay.plan.plan_text import plan_document, plan_listing, plan_text
    from replay.plan.saved_plan import save_plan
    from replay.preflight.finding import accepting

    accepted = accepting(gap=accept_gap, breaking=allow_breaking, allow=allow or ())
    made, observed = _planned(_here(context), pipeline, again=False, accepting=accepted)
    sys.stdout.write(
        plan_text(made)
        if output is Form.TABLE
        else rendered(output, plan_listing(made), document=plan_document(made))
    )
    made.ensure_possible()
    if out is not None:
        save_plan(out, made, observed, only=pipeline, accepting=accepted)
        _say(f"saved; to apply it: kappa deploy --plan {out}")
    if detailed_exitcode and made.has_changes:
        raise Exit(ExitCode.CHANGES_PENDING)


@app.command()
def deploy(
    context: typer.Context,
    pipeline: OnePipeline = None,
    saved: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            show_default=False,
            help="apply a plan that was saved, with no question; refused when stale",
        ),
    ] = None,
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    timeout: Timeout = None,
) -> None:
    """Bring what the project declares to serve: replay beside what serves, verify, promote."""
    from replay.preflight.finding import Accepting, accepting

    accepted = accepting(gap=accept_gap, breaking=allow_breaking, allow=allow or ())
    if saved is None:
        _roll_out(
            _here(context),
            "deploy",
            pipeline,
            again=False,
            accepting=accepted,
            yes=yes,
            auto_promote=auto_promote,
            timeout=timeout,
        )
    elif pipeline is not None or accepted != Accepting():
        raise UsageError(
            "a saved plan says itself what is deployed, and what is let through",
            hint=f"kappa deploy --plan {saved}; or plan again: kappa plan --out {saved}",
        )
    else:
        _apply(_here(context), saved, timeout=timeout)


@app.command()
def replay(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(help="the pipeline", show_default=False)],
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    timeout: Timeout = None,
) -> None:
    """Make a new build of the same code from the log's beginning, and promote it like any other."""
    from replay.preflight.finding import accepting

    accepted = accepting(gap=accept_gap, breaking=allow_breaking, allow=allow or ())
    _roll_out(
        _here(context),
        "replay",
        pipeline,
        again=True,
        accepting=accepted,
        yes=yes,
        auto_promote=auto_promote,
        timeout=timeout,
    )


@app.command()
def branch(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(help="the pipeline", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="OFFSETS",
            help="topic:partition=offset,... of every partition; or now: where what serves stands",
            show_default=False,
        ),
    ],
    allow_breaking: AllowBreaking = False,
    allow: Allow = None,
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    timeout: Timeout = None,
) -> None:
    """Build what is declared now on the state that what serves had at these offsets: for changes that concern only the future.

    What lies before them stays as it was folded; topics, tables, keys, folds and columns must be the same. It is promoted like any
    other build, and told as a branch wherever it is shown. Its version is that of the code alone, as if it were no branch: kappa
    deploy of the same code changes nothing then, and kappa replay builds it from the log's beginning.
    """
    from replay.plan.branch import Branching
    from replay.plan.plan import make_plan
    from replay.preflight.finding import accepting
    from serving.pin.at_log import parse_offsets

    here = _here(context)
    branching = Branching(None if start == "now" else parse_offsets(start))
    accepted = accepting(gap=False, breaking=allow_breaking, allow=allow or ())
    here.must_run()
    made = make_plan(
        _observed(here, pipeline), only=pipeline, accepting=accepted, branching=branching
    )
    _brought_on(
        here,
        _begun(
            here,
            f"branch --from {start}",
            pipeline,
            made,
            yes=yes,
            auto_promote=yes or auto_promote,
        ),
        timeout,
    )


@app.command()
def retry(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(help="the pipeline", show_default=False)],
    yes: Yes = False,
    auto_promote: AutoPromote = False,
    timeout: Timeout = None,
) -> None:
    """Begin a rollout again that failed or was abandoned: a new build of the same code, with what was let through then."""
    from replay.plan.retry import ended_without_serving, plan_again

    here = _here(context)
    ended_without_serving(here.state(), pipeline)
    here.must_run()
    made = plan_again(_observed(here, pipeline), pipeline)
    _brought_on(
        here,
        _begun(here, "retry", pipeline, made, yes=yes, auto_promote=yes or auto_promote),
        timeout,
    )


@app.command()
def stage(
    context: typer.Context,
    pipeline: OnePipeline = None,
    allow_breaking: AllowBreaking = False,
    accept_gap: AcceptGap = False,
    allow: Allow = None,
    yes: Yes = False,
) -> None:
    """Begin the rollouts of a deploy and return: they replay and are verified, and then wait for `kappa promote`."""
    from replay.preflight.finding import accepting

    accepted = accepting(gap=accept_gap, breaking=allow_breaking, allow=allow or ())
    for number in _staged(
        _here(context),
        "stage",
        pipeline,
        again=False,
        accepting=accepted,
        yes=yes,
        auto_promote=False,
    ):
        _say(f"rollout {number} has begun: kappa wait follows it")


@app.command()
def wait(context: typer.Context, pipeline: OnePipeline = None, timeout: Timeout = None) -> None:
    """Wait until a rollout serves, or has passed its verification and waits for a yes; of one that has ended already, tell how."""
    from replay.rollout.intents import awaited_rollout

    here = _here(context)
    ended = _follow(here, awaited_rollout(here.state(), pipeline).number, timeout, to_the_yes=True)
    if ended.waits:
        print(
            f"{ended.pipeline}: build {ended.build} (version {ended.version}) passed; to let it serve: kappa promote {ended.pipeline}"
        )


@app.command()
def verify(context: typer.Context, pipeline: OnePipeline = None, timeout: Timeout = None) -> None:
    """Verify a candidate that is ready once more, at a newer frontier of what serves."""
    from kappa.journal.journal import VerifyAsked
    from replay.rollout.intents import ask_verify

    here = _here(context)
    here.must_run()
    record = ask_verify(here.store, pipeline)
    assert isinstance(record.event, VerifyAsked)
    _follow(here, record.event.rollout, timeout, to_the_yes=True)


@app.command()
def promote(
    context: typer.Context,
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PIPELINES]...",
            show_default=False,
            help="the one that is ready, if none is named",
        ),
    ] = None,
    yes: Yes = False,
    timeout: Timeout = None,
) -> None:
    """Let candidates that have passed their verification serve; those that are named together, in one generation."""
    from replay.look.progress import told_verification
    from replay.rollout.intents import ready_rollouts

    here = _here(context)
    here.must_run()
    ready = ready_rollouts(here.state(), *(pipelines or ()))
    for rollout in ready:
        sys.stdout.write(told_verification(rollout))
    _agree(_typed("promote", " ".join(pipelines or []) or None), yes=yes, question="promote?")
    _promoted(here, ready, timeout)


@app.command()
def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="go on showing it")] = False,
    output: As = Form.TABLE,
) -> None:
    """Show what serves, what is on its way, how far behind the log each build is, and what runs."""
    here = _here(context)
    if not watch:
        sys.stdout.write(_status(here, output))
        return
    if output is not Form.TABLE:
        raise UsageError("watching shows a table", hint=f"leave out -w, or -o {output}")
    from rich.live import Live
    from rich.text import Text

    with Live(console=_console(stderr=False), auto_refresh=False) as live:
        while True:
            live.update(
                Text(_status(here, output).rstrip("\n"), no_wrap=True, overflow="ellipsis"),
                refresh=True,
            )
            time.sleep(_WATCH_SECONDS)


@app.command()
def undo(
    context: typer.Context,
    pipeline: OnePipeline = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="GENERATION",
            min=1,
            help="the build of that generation, if it is kept; default: the one before",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    timeout: Timeout = None,
) -> None:
    """Let the build that served before serve again; after that, the same is a redo."""
    from replay.rollout.intents import ask_undo, undone

    here = _here(context)
    here.must_run()
    state = here.state()
    name, build = undone(state, pipeline, to)
    print(
        f"{name}: build {build} (version {state.versions[build]}) will serve instead of {state.serving[name]} (version {state.versions[state.serving[name]]})"
    )
    _agree(_typed("undo", pipeline) + ("" if to is None else f" --to {to}"), yes=yes)
    _follow(here, ask_undo(here.store, name, to=to, seen=state).number, timeout)


@app.command()
def abandon(context: typer.Context, pipeline: OnePipeline = None) -> None:
    """Give up a rollout that does not serve yet; what serves goes on serving."""
    from kappa.journal.journal import Abandoned
    from replay.rollout.intents import abandon as give_up

    record = give_up(_here(context).store, pipeline)
    if isinstance(record.event, Abandoned):
        _say(f"rollout {record.event.rollout} is given up")


@app.command()
def history(context: typer.Context, output: As = Form.TABLE) -> None:
    """List every rollout with its receipt, and every proof: who, when, which build, why, and how it ended."""
    from replay.look.listings import history_listing
    from replay.rollout.history import chapters, proof_records

    state = _here(context).state()
    _print(output, history_listing(chapters(state), proof_records(state)))


@app.command()
def show(
    context: typer.Context,
    generation: Annotated[
        int, typer.Argument(help="its number, from kappa history", show_default=False)
    ],
    output: As = Form.TABLE,
) -> None:
    """Show one generation in full: who, when, why, which code, and the receipt of its promote."""
    from kappa.state.build import read_birth
    from replay.rollout.show import (
        code_of,
        serving_in,
        show_document,
        show_listing,
        show_text,
        shown,
    )

    here = _here(context)
    state = here.state()
    births = {
        build: read_birth(here.store, build) for build in serving_in(state, generation).values()
    }
    found = shown(
        state,
        generation,
        births,
        {build: code_of(here.store, birth) for build, birth in births.items()},
    )
    _print(output, show_listing(found), document=show_document(found), heading=show_text(found))


@app.command()
def diff(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(help="the pipeline", show_default=False)],
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="[A]",
            help="a build; default: the one that serves while a candidate is on its way, else the one that served before",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="another build; default: the candidate, else the one that serves",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", help="only this table; again for more", show_default=False),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=0, max=10_000, help="so many rows of each kind are shown")
    ] = 5,
    output: As = Form.TABLE,
) -> None:
    """Compare the rows of two builds of a pipeline at equal offsets: added, removed, changed by column."""
    from replay.verify.diff_listing import diff_document, diff_listing, diff_text
    from replay.verify.pairs import builds_to_compare, compare_pair, pin_equal
    from serving.query.query import Limits

    here = _here(context)
    builds = builds_to_compare(here.state(), pipeline, before, after)
    with (
        _talk().status("comparing"),
        pin_equal(here.store, *builds, lease_seconds=here.lease_seconds) as (pair, pinned),
    ):
        log = None if here.bootstrap_servers is None else here.log()
        found = compare_pair(
            here.store,
            pair,
            pinned,
            log=log,
            limits=Limits.of(here.settings.verify, here.store),
            samples=sample,
            only=table,
        )
    if output is not Form.TABLE:
        _print(output, diff_listing(found), document=diff_document(pair, found))
        return
    sys.stdout.write(
        diff_text(
            pair,
            found,
            {each.name: each.keys for each in pinned.snapshot.births[pair.after.build].tables},
        )
    )


@app.command()
def prove(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(help="the pipeline", show_default=False)],
    slices: Annotated[
        str,
        typer.Option(
            "--slices",
            metavar="random|one|N",
            help="how the log is cut: at random, not at all (a plain Spark batch job), or in N slices",
        ),
    ] = "random",
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            help="cut at random as a proof before that printed this seed",
            show_default=False,
        ),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Fold the log again in other slices, beside what serves, and compare: equal rows, with their hash, or those that differ (exit code 4; 1 where nothing can be proved)."""
    from kappa.base.errors import VerificationFailed
    from replay.prove.proof_text import proof_document, proof_listing, proof_text
    from replay.prove.prove import cutting
    from replay.prove.prove import prove as compare_again

    here = _here(context)
    how = cutting(slices, seed)
    with _talk().status("looking at the log") as moving:
        proof = compare_again(
            here.settings, here.store, here.log(), pipeline, how, on_progress=moving.update
        )
    if output is Form.TABLE:
        sys.stdout.write(proof_text(proof))
    else:
        _print(output, proof_listing(proof), document=proof_document(proof))
    found = proof.proved
    if not found.equal:
        raise VerificationFailed(
            f"pipeline {pipeline} is not proved: what serves is not what the log gives again at {found.offsets}",
            hint=f"it serves as before; kappa replay {pipeline} makes a new build of it, and kappa history keeps what was found",
        )


@app.command()
def logs(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="supervisor, broker, verification, http, archiver, a build, or a pipeline"
        ),
    ] = "supervisor",
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="go on with what is written")
    ] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="how many of the last lines")
    ] = 40,
) -> None:
    """Show what the supervisor, the broker or a build's job said."""
    from replay.look.logs import following, last_lines, log_file

    here = _here(context)
    path = log_file(here.store, here.state(), name)
    said, position = last_lines(path, lines)
    _write(said)
    for more in following(path, position) if follow else ():
        _write(more)


@rejects_app.command("list")
def rejects_list(
    context: typer.Context,
    pipeline: OnePipeline = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="how many of the newest; 0 for all")
    ] = 20,
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason",
            help="only those with this reason: wrong_type, missing_field, ...",
            show_default=False,
        ),
    ] = None,
    build: OfBuild = None,
    output: As = Form.TABLE,
) -> None:
    """List the newest: where they lie, what they hold, and why. `kappa rejects` alone does the same."""
    from replay.look.listings import rejects_listing
    from serving.rejects.rejects import Wanted, newest_rejects

    here = _here(context)
    _print(
        output,
        rejects_listing(
            newest_rejects(
                here.store,
                Wanted(pipeline, build, reason),
                limit=lines or None,
                lease_seconds=here.lease_seconds,
            )
        ),
    )


@rejects_app.command("show")
def rejects_show(
    context: typer.Context,
    place: Annotated[
        str,
        typer.Argument(metavar="TOPIC:PARTITION:OFFSET", help="where it lies", show_default=False),
    ],
    build: OfBuild = None,
    output: As = Form.TABLE,
) -> None:
    """Show all of one record that was rejected, once for each pipeline that has rejected it."""
    from kappa.records.redrive import parse_position
    from replay.look.listings import reject_text, rejects_listing
    from serving.rejects.rejects import Wanted, newest_rejects

    here = _here(context)
    at = parse_position(place)
    found = newest_rejects(
        here.store, Wanted(build=build, at=at), limit=None, lease_seconds=here.lease_seconds
    )
    if not found:
        raise UsageError(
            f"{at} is no reject of {f'build {build}' if build else 'what serves'}",
            hint="see kappa rejects list",
        )
    if output is Form.TABLE:
        sys.stdout.write("\n".join(map(reject_text, found)))
    else:
        _print(output, rejects_listing(found))


@rejects_app.command("export")
def rejects_export(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[PIPELINE] FILE",
            help="one pipeline; a new file for the lines, or - for stdout",
            show_default=False,
        ),
    ],
    reason: Annotated[
        str | None, typer.Option("--reason", help="only those with this reason", show_default=False)
    ] = None,
) -> None:
    """Write those that are still to be mended as lines of JSON, to mend and then to redrive.

    A line is an envelope as `kappa produce --envelope` reads it: "value" is a JSON object, or a text; what is no UTF-8 is in
    base 64, and "base64" names it. The header kappa-redrive names the original, and has to stay.
    """
    from serving.rejects.redrive import export_line, to_mend
    from serving.rejects.rejects import Wanted, rejects_in_order

    if len(arguments) > 2:
        raise UsageError(
            f"{len(arguments)} arguments were given", hint="kappa rejects export [PIPELINE] FILE"
        )
    here = _here(context)
    pipeline, file = (arguments[0] if len(arguments) == 2 else None), arguments[-1]
    found = to_mend(
        rejects_in_order(
            here.store, Wanted(pipeline, reason=reason), lease_seconds=here.lease_seconds
        )
    )
    with _new_file(file) as lines:
        lines.writelines(f"{export_line(reject)}\n".encode() for reject in found)
    _say(
        f"{len(found):,} rejects; once they are mended: kappa rejects redrive {'FILE' if file == '-' else file}"
    )


@rejects_app.command("redrive")
def rejects_redrive(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            help="a file with mended lines of kappa rejects export, or - for stdin",
            show_default=False,
        ),
    ],
    yes: Yes = False,
    output: As = Form.TABLE,
) -> None:
    """Produce mended rejects again: each is folded once, in place of the record that its header names."""
    from kappa.state.build import read_birth
    from serving.rejects.redrive import plan_redrive, read_lines
    from serving.rejects.rejects import Wanted, rejects_in_order

    here = _here(context)
    with _lines(file) as lines:
        read = read_lines(lines)
    topics = sorted({line.names.topic for line in read})
    found = rejects_in_order(here.store, Wanted(topics=topics), lease_seconds=here.lease_seconds)
    log = here.log()
    births = {build: read_birth(here.store, build) for build in {reject.build for reject in found}}
    planned = plan_redrive(read, found, births, {topic: log.facts(topic) for topic in topics})
    sys.stdout.write(planned.text) if output is Form.TABLE else _say(planned.text.rstrip("\n"))
    sys.stdout.flush()
    if planned.records:
        _agree(
            f"rejects redrive {file}",
            yes=yes,
            question="produce them?",
            what="records would be produced",
            undone="nothing was produced",
        )
    sent = {topic: log.produce(records, topic) for topic, records in planned.records.items()}
    count = sum(each.count for each in sent.values())
    _say(f"{count} records acknowledged; what becomes of them: kappa rejects list")
    rows = tuple((*row,) for each in sent.values() for row in each.offsets.items())
    _print(
        output,
        Listing(("topic", "partition", "next_offset"), rows),
        document={
            "acknowledged": count,
            "folded_already": planned.folded_already,
            "unmended": planned.unmended,
        },
    )


@app.command()
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

    here = _here(context)
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
        _say(f"generation {found.generation}: {'; '.join(shown)}")
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
    _print(output, listing, document=document)


@app.command()
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

    here = _here(context)
    found = served_tables(
        here.store,
        when=_moment(at_generation, at, at_offsets, at_event_time),
        lease_seconds=here.lease_seconds,
    )
    _print(output, tables_listing(found, columns_as_text=output is Form.TABLE))


@app.command()
def gc(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say what would be deleted")
    ] = False,
    output: As = Form.TABLE,
) -> None:
    """Delete what nobody needs: retired builds, files that nothing refers to, expired leases. Running jobs keep their own builds in shape."""
    from replay.look.listings import gc_listing
    from replay.retire import gc as collection

    here = _here(context)
    collect = collection.look if dry_run else collection.gc
    found = collect(
        here.store,
        keep_seconds=here.settings.history.keep_seconds,
        now=time.time(),
        temp=here.settings.verify.temp,
    )
    listing = gc_listing(found, done=not dry_run)
    _print(
        output,
        listing,
        document={
            "dry_run": dry_run,
            "bytes": sum(each.bytes for each in found),
            "found": listing.objects(),
        },
    )


def main() -> None:
    """The program `kappa`."""
    # What is typed is UTF-8 too: in the language C Python takes its bytes apart.
    sys.exit(run([os.fsencode(each).decode(errors="surrogateescape") for each in sys.argv[1:]]))


def run(arguments: list[str]) -> int:
    """Runs one command and gives its exit code; what went wrong is one sentence and a hint on stderr."""
    if sys.stdout is None:
        # Closed by who started us: there is nobody to answer, and still something to do.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # to the end of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Data are UTF-8 whatever the machine's language is.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        # Typer's own main has other exit codes for an interrupt and a broken pipe.
        command = typer.main.get_command(app)
        with command.make_context("kappa", arguments) as context:
            command.invoke(context)
        sys.stdout.flush()
    except Exit as ended:
        return ended.exit_code
    except KappaError as error:
        return _failed(error)
    except TyperException as error:
        return _misused(error)
    except (KeyboardInterrupt, Abort):
        _say("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Who read us has seen enough (`kappa history | head`).
        _write_no_more()
        return ExitCode.OK
    except OSError as error:
        _write_no_more()
        return _failed(
            KappaError(
                f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}",
                hint="what there was to print may not all be written",
            )
        )
    return ExitCode.OK


def _write_no_more() -> None:
    # Python would complain again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(error: KappaError) -> int:
    _say(f"error: {error.message}")
    if error.hint:
        _say(f"hint: {error.hint}")
    return error.exit_code


def _misused(error: TyperException) -> int:
    context, said = getattr(error, "ctx", None), error.format_message()
    # Nothing to say: it was nothing but the name of a group, and its help is printed.
    if said:
        _say(f"error: {said}")
        _say(f"hint: {context.command_path if context is not None else 'kappa'} --help")
    return ExitCode.USAGE


def _here(context: typer.Context) -> Here:
    here = context.obj
    assert isinstance(here, Here), "the callback has run"
    return here


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _talk() -> Console:
    return _console(stderr=True)


def _print(form: Form, listing: Listing, *, document: object = None, heading: str = "") -> None:
    sys.stdout.write(rendered(form, listing, document=document, heading=heading))


def _write(said: bytes) -> None:
    sys.stdout.write(said.decode(errors="backslashreplace"))
    sys.stdout.flush()


@contextlib.contextmanager
def _lines(file: str) -> Iterator[Iterable[bytes]]:
    """The lines of a file, or of stdin."""
    if file == "-":
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as closing:
        try:
            lines = closing.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise UsageError(
                f"{file} cannot be read: {error.strerror}",
                hint="give a file with a record a line, or - for stdin",
            ) from error
        yield lines


@contextlib.contextmanager
def _new_file(file: str) -> Iterator[BinaryIO]:
    """A file that was not there before, or stdout."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    with contextlib.ExitStack() as closing:
        try:
            made = closing.enter_context(Path(file).open("xb"))
        except FileExistsError as error:
            raise UsageError(
                f"{file} is there already, and may be mended in part",
                hint="give a new file, or delete it",
            ) from error
        except OSError as error:
            raise UsageError(
                f"{file} cannot be written: {error.strerror}",
                hint="give a new file, or - for stdout",
            ) from error
        yield made


def _named(name: str, known: Mapping[str, _Known], what: str) -> _Known:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise UsageError(
            f"the project declares no {what} {name}",
            hint=f"did you mean {near[0]}?"
            if near
            else f"it declares {', '.join(known) or 'none'}",
        )
    return known[name]


def _moment(
    at_generation: int | None, at: str | None, at_offsets: str | None, at_event_time: str | None
) -> Past | None:
    """The moment of the past that was asked for, if one was."""
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
        return AtEventTime(_time(at_event_time))
    return None if at is None else AtTime(_time(at))


def _time(text: str) -> datetime:
    """A time that was typed, and whose zone is told where it was not."""
    from serving.pin.past import parse_time

    time, with_zone = parse_time(text)
    if not with_zone:
        _say(f"{text} is taken as UTC")
    return time


def _planned(
    here: Here, pipeline: str | None, *, again: bool, accepting: Accepting
) -> tuple[Plan, Observed]:
    from replay.plan.plan import make_plan

    observed = _observed(here, pipeline)
    return make_plan(observed, only=pipeline, again=again, accepting=accepting), observed


def _observed(here: Here, pipeline: str | None) -> Observed:
    from replay.plan.observe import observe

    log = here.log()
    with _talk().status("planning"):
        return observe(here.settings, here.store, log, only=pipeline)


def _staged(
    here: Here,
    command: str,
    pipeline: str | None,
    *,
    again: bool,
    accepting: Accepting,
    yes: bool,
    auto_promote: bool,
) -> tuple[int, ...]:
    """Plans, shows the plan, asks, and begins its rollouts; gives their numbers."""
    here.must_run()
    made, _ = _planned(here, pipeline, again=again, accepting=accepting)
    return _begun(here, command, pipeline, made, yes=yes, auto_promote=auto_promote)


def _begun(
    here: Here, command: str, pipeline: str | None, made: Plan, *, yes: bool, auto_promote: bool
) -> tuple[int, ...]:
    from replay.plan.plan_text import plan_text
    from replay.plan.stage import stage

    sys.stdout.write(plan_text(made))
    sys.stdout.flush()
    made.ensure_possible()
    if not made.has_changes:
        return ()
    _agree(_typed(command, pipeline), yes=yes)
    _hold_to_law(here, made)
    return stage(here.store, made, auto_promote=auto_promote)


def _hold_to_law(here: Here, made: Plan) -> None:
    from replay.plan.law import ensure_lawful

    with _talk().status("trying it on a sample of the log, cut in several ways"):
        ensure_lawful(here.settings, here.store, here.log(), made)


def _roll_out(
    here: Here,
    command: str,
    pipeline: str | None,
    *,
    again: bool,
    accepting: Accepting,
    yes: bool,
    auto_promote: bool,
    timeout: float | None,
) -> None:
    _brought_on(
        here,
        _staged(
            here,
            command,
            pipeline,
            again=again,
            accepting=accepting,
            yes=yes,
            auto_promote=yes or auto_promote,
        ),
        timeout,
    )


def _brought_on(here: Here, numbers: tuple[int, ...], timeout: float | None) -> None:
    """Follows rollouts until each serves or waits for a yes, and asks for that."""
    waiting: list[Rollout] = []

    def bring_on(number: int) -> None:
        ended = _follow(here, number, timeout, to_the_yes=True)
        if ended.waits:
            waiting.append(ended)

    _all_told(bring_on, numbers)
    if waiting:
        _agree(
            _typed("promote", " ".join(rollout.pipeline for rollout in waiting)),
            yes=False,
            question="promote?",
        )
        _promoted(here, waiting, timeout)


def _apply(here: Here, file: Path, *, timeout: float | None) -> None:
    """Walks a saved plan to its end with no question: it was agreed on when it was saved. Raises Conflict where it is stale."""
    from replay.plan.plan_text import plan_text
    from replay.plan.saved_plan import SavedPlan
    from replay.plan.stage import stage

    here.must_run()
    saved = SavedPlan.read(file)
    made = saved.plan_again(file, _observed(here, saved.only))
    sys.stdout.write(plan_text(made))
    sys.stdout.flush()
    made.ensure_possible()
    _hold_to_law(here, made)
    _all_told(
        lambda number: _follow(here, number, timeout), stage(here.store, made, auto_promote=True)
    )


def _promoted(here: Here, ready: Iterable[Rollout], timeout: float | None) -> None:
    """Says yes to these candidates together, which were shown, and follows each until it serves."""
    from kappa.journal.journal import PromoteAsked
    from replay.look.progress import ensure_not_waiting
    from replay.rollout.intents import ask_promote

    asked = ask_promote(here.store, seen=[rollout.number for rollout in ready]).event
    assert isinstance(asked, PromoteAsked)
    # What happened up to the yes was told before it was asked for.
    _all_told(
        lambda number: ensure_not_waiting(
            _follow(here, number, timeout, to_the_yes=True, known=here.state().rollout(number))
        ),
        (asked.rollout, *asked.together),
    )


def _all_told(act: Callable[[int], object], numbers: Iterable[int]) -> None:
    """Does it for each rollout, whatever becomes of the others. All errors are told; the first decides the exit code."""
    refused = []
    for number in numbers:
        try:
            act(number)
        except KappaError as error:
            refused.append(error)
    for other in refused[1:]:
        _failed(other)
    for first in refused[:1]:
        raise first


def _typed(command: str, pipeline: str | None) -> str:
    return command if pipeline is None else f"{command} {pipeline}"


def _agree(
    command: str,
    *,
    yes: bool,
    question: str = "go on?",
    what: str = "this changes what serves",
    undone: str = "what serves was not changed",
) -> None:
    """Asks once, on a terminal. Raises ConsentNeeded where the answer is no, or nobody is there to give one."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConsentNeeded(
            f"{what}, and there is no terminal to ask on", hint=f"to go on: kappa {command} --yes"
        )
    if not typer.confirm(question, err=True):
        raise ConsentNeeded(undone, hint=f"to go on: kappa {command}")


def _follow(
    here: Here,
    number: int,
    timeout: float | None,
    *,
    to_the_yes: bool = False,
    known: Rollout | None = None,
) -> Rollout:
    """Tells a rollout's progress to its end, or until it waits for a yes. Raises what its end means where it does not serve."""
    from kappa.state.build import read_birth
    from replay.look.follow import follow
    from replay.look.progress import ensure_served, tell

    state = here.state()
    birth = read_birth(here.store, state.rollout(number).build)
    try:
        log = here.log()
        steps = follow(
            here.store,
            number,
            timeout=timeout,
            supervised=lambda: here.running is not None,
            until=lambda rollout: to_the_yes and rollout.waits,
        )
        ended = tell(
            steps,
            log.end(birth.topic_ids),
            _talk(),
            known=known,
            end_now=lambda: log.end(birth.topic_ids),
        )
    except KeyboardInterrupt:
        _say(
            f"rollout {number} goes on; kappa status -w shows it, kappa abandon {birth.pipeline} gives it up"
        )
        raise
    ensure_served(ended)
    if not ended.active:
        print(
            f"{ended.pipeline}: build {ended.build} (version {ended.version}) serves, generation {here.state().generation}"
        )
    return ended


def _status(here: Here, form: Form) -> str:
    from replay.look.listings import status_document, status_heading, status_listing
    from replay.look.status import observe_status
    from replay.rollout.underway import read_underway

    running, broker = here.running, here.bootstrap_servers
    underway = None if running is None else read_underway(here.store)
    seen = observe_status(
        here.store,
        None if broker is None else here.log(),
        soak_seconds=here.settings.rollout.soak_seconds,
        underway=underway,
    )
    now = datetime.now(UTC)
    document = status_document(seen, running, broker, now)
    return rendered(
        form,
        status_listing(seen, now),
        document=document,
        heading=status_heading(seen, running, broker),
    )


if __name__ == "__main__":
    main()
