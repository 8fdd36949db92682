"""What an operator asks of a rollout: undo, promote, verify once more, abandon. Each is one record appended to the journal.

What is asked is decided on the journal as it is, and put at exactly the next number: who was second reads what is there
now and asks the same of that, or is told who and what it is. The controller acts on it (controller.py).
What was looked at is a rollout or a build by its own name, never "what this pipeline has by now": who said yes to one that
somebody else has ended or replaced meanwhile gets a Conflict, and not the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kappa.base.errors import UsageError
from kappa.journal.journal import (
    Abandoned,
    Event,
    Journal,
    PromoteAsked,
    Record,
    SwitchAsked,
    VerifyAsked,
)
from kappa.state.alignment import Alignments
from kappa.state.store import Store
from replay.rollout.conflicts import moved_on, refuse_switched, refuse_underway
from replay.rollout.fold import check_may_follow, fold
from replay.rollout.rollout import Rollout
from replay.rollout.show import serving_in
from replay.rollout.state import State


def ask_undo(
    store: Store,
    pipeline: str | None,
    *,
    to: int | None = None,
    reason: str = "undo",
    seen: State | None = None,
) -> Record:
    """Asks for the build that served before, or in generation `to`; gives the record, whose number names the rollout.

    `seen` is what the one who asks has looked at; without it, what is there now. Raises as `undone` does of that; Conflict
    where something else serves by now, or a rollout of the pipeline has not ended.
    """

    def decide(looked: State, state: State) -> Event:
        name, build = undone(looked, pipeline, to)
        refuse_underway(state, name)
        refuse_switched(state, name, looked.serving[name], build)
        return SwitchAsked(name, build, reason)

    return _ask(store, decide, seen)


def undone(state: State, pipeline: str | None, to: int | None = None) -> tuple[str, str]:
    """The pipeline that is undone, and the build that will serve it again: the one before, or that of generation `to`. Pure.

    Without a name it is the one pipeline that this can be done with. Raises UsageError where there is none, or several, or
    where the build is not kept.
    """
    if to is not None:
        then = serving_in(state, to)
        others = tuple(name for name, build in then.items() if state.serving.get(name) != build)
        name = _the_one(
            pipeline, others, none=f"what generation {to} served serves now", verb="undo"
        )
        if name not in then or then[name] == state.serving.get(name):
            what = "serves now" if name in then else "had no build then"
            raise UsageError(
                f"pipeline {name} of generation {to} {what}: there is nothing to undo",
                hint=f"kappa show {to} shows that generation",
            )
        _ensure_kept(state, name, then[name], f"which served pipeline {name} in generation {to}")
        return name, then[name]
    before = tuple(state.idle) or tuple(
        each for each in state.serving if state.served_before(each) in state.retired
    )
    name = _the_one(
        pipeline, before, none="no build has served before the one that does", verb="undo"
    )
    build = state.idle.get(name) or state.served_before(name)
    if build is None:
        raise UsageError(
            f"pipeline {name} has no build that served before",
            hint="kappa history shows what served; kappa replay makes a new build",
        )
    _ensure_kept(state, name, build, f"which served pipeline {name} before")
    return name, build


def _ensure_kept(state: State, pipeline: str, build: str, which: str) -> None:
    if state.idle.get(pipeline) != build:
        raise UsageError(
            f"build {build}, {which}, is retired: its soak is over, or a newer build took "
            "its place",
            hint="bring the code of that version back and kappa deploy: it is replayed",
        )


def abandon(
    store: Store,
    pipeline: str | None,
    *,
    reason: str = "abandoned by hand",
    seen: int | None = None,
) -> Record:
    """Gives up the active rollout of a pipeline, or the only one there is; gives the record.

    `seen` is the rollout that was looked at; without it, the pipeline's. Raises UsageError where none is active, or several;
    Conflict where it has ended meanwhile.
    """

    def decide(looked: State, state: State) -> Event:
        number = active_rollout(looked, pipeline, "abandon").number if seen is None else seen
        return Abandoned(seen_rollout(state, number).number, reason)

    return _ask(store, decide)


def ask_promote(store: Store, *pipelines: str, seen: Sequence[int] = ()) -> Record:
    """Says yes to a candidate that has passed its verification, or to several together; gives the record.

    Those that are named together serve in one generation, or none of them does. `seen` are the rollouts whose verification
    was looked at; without it, those of the pipelines. Raises UsageError where no rollout is active, or several and none is
    named; Conflict where one is not ready for that (any more): then nothing is appended.
    """

    def decide(looked: State, state: State) -> Event:
        numbers = seen or [rollout.number for rollout in ready_rollouts(looked, *pipelines)]
        first, *rest = (seen_rollout(state, number, ready=True).number for number in numbers)
        return PromoteAsked(first, tuple(rest))

    return _ask(store, decide)


def ready_rollouts(state: State, *pipelines: str) -> tuple[Rollout, ...]:
    """The rollouts of these pipelines, each once, which all wait for a yes. Raises as `ask_promote` does. Pure."""
    if not pipelines and len(state.active_rollouts) > 1:
        names = sorted(rollout.pipeline for rollout in state.active_rollouts)
        waiting = sorted(rollout.pipeline for rollout in state.active_rollouts if rollout.waits)
        together = (
            f"; or those that are ready, together: kappa promote {' '.join(waiting)}"
            if len(waiting) > 1
            else ""
        )
        raise UsageError(
            f"there are several pipelines: {', '.join(names)}",
            hint=f"name one: kappa promote PIPELINE{together}",
        )
    return tuple(
        ready_rollout(state, name, "promote") for name in (dict.fromkeys(pipelines) or (None,))
    )


def ask_verify(store: Store, pipeline: str | None, *, seen: int | None = None) -> Record:
    """Asks for a verification once more, at a new alignment, of a candidate that is ready; gives the record.

    `seen` is the rollout that was looked at; without it, the pipeline's. Raises as `ask_promote` does.
    """

    def decide(looked: State, state: State) -> Event:
        number = ready_rollout(looked, pipeline, "verify").number if seen is None else seen
        rollout = seen_rollout(state, number, ready=True)
        last = Alignments(store, rollout.build).last()
        return VerifyAsked(rollout.number, 0 if last is None else last.number)

    return _ask(store, decide)


def ready_rollout(state: State, pipeline: str | None, verb: str) -> Rollout:
    """The rollout of a pipeline, or the only one, that waits for a yes. Raises UsageError, or Conflict, as `ask_promote` does."""
    return _waiting(state, active_rollout(state, pipeline, verb))


def active_rollout(state: State, pipeline: str | None, verb: str) -> Rollout:
    """The rollout of a pipeline, or the only one, that has not ended. Raises UsageError where there is none, or there are several."""
    name = _the_one(
        pipeline,
        tuple(rollout.pipeline for rollout in state.active_rollouts),
        none="no rollout is active",
        verb=verb,
    )
    active = state.active(name)
    if active is None:
        raise UsageError(
            f"pipeline {name} has no active rollout",
            hint="kappa history shows how the last one ended",
        )
    return active


def seen_rollout(state: State, number: int, *, ready: bool = False) -> Rollout:
    """The rollout of that number, which has not ended, or (`ready`) waits for a yes. Raises UsageError where there is none, Conflict where it has moved on. Pure."""
    try:
        rollout = state.rollout(number)
    except KeyError:
        raise UsageError(
            f"there is no rollout {number}", hint="kappa history shows those that there are"
        ) from None
    if ready:
        return _waiting(state, rollout)
    if not rollout.active:
        raise moved_on(state, rollout)
    return rollout


def awaited_rollout(state: State, pipeline: str | None) -> Rollout:
    """The active rollout of a pipeline, or the only one; where none is active, the last one: it was over before it was waited for."""
    meant = [rollout for rollout in state.rollouts if pipeline in {None, rollout.pipeline}]
    if meant and not any(rollout.active for rollout in meant):
        return meant[-1]
    return active_rollout(state, pipeline, "wait")


def _ask(
    store: Store, decide: Callable[[State, State], Event], seen: State | None = None
) -> Record:
    """Appends what is decided on what was looked at (the first state that is read, unless it is given) and on what is there by now."""
    journal, state = Journal(store), State()
    while True:
        state = fold(journal.after(state.last), state)
        seen = seen or state
        event = decide(seen, state)
        check_may_follow(state, event)
        # Refused: somebody else's record is there by now. It is read, and the same is asked of what it made.
        record = journal.append(state.last + 1, event)
        if record is not None:
            return record


def _waiting(state: State, rollout: Rollout) -> Rollout:
    if not rollout.waits:
        raise moved_on(state, rollout)
    return rollout


def _the_one(asked: str | None, there: tuple[str, ...], *, none: str, verb: str) -> str:
    if asked is not None:
        return asked
    if len(there) != 1:
        raise UsageError(
            f"there are several pipelines: {', '.join(sorted(there))}" if there else none,
            hint=f"name one: kappa {verb} PIPELINE" if there else "kappa history shows what was",
        )
    return there[0]
