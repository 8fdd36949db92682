"""The commands `doctor` and `scrub`: find and repair damage in the root."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import Copied, Damaged, ExitCode, KappaError, UsageError
from kappa.commands.terminal.options import As, Quiet, Yes, here_of
from kappa.commands.terminal.output import ask_consent, print_listing, say
from kappa.commands.terminal.progress import moving
from kappa.replay.status.context import ProjectContext
from kappa.serving.query.render import Form, Listing

if TYPE_CHECKING:
    from kappa.kafka.client import Log

# The broker only adds to the answer, so the command does not wait long for an absent broker.
_PATIENCE_SECONDS = 3.0


def doctor(
    context: typer.Context,
    repair: Annotated[
        bool, typer.Option("--repair", help="move the named files aside; asks first")
    ] = False,
    acls: Annotated[
        bool,
        typer.Option("--acls", help="list the least ACLs that the project needs, and nothing else"),
    ] = False,
    script: Annotated[
        bool, typer.Option("--script", help="with --acls: as commands of kafka-acls.sh")
    ] = False,
    yes: Yes = False,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Find damaged records and files, and explain each damage.

    Exit code 1 if anything is damaged and was not repaired. Before a repair, stop the platform with
    `kappa down`. A repair deletes nothing. A file that Kappa can make again from other files is
    moved aside and reported, even without --repair. The command checks only that each data file
    exists and has the expected length; to check the contents, run `kappa scrub`. If the broker
    answers, the command also names topics that match a pattern but are not read, and lists the data
    that would be lost with one broker of a cluster.
    """
    if script and not acls:
        raise UsageError("--script is for --acls", hint="type: kappa doctor --acls --script")
    if acls:
        _print_acls(here_of(context), output, script=script)
        return
    from kappa.base.units import count_of
    from kappa.replay.status.doctor.examine import (
        count_set_aside,
        examine_root,
        unsealed_documents,
        unvouched_builds,
    )
    from kappa.replay.status.doctor.repair import repair_root as move_aside
    from kappa.state.root import own_root
    from kappa.state.store import DAMAGED

    here = here_of(context)
    store = here.store
    with moving("reading all records"):
        found = examine_root(store, now=time.time())
        unsealed = unsealed_documents(store)
    if output is Form.TABLE:
        for number, each in enumerate(found, 1):
            sys.stdout.write("".join(f"{line}\n" for line in each.text_lines(number)))
    else:
        rows = tuple(tuple(asdict(each).values()) for each in found)
        print_listing(output, Listing(("what", "follows", "names", "then", "hint"), rows))
    try:
        own_root(store)
    except Copied as error:
        say(f"{error.message}; {error.hint}")
    except Damaged:
        # The damage was named before.
        pass
    say("not looked at: the rows in data files and archives (kappa scrub reads them), and the log")
    if unsealed:
        say(
            f"without a seal, as an earlier Kappa wrote them: {count_of(len(unsealed), 'document')}"
            f", the first is {unsealed[0]}; changes in them are not noticed; a replay makes sealed "
            "ones"
        )
    log = _answering(here)
    if log is not None:
        _say_unread(here, log)
    for build in unvouched_builds(store):
        say(
            f"build {build}: its newest frontier is of an older Kappa and vouches for no file "
            "lists, so that a damaged Delta log may not be noticed; its next frontier will"
        )
    kept = count_set_aside(store)
    if kept:
        say(f"moved aside and kept in {store.address(DAMAGED)}: {count_of(kept, 'file')}")
    if log is not None:
        _tell_risks(here, log)
    if not found:
        say("nothing is damaged")
        return
    moves = [each for each in found if each.names]
    if repair and moves:
        ask_consent(
            "doctor --repair",
            yes=yes,
            question="move these files aside?",
            what="this moves records aside",
            undone="nothing was moved",
        )
        for path in move_aside(store, moves):
            say(f"moved to {path}")
    if not repair and moves:
        say("hint: kappa down, then kappa doctor --repair: it does this, and keeps what it moves")
    if not repair or len(moves) < len(found):
        raise typer.Exit(ExitCode.FAILED)


def _answering(here: ProjectContext) -> Log | None:
    """Returns a client of the broker, or None if the broker does not answer in 3 seconds.

    If a Kafka cluster that Kappa does not run does not answer, prints a line about it.
    """
    try:
        log = here.log()
        if log.wait_until_ready(_PATIENCE_SECONDS):
            return log
        raise log.answers.unreachable()
    except KappaError as error:
        if not here.settings.runs_broker:
            say(f"what the loss of a broker would take is not known: {error.message}")
    return None


def _say_unread(here: ProjectContext, log: Log) -> None:
    """Prints the topics that match a declared pattern but that no pipeline reads yet."""
    from kappa.replay.status.status import unread_topics
    from kappa.state.build import read_birth

    # Damaged records were named before.
    with suppress(KappaError):
        births = [read_birth(here.store, build) for build in here.state().wanted_builds()]
        for each in unread_topics(births, log):
            say(f"{each.text}: {each.mended_by}")


def _tell_risks(here: ProjectContext, log: Log) -> None:
    """Prints the data that the loss of one broker of a cluster would destroy.

    Prints nothing for Kappa's own broker.
    """
    if here.settings.runs_broker:
        return
    from kappa.replay.status.doctor.cluster import broker_loss_risks

    try:
        found = broker_loss_risks(log, here.pipelines.values())
    except KappaError as error:
        say(f"what the loss of a broker would take is not known: {error.message}")
        return
    for each in found:
        say(f"at risk: {each.message}")
        if each.hint:
            say(f"hint: {each.hint}")


def _print_acls(here: ProjectContext, output: Form, *, script: bool) -> None:
    from kappa.replay.status.doctor.cluster import needed_acls
    from kappa.state.root import read_root

    kafka = here.settings.kafka
    user = kafka.auth.user or kafka.options.get("sasl.username", "NAME")
    principal, servers = f"User:{user}", kafka.bootstrap_servers or "HOST:PORT"
    root = read_root(here.store)
    needed = needed_acls(here.pipelines.values(), "" if root is None else root.writer)
    if script:
        sys.stdout.write("".join(f"{each.acl.typed(servers, principal)}\n" for each in needed))
        return
    rows = tuple(
        (principal, str(acl.kind), acl.name, acl.operation, ", ".join(each.uses))
        for each in needed
        for acl in (each.acl,)
    )
    print_listing(output, Listing(("principal", "kind", "name", "operation", "for"), rows))


def scrub(context: typer.Context, _quiet: Quiet = False, output: As = Form.TABLE) -> None:
    """Read all needed data files, and compare their bytes with the stored checksums.

    The command reads the data files of all builds, of the kept frontiers, and of the archives. It
    changes nothing, and the platform may be up. It reads every byte from the disk, so run it when
    the platform has little to do. Exit code 1 if a file is damaged or missing: the command prints
    the name of the file and the next step.
    """
    from kappa.base.units import count_of, size
    from kappa.replay.status.doctor.scrub import scrub_root as scrubbed

    store = here_of(context).store
    with moving("reading all data files") as show:
        found = scrubbed(
            store,
            show=lambda done, of, bad: show(
                f"reading all data files: {size(done)} of {size(of)}, {bad} bad"
            ),
        )
    if output is Form.TABLE:
        for each in found.bad:
            sys.stdout.write(f"{each.damage_text(store)}\n   hint: {each.hint}\n")
    else:
        print_listing(
            output,
            Listing(
                ("file", "of", "table", "why", "hint"),
                tuple(
                    (
                        store.name(each.path),
                        *(each.of, each.table, each.why, each.hint),
                    )
                    for each in found.bad
                ),
            ),
        )
    unknown = f"; of {found.unknown} no sum was recorded" if found.unknown else ""
    was = "was" if found.files == 1 else "were"
    say(f"{count_of(found.files, 'file')} with {size(found.bytes)} {was} read{unknown}")
    say("not looked at: records and code (kappa doctor), files that nobody needs, and the log")
    if found.bad:
        raise typer.Exit(ExitCode.FAILED)
    say("all that was recorded is as it was written")
