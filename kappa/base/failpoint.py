"""Failpoints: named places in the code at which a test can kill this process.

With failpoints, tests check the recovery from crashes. `KAPPA_FAIL=job.before_frontier:kill` kills
the process at that place with SIGKILL. `job.before_frontier:kill:3` kills the process when it
passes that place for the third time. There is a failpoint before and after every effect, in the
modules that carry out effects. If KAPPA_FAIL contains an unknown name, the process exits at its
start. If KAPPA_FAIL is not set, a failpoint costs one comparison. The idea is from FreeBSD's
fail(9) and TiKV's fail-rs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kappa.base.errors import ExitCode, UsageError, did_you_mean

# Every kind of record of the journal (kappa/state/journal/events.py); tests compare the two.
_RECORDS = (
    "staged",
    "switch_asked",
    "caught_up",
    "verified",
    "verify_asked",
    "promote_asked",
    "held",
    "released",
    "served",
    "abandoned",
    "failed",
    "retired",
    "proved",
    "pipeline_retired",
    "paused",
    "resumed",
    "redrive_asked",
)

# Effects that have a failpoint on each side.
_EFFECTS = {
    "journal": _RECORDS,
    "snapshot": ("file",),
    "birth": ("put",),
    "stage": ("discard",),
    "leg": ("put",),
    "slice": ("begin", "split"),
    "table": (
        "create",
        "adopt",
        "commit",
        "spark_commit",
        "rewriting",
        "compact",
        "checkpoint",
        "take_back",
        "delete",
    ),
    "archive": ("create", "append"),
    "recent": ("drain", "empty"),
    "frontier": ("put", "delete"),
    "sums": ("join",),
    "publisher": ("acknowledge",),
    "promote": ("acknowledge",),
    "kept": ("put", "delete"),
    "lease": ("put", "release"),
    "floor": ("put", "delete"),
    "alignment": ("put",),
    "stopped": ("put", "delete"),
    "retire": ("delete",),
    "gc": ("delete", "rmdir"),
    "lock": ("hold",),
    "claim": ("take", "release"),
    "child": ("start", "end", "reap"),
    "supervisor": ("ready", "down"),
    "alert": ("take", "send", "settle", "give_up", "delete", "answer"),
    "sink": ("topic", "begin", "position", "commit", "release"),
    "export": ("commit", "catalog", "record"),
}

# The names of all failpoints: those at effects, and those inside a birth, a slice and a promote.
NAMES: tuple[str, ...] = (
    *(
        f"{kind}.{side}_{effect}"
        for kind, effects in _EFFECTS.items()
        for effect in effects
        for side in ("before", "after")
    ),
    "birth.before_copy",
    "job.before_first_commit",
    "job.between_tables",
    "job.before_frontier",
    "promote.before_append",
)

# Called with the name of each failpoint that is passed.
Action = Callable[[str], None]


def failpoint(name: str) -> None:
    """Kills this process with SIGKILL if KAPPA_FAIL contains the name of this failpoint.

    Within a block of `acting`, calls the action that was given to `acting` instead.
    """
    if _hook.action is not None:
        _hook.action(name)


@contextmanager
def acting(action: Action) -> Iterator[None]:
    """Calls `action` at every failpoint that the block passes.

    Tests use this function to count failpoints, or to simulate a crash.
    """
    before, _hook.action = _hook.action, action
    try:
        yield
    finally:
        _hook.action = before


def parsed(text: str) -> Action | None:
    """Parses the value of KAPPA_FAIL: `NAME:kill` or `NAME:kill:PASSING`.

    Returns an action, which kills this process when it passes the failpoint NAME for the PASSINGth
    time (by default, the first time). Returns None for an empty text. Raises UsageError for any
    other text.
    """
    if not text:
        return None
    name, action, passing = (*text.split(":", 2), "", "")[:3]
    if name not in NAMES:
        raise UsageError(
            f"KAPPA_FAIL names the failpoint {name!r}, which does not exist",
            hint=did_you_mean(name, NAMES) or "kappa/base/failpoint.py lists them",
        )
    if action != "kill" or not (passing or "1").isdecimal() or int(passing or "1") < 1:
        raise UsageError(
            f"KAPPA_FAIL is {text!r}, which cannot be done",
            hint=f"write {name}:kill, or {name}:kill:3 for the third passing",
        )
    return _killing(name, int(passing or "1"))


def _killing(wanted: str, passing: int) -> Action:
    passed: Counter[str] = Counter()

    def act(name: str) -> None:
        passed[name] += 1
        if name == wanted and passed[name] == passing:
            print(f"failpoint {name}: killed", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    return act


@dataclass(slots=True)
class _Hook:
    action: Action | None


def _from_environment() -> Action | None:
    try:
        return parsed(os.environ.get("KAPPA_FAIL", ""))
    except UsageError as error:
        # The process ends at import: a test that waits for a misspelt name would wait for ever.
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr, flush=True)
        raise SystemExit(ExitCode.USAGE) from None


_hook = _Hook(_from_environment())
