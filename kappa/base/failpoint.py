"""Failpoints: named places where a test makes this process die, so that what comes after a crash can be seen.

`KAPPA_FAIL=job.before_frontier:kill` kills the process there with SIGKILL; `job.before_frontier:kill:3` at the third
passing. They stand before and after every effect, in the doors that effects go through; a name that is not listed here
ends the process as it starts. Unset, a failpoint costs one comparison. The idea is FreeBSD's fail(9) and TiKV's fail-rs.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kappa.base.errors import ExitCode, UsageError

# Every kind of record that is appended to the journal (kappa/journal/journal.py); tests compare the two.
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
        "compact",
        "checkpoint",
        "kept_checkpoint",
        "delete",
    ),
    "archive": ("create", "append"),
    "recent": ("drain", "empty"),
    "frontier": ("put", "delete"),
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
    "child": ("start", "end", "reap"),
    "supervisor": ("ready", "down"),
}

# All names there are: those of effects, and the seams of a job's slice and of a promote.
NAMES: tuple[str, ...] = (
    *(
        f"{room}.{side}_{effect}"
        for room, effects in _EFFECTS.items()
        for effect in effects
        for side in ("before", "after")
    ),
    "job.before_first_commit",
    "job.between_tables",
    "job.before_frontier",
    "job.before_checkpoint",
    "promote.before_append",
)

# What is done where a failpoint is passed; it is given the name.
Action = Callable[[str], None]


def failpoint(name: str) -> None:
    """Does nothing, unless KAPPA_FAIL names this point: then the process kills itself, as `kill -9` would."""
    if _hook.action is not None:
        _hook.action(name)


@contextmanager
def acting(action: Action) -> Iterator[None]:
    """Within it `action` is called at every failpoint that this process passes: how a test counts them, or dies there."""
    before, _hook.action = _hook.action, action
    try:
        yield
    finally:
        _hook.action = before


def parsed(text: str) -> Action | None:
    """What KAPPA_FAIL asks for, as `NAME:kill` or `NAME:kill:PASSING`; None where it is empty. Raises UsageError where it cannot be meant."""
    if not text:
        return None
    name, action, passing = (*text.split(":", 2), "", "")[:3]
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        raise UsageError(
            f"KAPPA_FAIL names the failpoint {name!r}, which is not there",
            hint=f"did you mean {close[0]}?" if close else "kappa/base/failpoint.py lists them",
        )
    if action != "kill" or not (passing or "1").isdecimal() or int(passing or "1") < 1:
        raise UsageError(
            f"KAPPA_FAIL says {text!r}, which cannot be done",
            hint=f"say {name}:kill, or {name}:kill:3 for the third passing",
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


def _asked() -> Action | None:
    try:
        return parsed(os.environ.get("KAPPA_FAIL", ""))
    except UsageError as error:
        # Here, since every program that has failpoints comes past: a test that waits for a misspelt point waits for ever.
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr, flush=True)
        raise SystemExit(ExitCode.USAGE) from None


_hook = _Hook(_asked())
