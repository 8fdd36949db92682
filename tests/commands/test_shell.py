"""Laws of the shell: it keeps one snapshot until another is pinned, and no error ends it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
import pytest
from house import HOUSE
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.commands.prompt.editor import coloured_text, is_whole
from kappa.commands.prompt.shell import SqlShell, open_shell
from kappa.replay.status.context import ProjectContext
from kappa.serving.query.query import answer_query
from kappa.serving.query.render import Form, Listing, render_listing
from kappa.serving.query.sandbox.processes import QueryWorker
from kappa.serving.query.sandbox.question import Allowance
from kappa.serving.query.session import QuerySession
from kappa.state.frontier import Frontiers
from kappa.state.kept_frontiers import KeptFrontierRecord, put_kept_frontier
from kappa.state.lease import Lease, ensure_released, sorted_leases
from kappa.state.store import Store

pytestmark = pytest.mark.slow

HOSTILE = "select carrier, 'x\x1b[2Jy\u202e' as \"\x1b[31mred\" from delays"
ENDLESS = "select count(*) from range(100000000000) a, range(100000) b;"
COUNT = "select count(*) as n from delays;"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pröject"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "kappa.toml").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


@pytest.fixture
def platform(project: Path) -> Platform:
    made = Platform(Store(project / ".kappa"))
    made.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES}, {"late": HOSTILE})
    return made


@pytest.fixture
def session(platform: Platform) -> Iterator[QuerySession]:
    with QuerySession(platform.store, Allowance(seconds=600.0), lease_seconds=60.0) as made:
        yield made


class Typed:
    """A shell, with the output for each text that is typed."""

    def __init__(
        self, session: QuerySession, project: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.shell = SqlShell(session, project=project, most_rows=1000, most_bytes=1 << 20)
        self._capsys = capsys

    def __call__(self, text: str) -> str:
        self.shell.run_text(text)
        return self._capsys.readouterr().out

    def error(self, text: str) -> str:
        self.shell.run_text(text)
        return self._capsys.readouterr().err


@pytest.fixture
def typed(session: QuerySession, project: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(session, project, capsys)


def leases(store: Store) -> tuple[Lease, ...]:
    return sorted_leases(store, time.time())[0]


def test_answers_are_of_one_snapshot(typed: Typed, platform: Platform) -> None:
    """The snapshot stays until another is pinned; statements of a line are answered in order."""
    before = typed(COUNT)
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)

    assert before == "n\n─\n3\n(1 row)\n"
    assert typed(COUNT) == before
    assert "generation 1: flights as shown from" in typed("\\pin")
    assert typed(COUNT + "select 7 as x;") == "n\n─\n6\n(1 row)\nx\n─\n7\n(1 row)\n"


def test_the_past_is_pinned_and_left(typed: Typed, platform: Platform) -> None:
    first = Frontiers(platform.store, "flights-1").newest()
    assert first is not None
    put_kept_frontier(platform.store, KeptFrontierRecord(first, (1,), stays=True))
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS.slice(0, 1)})

    def count(command: str) -> str:
        typed(command)
        return typed(COUNT).splitlines()[2]

    assert [
        count(f"\\at {first.published_at}"),
        count("\\at off"),
        count("\\generation 1"),
        count("\\generation off"),
        count("\\generation 2"),
        count("\\pin"),
    ] == ["3", "1", "6", "1", "1", "1"]
    assert "nothing was served yet" in typed.error("\\at 2013-01-01T00:00Z")
    assert "'x' is not the number" in typed.error("\\generation x")
    assert "is not a time" in typed.error("\\at noon")


def test_tables_are_listed_and_described(typed: Typed, project: Path) -> None:
    board = 'title = "Late"\n[[chart]]\ntitle = "Delays"\nkind = "number"\nsql = "from delays"\n'
    (project / "boards").mkdir()
    (project / "boards" / "late-flights.toml").write_text(board, encoding="utf-8")
    assert [line.split("  ")[0] for line in typed("\\d").splitlines()[2:]] == [
        *("delays", "planes", "rejects", "late")
    ]
    assert "late" not in typed("\\dt")
    assert re.search(r"^carrier +varchar +key +not known", typed("\\d delays;"), re.MULTILINE)
    assert re.search(
        r"^seats +integer +latest of planes +planes.seats$", typed("\\d PLANES"), re.MULTILINE
    )
    described = typed("\\d flights.delays")
    assert "table delays of pipeline flights, build flights-1, Delta version 0\n" in described
    assert "written by pipeline flights" in described
    assert "read by view late" in described
    assert "board late-flights" in described
    assert "the query:\nselect carrier" in typed("\\d late")
    assert typed.error("\\d delay") == (
        "error: there is no table delay\nhint: did you mean delays?\n"
    )


def test_an_answer_goes_to_a_file_once(typed: Typed, tmp_path: Path) -> None:
    files = {form: tmp_path / f"an answer.{form}" for form in ("csv", "json", "jsonl", "parquet")}
    for form, file in files.items():
        assert f"goes to {file}" in typed(f"\\o {form} {file}")
        assert "no table" in typed.error("from nothing;")
        assert typed("from delays order by flights limit 1;") == f"(1 row) written to {file}\n"

    assert files["csv"].read_text(encoding="utf-8") == "carrier,flights\nUA,3\n"
    assert json.loads(files["jsonl"].read_text(encoding="utf-8")) == {"carrier": "UA", "flights": 3}
    assert json.loads(files["json"].read_text(encoding="utf-8"))["rows"] == [
        {"carrier": "UA", "flights": 3}
    ]
    assert pq.read_table(files["parquet"]).to_pylist() == [{"carrier": "UA", "flights": 3}]
    assert typed("select 1 as x;") == "x\n─\n1\n(1 row)\n"
    assert "is not a format of a file" in typed.error("\\o xlsx a")
    assert "no file is named" in typed.error("\\o csv")
    typed(f"\\o csv {tmp_path}")
    assert "cannot be written" in typed.error("select 1;")
    assert typed("select 1 as x;") == "x\n─\n1\n(1 row)\n"


def test_a_file_has_rows_that_a_screen_cuts(typed: Typed, tmp_path: Path) -> None:
    cut = typed("from range(2000);")
    typed(f"\\o csv {tmp_path / 'all.csv'}")

    assert cut.endswith("999\n(1,000 rows, and there are more: \\o csv FILE writes all)\n")
    assert typed("from range(2000);").startswith("(2,000 rows) written to")


def test_rows_are_shown_as_lines(typed: Typed) -> None:
    typed("\\x")
    shown = typed("select carrier, flights from delays order by 2 limit 2;")

    assert shown == (
        "─[ 1 ]──────\ncarrier  UA\nflights  3\n─[ 2 ]──────\ncarrier  ÅÄ\nflights  4\n(2 rows)\n"
    )
    assert re.search(r"\nTime: [\d.,]+ ms\n\Z", (typed("\\timing"), typed("select 1;"))[1])


def test_values_are_those_of_a_query(typed: Typed, platform: Platform) -> None:
    """The shell and `kappa query` write each value in the same form."""
    sql = (
        "select 1.10::decimal(9, 2) as a, 'nan'::double as b, '\\xff'::blob as c, null as d, "
        "date '2013-01-01' as e, timestamp '2013-01-01 05:00' as f, [1, 2] as g, {'x': 1} as h, "
        "170141183460469231731687303715884105727::hugeint as i, true as j, 1e300::double as k, "
        "interval 1 day as l, 1 as n, 2 as n, '日本' as o, '' as p, -0.5::float as q"
    )
    found = answer_query(platform.store, sql)

    table = render_listing(Form.TABLE, Listing(found.columns, found.rows))
    assert typed(f"{sql};") == f"{table}(1 row)\n"


def test_data_never_steer_the_terminal(typed: Typed) -> None:
    shown = [
        typed("from late;"),
        typed("\\d late"),
        typed("\\d"),
        (typed("\\x"), typed("from late;"))[1],
        typed.error("select 'x\x1b[2Jy'::integer;"),
        typed.error("\\d \x1b[2J"),
        typed.error("\\o \x1b[2J x"),
    ]

    assert all(text and text.replace("\n", "").isprintable() for text in shown), shown


def test_the_shell_survives_every_error(
    typed: Typed, session: QuerySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "syntax error" in typed.error("selekt 1;")
    assert "did you mean delays?" in typed.error("from delay;")
    assert "serve.query_memory" in typed.error("select length(repeat('x', 3000000000));")
    assert "a snapshot can only be read" in typed.error("drop table delays;")
    assert "there is no command \\nothing" in typed.error("\\nothing")
    assert "\\x takes no argument" in typed.error("\\x on")
    with monkeypatch.context() as broken:
        broken.setattr(session, "ask_query", lambda *_, **__: 1 / 0)
        assert typed.error("select 1;") == "error: ZeroDivisionError: division by zero\n"
    assert typed("select 1 as x;") == "x\n─\n1\n(1 row)\n"


def test_ctrl_c_ends_the_process_of_a_query(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    typed("select 1;")
    killed: list[int] = []
    kill = QueryWorker.kill_process

    def note_and_kill(process: QueryWorker) -> None:
        killed.append(process.pid)
        kill(process)

    def interrupt_once_asked(process: QueryWorker, *asked: Any) -> Generator[bytes, None, Any]:
        # Such a signal does not wake the thread that waits, like one that comes before the wait.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return (yield from answer(process, *asked))

    answer = QueryWorker.stream_pieces
    with monkeypatch.context() as watched:
        watched.setattr(QueryWorker, "kill_process", note_and_kill)
        watched.setattr(QueryWorker, "stream_pieces", interrupt_once_asked)
        begun = time.monotonic()
        said = typed.error(ENDLESS + "select 2;")

    assert said == "cancelled\n"
    assert time.monotonic() - begun < 60
    assert len({*killed}) == 1
    assert typed("select 3 as x;") == "x\n─\n3\n(1 row)\n"


def test_ctrl_c_while_a_query_begins_ends_it(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next query does not wait for the cancelled query."""
    submit = ThreadPoolExecutor.submit

    def interrupt_once_submitted(pool: ThreadPoolExecutor, *asked: Any, **named: Any) -> None:
        submit(pool, *asked, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as watched:
        watched.setattr(ThreadPoolExecutor, "submit", interrupt_once_submitted)
        assert typed.error(ENDLESS) == "cancelled\n"
    begun = time.monotonic()
    assert typed("select 3 as x;") == "x\n─\n3\n(1 row)\n"
    assert time.monotonic() - begun < 10


def test_one_lease_while_the_shell_is_open(platform: Platform) -> None:
    with QuerySession(platform.store, Allowance(), lease_seconds=30.0) as session:
        (lease,) = leases(platform.store)
        session.pin_snapshot()
        (other,) = leases(platform.store)

        assert other.id != lease.id
        # A shell that was killed keeps nothing for longer.
        assert other.expires_at <= time.time() + 30.0
    assert leases(platform.store) == ()


def test_a_failed_look_back_keeps_the_snapshot(typed: Typed, platform: Platform) -> None:
    (lease,) = leases(platform.store)
    typed.error("\\generation 9")

    assert leases(platform.store) == (lease,)
    assert typed(COUNT).splitlines()[2] == "3"


def test_an_ended_lease_is_told_and_replaced(
    typed: Typed, platform: Platform, session: QuerySession, capsys: pytest.CaptureFixture[str]
) -> None:
    (lease,) = leases(platform.store)
    ensure_released(platform.store, lease.id)
    platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)

    typed.shell.run_text(COUNT)

    said = capsys.readouterr()
    assert said.out.splitlines()[2] == "6"
    assert "the lease on the snapshot had ended; the answer is of a newer snapshot" in said.err
    assert len(leases(platform.store)) == 1


def test_a_text_is_whole_at_its_semicolon() -> None:
    whole = ["", "\\d", "select 1;", "select ';' ; -- x", "quit", " EXIT "]
    open_texts = ["select 1", "select 'x;", "select 1; select 2", "-- x"]

    assert [text for text in whole if not is_whole(text)] == []
    assert [text for text in open_texts if is_whole(text)] == []


@pytest.mark.parametrize(
    "sql",
    ["", " ", "select 'é;' as é\n-- no\nfrom 日本 where x > 1.5;", "'open", "\udcff \0 select"],
)
def test_colours_leave_nothing_out(sql: str) -> None:
    assert "".join(text for _, text, *_ in coloured_text(sql)) == sql


def test_colours_are_those_of_tokens() -> None:
    assert coloured_text("select 'x' y")[1:] == [
        ("class:keyword", "select "),
        ("class:string_const", "'x' "),
        ("class:identifier", "y"),
    ]


def test_keys_are_read_to_the_end(
    project: Path,
    platform: Platform,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A statement of several lines, a discarded line, the editor, the history and Ctrl-D work."""
    monkeypatch.setenv("EDITOR", "sed -i s/44/55/")
    monkeypatch.delenv("VISUAL", raising=False)
    history = tmp_path / "state" / "kappa" / "shell_history"
    history.parent.mkdir(parents=True)
    history.write_text("", encoding="utf-8")
    history.chmod(0o644)
    keys = "select carrier\rfrom delays\rwhere flights = 4;\r" + "select nothing\x03"
    # The editor's text stands at the next prompt.
    keys += "select 44 as answer;\r\\e\r\r\x04"
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        open_shell(ProjectContext(project, None))

    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines()[:2] == [
        f"Kappa {metadata.version('kappa')}, root {project / '.kappa'}",
        "generation 1, 4 tables and views; every answer is of this snapshot until \\pin",
    ]
    assert "carrier\n───────\nÅÄ\n(1 row)\n" in said.out
    assert re.findall(r"^    (44|55)$", said.out, re.MULTILINE) == ["44", "55"]
    assert "+from delays\n" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o777 == 0o600
    assert leases(platform.store) == ()


def test_a_history_that_cannot_be_kept_is_told(
    project: Path, platform: Platform, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("no folder")
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text("select 1 as x;\r\\q\r")
        open_shell(ProjectContext(project, None))

    said = capsys.readouterr()
    assert said.err.startswith("the history is not kept: ")
    assert "x\n─\n1\n(1 row)\n" in said.out


class Screen:
    """A real terminal in which a command runs."""

    def __init__(self, project: Path, *command: str, **environment: str) -> None:
        self.end, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        self.seen = b""
        self.process = subprocess.Popen(
            [sys.executable, str(HOUSE / "cli.py"), *command],
            cwd=project,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm", **environment},
            start_new_session=True,
            # The terminal's Ctrl-C is for the processes of the session whose terminal it is.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # one call
        )
        os.close(terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)

    def type_keys(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def see(self, text: str, seconds: float = 30.0) -> None:
        """Waits until the screen has shown a text, and drops the output up to that text."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self.seen:
            readable, _, _ = select.select([self.end], [], [], deadline - time.monotonic())
            assert readable, f"{text!r} was not seen: {self.seen[-500:]!r}"
            self.seen += os.read(self.end, 1 << 16)
            if b"\x1b[6n" in self.seen:
                # The prompt asks the terminal where the cursor is.
                self.seen = self.seen.replace(b"\x1b[6n", b"")
                self.type_keys("\x1b[1;1R")
        self.seen = self.seen.partition(text.encode())[2]

    def wait_for_end(self) -> int:
        """Waits for the exit code, and reads the output meanwhile."""
        reader = threading.Thread(target=self._read_on, daemon=True)
        reader.start()
        code = self.process.wait(60)
        reader.join()
        return code

    def _read_on(self) -> None:
        try:
            while os.read(self.end, 1 << 16):
                pass
        except OSError:
            # The other end is closed.
            return


def test_a_query_without_sql_opens_the_shell(project: Path, platform: Platform) -> None:
    """On a real terminal, the shell shows an answer and the pager, and obeys Ctrl-C and Ctrl-D."""
    with Screen(project, "query", PAGER="sed s/^/paged:/") as screen:
        screen.see("pröject>")
        screen.type_keys("select 6 * 7 as answer;\r")
        screen.see("    42")
        screen.see("pröject>")
        screen.type_keys("from range(100);\r")
        screen.see("paged:   99")
        screen.see("pröject>")
        screen.type_keys(ENDLESS + "\r")
        screen.see("answering (1 s)")
        screen.type_keys("\x03")
        screen.see("cancelled")
        screen.see("pröject>")
        screen.type_keys("select 43 as again;\r")
        screen.see("   43")
        screen.see("pröject>")
        screen.type_keys("\x04")

        assert screen.wait_for_end() == 0
    assert leases(platform.store) == ()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ended_shell_gives_its_lease_up(
    project: Path, platform: Platform, number: signal.Signals
) -> None:
    """A shell that is ended in the middle of a query releases its lease, and ends the query."""
    with Screen(project, "shell") as screen:
        screen.see("pröject>")
        assert len(leases(platform.store)) == 1
        screen.type_keys(ENDLESS + "\r")
        screen.see("answering")
        screen.process.send_signal(number)

        assert screen.wait_for_end() == 130
    assert leases(platform.store) == ()
