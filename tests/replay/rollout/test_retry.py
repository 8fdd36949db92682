"""Laws of a retry: only a rollout that ended without serving begins again, unchanged."""

from __future__ import annotations

import pytest
from journals import staged, switch_asked
from msgspec.structs import replace
from plans import A_SERVES, B_SERVES, V1, V2, birth, log, observed

from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.replay.rollout.plan.plan import Change
from kappa.replay.rollout.plan.retry import plan_again
from kappa.state.journal.events import Abandoned, Event, Failed, Staged

SERVES: tuple[Event, ...] = (replace(staged("a"), version=V1.version), *A_SERVES[1:])
FAILED = (
    *(*SERVES, Staged("flights", "b", V2.version, ("function flights changed",))),
    Failed(5, "its job stopped"),
)
LOST = "orders partition 0 begins at offset 41, partition 1 begins at offset 41"
GAP = f"gap: {LOST}: a replay would miss what came before"


@pytest.mark.parametrize("end", [Failed(5, "no"), Abandoned(5, "no")])
def test_the_same_code_is_built_again_for_the_same_reasons(end: Event) -> None:
    seen = observed(V2, journal=(*FAILED[:-1], end), births=(birth("a", V1),))
    plan = plan_again(seen, "flights")

    (step,) = plan.steps
    plan.ensure_possible()
    assert (step.change, step.version, step.replays) == (Change.CHANGED, V2.version, True)
    assert step.reasons == ("function flights changed", "rollout 2 is begun again")


def test_a_replay_that_failed_is_a_replay_again() -> None:
    replay = Staged("flights", "b", V1.version, ("a replay was asked for",))
    journal = (*SERVES, replay, Failed(5, "no"))

    (step,) = plan_again(observed(V1, journal=journal, births=(birth("a", V1),)), "flights").steps

    assert (step.change, step.replays) == (Change.AGAIN, True)


@pytest.mark.parametrize("accepted", [GAP, f"{GAP}: lost in the fire"])
def test_what_was_let_through_is_let_through_where_exactly_that_is_found(accepted: str) -> None:
    journal = (Staged("flights", "b", V1.version, ("new",), (accepted,)), Failed(1, "no"))

    plan = plan_again(observed(V1, journal=journal, facts=log(beginning=41)), "flights")
    plan.ensure_possible()
    assert plan.steps[0].accepted == (accepted,)

    plan = plan_again(observed(V1, journal=journal, facts=log(beginning=42)), "flights")
    with pytest.raises(KappaError, match="begins at offset 42"):
        plan.ensure_possible()


def test_other_code_is_no_retry() -> None:
    with pytest.raises(Conflict, match="has changed since rollout 2") as refused:
        plan_again(observed(V1, journal=FAILED, births=(birth("a", V1),)), "flights")

    assert "kappa deploy flights" in refused.value.hint


@pytest.mark.parametrize(
    ("journal", "kind", "says"),
    [
        ((), UsageError, "has no rollout to begin again"),
        (SERVES, UsageError, "has served"),
        (FAILED[:-1], Conflict, "has not ended"),
        (
            (*B_SERVES, switch_asked("a"), Abandoned(10, "no")),
            *(UsageError, "was to a build that was kept"),
        ),
    ],
)
def test_what_did_not_end_so_is_not_begun_again(
    journal: tuple[Event, ...], kind: type[KappaError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        plan_again(observed(V1, journal=journal), "flights")
