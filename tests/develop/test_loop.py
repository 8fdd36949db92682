"""`kappa dev` and `kappa test` as real programs, each with its own Spark."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from house import HOUSE

pytestmark = [pytest.mark.jvm]

# Twice is a Python function: Spark's workers must have its new code at each save.
PIPELINE = """
from helper import least
from pyspark.sql import functions as F

from kappa import Table, Topic, View, count, max_, pipeline

EVENT = "visitor string not null, page string not null, n int"
VISITS = Topic("visits", partitions=2, key="visitor", event=EVENT)
HITS = Table("page_hits", keys=("page",), fold={"hits": count(), "most": max_("twice")})
BUSY = View("busy", "select page from page_hits where hits > 1")


@F.udf("int")
def twice(n):
    return n * 2


@pipeline(reads={"visits": VISITS}, writes=[HITS, BUSY])
def web(visits):
    return {"page_hits": visits.where(F.col("n") >= least()).withColumn("twice", twice("n"))}
"""
EVENTS = [
    {"visitor": "ada", "page": "/", "n": 1},
    {"visitor": "ada", "page": "/health", "n": 2},
    {"visitor": "bob", "page": "/", "n": 3},
]
READY = "waits for the next save"
_PATIENCE_SECONDS = 240.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in ("pipelines", "events", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "kappa.toml").touch()
    (folder / "helper.py").write_text("def least():\n    return 0\n")
    (folder / "pipelines" / "web.py").write_text(PIPELINE)
    lines = "".join(f"{json.dumps(event)}\n" for event in EVENTS)
    (folder / "events" / "visits.ndjson").write_text(lines)
    return folder


def environment() -> dict[str, str]:
    # The scratch folder of the program is below TMPDIR.
    return {**os.environ, "PYTHONPATH": str(HOUSE), "TERM": "xterm"}


class Terminal:
    """A program on its own terminal, with all of its output."""

    def __init__(self, project: Path, temporary: Path) -> None:
        self.screen, self._read = "", 0
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            os.chdir(project)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
            command = [sys.executable, "-P", "-m", "cli", "dev"]
            os.execve(command[0], command, {**environment(), "TMPDIR": str(temporary)})

    def press(self, key: str) -> None:
        os.write(self._end, key.encode())

    def wait_for(self, text: str) -> str:
        """Waits until the program shows a text; returns the output since the last wait."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while text not in self.screen[self._read :]:
            assert time.monotonic() < deadline, self.screen
            if select.select([self._end], [], [], 1.0)[0]:
                try:
                    shown = os.read(self._end, 1 << 16).decode()
                except OSError:
                    raise AssertionError(f"it has ended: {self.screen}") from None
                self.screen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown)
        found = self.screen[self._read :]
        self._read = len(self.screen)
        return found

    def exit_code(self) -> int:
        """Waits for the exit code, and reads the output until then."""
        while True:
            try:
                if not os.read(self._end, 1 << 16):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def on_terminal(project: Path, temporary: Path) -> Iterator[Terminal]:
    terminal = Terminal(project, temporary)
    try:
        yield terminal
    finally:
        with suppress(ProcessLookupError):
            os.kill(terminal.pid, signal.SIGKILL)


def test_three_saves_on_a_terminal(project: Path, tmp_path: Path) -> None:
    """A good, a broken and a good version are saved; each run is compared with the last good run.

    The saved code of a helper and of a Python function is used, in this process and in Spark. A
    pipeline that is gone is named, and has its last rows when it comes back. The keys work, nothing
    is left behind, and no root is made.
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (project / "boards").mkdir()
    board = 'title = "Pages"\n[[chart]]\ntitle = "Hits"\nsql = "select hits from page_hits"\n'
    (project / "boards" / "pages.toml").write_text(board)
    web, helper = project / "pipelines" / "web.py", project / "helper.py"
    with on_terminal(project, temporary) as terminal:
        first = terminal.wait_for(READY)
        assert "web: new" in first
        assert "3 records of events/visits.ndjson" in first
        assert "page=/ hits=2 most=6" in first
        assert "busy: 1 row" in first

        helper.write_text("def least():\n    return 2\n")
        good = terminal.wait_for(READY)
        assert "saved: helper.py" in good
        assert "page_hits: 2 rows, 1 changed" in good
        assert "~ page=/: hits 2 -> 1" in good
        assert "busy: 0 rows, 1 removed" in good

        web.write_text(PIPELINE + "\ndef broken(:\n")
        broken = terminal.wait_for(READY)
        line = PIPELINE.count("\n") + 2
        assert f"error: pipelines/web.py:{line}: syntax error" in broken

        web.write_text(PIPELINE.replace("n * 2", "n * 20"))
        again = terminal.wait_for(READY)
        assert "~ page=/: most 6 -> 60" in again
        assert "~ page=/health: most 4 -> 40" in again

        # An editor has written half of the file: the board's tables are not there.
        web.write_text(PIPELINE.partition("@pipeline")[0])
        half = terminal.wait_for(READY)
        assert "web: gone, no file declares it" in half
        assert "error:" not in half
        web.write_text(PIPELINE.replace("n * 2", "n * 20"))
        assert "unchanged: web" in terminal.wait_for(READY)

        terminal.press("d")
        assert "~ page=/health: most 4 -> 40" in terminal.wait_for("/health: most 4 -> 40")
        terminal.press("r")
        assert "no row changes: page_hits (2 rows), busy (0 rows)" in terminal.wait_for(READY)
        terminal.press("q")
        assert terminal.exit_code() == 0
    assert [*temporary.glob("kappa-*")] == []
    assert not (project / ".kappa").exists()


def test_without_a_terminal_a_signal_ends_it(project: Path) -> None:
    """A signal ends the program. An invalid event is an error with its line, on stdout."""
    envelopes = project / "events" / "visits.envelopes.ndjson"
    envelopes.write_text('{"value": {}}\n{"valeu": 1}\n')
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "cli", "dev"],
        cwd=project,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = ""
        while READY not in found:
            found += process.stdout.readline()
        assert "error: events/visits.envelopes.ndjson line 2 has a field valeu" in found
        assert "\x1b" not in found
        assert "r: run again" not in found
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def kappa_test(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", "test", *arguments],
        cwd=project,
        env={**environment(), "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_tests_of_a_project(project: Path) -> None:
    """Rows are written, compared, and found to differ; pytest's tests run in the same process."""
    (project / "tests" / "test_web.py").write_text(
        "from kappa.testing import tables_of\nfrom pipelines.web import web\n\n"
        "def test_no_visit_has_no_hits():\n"
        "    assert tables_of(web, {'visits': []})['page_hits'] == []\n\n"
        "def test_that_fails():\n    assert tables_of(web, {'visits': []})['busy'] == [1]\n"
    )

    written = kappa_test(project, "--update")

    assert written.returncode == 4, written
    assert "writes tests/rows/page_hits.ndjson: 2 rows" in written.stdout
    assert "ok events: web, law of slices" in written.stdout
    assert "3 passed, 1 failed in" in written.stdout
    assert "1 failed, 1 passed" in written.stdout
    rows = project / "tests" / "rows"
    assert [json.loads(line) for line in (rows / "page_hits.ndjson").read_text().splitlines()] == [
        {"page": "/", "hits": 2, "most": 6},
        {"page": "/health", "hits": 1, "most": 4},
    ]
    assert sorted(each.name for each in rows.iterdir()) == ["busy.ndjson", "page_hits.ndjson"]

    (project / "tests" / "test_web.py").unlink()
    (project / "helper.py").write_text("def least():\n    return 2\n")
    (rows / "old.ndjson").touch()
    differing = kappa_test(project)

    assert differing.returncode == 4, differing
    assert "FAILED events: web, rows of page_hits" in differing.stdout
    assert "~ page=/: hits 2 -> 1" in differing.stdout
    assert "tests/rows/old.ndjson: no table has this name" in differing.stdout
    assert "1 passed, 2 failed in" in differing.stdout
    assert "hint: if other rows are right now, write them: kappa test --update" in differing.stderr


def test_events_without_rows_are_no_passed_test(project: Path) -> None:
    """Events without files of expected rows are an error, although the law of slices holds."""
    ended = kappa_test(project)

    assert ended.returncode == 2, ended
    assert "ok events: web, law of slices" in ended.stdout
    assert "error: no rows were compared: there is no tests/rows" in ended.stderr
    assert "hint: write the rows that come out now, and read them: kappa test --up" in ended.stderr


def test_a_project_without_tests(project: Path) -> None:
    (project / "events" / "visits.ndjson").unlink()
    (project / "events").rmdir()

    ended = kappa_test(project)

    assert ended.returncode == 2
    assert "hint: put events in events/TOPIC.ndjson" in ended.stderr
