"""Resolves the numbers of rollouts that people type. Pure.

An argument that consists only of digits is always the number of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable

from kappa.base.errors import UsageError, near_or_all
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State

# Python reads no number of thousands of digits.
_MOST_DIGITS = 100


def rollout_of_number(state: State, number: int) -> Rollout:
    """Returns the rollout with this number.

    Raises UsageError if no rollout has the number. The hint names the range of existing numbers.
    """
    if 1 <= number <= len(state.rollouts):
        return state.rollouts[number - 1]
    last = len(state.rollouts)
    raise UsageError(
        f"there is no rollout {number}",
        hint=f"{'rollouts are numbered 1 to ' if last > 1 else 'the only rollout is '}{last}: "
        "kappa history"
        if last
        else "none has begun yet: kappa deploy",
    )


def is_number(text: str) -> bool:
    """Returns True if `text` is the number of a rollout, that is, 1 to 100 ASCII digits."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def rollout_named(state: State, text: str | None) -> Rollout | None:
    """Returns the rollout with the number `text`, or None if the text is not a number.

    Raises UsageError if no rollout has the number.
    """
    return None if text is None or not is_number(text) else rollout_of_number(state, int(text))


def build_named(state: State, text: str) -> str:
    """Returns the id of a build that is given by its id or by the number of its rollout.

    Raises UsageError if `text` is a number that no rollout has.
    """
    rollout = rollout_named(state, text)
    return text if rollout is None else rollout.build


def build_in_words(build: str | None) -> str:
    """Returns the words for a build in a sentence: `build ID`, or `no build` for None."""
    return "no build" if build is None else f"build {build}"


def part_named(
    look: Callable[[], State], pipeline: str | None, build: str | None
) -> tuple[str | None, str | None]:
    """Returns the pipeline and the build that two arguments name.

    Each argument may be the number of a rollout. If `pipeline` is a number, it also selects the
    rollout's build, unless `build` is given. `look` returns the state, and is called only if an
    argument is a number.
    """
    if not any(each is not None and is_number(each) for each in (pipeline, build)):
        return pipeline, build
    state = look()
    rollout = rollout_named(state, pipeline)
    if rollout is not None:
        pipeline, build = rollout.pipeline, rollout.build if build is None else build
    return pipeline, None if build is None else build_named(state, build)


def ensure_served(state: State, pipeline: str) -> str:
    """Returns the build that serves a pipeline.

    Raises UsageError if no build serves the pipeline.
    """
    if pipeline not in state.serving:
        raise UsageError(
            f"no pipeline {pipeline} is served",
            hint=near_or_all(
                pipeline, sorted(state.serving), none="nothing is served yet: kappa deploy"
            ),
        )
    return state.serving[pipeline]


def serving_pipeline(state: State, text: str) -> str:
    """Returns the name of a pipeline that is given by its name or by a rollout's number.

    Raises UsageError if no rollout has the number, or if the pipeline does not serve by this
    rollout now.
    """
    rollout = rollout_named(state, text)
    if rollout is None:
        return text
    name = rollout.pipeline
    serving = next(
        (
            each
            for each in reversed(state.rollouts)
            if each.pipeline == name and each.phase is Phase.SERVED
        ),
        None,
    )
    if rollout is not serving:
        raise UsageError(
            f"rollout {rollout.number} does not serve pipeline {name}: "
            + (f"rollout {serving.number} does" if serving else "nothing does"),
            hint=f"name that one, or {name}; kappa history shows all of them"
            if serving
            else f"it is {rollout.phase}: kappa wait {rollout.number}",
        )
    return name
