"""Parses and formats the times of snapshots, and waits for a snapshot that includes a write."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kappa.base.errors import TimedOut
from kappa.commands.terminal.output import say
from kappa.commands.terminal.progress import moving
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from datetime import datetime

    from kappa.project.project import Produced
    from kappa.replay.status.context import ProjectContext
    from kappa.serving.query.pin.snapshot import Snapshot


def moment_text(snapshot: Snapshot) -> str:
    """Describes a snapshot: its generation, and the frontier of each pipeline."""
    from kappa.serving.query.pin.snapshot import head_of

    head = head_of(snapshot)
    shown = (
        f"{pipeline} as shown from {each['shown_at']} on (build {each['build']}, "
        f"{'nothing read' if each['log_time'] is None else 'log time ' + each['log_time']})"
        for pipeline, each in head["builds"].items()
    )
    return f"generation {head['generation']}: {'; '.join(shown)}"


def read_time(text: str) -> datetime:
    """Parses a time. Prints a note to stderr if the time has no time zone."""
    from kappa.serving.query.pin.moments import parse_time

    time, with_zone = parse_time(text)
    if not with_zone:
        say(f"{text} is taken as UTC")
    return time


def ensure_shown(here: ProjectContext, token: Offsets, timeout: float | None) -> None:
    """Waits until readers see all records of a write token.

    `token` contains the offset after the last record, for each partition. A progress line is shown
    during the wait. If `timeout` is None, the default of `Project.wait_until_shown` applies. Raises
    TimedOut, with the known reasons, if the wait takes longer than `timeout` seconds.
    """
    from kappa.project.project import Project

    with moving("waiting until readers see it"):
        Project(here).wait_until_shown(token, timeout=timeout)


def ensure_some_reads(here: ProjectContext, topic: str) -> None:
    """Raises UsageError if no serving build reads a topic.

    If no build reads the topic, readers never see the topic's records, and a wait would be useless.
    """
    from kappa.serving.query.pin.write_token import ServedLook, pipelines_behind

    pipelines_behind(Offsets({topic: {}}), ServedLook(here.store).shown_offsets())


def ensure_written_shown(
    here: ProjectContext, acknowledged: Produced, timeout: float | None
) -> None:
    """Flushes stdout, and waits until readers see the records that a command has sent.

    Raises TimedOut if the wait takes longer than `timeout` seconds. The message of the error states
    that the broker has acknowledged the records.
    """
    sys.stdout.flush()
    try:
        ensure_shown(here, acknowledged.offsets, timeout)
    except TimedOut as late:
        raise TimedOut(
            f"{acknowledged.count} "
            f"{'record is' if acknowledged.count == 1 else 'records are'} acknowledged, "
            f"and readers do not see all of them: {late.message}",
            hint=late.hint,
        ) from late
