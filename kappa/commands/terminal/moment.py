"""Moments of snapshots, as people write and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.commands.terminal.output import say

if TYPE_CHECKING:
    from datetime import datetime

    from kappa.serving.query.pin.snapshot import Snapshot


def moment_text(snapshot: Snapshot) -> str:
    """Returns the generation of a snapshot, and the frontier that it shows of each pipeline."""
    from kappa.serving.query.pin.snapshot import head_of

    head = head_of(snapshot)
    shown = (
        f"{pipeline} as shown from {each['shown_at']} on (build {each['build']}, "
        f"{'nothing read' if each['log_time'] is None else 'log time ' + each['log_time']})"
        for pipeline, each in head["builds"].items()
    )
    return f"generation {head['generation']}: {'; '.join(shown)}"


def read_time(text: str) -> datetime:
    """Parses a time, and prints a note to stderr if the time has no zone."""
    from kappa.serving.query.pin.moments import parse_time

    time, with_zone = parse_time(text)
    if not with_zone:
        say(f"{text} is taken as UTC")
    return time
