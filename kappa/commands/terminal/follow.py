"""Shows the progress of rollouts until they end, or until they wait for the user's approval."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kappa.commands.terminal.output import (
    ask_consent,
    is_quiet,
    print_listing,
    say,
    show_failure,
    talk,
    typed,
)
from kappa.project.project import Project
from kappa.project.project_plan import follow_to_end, for_each_rollout
from kappa.serving.query.render import Form

if TYPE_CHECKING:
    from kappa.replay.rollout.rollout import Rollout
    from kappa.replay.rollout.state import State
    from kappa.replay.status.context import ProjectContext


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """The options that the commands of rollouts share.

    With `yes`, the command asks no question. With `auto_promote`, a candidate that passes its
    verification is promoted without a question. `timeout` is the longest wait in seconds. `reason`
    is recorded in the journal. `output` is the format of the answer.
    """

    yes: bool = False
    auto_promote: bool = False
    timeout: float | None = None
    reason: str = ""
    output: Form = Form.TABLE

    @property
    def is_text(self) -> bool:
        """Returns True if the command prints text for display, not a document for programs."""
        return self.output is Form.TABLE


@contextlib.contextmanager
def rollouts_printed(
    here: ProjectContext, options: RolloutOptions
) -> Iterator[Callable[[Iterable[int]], None]]:
    """Prints the rollouts as one document after the block, if `options.output` is not text.

    Yields a function, which the caller calls with the ids of the rollouts. If the block raises an
    error, the document is printed only if the caller has passed ids before.
    """
    ids: list[int] = []
    done = False
    try:
        yield ids.extend
        done = True
    finally:
        if not options.is_text and (ids or done):
            from kappa.replay.status.listings import rollouts_listing

            print_listing(options.output, rollouts_listing(here.state(), ids))


def follow_rollout(
    here: ProjectContext,
    id_: int,
    options: RolloutOptions,
    *,
    to_the_yes: bool = False,
    known: Rollout | None = None,
) -> Rollout:
    """Shows the progress of a rollout until it ends, and returns its last state.

    With `to_the_yes`, also returns when the rollout waits for the user's approval. `known` is an
    earlier state of the rollout; the events in this state are not shown again. If the rollout ends
    without serving, raises the error for this kind of end.
    """
    try:
        ended = follow_to_end(
            here,
            id_,
            timeout=options.timeout,
            to_the_yes=to_the_yes,
            console=None if is_quiet() else talk(),
            known=known,
        )
    except KeyboardInterrupt:
        number = here.state().rollout(id_).number
        say(
            f"rollout {number} goes on; kappa wait {number} follows it, kappa abandon {number} "
            "gives it up"
        )
        raise
    if not ended.active and options.is_text:
        print(_outcome(here.state(), ended))
    return ended


def _outcome(state: State, ended: Rollout) -> str:
    """Returns a line about a rollout that has served.

    The line names the rollout's build and generation. If another build or generation serves now,
    the line names that build and generation, too.
    """
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


def approve(here: ProjectContext, ready: Iterable[Rollout], options: RolloutOptions) -> None:
    """Approves the ready candidates together, and follows each candidate until it serves."""
    from kappa.replay.status.follow import ensure_not_waiting

    # All events before the yes are on the screen already.
    for_each_rollout(
        lambda id_: ensure_not_waiting(
            follow_rollout(here, id_, options, to_the_yes=True, known=here.state().rollout(id_))
        ),
        Project(here).ask_promote(ready, reason=options.reason),
        show_failure,
    )


def follow_each(here: ProjectContext, ids: Iterable[int], options: RolloutOptions) -> None:
    """Follows each rollout until it ends, and shows its progress.

    If rollouts end without serving, raises the error of the first such rollout after all rollouts
    have ended, and prints the errors of the others.
    """
    for_each_rollout(lambda id_: follow_rollout(here, id_, options), ids, show_failure)


def follow_until_approved(
    here: ProjectContext, ids: tuple[int, ...], options: RolloutOptions
) -> None:
    """Follows rollouts until each serves or waits for the user's approval.

    Then asks one question about all rollouts that wait. If the user agrees, promotes these rollouts
    together, and follows them until they serve.
    """
    waiting: list[Rollout] = []

    def follow_until_waiting(id_: int) -> None:
        ended = follow_rollout(here, id_, options, to_the_yes=True)
        if ended.waits:
            waiting.append(ended)

    for_each_rollout(follow_until_waiting, ids, show_failure)
    if waiting:
        ask_consent(
            typed("promote", " ".join(rollout.pipeline for rollout in waiting)),
            yes=False,
            question="promote?",
        )
        # The reason is kept with the beginning of each rollout.
        approve(here, waiting, replace(options, reason=""))
