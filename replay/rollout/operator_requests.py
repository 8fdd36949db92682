"""Requests of an operator: undo, promote, verify, abandon, pause, resume.

Each request appends a record to the journal. Whether a request is possible depends on the journal's
current state, and the record is appended with exactly the next number. If another record has that
number by then, the journal is read again. Then the request is decided again on the new state, or
refused with the name of the operator whose request was first. The controller acts on the records
(replay/platform/controller.py).

A request names a rollout or a build, never "the current build of this pipeline". So the approval of
a rollout that has ended meanwhile raises Conflict. If the argument for a pipeline consists only of
digits, the argument is the number of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from kappa.base.errors import Conflict, UsageError, did_you_mean, near_or_all
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.fold import check_may_follow
from kappa.replay.rollout.generation import serving_in
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.rollout_numbers import build_in_words, rollout_named, serving_pipeline
from kappa.replay.rollout.state import State
from kappa.state.alignment import Alignments
from kappa.state.build import Birth, read_birth
from kappa.state.journal.events import (
    Abandoned,
    Event,
    Paused,
    PromoteAsked,
    RedriveAsked,
    Resumed,
    Served,
    SwitchAsked,
    VerifyAsked,
)
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.store import Store


def ask_undo(
    store: Store,
    pipeline: str | None,
    *,
    to: int | None = None,
    reason: str = "",
    seen: State | None = None,
) -> JournalRecord:
    """Requests a switch back to the previous build, or to the build of generation `to`.

    Returns the record; its number is the id of the new rollout. `reason` is the operator's reason.
    `seen` is the state that the operator has seen, by default the current state. Raises the errors
    of `undo_target`. Raises Conflict if another build serves by now, or if the pipeline has an
    active rollout. Raises UsageError if another pipeline now serves a table of the same name.
    """

    def decide(looked: State, state: State) -> Event:
        name, build = undo_target(looked, pipeline, to)
        refuse_underway(state, name)
        refuse_switched(state, name, looked.serving.get(name), build)
        _refuse_shared_names(state, name, build, partial(read_birth, store))
        return SwitchAsked(name, build, undo_word(state, name, build))

    return _append_request(store, decide, seen, reason)


def undo_word(state: State, pipeline: str, build: str) -> str:
    """Returns "redo" if a switch to `build` reverses the last undo, otherwise "undo". Pure."""
    last = state.last_switch(pipeline)
    if last is None or last.build != state.serving.get(pipeline) or "undo" not in last.reasons:
        return "undo"
    return "redo" if build == state.served_before(pipeline) else "undo"


def undo_target(state: State, pipeline: str | None, to: int | None = None) -> tuple[str, str]:
    """Returns the pipeline to undo, and the build that will serve the pipeline again. Pure.

    The build is the previous build, or the build of generation `to`. `pipeline` is a name, or the
    number of the rollout that serves. None means the only pipeline that can be undone. Raises
    UsageError if no pipeline or several can be undone, or if the build is not kept.
    """
    pipeline = None if pipeline is None else serving_pipeline(state, pipeline)
    if to is not None:
        then = serving_in(state, to)
        others = tuple(name for name, build in then.items() if state.serving.get(name) != build)
        name = _only_pipeline(
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
    name = _only_pipeline(
        pipeline, before, none="no build has served before the one that does", verb="undo"
    )
    build = state.idle.get(name) or state.served_before(name)
    if build is None:
        raise UsageError(
            f"pipeline {name} has no build that served before",
            hint=("" if name in state.serving else did_you_mean(name, sorted(state.serving)))
            or "kappa history shows what served; kappa replay makes a new build",
        )
    _ensure_kept(state, name, build, f"which served pipeline {name} before")
    return name, build


def _ensure_kept(state: State, pipeline: str, build: str, which: str) -> None:
    if state.idle.get(pipeline) != build:
        raise UsageError(
            f"build {build}, {which}, is retired: its soak is over, or a newer build took "
            "its place",
            hint="bring the code of that version back, then: kappa deploy",
        )


def abandon_rollout(
    store: Store,
    pipeline: str | None,
    *,
    reason: str = "",
    seen: int | None = None,
) -> JournalRecord:
    """Abandons the active rollout of a pipeline, and returns the record.

    If `pipeline` is None, the only active rollout is abandoned. `seen` is the id of the rollout
    that the operator has seen, by default the active rollout. `reason` is the operator's reason.
    Raises UsageError if no rollout is active, or if several are active and no pipeline is named.
    Raises Conflict if the rollout has ended meanwhile.
    """

    def decide(looked: State, state: State) -> Event:
        id_ = active_rollout(looked, pipeline, "abandon").id if seen is None else seen
        return Abandoned(seen_rollout(state, id_).id, reason or "abandoned by hand")

    return _append_request(store, decide)


def ask_promote(
    store: Store, *pipelines: str, seen: Sequence[int] = (), reason: str = ""
) -> JournalRecord:
    """Approves one verified candidate, or several together, and returns the record.

    Candidates that are approved together begin to serve in one generation, or none of them does.
    `pipelines` may be empty if only one rollout is active. `seen` are the ids of the rollouts that
    the operator has seen, by default the rollouts of the pipelines. Raises UsageError if no rollout
    is active, or if several are active and no pipeline is named. Raises Conflict, and appends
    nothing, if a rollout does not wait for an approval.
    """

    def decide(looked: State, state: State) -> Event:
        ids = seen or [rollout.id for rollout in ready_rollouts(looked, *pipelines)]
        first, *rest = (seen_rollout(state, id_, ready=True).id for id_ in ids)
        return PromoteAsked(first, tuple(rest))

    return _append_request(store, decide, reason=reason)


def ready_rollouts(state: State, *pipelines: str) -> tuple[Rollout, ...]:
    """Returns the rollouts of these pipelines. Each of the rollouts waits for an approval. Pure.

    A rollout that is named twice is returned once. Raises the errors of `ask_promote`, including
    the Conflict if one of the rollouts does not wait for an approval.
    """
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
    ready = [ready_rollout(state, name, "promote") for name in (pipelines or (None,))]
    return tuple({rollout.id: rollout for rollout in ready}.values())


def ask_verify(
    store: Store, pipeline: str | None, *, seen: int | None = None, reason: str = ""
) -> JournalRecord:
    """Requests another verification of a ready candidate, and returns the record.

    The verification uses a new alignment. `seen` is the id of the rollout that the operator has
    seen, by default the rollout of the pipeline. Raises the errors of `ask_promote`.
    """

    def decide(looked: State, state: State) -> Event:
        id_ = ready_rollout(looked, pipeline, "verify").id if seen is None else seen
        rollout = seen_rollout(state, id_, ready=True)
        last = Alignments(store, rollout.build).last()
        return VerifyAsked(rollout.id, 0 if last is None else last.number)

    return _append_request(store, decide, reason=reason)


def ready_rollout(state: State, pipeline: str | None, verb: str) -> Rollout:
    """Returns the active rollout of a pipeline, which must wait for an approval.

    If `pipeline` is None, returns the only active rollout. Raises the errors of `ask_promote`.
    `verb` is the name of the command, for the hint of an error.
    """
    return _ensure_waiting(state, active_rollout(state, pipeline, verb))


def active_rollout(state: State, pipeline: str | None, verb: str) -> Rollout:
    """Returns the active rollout of a pipeline, or the only active rollout if `pipeline` is None.

    `verb` is the name of the command, for the hint of an error. Raises UsageError if no rollout is
    active, or if several are active and no pipeline is named. Raises Conflict if a rollout that is
    named by its number has ended.
    """
    named = rollout_named(state, pipeline)
    if named is not None:
        return seen_rollout(state, named.id)
    name = _only_pipeline(
        pipeline,
        tuple(rollout.pipeline for rollout in state.active_rollouts),
        none="no rollout is active",
        verb=verb,
    )
    active = state.active(name)
    if active is None:
        begun = sorted({rollout.pipeline for rollout in state.rollouts})
        raise UsageError(
            f"pipeline {name} has no active rollout",
            hint="kappa history shows how the last one ended"
            if name in begun
            else f"it never had one; these pipelines had: {', '.join(begun) or 'none yet'}",
        )
    return active


def seen_rollout(state: State, id_: int, *, ready: bool = False) -> Rollout:
    """Returns the rollout with an id. Raises Conflict if the rollout has ended. Pure.

    With `ready`, also raises Conflict if the rollout does not wait for an approval.
    """
    rollout = state.rollout(id_)
    if ready:
        return _ensure_waiting(state, rollout)
    if not rollout.active:
        raise _moved_on(state, rollout)
    return rollout


def awaited_rollout(state: State, pipeline: str | None) -> Rollout:
    """Returns the rollout for which a command waits.

    If `pipeline` is the number of a rollout, this rollout is returned. Otherwise, the active
    rollout of the pipeline is returned, or, if `pipeline` is None, the only active rollout. If none
    is active, the last rollout is returned, because a rollout may be over before the command begins
    to wait.
    """
    named = rollout_named(state, pipeline)
    if named is not None:
        return named
    meant = [rollout for rollout in state.rollouts if pipeline in {None, rollout.pipeline}]
    if meant and not any(rollout.active for rollout in meant):
        return meant[-1]
    return active_rollout(state, pipeline, "wait")


def _append_request(
    store: Store,
    decide: Callable[[State, State], Event],
    seen: State | None = None,
    reason: str = "",
) -> JournalRecord:
    record = append_decided(store, decide, seen, reason)
    assert record is not None, "each of these requests is a record"
    return record


def append_decided(
    store: Store,
    decide: Callable[[State, State], Event | None],
    seen: State | None = None,
    reason: str = "",
) -> JournalRecord | None:
    """Appends the event that `decide` returns to the journal, and returns the record.

    `decide` is called with the state that the operator has seen and the current state. `seen` is
    the state that the operator has seen, by default the first state that this function reads. The
    record contains the operator's `reason`. If another process appends a record with the same
    number first, `decide` is called again. If `decide` returns None, the request is already
    fulfilled: the function returns None, and appends nothing.
    """
    journal = Journal(store)
    while True:
        state = current_state(store)
        seen = seen or state
        event = decide(seen, state)
        if event is None:
            return None
        check_may_follow(state, event)
        # Refused: another record has the number. Read that record, and decide the same request
        # again.
        record = journal.append(state.last + 1, event, reason)
        if record is not None:
            return record


def _ensure_waiting(state: State, rollout: Rollout) -> Rollout:
    if not rollout.waits:
        raise _moved_on(state, rollout)
    return rollout


def _only_pipeline(asked: str | None, there: tuple[str, ...], *, none: str, verb: str) -> str:
    if asked is not None:
        return asked
    if len(there) != 1:
        raise UsageError(
            f"there are several pipelines: {', '.join(sorted(there))}" if there else none,
            hint=f"name one: kappa {verb} PIPELINE" if there else "kappa history shows what was",
        )
    return there[0]


def ask_pause(store: Store, pipeline: str, *, reason: str = "") -> JournalRecord | None:
    """Pauses a pipeline. Returns the record, or None if the pipeline is paused already.

    Raises UsageError if the pipeline does not serve, and Conflict if it has an active rollout.
    """

    def decide(_: State, state: State) -> Paused | None:
        return Paused(pipeline) if may_pause(state, pipeline) else None

    return append_decided(store, decide, reason=reason)


def ask_resume(store: Store, pipeline: str, *, reason: str = "") -> JournalRecord | None:
    """Resumes a pipeline. Returns the record, or None if the pipeline is not paused.

    Raises UsageError if no pipeline of that name has a build.
    """

    def decide(_: State, state: State) -> Resumed | None:
        return Resumed(pipeline) if may_resume(state, pipeline) else None

    return append_decided(store, decide, reason=reason)


def ask_redrive(store: Store, records: Mapping[str, Mapping[str, int]]) -> None:
    """Appends the request for a redrive, one record for each pipeline.

    `records` maps a pipeline to the number of records by topic. Call this function before the
    records are produced, so that the journal names whoever has sent a record.
    """
    for pipeline, counts in records.items():
        append_decided(store, partial(_as_asked, RedriveAsked(pipeline, counts)))


def _as_asked(event: RedriveAsked, _seen: State, _state: State) -> RedriveAsked:
    return event


def may_pause(state: State, pipeline: str) -> bool:
    """Returns True if a pipeline can be paused, and False if it is already paused. Pure.

    Raises the errors of `ask_pause`.
    """
    if pipeline in state.paused:
        return False
    ensure_serves(state, pipeline)
    refuse_underway(state, pipeline)
    return True


def may_resume(state: State, pipeline: str) -> bool:
    """Returns True if a pipeline can be resumed, and False if it is not paused. Pure.

    Raises the errors of `ask_resume`.
    """
    if pipeline not in {*state.paused, *state.serving, *state.idle}:
        raise _unknown_pipeline(state, pipeline)
    return pipeline in state.paused


def ensure_serves(state: State, pipeline: str) -> str:
    """Returns the build that serves a pipeline. Pure.

    Raises UsageError if no build serves the pipeline.
    """
    if pipeline in state.serving:
        return state.serving[pipeline]
    if pipeline in state.retirements:
        retirement = state.retirements[pipeline]
        raise UsageError(
            f"pipeline {pipeline} was {retirement.text}: it serves no more",
            hint=retirement.way_back,
        )
    raise _unknown_pipeline(state, pipeline)


def _unknown_pipeline(state: State, pipeline: str) -> UsageError:
    return UsageError(
        f"no build of pipeline {pipeline} serves",
        hint=near_or_all(pipeline, sorted(state.serving), none="nothing is served: kappa deploy"),
    )


def _moved_on(state: State, rollout: Rollout) -> Conflict:
    """Returns the error for a request that comes too late, because the rollout has changed.

    The message names the operator whose request was first, and the hint names the commands that are
    possible now.
    """
    name, it, first = (
        rollout.pipeline,
        f"rollout {rollout.number} of pipeline {rollout.pipeline}",
        f"{rollout.asked_by} was first",
    )
    follow = f"kappa wait {name} waits for it; kappa abandon {name} gives it up"
    match rollout.phase:
        case Phase.READY | Phase.HOLDING:
            return Conflict(
                f"{first}: {it}, begun by {rollout.by}, is on its way to serve, with build "
                f"{rollout.build}",
                hint=follow,
            )
        case Phase.REPLAYING | Phase.VERIFYING:
            return Conflict(
                f"{it}, begun by {rollout.by}, is {rollout.phase}, and not ready: "
                f"{rollout.asked_by} asked for that",
                hint=follow,
            )
        case Phase.SERVED:
            record = state.served_in(rollout.id)
            assert record is not None
            assert isinstance(record.event, Served)
            generation = record.event.generation
            return Conflict(
                f"{first}: {it} has served, as generation {generation}, with build {rollout.build}",
                hint=f"kappa show {generation} shows it; kappa undo {name} takes it back",
            )
        case Phase.ABANDONED | Phase.FAILED:
            ended = (
                f"{first}: {it} was given up: {rollout.reason}"
                if rollout.phase is Phase.ABANDONED
                else f"{it}, begun by {rollout.by}, has failed: {rollout.reason}"
            )
            active = state.active(name)
            if active is None:
                return Conflict(ended, hint=f"to start again: kappa deploy {name}")
            return Conflict(
                f"{ended}; rollout {active.number}, begun by {active.by}, is "
                f"{active.phase} now, with build {active.build}",
                hint=follow,
            )
        case _:
            assert_never(rollout.phase)


def _refuse_shared_names(
    state: State, pipeline: str, build: str, birth_of: Callable[[str], Birth]
) -> None:
    """Raises UsageError if a kept build has a table whose name another pipeline uses by now.

    Both the serving builds and the builds of active rollouts count as uses of a name. Two tables of
    the same name cannot both be served. The error occurs if the pipeline was retired and another
    pipeline then declared a table with that name.
    """
    others = {
        **state.serving,
        **{rollout.pipeline: rollout.build for rollout in state.active_rollouts},
    }
    others.pop(pipeline, None)
    for other, theirs in sorted(others.items()):
        shared = sorted(
            set(birth_of(build).public_names).intersection(birth_of(theirs).public_names)
        )
        if shared:
            raise UsageError(
                f"build {build} of pipeline {pipeline} cannot serve again: {shared[0]} is a table "
                f"of pipeline {other} by now (build {theirs})",
                hint=f"deploy {other} without it first, or: kappa retire {other}",
            )


def refuse_underway(state: State, pipeline: str) -> None:
    """Raises Conflict if the pipeline has an active rollout."""
    active = state.active(pipeline)
    if active is not None:
        raise Conflict(
            f"rollout {active.number} of pipeline {pipeline} has not ended: "
            f"{active.asked_by} was first, it is {active.phase}, with build {active.build}",
            hint=f"kappa status -w follows it; kappa abandon {pipeline} gives it up",
        )


def refuse_switched(
    state: State, pipeline: str, serving: str | None, build: str | None = None
) -> None:
    """Raises Conflict if `serving` no longer serves the pipeline, or `build` is no longer kept.

    `serving` is the build that the operator has seen, or None if the operator has seen a retired
    pipeline. `build` is the build to switch to, or None for a request to retire.
    """
    now = state.serving.get(pipeline)
    if now != serving:
        raise Conflict(
            f"{state.switched_by(pipeline)} was first: pipeline {pipeline} is served by "
            f"{build_in_words(now)} now, and not by {build_in_words(serving)}",
            hint="look again: kappa history; then ask again",
        )
    if build is None:
        return
    if state.idle.get(pipeline) != build:
        raise Conflict(
            f"build {build} of pipeline {pipeline} was retired meanwhile: its soak is over",
            hint="bring the code of that version back, then: kappa deploy",
        )
