"""The progress of rollouts, shown to the end or until a rollout waits for a yes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError, Unreachable
from kappa.commands.terminal.output import ask_consent, say, show_failure, talk, typed

if TYPE_CHECKING:
    from kappa.kafka.client import Log
    from kappa.replay.rollout.rollout import Rollout
    from kappa.replay.rollout.state import State
    from kappa.replay.status.context import ProjectContext
    from kappa.state.build import Birth
    from kappa.state.offsets import Offsets


def follow_rollout(
    here: ProjectContext,
    id_: int,
    timeout: float | None,
    *,
    to_the_yes: bool = False,
    known: Rollout | None = None,
) -> Rollout:
    """Shows the progress of a rollout to the end, or until the rollout waits for a yes.

    If the rollout ends without serving, raises the error for this kind of end.
    """
    from kappa.replay.status.follow import follow_rollout, raise_unless_served, show_progress
    from kappa.replay.status.outgoing_changes import sends_at_switch
    from kappa.state.build import read_birth

    begun = here.state().rollout(id_)
    birth = read_birth(here.store, begun.build)
    try:
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
            talk(),
            known=known,
            end_now=lambda: log.end(birth.topic_ids),
            sends=lambda rollout: sends_at_switch(
                here.store, here.state(), rollout, most=here.settings.alerts.most
            ),
        )
    except KeyboardInterrupt:
        say(
            f"rollout {begun.number} goes on; kappa wait {begun.number} follows it, kappa abandon "
            f"{begun.number} gives it up"
        )
        raise
    raise_unless_served(ended)
    if not ended.active:
        print(_outcome(here.state(), ended))
    return ended


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
            hint=f"kappa up -d goes on with it, kappa wait {begun.number} follows it, "
            f"kappa abandon {begun.number} gives it up",
        ) from error


def _outcome(state: State, ended: Rollout) -> str:
    """Returns a line about a rollout that served: the generation, and the build that serves now."""
    from kappa.replay.rollout.history import RolloutEntry
    from kappa.replay.rollout.rollout import Phase

    told = f"{ended.pipeline}: build {ended.build} (version {ended.version})"
    made = RolloutEntry(ended, state.served_in(ended.id)).generation
    serving = state.serving.get(ended.pipeline)
    # A later undo may have brought back the same build in another generation.
    is_last = not any(
        later.pipeline == ended.pipeline and later.phase is Phase.SERVED
        for later in state.rollouts[ended.number :]
    )
    if is_last and serving == ended.build:
        return f"{told} serves, generation {made}"
    now = "nothing serves" if serving is None else f"build {serving} serves"
    return f"{told} served, generation {made}; now {now}, generation {state.generation}"


def approve(here: ProjectContext, ready: Iterable[Rollout], timeout: float | None) -> None:
    """Approves these candidates together, and follows each candidate until it serves."""
    from kappa.replay.rollout.operator_requests import ask_promote
    from kappa.replay.status.follow import ensure_not_waiting
    from kappa.state.journal.events import PromoteAsked

    asked = ask_promote(here.store, seen=[rollout.id for rollout in ready]).event
    assert isinstance(asked, PromoteAsked)
    # All events before the yes are on the screen already.
    for_each_rollout(
        lambda id_: ensure_not_waiting(
            follow_rollout(here, id_, timeout, to_the_yes=True, known=here.state().rollout(id_))
        ),
        (asked.rollout, *asked.together),
    )


def for_each_rollout(act: Callable[[int], object], ids: Iterable[int]) -> None:
    """Calls a function for each rollout, even after an error.

    The first error is raised, and decides the exit code; the other errors are printed.
    """
    refused = []
    for id_ in ids:
        try:
            act(id_)
        except KappaError as error:
            refused.append(error)
    for other in refused[1:]:
        show_failure(other)
    for first in refused[:1]:
        raise first


def bring_on(here: ProjectContext, ids: tuple[int, ...], timeout: float | None) -> None:
    """Follows rollouts until each serves or waits for a yes, and asks for the yes."""
    waiting: list[Rollout] = []

    def bring_on(id_: int) -> None:
        ended = follow_rollout(here, id_, timeout, to_the_yes=True)
        if ended.waits:
            waiting.append(ended)

    for_each_rollout(bring_on, ids)
    if waiting:
        ask_consent(
            typed("promote", " ".join(rollout.pipeline for rollout in waiting)),
            yes=False,
            question="promote?",
        )
        approve(here, waiting, timeout)
