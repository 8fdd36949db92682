"""Commands on rejects: list and show them, export them for correction, and send them again."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kappa.base.errors import UsageError
from kappa.commands.terminal.help import Commands, GroupHelp
from kappa.commands.terminal.lines import open_lines, open_new_file
from kappa.commands.terminal.options import As, OfBuild, OnePipeline, Quiet, Yes, here_of
from kappa.commands.terminal.output import ask_consent, print_listing, print_report, say
from kappa.commands.terminal.progress import moving
from kappa.serving.query.render import Form, Listing


class _Rejects(GroupHelp):
    """The group of the commands `kappa rejects`.

    `kappa rejects [PIPELINE]` means `kappa rejects list [PIPELINE]`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer has no public name for the type of `ctx`.
        return super().parse_args(
            ctx,
            args
            if args and (args[0] in self.commands or args[0] in {"-h", "--help"})
            else ["list", *args],
        )


app = Commands(
    cls=_Rejects,
    text="List and show invalid records, export them to fix them, and redrive fixed records.",
)


@app.command("list")
def list_rejects(
    context: typer.Context,
    pipeline: OnePipeline = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="at most so many of the newest; 0: all")
    ] = 20,
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason", help="only rejects with this reason: wrong_type, missing_field, ..."
        ),
    ] = None,
    build: OfBuild = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """List the newest rejects: position, content and reason.

    `kappa rejects` alone does the same.
    """
    from kappa.project.project import Project

    with moving("reading rejects"):
        found = Project(here_of(context)).rejects(
            pipeline, reason=reason, build=build, limit=lines or None
        )
    print_report(output, found)


@app.command("show")
def show_reject(
    context: typer.Context,
    place: Annotated[
        str, typer.Argument(metavar="TOPIC:PARTITION:OFFSET", help="the record's place in the log")
    ],
    build: OfBuild = None,
    output: As = Form.TABLE,
) -> None:
    """Show one rejected record in full, once for each pipeline that has rejected it."""
    from kappa.records.redrive import parse_position
    from kappa.replay.rollout.rollout_numbers import part_named
    from kappa.replay.status.listings import reject_text, rejects_listing
    from kappa.serving.query.rejects import RejectFilter, newest_rejects

    here = here_of(context)
    at = parse_position(place)
    _, build = part_named(here.state, None, build)
    found = newest_rejects(
        here.store, RejectFilter(build=build, at=at), limit=None, lease_seconds=here.lease_seconds
    )
    if not found:
        raise UsageError(
            f"{at} is not a reject of {f'build {build}' if build else 'what serves'}",
            hint="see kappa rejects list",
        )
    if output is Form.TABLE:
        sys.stdout.write("\n".join(map(reject_text, found)))
    else:
        print_listing(output, rejects_listing(found))


@app.command("export")
def export_rejects(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[PIPELINE|ROLLOUT] FILE",
            help="one pipeline or rollout; a new file for the lines, or - for stdout",
        ),
    ],
    reason: Annotated[
        str | None, typer.Option("--reason", help="only rejects with this reason")
    ] = None,
    _quiet: Quiet = False,
) -> None:
    """Export the rejects that are not fixed yet as lines of JSON, for correction.

    Correct the lines, and send them again with kappa rejects redrive. A line is an envelope as
    `kappa produce --envelope` reads it. "value" is a JSON object, or a text. Bytes that are not
    UTF-8 are encoded in base 64, and "base64" names the fields with such bytes. Keep the header
    kappa-redrive: it names the original record.

    Late rejects and expired rejects are not exported: a redriven record is as late as its original.
    If the timestamps of such rejects are wrong, export the rejects with --reason late or --reason
    expired.
    """
    from kappa.base.units import count_of
    from kappa.replay.rollout.rollout_numbers import part_named
    from kappa.serving.query.redrive import export_line, is_mendable, rejects_to_mend
    from kappa.serving.query.rejects import RejectFilter, rejects_in_order

    if len(arguments) > 2:
        raise UsageError(
            f"{len(arguments)} arguments were given", hint="kappa rejects export [PIPELINE] FILE"
        )
    here = here_of(context)
    pipeline, file = (arguments[0] if len(arguments) == 2 else None), arguments[-1]
    wanted = RejectFilter(*part_named(here.state, pipeline, None), reason)
    with moving("reading rejects"):
        unfixed = rejects_to_mend(
            rejects_in_order(here.store, wanted, lease_seconds=here.lease_seconds)
        )
    found = [each for each in unfixed if each.reason == reason or is_mendable(each)]
    with open_new_file(file) as lines:
        lines.writelines(f"{export_line(reject)}\n".encode() for reject in found)
    say(
        f"{count_of(len(found), 'reject')}; to redrive what you have fixed: kappa rejects redrive "
        f"{'FILE' if file == '-' else file}"
        if found
        else "no rejects"
    )
    if left_out := len(unfixed) - len(found):
        say(
            f"left out: {count_of(left_out, 'late reject')}, since a redriven record is as late as "
            "its original; to export them because their times are wrong: --reason late, or expired"
        )


@app.command("redrive")
def redrive_rejects(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(help="a file with fixed lines of kappa rejects export, or - for stdin")
    ],
    yes: Yes = False,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Send corrected rejects to their topics again.

    Each corrected record is folded once, instead of the original record that its header names.
    """
    from kappa.base.units import count_of
    from kappa.replay.rollout.operator_requests import ask_redrive
    from kappa.serving.query.redrive import plan_lines, produce_redrive
    from kappa.state.root import ensure_no_copy

    here = here_of(context)
    ensure_no_copy(here.store)
    with open_lines(file) as lines, moving("reading rejects"):
        planned = plan_lines(here.store, lines, here.log, lease_seconds=here.lease_seconds)
    sys.stdout.write(planned.as_text) if output is Form.TABLE else say(planned.as_text.rstrip("\n"))
    sys.stdout.flush()
    if planned.records:
        ask_consent(
            f"rejects redrive {file}",
            yes=yes,
            question="produce them?",
            what="records would be produced",
            undone="nothing was produced",
        )
    ask_redrive(here.store, planned.pipelines)
    sent = produce_redrive(here.store, planned, here.log(), lease_seconds=here.lease_seconds)
    count = sum(each.count for each in sent.values())
    say(
        f"{count_of(count, 'record')} acknowledged; "
        f"what becomes of {'it' if count == 1 else 'them'}: kappa rejects list"
    )
    rows = tuple((*row,) for each in sent.values() for row in each.offsets.items())
    print_listing(
        output,
        Listing(("topic", "partition", "next_offset"), rows),
        document={
            "acknowledged": count,
            "folded_already": planned.folded_already,
            "unmended": planned.unmended,
        },
    )
