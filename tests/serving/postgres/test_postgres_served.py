"""The law of `kappa serve`: with the setting, Postgres clients are served in addition to HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import psycopg
import pytest
from asking import wait_until
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.state.store import Store

pytestmark = pytest.mark.slow

TOKEN = "a-token-that-nobody-has-guessed"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kappa.toml").write_text(
        '[serve.postgres]\nlisten = "127.0.0.1:0"\n', encoding="utf-8"
    )
    Platform(Store(tmp_path / ".kappa")).serve("flights", {DELAYS: ROWS_OF_DELAYS})
    return tmp_path


@contextmanager
def serving(project: Path, *more: str, **given: str) -> Iterator[list[str]]:
    """Runs `kappa serve`, and yields the lines that it prints until it serves.

    After these lines, the list contains its command line.
    """
    server = subprocess.Popen(
        [Path(sys.executable).with_name("kappa"), "serve", "--listen", "127.0.0.1:0", *more],
        cwd=project,
        env={**os.environ, **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        said = []
        for line in server.stdout:
            said.append(line)
            if "HTTP at" in line:
                break
        found = re.search(r"HTTP at http://127.0.0.1:(\d+)", "".join(said))
        assert found, said
        wait_until(lambda: _is_healthy(int(found[1])), 60)
        yield [*said, Path(f"/proc/{server.pid}/cmdline").read_text(encoding="utf-8")]
    finally:
        server.terminate()
        server.communicate(timeout=30)
        assert server.returncode in {0, 130, -15}


def _is_healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    with closing(connection), suppress(OSError):
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False


def test_the_setting_alone_serves_postgres(project: Path) -> None:
    """With an address in the settings, clients with the token are answered in addition to HTTP."""
    with serving(project, KAPPA__SERVE__TOKEN=TOKEN) as said:
        port = re.search(r"Postgres clients connect to 127.0.0.1:(\d+)", "".join(said))
        assert port, said
        dsn = f"postgresql://me:{{}}@127.0.0.1:{port[1]}/kappa"
        with psycopg.connect(dsn.format(TOKEN)) as connection:
            assert connection.execute("select count(*) from delays").fetchone() == (3,)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(dsn.format("wrong"))


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("LISTEN", "0.0.0.0:0", "other machines could ask"),
        ("KEY", "/nowhere/key.pem", "one of them is not given"),
    ],
)
def test_a_wrong_setting_is_told_and_http_goes_on(
    project: Path, setting: str, value: str, told: str
) -> None:
    """A setting that makes Postgres impossible is reported, with what to do."""
    with serving(project, **{f"KAPPA__SERVE__POSTGRES__{setting}": value}) as said:
        assert "nothing serves Postgres clients" in "".join(said)
        assert told in "".join(said)


def test_a_token_is_on_no_command_line(project: Path) -> None:
    """The token is not on the command line, which any program on the machine could read."""
    with serving(project, "--token", TOKEN) as said:
        assert "clients with a token" in "".join(said)
        assert "--token" in said[-1]
        assert TOKEN not in said[-1]


EARLY = """
import os, signal, sys
from kappa.serving.http.connection_limits import PatientServer
run = PatientServer.run


def run_late(self, **given):
    os.kill(os.getpid(), signal.SIGTERM)
    run(self, **given)


PatientServer.run = run_late
from kappa.commands.main import main
sys.exit(main())
"""


def test_a_signal_before_the_first_request_ends_it(project: Path) -> None:
    """A signal is not lost if it arrives between the server's announcement and its loop."""
    server = subprocess.Popen(
        [sys.executable, "-c", EARLY, "serve", "--listen", "127.0.0.1:0"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    assert "HTTP at" in said
    assert server.returncode in {0, 130}
