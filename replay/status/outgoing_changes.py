"""The changes that sinks and alerts send at a switch, before and after the switch."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.replay.rollout.outgoing_changes import outgoing_lines
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.state.build import read_birth
from kappa.state.journal.events import GenerationMade, Receipt
from kappa.state.store import Store


def sending_text(store: Store, state: State, rollout: Rollout, *, most: int) -> str:
    """Returns a line for each sink and alert that sends changes at a switch.

    `most` is the setting `alerts.most`.
    """
    lines = sends_at_switch(store, state, rollout, most=most)
    return "".join(f"  sends: {line}\n" for line in lines)


def sends_at_switch(store: Store, state: State, rollout: Rollout, *, most: int) -> tuple[str, ...]:
    """Lists the changes that a rollout's sinks and alerts send, or have sent, at the switch.

    The list is empty while the differences are unknown, and for a rollout that ended without a
    switch.
    """
    if rollout.phase in {Phase.FAILED, Phase.ABANDONED} or (
        rollout.verified is None and not rollout.switch
    ):
        return ()
    after = read_birth(store, rollout.build)
    if not after.sinks and not after.alerts:
        return ()
    receipt = _receipt_of(state, rollout)
    live = state.serving.get(rollout.pipeline) if receipt is None else receipt.live_build
    is_first = state.served_before(rollout.pipeline) is None if receipt is None else receipt.first
    # A pipeline that was retired has sent all rows before.
    before = read_birth(store, live) if live is not None else None if is_first else after
    differences = () if rollout.verified is None else rollout.verified.differences
    return tuple(outgoing_lines(after, differences, before=before, most=most))


def waiting_text(store: Store, state: State, *, most: int) -> str:
    """Returns lines on each candidate that waits for a yes, and on the outgoing changes."""
    return "".join(
        f"rollout {each.number} of pipeline {each.pipeline} waits for: kappa promote "
        f"{each.pipeline}\n{sending_text(store, state, each, most=most)}"
        for each in state.active_rollouts
        if each.waits
    )


def sent_in(
    store: Store, state: State, generation: int, *, most: int
) -> Mapping[int, tuple[str, ...]]:
    """Returns the changes that sinks and alerts sent as a generation was made, by rollout id."""
    switched = next(
        (
            record.event.switched
            for record in state.served
            if isinstance(record.event, GenerationMade) and record.event.generation == generation
        ),
        (),
    )
    return {
        each.rollout: sends_at_switch(store, state, state.rollout(each.rollout), most=most)
        for each in switched
    }


def _receipt_of(state: State, rollout: Rollout) -> Receipt | None:
    record = state.served_in(rollout.id)
    if record is None or not isinstance(record.event, GenerationMade):
        return None
    return next(each.receipt for each in record.event.switched if each.rollout == rollout.id)
