"""Failpoints: named places where a test makes this process die, so that what comes after a crash can be seen.

`KAPPA_FAIL=job.before_frontier:kill` kills the process there with SIGKILL; `job.before_frontier:kill:3` at the third
passing. Unset, a failpoint costs one comparison. The idea is FreeBSD's fail(9) and TiKV's fail-rs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter

_armed = os.environ.get("KAPPA_FAIL", "")
_passed: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Does nothing, unless KAPPA_FAIL names this point: then the process kills itself, as `kill -9` would."""
    if not _armed:
        return
    wanted, _, rest = _armed.partition(":")
    if wanted != name:
        return
    action, _, when = rest.partition(":")
    _passed[name] += 1
    if action == "kill" and _passed[name] == int(when or 1):
        print(f"failpoint {name}: killed", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
