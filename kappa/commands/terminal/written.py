"""Commands that wait for what was just written: until readers see it, or time is up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kappa.base.errors import TimedOut
from kappa.commands.terminal.moving import moving
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.producer import Acknowledged
    from kappa.replay.status.context import ProjectContext

# Many times what a slice takes, and a build that rests is woken within.
_SECONDS = 30.0


def ensure_shown(here: ProjectContext, token: Offsets, timeout: float | None) -> None:
    """Waits until what serves and reads the token's topics shows it; shows that it waits.

    Raises TimedOut, with the reasons that are known, if it takes too long.
    """
    from kappa.serving.query.pin.write_token import ensure_covered

    with moving("waiting until readers see it"):
        ensure_covered(
            here.store,
            token,
            seconds=_SECONDS if timeout is None else timeout,
            is_up=lambda: here.running is not None,
        )


def ensure_some_reads(here: ProjectContext, topic: str) -> None:
    """Raises UsageError if nothing that serves reads a topic: a wait for it would have no end."""
    from kappa.serving.query.pin.write_token import ServedLook, pipelines_behind

    pipelines_behind(Offsets({topic: {}}), ServedLook(here.store).shown_offsets())


def ensure_written_shown(
    here: ProjectContext, acknowledged: Acknowledged, timeout: float | None
) -> None:
    """Waits until readers see records; what the command has printed is given out before.

    Raises TimedOut, which says that they are acknowledged, if that takes too long.
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
