"""Starts the supervisor in the background, and waits until it is ready.

The user of a command waits for the imports of two processes, one after the other: the command and
the supervisor. So this module does not import most of what the supervisor imports, because those
imports take a second of CPU time.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kappa.base.errors import ExitCode, KappaError, TimedOut
from kappa.base.java.jars import Jars, ensure_jars
from kappa.base.java.java import find_java
from kappa.base.program import command_of, project_options
from kappa.base.settings import Settings
from kappa.replay.platform.child import open_log
from kappa.replay.platform.messages import named_errors
from kappa.replay.status.run_records import Running, running_at
from kappa.state.files.bucket import is_bucket
from kappa.state.lock import current_holder
from kappa.state.root import LOCK, ensure_no_copy
from kappa.state.store import open_store

SUPERVISOR_LOG = "logs/supervisor.log"
# What stands before the text of a line: an earlier Kappa wrote no level.
_STAMP = re.compile(r"\d\S* (?:[A-Z]+ kappa: )?")
# Jars may have to be fetched, and a broker that was killed reads its log back.
_UP_SECONDS = 600.0
_NAP_SECONDS = 0.05


def fetch_jars(settings: Settings) -> Jars:
    """Fetches the jars that are missing on this machine, and returns all jars.

    On a terminal, a bar shows the progress. Raises KappaError if there is no Java; the hint names
    the package to install.
    """
    return ensure_jars(
        find_java(),
        cache=settings.jars.cache,
        repository=settings.jars.repository,
        for_bucket=is_bucket(settings.root),
    )


@named_errors()
def ensure_detached(
    settings: Settings, on_progress: Callable[[str], None], *, take_over: bool
) -> Running:
    """Returns the supervisor of a root once it is ready. Starts a supervisor if none is up.

    The supervisor runs in the background. While the supervisor starts, `on_progress` is called with
    the last line of the supervisor's log. Raises KappaError if the supervisor exits before it is
    ready, Superseded if another host has claimed the root, and TimedOut after ten minutes.
    """
    store = open_store(settings)
    ensure_no_copy(store)
    found = running_at(store)
    if found is not None:
        store.control.ensure_mine()
        return found
    path = open_log(store.local.path(SUPERVISOR_LOG))
    with path.open("ab") as log:
        begins_at = log.tell()
        process = subprocess.Popen(
            command_of(
                *("kappa.replay.platform.supervisor", *project_options(settings)),
                *("--take_over", str(int(take_over))),
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=settings.project,
        )
    deadline = time.monotonic() + _UP_SECONDS
    while (found := running_at(store)) is None:
        # If two started at once, the other supervisor may have the lock: then wait for the other.
        if process.poll() is not None and current_holder(store.local.path(LOCK)) is None:
            with path.open("rb") as log:
                log.seek(begins_at)
                raise _why_not_up(log.read().decode(errors="replace"), path, process.returncode)
        if (line := last_line(path, begins_at)) is not None:
            on_progress(f"starting: {line}")
        if time.monotonic() > deadline:
            raise TimedOut("kappa is not up yet", hint=f"see what it does: {path}")
        time.sleep(_NAP_SECONDS)
    # Another host may have taken the root over since.
    store.control.ensure_mine()
    return found


def last_line(path: Path, begins_at: int) -> str | None:
    """Returns the last complete line of a log, without time and level.

    Only lines after the byte position `begins_at` count. Returns None if there is no complete line.
    """
    with path.open("rb") as log:
        log.seek(begins_at)
        whole, ended, _ = log.read().rpartition(b"\n")
    if not ended:
        return None
    line = whole.splitlines()[-1].decode(errors="replace")
    # The supervisor's own lines begin with a time; the lines of a library do not.
    return line.removeprefix(found[0] if (found := _STAMP.match(line)) else "")


def _why_not_up(output: str, path: Path, code: int) -> KappaError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = {kind: text for kind, _, text in (line.partition(": ") for line in lines)}
    error = KappaError(
        f"kappa did not come up: {named.get('error') or (lines or ['it printed nothing'])[-1]}",
        hint=named.get("hint") or f"see {path}",
    )
    if code in {*ExitCode} - {ExitCode.OK}:
        error.exit_code = ExitCode(code)
    return error
