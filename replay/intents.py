"""What an operator asks of a rollout: undo, promote, verify once more, abandon. Each is one record appended to the journal.

What is asked is decided on the journal as it is, and put at exactly the next number: who was second reads what is there
now and asks the same of that, or is told who and what it is. The controller acts on it (controller.py).
"""

from __future__ import annotations

from collections.abc import Callable

from kappa.alignment import Alignments
from kappa.errors import Conflict, UsageError
from kappa.journal import Abandoned, Event, Journal, PromoteAsked, Record, SwitchAsked, VerifyAsked
from kappa.store import Store
from replay.rollout import Phase, Rollout, State, check_may_follow, fold
from replay.show import serving_in


def ask_undo(store: Store, pipeline: str | None, *, to: int | None = None, reason: str = "undo") -> Record:
    """Asks for the build that served before, or in generation `to`; gives the record, whose number names the rollout.

    Raises as `undone` does; Conflict where a rollout of the pipeline has not ended.
    """
    return _ask(store, lambda state: SwitchAsked(*undone(state, pipeline, to), reason))


def undone(state: State, pipeline: str | None, to: int | None = None) -> tuple[str, str]:
    """The pipeline that is undone, and the build that will serve it again: the one before, or that of generation `to`. Pure.

    Without a name it is the one pipeline that this can be done with. Raises UsageError where there is none, or several, or
    where the build is not kept.
    """
    if to is not None:
        then = serving_in(state, to)
        others = tuple(name for name, build in then.items() if state.serving.get(name) != build)
        name = _the_one(pipeline, others, none=f"what generation {to} served serves now", verb="undo")
        if name not in then or then[name] == state.serving.get(name):
            what = "serves now" if name in then else "had no build then"
            raise UsageError(f"pipeline {name} of generation {to} {what}: there is nothing to undo", hint=f"kappa show {to} shows that generation")
        _ensure_kept(state, name, then[name], f"which served pipeline {name} in generation {to}")
        return name, then[name]
    before = tuple(state.idle) or tuple(each for each in state.serving if state.served_before(each) in state.retired)
    name = _the_one(pipeline, before, none="no build has served before the one that does", verb="undo")
    build = state.idle.get(name) or state.served_before(name)
    if build is None:
        raise UsageError(f"pipeline {name} has no build that served before", hint="kappa history shows what served; kappa replay makes a new build")
    _ensure_kept(state, name, build, f"which served pipeline {name} before")
    return name, build


def _ensure_kept(state: State, pipeline: str, build: str, which: str) -> None:
    if state.idle.get(pipeline) != build:
        raise UsageError(
            f"build {build}, {which}, is retired: its soak is over, or a newer build took its place",
            hint="bring the code of that version back and kappa deploy: it is replayed",
        )


def abandon(store: Store, pipeline: str | None, *, reason: str = "abandoned by hand") -> Record:
    """Gives up the active rollout of a pipeline, or the only one there is; gives the record.

    Raises UsageError where none is active, or several.
    """

    def decide(state: State) -> Event:
        return Abandoned(active_rollout(state, pipeline, "abandon").number, reason)

    return _ask(store, decide)


def ask_promote(store: Store, pipeline: str | None, *others: str) -> Record:
    """Says yes to a candidate that has passed its verification, or to several together; gives the record.

    Those that are named together serve in one generation, or none of them does. Raises UsageError where no rollout is
    active, or several and none is named; Conflict where one is not ready for that: then nothing is appended.
    """

    def decide(state: State) -> Event:
        first, *rest = ready_rollouts(state, pipeline, *others)
        return PromoteAsked(first.number, tuple(each.number for each in rest))

    return _ask(store, decide)


def ready_rollouts(state: State, pipeline: str | None, *others: str) -> tuple[Rollout, ...]:
    """The rollouts of these pipelines, each once, which all wait for a yes. Raises as `ask_promote` does. Pure."""
    if pipeline is None and len(state.active_rollouts) > 1:
        names = sorted(rollout.pipeline for rollout in state.active_rollouts)
        waiting = sorted(rollout.pipeline for rollout in state.active_rollouts if rollout.waits)
        together = f"; or those that are ready, together: kappa promote {' '.join(waiting)}" if len(waiting) > 1 else ""
        raise UsageError(f"there are several pipelines: {', '.join(names)}", hint=f"name one: kappa promote PIPELINE{together}")
    return tuple(ready_rollout(state, name, "promote") for name in dict.fromkeys((pipeline, *others)))


def ask_verify(store: Store, pipeline: str | None) -> Record:
    """Asks for a verification once more, at a new alignment, of a candidate that is ready; gives the record.

    Raises as `ask_promote` does.
    """

    def decide(state: State) -> Event:
        rollout = ready_rollout(state, pipeline, "verify")
        last = Alignments(store, rollout.build).last()
        return VerifyAsked(rollout.number, 0 if last is None else last.number)

    return _ask(store, decide)


def ready_rollout(state: State, pipeline: str | None, verb: str) -> Rollout:
    """The rollout of a pipeline, or the only one, that waits for a yes. Raises UsageError, or Conflict, as `ask_promote` does."""
    rollout = active_rollout(state, pipeline, verb)
    if not rollout.waits:
        doing = "on its way to serve" if rollout.approved and rollout.phase in {Phase.READY, Phase.HOLDING} else f"{rollout.phase}, and not ready"
        raise Conflict(
            f"rollout {rollout.number} of pipeline {rollout.pipeline}, begun by {rollout.by}, is {doing}",
            hint=f"kappa wait {rollout.pipeline} waits for it; kappa abandon {rollout.pipeline} gives it up",
        )
    return rollout


def active_rollout(state: State, pipeline: str | None, verb: str) -> Rollout:
    """The rollout of a pipeline, or the only one, that has not ended. Raises UsageError where there is none, or there are several."""
    name = _the_one(pipeline, tuple(rollout.pipeline for rollout in state.active_rollouts), none="no rollout is active", verb=verb)
    active = state.active(name)
    if active is None:
        raise UsageError(f"pipeline {name} has no active rollout", hint="kappa history shows how the last one ended")
    return active


def _ask(store: Store, decide: Callable[[State], Event]) -> Record:
    journal, state = Journal(store), State()
    while True:
        state = fold(journal.after(state.last), state)
        event = decide(state)
        active = state.active(event.pipeline) if isinstance(event, SwitchAsked) else None
        if active is not None:
            raise Conflict(
                f"rollout {active.number} of pipeline {active.pipeline} has not ended: {active.by} began it, it is {active.phase}",
                hint=f"kappa status -w follows it; kappa abandon {active.pipeline} gives it up",
            )
        check_may_follow(state, event)
        # Refused: somebody else's record is there by now. It is read, and the same is asked of what it made.
        record = journal.append(state.last + 1, event)
        if record is not None:
            return record


def _the_one(asked: str | None, there: tuple[str, ...], *, none: str, verb: str) -> str:
    if asked is not None:
        return asked
    if len(there) != 1:
        raise UsageError(
            f"there are several pipelines: {', '.join(sorted(there))}" if there else none, hint=f"name one: kappa {verb} PIPELINE" if there else "kappa history shows what was"
        )
    return there[0]
