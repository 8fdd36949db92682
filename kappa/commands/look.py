"""Commands that show the present state, the history and the logs, or compare rows."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kappa.base.errors import ExitCode, UsageError
from kappa.commands.terminal.colour import has_colour, paint_rows
from kappa.commands.terminal.options import As, Quiet, here_of
from kappa.commands.terminal.output import (
    LinePrefixes,
    console,
    print_listing,
    print_report,
    rendered,
    write_bytes,
)
from kappa.commands.terminal.progress import moving
from kappa.serving.query.render import Form

if TYPE_CHECKING:
    from kappa.replay.status.context import ProjectContext
    from kappa.replay.status.logs import LogLevel


_WATCH_SECONDS = 1.0


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="keep showing it")] = False,
    output: As = Form.TABLE,
) -> None:
    """Show the live builds, rollouts in progress, lag, and the running processes."""
    here = here_of(context)
    if not watch:
        text, damaged = _status_text(here, output)
        sys.stdout.write(text)
        if damaged:
            raise typer.Exit(ExitCode.FAILED)
        return
    if output is not Form.TABLE:
        raise UsageError("watching shows a table", hint=f"leave out -w, or -o {output}")
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(stderr=False), auto_refresh=False) as live:
        while True:
            live.update(
                Text.from_ansi(
                    _status_text(here, output)[0].rstrip("\n"), no_wrap=True, overflow="ellipsis"
                ),
                refresh=True,
            )
            time.sleep(_WATCH_SECONDS)


def history(
    context: typer.Context,
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="the history of one pipeline")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="only so many, the newest")
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """List all rollouts with their receipts, all proofs, retirements, pauses and redrives.

    Each line names the person, the time, the build, the reason and the outcome. The newest is last.
    """
    from kappa.project.project import Project

    print_report(output, Project(here_of(context)).history(pipeline, limit=limit))


def show(
    context: typer.Context,
    generation: Annotated[
        int | None, typer.Argument(metavar="GENERATION", help="its number, from kappa history")
    ] = None,
    rollout: Annotated[
        int | None,
        typer.Option(
            "--rollout", metavar="ROLLOUT", help="the generation that this rollout has made"
        ),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Show one generation in full: who made it, when, why and from which code, and its receipt."""
    from kappa.replay.rollout import generation as generations
    from kappa.replay.rollout.history import generation_meant
    from kappa.replay.status.outgoing_changes import sent_in
    from kappa.state.build import read_birth

    here = here_of(context)
    state = here.state()
    generation = generation_meant(state, generation, rollout)
    births = {
        build: read_birth(here.store, build)
        for build in generations.serving_in(state, generation).values()
    }
    found = generations.generation_details(
        state,
        generation,
        births,
        {build: generations.code_of(here.store, birth) for build, birth in births.items()},
        {
            switched: tuple(each.text for each in sends)
            for switched, sends in sent_in(
                here.store, state, generation, most=here.settings.alerts.most
            ).items()
        },
    )
    print_listing(
        output,
        generations.show_listing(found),
        document=generations.show_document(found),
        heading=generations.show_text(found),
    )


def diff(
    context: typer.Context,
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE|ROLLOUT",
            help="the pipeline, or the number of a rollout whose build is one of the two",
        ),
    ],
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUILD|ROLLOUT]",
            help="a build, or the number of its rollout; default: the one that serves while a "
            "candidate is on its way, else "
            "the one that served before",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUILD|ROLLOUT]",
            help="another build; default: the candidate, else the live build",
        ),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="only this table; repeat for more")
    ] = None,
    sample: Annotated[
        int,
        typer.Option(
            "--sample",
            min=0,
            max=10_000,
            help="so many rows of each kind are shown, the largest differences first",
        ),
    ] = 5,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Compare the rows of two builds of a pipeline at equal offsets.

    The command shows added and removed rows, and the columns in which changed rows differ.
    """
    from kappa.project.project import Project

    with moving("comparing"):
        found = Project(here_of(context)).diff(pipeline, before, after, tables=table, sample=sample)
    if output is not Form.TABLE:
        print_listing(output, found.listing, document=found.document)
        return
    sys.stdout.write(paint_rows(found.text) if has_colour(sys.stdout) else found.text)


def prove(
    context: typer.Context,
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE|ROLLOUT",
            help="the pipeline, or the number of the rollout that serves it",
        ),
    ],
    slices: Annotated[
        str,
        typer.Option(
            "--slices",
            metavar="random|one|N",
            help="how the log is cut: at random, not at all (a plain Spark batch job), or in N "
            "slices",
        ),
    ] = "random",
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, help="cut at random as a proof before that printed this seed"
        ),
    ] = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Fold the log again in other slices, next to the live build, and compare the rows.

    If the rows are equal, the command prints their hash; otherwise it prints the rows that differ
    (exit code 4). Exit code 1 if nothing can be proved.
    """
    from kappa.base.errors import VerificationFailed
    from kappa.replay.rollout.prove.proof_text import proof_document, proof_listing, proof_text
    from kappa.replay.rollout.prove.prove import prove_pipeline as compare_again
    from kappa.replay.rollout.prove.slice_cuts import parse_cutting

    here = here_of(context)
    how = parse_cutting(slices, seed)
    with moving("looking at the log") as show:
        proof = compare_again(
            here.settings, here.store, here.log(), pipeline, how, on_progress=show
        )
    if output is Form.TABLE:
        sys.stdout.write(proof_text(proof))
    else:
        print_listing(output, proof_listing(proof), document=proof_document(proof))
    found = proof.proved
    if not found.equal:
        raise VerificationFailed(
            f"pipeline {found.pipeline} is not proved: the log gives other rows than its tables at "
            f"{found.offsets}",
            hint=f"it serves as before; kappa replay {found.pipeline} makes a new build of it, and "
            "kappa history keeps what was found",
        )


def logs(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROCESS|PIPELINE|BUILD|ROLLOUT]",
            help="supervisor, broker, verification, http, archiver, courier, collector, a build, "
            "a pipeline, or the number of a rollout; all, if none is named",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="keep printing new lines")] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="how many of the last lines")
    ] = 40,
    level: Annotated[
        Literal["warning", "error"] | None,
        typer.Option("--level", help="only lines of this level: errors, or warnings and errors"),
    ] = None,
) -> None:
    """Show the logs of all processes, or of one process, such as the supervisor or a build's job.

    In the logs of all processes, each line begins with the name of its process.
    """
    from kappa.replay.status.logs import (
        LevelFilter,
        LogLevel,
        follow_files,
        last_leveled_lines,
        log_file,
    )

    here, least = here_of(context), None if level is None else LogLevel(level)
    if name is None:
        _show_all_logs(here, lines, least, follow=follow)
        return
    path = log_file(here.store, here.state(), name)
    text, position = last_leveled_lines(path, lines, least)
    write_bytes(text)
    shown = LevelFilter(least)
    found = follow_files(lambda: {name: path}, {name: position})
    for _, more in found if follow else ():
        write_bytes(shown.kept_bytes(more))


def _show_all_logs(
    here: ProjectContext, lines: int, least: LogLevel | None, *, follow: bool
) -> None:
    from kappa.replay.status.logs import (
        LevelFilter,
        follow_files,
        last_leveled_lines,
        log_files,
    )

    files = log_files(here.store, here.state())
    if not files and not follow:
        raise UsageError("no process has written a log yet", hint="start them with: kappa up -d")
    # Names of builds are longer than those of processes.
    prefixes = LinePrefixes(max(map(len, files), default=0))
    positions = {}
    for each, path in files.items():
        text, end = last_leveled_lines(path, lines, least)
        whole, ended, begun = text.rpartition(b"\n")
        positions[each] = end - len(begun)
        prefixes.write(each, whole + ended)
    found = follow_files(lambda: log_files(here.store, here.state()), positions)
    shown = dict[str, LevelFilter]()
    for each, text in found if follow else ():
        prefixes.write(each, shown.setdefault(each, LevelFilter(least)).kept_bytes(text))


def _status_text(here: ProjectContext, form: Form) -> tuple[str, bool]:
    """Renders the status in the given form, and returns the text.

    The second element of the result is True if a record that the status needs is damaged.
    """
    from kappa.project.project import Project

    seen = Project(here).status()
    text = rendered(form, seen.listing, document=seen.document, heading=seen.heading)
    return text, bool(seen.document["damaged"])


def sinks(context: typer.Context, output: As = Form.TABLE) -> None:
    """Show each sink: records sent, its lag behind the tables, and the last error."""
    from kappa.serving.outlets.sinks.sink_status import sink_statuses, sinks_listing

    print_listing(output, sinks_listing(sink_statuses(here_of(context).store, time.time())))
