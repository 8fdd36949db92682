"""A rollout that is followed until it serves, ends, or waits for a yes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError, Unreachable
from kappa.replay.status.context import ProjectContext

if TYPE_CHECKING:
    from rich.console import Console

    from kappa.kafka.client import Log
    from kappa.replay.rollout.rollout import Rollout
    from kappa.state.build import Birth
    from kappa.state.offsets import Offsets

# ruff: noqa: PLC0415  # importing the package imports what a call needs, and nothing else


def follow_to_end(
    here: ProjectContext,
    id_: int,
    *,
    timeout: float | None = None,
    to_the_yes: bool = False,
    console: Console | None = None,
    known: Rollout | None = None,
) -> Rollout:
    """Follows a rollout to its end, or (`to_the_yes`) until it waits for a yes. Returns it.

    `timeout` is in seconds. A `console` shows the progress, except for the events that `known`
    already has. If the rollout ends without serving, raises the error for this kind of end; raises
    TimedOut after the timeout, and Unreachable if no supervisor is up. The rollout continues in
    either case.
    """
    from kappa.replay.status.follow import follow_rollout, raise_unless_served, show_progress
    from kappa.replay.status.outgoing_changes import sends_at_switch
    from kappa.state.build import read_birth

    begun = here.state().rollout(id_)
    birth = read_birth(here.store, begun.build)
    log, end = _log_of(here, begun, birth)
    steps = follow_rollout(
        here.store,
        id_,
        timeout=timeout,
        supervised=lambda: here.running is not None,
        until=lambda rollout: to_the_yes and rollout.waits,
    )
    ended = show_progress(
        steps,
        end,
        console,
        known=known,
        end_now=lambda: log.end(birth.topic_ids),
        sends=lambda rollout: sends_at_switch(
            here.store, here.state(), rollout, most=here.settings.alerts.most
        ),
    )
    raise_unless_served(ended)
    return ended


def for_each_rollout(
    act: Callable[[int], object],
    ids: Iterable[int],
    tell: Callable[[KappaError], object] = lambda _error: None,
) -> None:
    """Calls a function for each rollout, even after an error.

    The first error is raised at the end; `tell` takes the others.
    """
    refused = []
    for id_ in ids:
        try:
            act(id_)
        except KappaError as error:
            refused.append(error)
    for other in refused[1:]:
        tell(other)
    for first in refused[:1]:
        raise first


def _log_of(here: ProjectContext, begun: Rollout, birth: Birth) -> tuple[Log, Offsets]:
    """Returns the broker's client and the end offsets of the topics that a rollout reads.

    Raises Unreachable; the message says that the rollout has begun nevertheless.
    """
    try:
        log = here.log()
        return log, log.end(birth.topic_ids)
    except Unreachable as error:
        raise Unreachable(
            f"rollout {begun.number} of pipeline {begun.pipeline} has begun, and cannot be "
            f"followed: {error.message}",
            hint=f"kappa up -d continues it, kappa wait {begun.number} follows it, "
            f"kappa abandon {begun.number} gives it up",
        ) from error
