"""Creates the builds of a plan, and appends the records that begin their rollouts.

First the build's files and birth certificate are written, under a new id. Then one record makes the
build a candidate. If other records have been appended since the plan, the step is checked again:
either the step is still valid, or another operator was first and Conflict is raised. So the journal
decides every race.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.errors import Conflict, KappaError
from kappa.base.failpoint import failpoint
from kappa.code.code_snapshot import ensure_snapshot, hash_files
from kappa.code.fingerprint import SEMANTICS, declaration_lines
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.fold import check_may_follow
from kappa.replay.rollout.libraries import installed_libraries
from kappa.replay.rollout.plan.branch import Branch, Branching, branch_of
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.plan import Change, Plan, PlanStep
from kappa.replay.rollout.rollout_numbers import build_in_words
from kappa.replay.rollout.state import State
from kappa.serving.query.pin.catalog import pin_frontier
from kappa.state.build import Base, Birth, folder_of_build, new_build_id, put_birth, read_birth
from kappa.state.journal.events import Event, Staged, SwitchAsked
from kappa.state.journal.journal import Journal, JournalRecord, acting_user
from kappa.state.kept_frontiers import shown_frontiers
from kappa.state.offsets import Offsets
from kappa.state.root import lock_of
from kappa.state.store import Store
from kappa.tables.branch import begin_from

# The lease renews itself for as long as files are being linked.
_LEASE_SECONDS = 60.0
# Tries to pin a frontier; a build lets go of a frontier only every few seconds.
_LOOKS = 20


def stage_plan(
    store: Store, plan: Plan, *, auto_promote: bool = True, reason: str = ""
) -> tuple[int, ...]:
    """Begins a rollout for every step that changes something, and returns the rollouts' ids.

    `reason` is the operator's reason, which each rollout records. With `auto_promote`, a candidate
    that passes its verification is promoted without a further approval. A kept build that should
    serve again is promoted in any case, because the build was verified before. Raises the first
    refusal of the plan. Raises Conflict if another operator was first. Rollouts that began before
    an error continue.
    """
    plan.ensure_possible()
    libraries = installed_libraries()
    return tuple(
        _begin_rollout(store, plan, step, libraries, auto_promote=auto_promote, reason=reason)
        for step in plan.steps
        if step.acts
    )


def _begin_rollout(
    store: Store,
    plan: Plan,
    step: PlanStep,
    libraries: Mapping[str, str],
    *,
    auto_promote: bool,
    reason: str,
) -> int:
    if step.change is Change.KEPT and step.build is not None:
        asked = SwitchAsked(
            step.pipeline,
            step.build,
            f"version {step.version} was deployed, which this build holds",
            step.accepted,
        )
        return _append_event(store, plan, step, asked, reason).number
    if step.declared is None:
        raise Conflict(
            f"the step of pipeline {step.pipeline} has nothing to build from",
            hint="plan again: kappa plan",
        )
    build = new_build_id(step.pipeline)
    # A collection deletes no build whose lock is held, whatever the clocks say.
    with lock_of(store, f"{folder_of_build(build)}/lock", what=f"build {build}"):
        try:
            base = _create_build(store, build, step, step.declared, libraries)
            staged = Staged(
                step.pipeline,
                build,
                step.version,
                step.reasons,
                step.accepted,
                auto_promote=auto_promote,
                base=base,
                tables_of=step.tables_of,
            )
            return _append_event(store, plan, step, staged, reason).number
        except BaseException:
            # If no record names the build, no other process can have begun to use it.
            if not _may_be_named(store, build):
                for name in store.names(folder_of_build(build)):
                    failpoint("stage.before_discard")
                    store.delete(name)
                    failpoint("stage.after_discard")
            raise


def _may_be_named(store: Store, build: str) -> bool:
    """Returns True if a record names a build, or if the journal cannot be read.

    A record may exist although its writer got an error. So the build's files may be deleted only if
    this function returns False.
    """
    try:
        return build in current_state(store).versions
    except KappaError:
        return True


def _create_build(
    store: Store, build: str, step: PlanStep, declared: Declared, libraries: Mapping[str, str]
) -> Base | None:
    """Writes the files and the birth certificate of a new build.

    Returns the base if the build is a branch, otherwise None.
    """
    ensure_snapshot(store, build, declared.files)
    birth = Birth(
        build=build,
        pipeline=step.pipeline,
        version=step.version,
        parts=declared.parts,
        semantics=SEMANTICS,
        sources=hash_files(declared.files),
        module=declared.module,
        topics=step.topics,
        tables=declared.tables,
        views=declared.pipeline.view_queries,
        origin=step.origin.plain(),
        libraries=libraries,
        born_at=now(),
        by=acting_user(),
        accepted=step.accepted,
        declarations=declaration_lines(declared.pipeline),
        max_rejects=declared.pipeline.max_rejects,
        sinks=tuple(sink.outlet_birth for sink in declared.pipeline.sinks),
        alerts=tuple(alert.outlet_birth for alert in declared.pipeline.alerts),
        lineage=declared.lineage,
    )
    if step.live is not None:
        put_birth(store, _overlay_birth(birth, step.live))
        return None
    if step.branch is None:
        put_birth(store, birth)
        return None
    return _ensure_branched(store, birth, step.branch)


def _overlay_birth(birth: Birth, live: Birth) -> Birth:
    """Returns the birth certificate of an overlay.

    `birth` is the certificate of the declared pipeline. Tables, topics, origin, base, libraries and
    all other facts that determine rows come from the certificate of the `live` build.
    """
    declared = {table.name: table for table in birth.tables}
    return replace(
        birth,
        tables_of=live.folded_by,
        topics=live.topics,
        tables=tuple(
            replace(
                table,
                checks=declared[table.name].checks,
                thresholds=declared[table.name].thresholds,
            )
            for table in live.tables
        ),
        origin=live.origin,
        base=live.base,
        libraries=live.libraries,
        semantics=live.semantics,
        accepted=tuple(dict.fromkeys((*live.accepted, *birth.accepted))),
    )


def _ensure_branched(store: Store, birth: Birth, branch: Branch) -> Base:
    """Writes the birth certificate of a branch, begins the branch, and returns its base.

    The branch begins with the planned state of the serving build. If that state was deleted while
    the operator read the plan, the branch begins with the nearest state that is still kept. Raises
    Conflict if every state is deleted before it can be pinned.
    """
    base, asked = branch.base, Branching(Offsets.parse(branch.base.offsets))
    for _ in range(_LOOKS):
        try:
            with (
                contextlib.nullcontext()
                if branch.frontier is None
                else pin_frontier(store, branch.frontier, lease_seconds=_LEASE_SECONDS)
            ):
                put_birth(store, replace(birth, base=branch.base))
                if branch.frontier is not None:
                    begin_from(store, birth, store, branch.frontier)
                return branch.base
        except Conflict:
            branch = branch_of(
                read_birth(store, base.build), shown_frontiers(store, base.build), asked
            )
    raise Conflict(
        f"what build {base.build} held is let go each time that it is to be taken",
        hint="ask again; kappa logs shows what its job does",
    )


def _append_event(
    store: Store, plan: Plan, step: PlanStep, event: Event, reason: str
) -> JournalRecord:
    journal = Journal(store)
    number = plan.looked_at + 1
    while (record := journal.append(number, event, reason)) is None:
        state = current_state(store)
        _refuse_moved(state, step)
        check_may_follow(state, event)
        number = state.last + 1
    return record


def _refuse_moved(state: State, step: PlanStep) -> None:
    underway = state.active(step.pipeline)
    if underway is not None:
        raise Conflict(
            f"{underway.by} was first: rollout {underway.number} of pipeline "
            f"{step.pipeline} is on its way, with build {underway.build}",
            hint=f"follow it: kappa status -w; or end it: kappa abandon {step.pipeline}",
        )
    if step.pipeline in state.paused:
        raise Conflict(
            f"pipeline {step.pipeline} is {state.paused[step.pipeline].text}",
            hint=f"resume it first: kappa resume {step.pipeline}",
        )
    serving = state.serving.get(step.pipeline)
    kept_moved = step.change is Change.KEPT and state.idle.get(step.pipeline) != step.build
    if serving != step.serving or kept_moved:
        who = state.switched_by(step.pipeline)
        raise Conflict(
            f"{who} was first: pipeline {step.pipeline} is served by "
            f"{build_in_words(serving)} now, and not by {build_in_words(step.serving)} as in the "
            "plan",
            hint="plan again: kappa plan",
        )
