"""Laws of the Postgres server for clients that lie, hang, guess, flood and cancel."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from asking import wait_until
from postgres_clients import PostgresThread
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.base.sections import Role
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.tokens import TokenFile
from kappa.serving.postgres import answers
from kappa.serving.postgres.server import PostgresBounds
from kappa.serving.postgres.session import SessionBounds
from kappa.serving.query.pin import pin_places
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.lease import sorted_leases
from kappa.state.store import Store

pytestmark = pytest.mark.slow

ENDLESS = "select sum(a.i * b.i) from range(3000000) a(i), range(3000000) b(i)"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    platform = Platform(Store(tmp_path_factory.mktemp("postgres limits") / "root"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES})
    return platform


@pytest.fixture(scope="module")
def server(platform: Platform) -> Iterator[PostgresThread]:
    bounds = PostgresBounds(
        connections=8,
        strangers=32,
        login_seconds=5,
        wrong_seconds=0.05,
        session=SessionBounds(message_seconds=0.5, send_seconds=1.0, portals=4, idle_seconds=0.5),
    )
    with PostgresThread(
        platform.store,
        Allowance(memory=256 << 20, seconds=20, at_once=2),
        token=None,
        bounds=bounds,
    ) as found:
        yield found


def framed(kind: bytes, content: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


# The first message of a client that may ask.
HELLO = framed(b"", struct.pack("!i", 3 << 16) + b"user\0reader\0\0")


def opened(server: PostgresThread) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def logged_in(server: PostgresThread) -> socket.socket:
    """Returns a connection that is logged in."""
    found = opened(server)
    found.sendall(HELLO)
    said = b""
    while not said.endswith(b"Z\0\0\0\5I"):
        said += found.recv(65536)
    return found


def said_by(connection: socket.socket) -> bytes:
    """Returns everything that the server sends until it ends the connection."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            said += piece
    return said


def still_answers(server: PostgresThread) -> bool:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        return connection.execute("select count(*) from delays").fetchone() == (3,)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (struct.pack("!ii", 1 << 30, 3 << 16), b"08P01"),
        (struct.pack("!ii", -5, 3 << 16), b"08P01"),
        (b"GET / HTTP/1.1\r\n\r\n", b"08P01"),
        (struct.pack("!ii", 13, 2 << 16) + b"user\0", b"0A000"),
        (struct.pack("!ii", 12, 3 << 16) + b"user", b"08P01"),
        (struct.pack("!ii", 14, 3 << 16) + b"a\0b\0\0\0", b"28000"),
    ],
)
def test_a_first_message_that_lies_is_refused(
    server: PostgresThread, first: bytes, code: bytes
) -> None:
    """An impossible length or another protocol ends the connection with an error code."""
    with opened(server) as connection:
        connection.sendall(first)
        assert code in said_by(connection)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"Q" + struct.pack("!i", 1 << 30) + b"select 1", b"54000"),
        (b"Q" + struct.pack("!i", -1), b"08P01"),
        (b"Q" + struct.pack("!i", 100) + b"select", b"08P01"),
        (b"B" + struct.pack("!i", 5) + b"\0", b"08P01"),
        (b"B" + struct.pack("!i", 8) + b"\0\0\x7f\xff", b"26000"),
        (b"?" + struct.pack("!i", 4), b"08P01"),
    ],
)
def test_a_message_that_lies_ends_its_sender(
    server: PostgresThread, sent: bytes, code: bytes
) -> None:
    """A message that is too long, too short or incomplete is refused, and never waited for."""
    with logged_in(server) as connection:
        connection.sendall(sent)
        if code == b"26000":
            connection.sendall(framed(b"S") + framed(b"X"))
        assert code in said_by(connection)
    assert still_answers(server)


def test_a_text_that_is_not_utf_8_ends_no_session(server: PostgresThread) -> None:
    """The client gets an error, as with Postgres, and continues in the same session."""
    with logged_in(server) as connection:
        for content in (b"select '\xff'\0", b"select 7\0"):
            connection.sendall(framed(b"Q", content))
        connection.sendall(framed(b"X"))
        said = said_by(connection)

    assert b"22021" in said
    assert b"SELECT 1" in said.partition(b"22021")[2]


def parsed(sql: str) -> bytes:
    return framed(b"P", b"\0" + sql.encode() + b"\0\0\0")


def bound(values: list[bytes] = [], formats: list[int] = []) -> bytes:  # noqa: B006  # never changed
    packed = b"".join(struct.pack("!i", len(each)) + each for each in values)
    listed = struct.pack(f"!h{len(formats)}h", len(formats), *formats)
    return framed(b"B", b"\0\0\0\0" + struct.pack("!h", len(values)) + packed + listed)


@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [
        (parsed("select 1, 2, 3") + bound(formats=[0, 1]) + framed(b"D", b"P\0"), b"08P01", b"2 "),
        (parsed("select $99999") + framed(b"D", b"S\0"), b"54000", b"$99999"),
        (parsed("select $999999999") + framed(b"D", b"S\0"), b"54000", b"$999999999"),
        (parsed("select $" + "1" * 5_000) + bound() + framed(b"D", b"P\0"), b"42000", b"Parameter"),
        (
            parsed("select 1" + ", $1" * 40) + bound([b"x" * 300_000]) + framed(b"D", b"P\0"),
            b"42000",
            b"has more than 8.4 MB",
        ),
        (
            parsed("select " + ", ".join(f"1 as a{n}" for n in range(2_000)))
            + framed(b"D", b"S\0"),
            b"42000",
            b"2,000 columns",
        ),
    ],
)
def test_what_a_short_text_makes_large_is_refused(
    server: PostgresThread, sent: bytes, code: bytes, told: bytes
) -> None:
    """A short text that describes a large number or value takes no memory of the shared server."""
    with logged_in(server) as connection:
        connection.sendall(sent + framed(b"S") + framed(b"Q", b"select 7\0") + framed(b"X"))
        said = said_by(connection)

    assert code in said
    assert told in said
    assert said.endswith(b"Z\0\0\0\5I")
    assert b"SELECT 1" in said


def test_a_thousand_strangers_hold_nobody_up(server: PostgresThread) -> None:
    """However many connect and send nothing, a client is admitted and answered."""
    with contextlib.ExitStack() as opening:
        strangers = [opening.enter_context(opened(server)) for _ in range(1000)]
        began = time.monotonic()
        assert still_answers(server)
        assert time.monotonic() - began < 15
        assert len(strangers) == 1000


def test_one_client_too_many_is_told_so(server: PostgresThread) -> None:
    """A client beyond the last place gets an error code, and a place once another client leaves."""
    with contextlib.ExitStack() as opening:
        for _ in range(8):
            opening.enter_context(logged_in(server))
        with pytest.raises(psycopg.OperationalError, match="8 clients are connected"):
            psycopg.connect(server.dsn)
    wait_until(lambda: _connects(server), 10)


def _connects(server: PostgresThread) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        return still_answers(server)
    return False


def test_a_query_ends_by_its_own_secret_only(server: PostgresThread) -> None:
    """A cancel request with a wrong secret has no effect; the right one ends the query."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        process = connection.info.backend_pid
        with ThreadPoolExecutor(1) as beside:
            running = beside.submit(connection.execute, ENDLESS)
            with opened(server) as foreign:
                foreign.sendall(struct.pack("!iii", 16, 80877102, process) + b"\1\2\3\4")
                assert said_by(foreign) == b""
            with contextlib.suppress(TimeoutError):
                running.result(timeout=1)
            assert not running.done()
            connection.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                running.result(timeout=20)
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_client_that_leaves_frees_its_place(server: PostgresThread) -> None:
    """The query of a client that has left ends at once, and frees its place."""
    for _ in range(4):
        with logged_in(server) as connection:
            connection.sendall(framed(b"Q", ENDLESS.encode() + b"\0"))
    began = time.monotonic()
    assert still_answers(server)
    assert time.monotonic() - began < 15


def test_the_clients_own_time_limit_counts(server: PostgresThread) -> None:
    """`statement_timeout` ends a query, as clients expect."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("set statement_timeout = 300")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)


def test_a_slow_reader_holds_nobody_up(server: PostgresThread) -> None:
    """A client that does not read its answer is disconnected; others are answered meanwhile."""
    with logged_in(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(framed(b"Q", b"select repeat('x', 1000) from range(20000)\0"))
        assert still_answers(server)
        # The connection is still open on this side, and nothing of it is read.
        wait_until(lambda: not server.server._connections, 20)


def test_a_snapshot_that_has_ended_is_named(server: PostgresThread, platform: Platform) -> None:
    """A client with too long a transaction is told its snapshot, and what to do."""
    with psycopg.connect(server.dsn) as connection:
        connection.execute("select 1")
        wait_until(lambda: not _has_lease(platform), 10)
        with pytest.raises(psycopg.Error) as told:
            connection.execute("select 1")
        assert told.value.sqlstate == "72000"
        assert "generation 1, flights at flights:0=12" in str(told.value)
        connection.rollback()
        assert connection.execute("select count(*) from delays").fetchone() == (3,)


def _has_lease(platform: Platform) -> bool:
    return any(sorted_leases(platform.store, time.time()))


def test_kept_things_have_a_bound(server: PostgresThread) -> None:
    """Statements, portals and cursors of a session are limited, each with an error code."""
    with psycopg.connect(server.dsn) as connection:
        for place in range(4):
            connection.execute(f"declare c{place} cursor for select 1")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            connection.execute("declare c4 cursor for select 1")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        text = "x" * 900_000
        for place in range(4):
            connection.execute(f"select '{place}{text}' as shown", prepare=True)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            connection.execute(f"select '4{text}' as shown", prepare=True)


def test_values_of_cursors_have_a_bound(server: PostgresThread) -> None:
    """A cursor keeps its parameters until its rows are fetched; all together have one limit."""
    declared = "declare v{} cursor for select length(%s) as v"
    with psycopg.connect(server.dsn) as connection:
        for place in range(2):
            connection.execute(declared.format(place), (b"x" * 1_000_000,))
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="values of 3 portals"):
            connection.execute(declared.format(2), (b"x" * 1_000_000,))
        connection.rollback()
        assert connection.execute("select 1").fetchone() == (1,)


def test_answers_that_nobody_reads_have_a_bound(
    server: PostgresThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread answers have a limit, because they are files on the server's host."""
    monkeypatch.setattr(answers, "MOST_UNREAD_BYTES", 100_000)
    with psycopg.connect(server.dsn) as connection:
        for name in "ab":
            sql = f"declare {name} cursor for select repeat('x', 1000) from range(60)"
            connection.execute(sql)
        assert len(connection.execute("fetch 1 from a").fetchall()) == 1
        with pytest.raises(psycopg.errors.DiskFull):
            connection.execute("fetch 1 from b")
    with psycopg.connect(server.dsn) as connection:
        rows = connection.execute("select repeat('x', 1000) from range(90)").fetchall()
        assert len(rows) == 90


def test_guesses_wait_and_the_right_one_does_not(platform: Platform) -> None:
    """Wrong passwords wait in line; a right password is accepted meanwhile, and always."""

    def guess(server: PostgresThread) -> list[Future[str]]:
        return [guessing.submit(_guess, server, f"guess {each}") for each in range(8)]

    bounds = PostgresBounds(wrong_seconds=600)
    with ThreadPoolExecutor(8) as guessing, PostgresThread(platform.store, bounds=bounds) as server:
        guesses = guess(server)
        assert still_answers(server)
        assert not any(each.done() for each in guesses)
    bounds = PostgresBounds(wrong_seconds=0.5)
    with ThreadPoolExecutor(8) as guessing, PostgresThread(platform.store, bounds=bounds) as server:
        began = time.monotonic()
        guesses = guess(server)
        assert all("28P01" in each.result() for each in guesses)
        assert time.monotonic() - began > 3.5
        assert still_answers(server)


def _guess(server: PostgresThread, password: str) -> str:
    try:
        psycopg.connect(**{**server.words, "password": password}).close()
    except psycopg.OperationalError as error:
        return f"28P01 {error}" if "password authentication failed" in str(error) else str(error)
    return "let in"


def test_each_user_reads_what_its_token_may(platform: Platform, tmp_path: Path) -> None:
    """A user named like a token reads that token's tables, until the token is removed."""
    file = TokenFile(tmp_path / "tokens.json")
    token = file.add_token("grafana", [Role.READ], ["delays"], made_by="me")
    collects = file.add_token("sensor", [Role.COLLECT], made_by="me")
    with PostgresThread(platform.store, accounts=Accounts(token="t" * 20, file=file)) as server:
        told = {**server.words, "user": "grafana", "password": token, "autocommit": True}
        with psycopg.connect(**told) as connection:
            listed = connection.execute("select table_name from information_schema.tables")
            assert {name for (name,) in listed} == {"delays"}
            assert connection.execute("select count(*) from delays").fetchone() == (3,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not read planes"):
                connection.execute("select * from planes")
            file.remove_token("grafana")
            with pytest.raises(psycopg.Error, match="not known any more"):
                connection.execute("select 1")
        with psycopg.connect(**{**told, "user": "anybody", "password": "t" * 20}) as connection:
            assert connection.execute("select count(*) from planes").fetchone() == (1,)
        for user, password in (("grafana", token), ("sensor", collects), ("anybody", token)):
            with pytest.raises(psycopg.OperationalError, match="password|may not read"):
                psycopg.connect(**{**told, "user": user, "password": password})


def test_a_stranger_that_hangs_is_let_go(platform: Platform) -> None:
    """A client without a password in time is disconnected, at each step of the login."""
    bounds = PostgresBounds(login_seconds=0.3)
    with PostgresThread(platform.store, bounds=bounds) as server, contextlib.ExitStack() as opening:
        hanging = [opening.enter_context(opened(server)) for _ in range(4)]
        for connection, sent in zip(
            hanging, (b"", HELLO[:3], HELLO, HELLO + b"p" + struct.pack("!i", 99)), strict=True
        ):
            connection.sendall(sent)
        said = [said_by(connection) for connection in hanging]

    assert [each[:1] for each in said] == [b"", b"", b"R", b"R"]
    assert not any(b"Z\0\0\0\5I" in each for each in said)


def test_a_greedy_user_waits_behind_itself(platform: Platform, tmp_path: Path) -> None:
    """However many slow queries a user sends at once, another user is next at a free place."""
    file = TokenFile(tmp_path / "tokens.json")
    tokens = {name: file.add_token(name, [Role.READ], made_by="me") for name in ("greedy", "fair")}
    allowance = Allowance(memory=256 << 20, seconds=60, at_once=2)
    slow, ended, stop = ENDLESS.replace("3000000", "5000"), [], threading.Event()

    with (
        PostgresThread(platform.store, allowance, accounts=Accounts(file=file)) as server,
        ThreadPoolExecutor(12) as beside,
    ):

        def connect(user: str) -> psycopg.Connection[tuple[object, ...]]:
            words = {**server.words, "user": user, "password": tokens[user]}
            return psycopg.connect(**words, autocommit=True)

        def ask_slowly() -> None:
            with connect("greedy") as connection:
                while not stop.is_set():
                    connection.execute(slow)
                    ended.append(1)

        asking = [beside.submit(ask_slowly) for _ in range(12)]
        overtaken = []
        try:
            with connect("fair") as connection:
                wait_until(lambda: len(ended) > 2, 60)
                for _ in range(4):
                    before = len(ended)
                    connection.execute("select count(*) from delays").fetchall()
                    overtaken.append(len(ended) - before)
        finally:
            stop.set()
        for each in asking:
            each.result(timeout=60)

    # In the order of arrival, ten others would have been before each.
    assert max(overtaken) < 6, overtaken


def test_a_user_leaves_snapshots_to_others(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pin_places, "MOST_PINS", 4)
    file = TokenFile(tmp_path / "tokens.json")
    tokens = {name: file.add_token(name, [Role.READ], made_by="me") for name in ("greedy", "fair")}
    with (
        PostgresThread(platform.store, accounts=Accounts(file=file)) as server,
        contextlib.ExitStack() as opening,
    ):

        def begin(user: str) -> psycopg.Connection[tuple[object, ...]]:
            words = {**server.words, "user": user, "password": tokens[user]}
            connection = opening.enter_context(psycopg.connect(**words))
            connection.execute("select count(*) from delays")
            return connection

        first = begin("greedy")
        begin("greedy")
        with pytest.raises(
            psycopg.Error, match="greedy holds 2 snapshots, as many as are left"
        ) as told:
            begin("greedy")
        assert told.value.sqlstate == "53000"
        begin("fair")
        with pytest.raises(psycopg.Error, match="fair holds 1 snapshot, as many as are left"):
            begin("fair")
        first.commit()
        begin("fair")
