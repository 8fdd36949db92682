"""A real PostgreSQL for tests: a cluster for one test, reachable on this machine only."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from kappa.base.process import start_tied

_READY_SECONDS = 60.0
# PostgreSQL refuses root.
_USER = "postgres"
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = logical
max_replication_slots = 4
fsync = off
shared_buffers = 32MB
"""


def why_no_database() -> str | None:
    """Returns the reason why PostgreSQL cannot be started on this machine, or None."""
    if _programs() is None:
        return "no postgres"
    if os.geteuid() == 0 and _other_user() is None:
        return f"no postgres, since there is no user {_USER} and root may not run it"
    return None


def _programs() -> Path | None:
    found = [Path(at).resolve().parent for at in [shutil.which("postgres")] if at is not None]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists()), None)


def _other_user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(_USER)
    except KeyError:
        return None


@dataclass
class RunningDatabase:
    """A running cluster."""

    programs: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    def run(self, sql: str) -> str:
        """Runs statements and returns the output.

        Each statement is run in a transaction of its own, unless the statements begin one.
        """
        command = [str(self.programs / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-d", "postgres"]
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Returns the rows of a query."""
        found: list[dict[str, Any]] = json.loads(
            self.run(f"select coalesce(json_agg(t), '[]') from ({sql}) as t")
        )
        return found

    def log(self) -> str:
        """Returns the end of the cluster's log."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:]


@contextmanager
def running_database(statements: str) -> Iterator[RunningDatabase]:
    """Runs a cluster with these statements within the block, or skips the test."""
    if (why := why_no_database()) is not None:
        pytest.skip(f"not run: {why}")
    programs, port = _programs(), free_port()
    assert programs is not None, why_no_database()
    folder = Path(tempfile.mkdtemp(prefix="kappa-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        user = _other_user()
        assert user is not None, why_no_database()
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = folder / "data"
    process: subprocess.Popen[bytes] | None = None
    try:
        made = [*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", _USER]
        subprocess.run([*made, "--no-sync"], check=True, capture_output=True, cwd=folder)
        with (data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"{_SETTINGS}port = {port}\n")
        with (folder / "log").open("wb") as output:
            process = start_tied(
                [*as_user, str(programs / "postgres"), "-D", str(data)],
                output=output,
                folder=folder,
            )
        running = RunningDatabase(programs, folder, port, process)
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        deadline = time.monotonic() + _READY_SECONDS
        while subprocess.run(ready, check=False).returncode != 0:
            assert process.poll() is None, running.log()
            assert time.monotonic() < deadline, running.log()
            time.sleep(0.05)
        running.run(statements)
        yield running
    finally:
        if process is not None and process.poll() is None:
            # Fast: without waiting for clients, such as the one of a slot.
            process.send_signal(signal.SIGINT)
            process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
