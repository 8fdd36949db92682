"""A supervisor in the background: how it is started, and what it says until it is ready."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kappa.base.errors import ExitCode, KappaError, TimedOut
from kappa.base.program import command_of, project_options
from kappa.base.settings import Settings
from kappa.replay.platform.child import open_log
from kappa.replay.status.running import Running, running_at
from kappa.state.lock import holder
from kappa.state.root import LOCK, ensure_no_copy
from kappa.state.store import open_store

SUPERVISOR_LOG = "logs/supervisor.log"
_NAP_SECONDS = 0.05
# Jars may have to be fetched, and a broker that was killed reads its log back.
_UP_SECONDS = 600.0


def ensure_detached(
    settings: Settings, on_progress: Callable[[str], None], *, take_over: bool
) -> Running:
    """Returns the supervisor of a root once it is ready; starts it in the background if none is.

    Meanwhile `on_progress` gets the last line that it has written. Raises KappaError if it ends
    instead, Superseded if another host has taken the root over, and TimedOut.
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
        # Where two came at once, the other one may have the lock, and be the one to wait for.
        if process.poll() is not None and holder(store.local.path(LOCK)) is None:
            with path.open("rb") as log:
                log.seek(begins_at)
                raise _why(log.read().decode(errors="replace"), path, process.returncode)
        if (line := last_line(path, begins_at)) is not None:
            on_progress(f"starting: {line}")
        if time.monotonic() > deadline:
            raise TimedOut("kappa is not up yet", hint=f"see what it does: {path}")
        time.sleep(_NAP_SECONDS)
    # Another host may have taken it over since.
    store.control.ensure_mine()
    return found


def last_line(path: Path, begins_at: int) -> str | None:
    """Returns the last whole line of a log from a position on, without its time."""
    with path.open("rb") as log:
        log.seek(begins_at)
        whole, ended, _ = log.read().rpartition(b"\n")
    if not ended:
        return None
    line = whole.splitlines()[-1].decode(errors="replace")
    # Its own lines begin with their time; those of a library do not.
    return line.partition(" ")[2] if line[:1].isdigit() else line


def _why(output: str, path: Path, code: int) -> KappaError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = {kind: text for kind, _, text in (line.partition(": ") for line in lines)}
    error = KappaError(
        f"kappa did not come up: {named.get('error') or (lines or ['it printed nothing'])[-1]}",
        hint=named.get("hint") or f"see {path}",
    )
    if code in {*ExitCode} - {ExitCode.OK}:
        error.exit_code = ExitCode(code)
    return error
