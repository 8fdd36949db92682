"""The Postgres server: connections, their limits, TLS, the password, and cancel requests.

A client is a stranger until it has sent the right password. Strangers have a limited number of
places and a limited time. If all of these places are taken, the stranger that connected first is
disconnected. So clients with a password are let in, however many strangers connect.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import socket
import ssl
import struct
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kappa.base.errors import KappaError, SettingsError
from kappa.serving.access.accounts import OWNER, Accounts
from kappa.serving.access.roles import THIS_MACHINE, Act, Identity, may, refusal
from kappa.serving.http.token import WaitingLine
from kappa.serving.postgres.answers import SessionAnswers
from kappa.serving.postgres.messages import (
    PROTOCOL_VIOLATION,
    TOO_MANY,
    UNSUPPORTED,
    ClientBytes,
    Fields,
    Gone,
    PostgresError,
    error_message,
    message,
    parameter_status,
    text_bytes,
)
from kappa.serving.postgres.scram import (
    MECHANISM,
    ScramExchange,
    Verifier,
    WrongPassword,
    read_verifier,
    verifier_of,
)
from kappa.serving.postgres.session import Session, SessionBounds
from kappa.serving.postgres.settings import SessionSettings
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.store import Store

_SSL_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102
_VERSION = 3
# As Postgres bounds it.
_STARTUP_BYTES = 10_000
_READ_AHEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class PostgresBounds:
    """The limits of connections.

    `connections` is the largest number of connections whose clients have logged in, and `strangers`
    is the largest number of connections whose clients have not logged in. `login_seconds` is the
    time in which a client must log in. If a password is wrong, the answer is delayed by
    `wrong_seconds`.
    """

    connections: int = 256
    strangers: int = 128
    login_seconds: float = 10.0
    wrong_seconds: float = 0.5
    session: SessionBounds = field(default_factory=SessionBounds)


class Passwords:
    """The passwords of users, which are the tokens of the server's clients.

    If the user name is the name of a token, the password is that token. For all other users, the
    password is the server's own token.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        token = accounts.token or secrets.token_hex(32)
        # Some rounds of hashing each, and an identity is asked for at each statement.
        self._shared = lru_cache(maxsize=1024)(
            lambda user: verifier_of(token, accounts.salt_of(user))
        )

    def check_token(self, user: str) -> Verifier | None:
        """Returns the values by which a user's password is checked.

        The password is a token. Returns None if the server requires no token.
        """
        if not self._accounts.is_guarded:
            return None
        named = self._accounts.named(user)
        # Made for every user, so that the time does not show who has a token.
        shared = self._shared(user)
        return shared if named is None else read_verifier(named.scram)

    def identity(self, user: str, verifier: Verifier | None) -> Identity:
        """Returns the identity of a user whose password was checked with `verifier`.

        The password is a token. Raises PostgresError if the user's token has changed since the
        check, or if the token does not allow reading.
        """
        if self.check_token(user) != verifier:
            raise PostgresError(
                "28000",
                f'the token of user "{user[:80]}" is not known any more',
                hint="connect with the new one: kappa token list",
                fatal=True,
            )
        named = self._accounts.named(user)
        identity = THIS_MACHINE if verifier is None else OWNER if named is None else named.identity
        if not may(identity, Act.READ):
            raise PostgresError("42501", refusal(identity, Act.READ).message, fatal=True)
        return identity


@dataclass(frozen=True, slots=True)
class _Login:
    """A client that has logged in.

    `given` contains the client's startup parameters, and `verifier` contains the values by which
    the password was checked, or None if no password was required.
    """

    user: str
    given: dict[str, str]
    verifier: Verifier | None


@dataclass(eq=False, slots=True)
class _Connection:
    """A connection, with the secret that a client must send to cancel its queries."""

    writer: asyncio.StreamWriter
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(4))
    session: Session | None = None
    task: asyncio.Task[None] | None = None


class PostgresServer:
    """The Postgres server of a project, for one event loop."""

    def __init__(
        self,
        store: Store,
        sandbox: Sandbox,
        *,
        accounts: Accounts,
        lease_seconds: float,
        tls: ssl.SSLContext | None = None,
        bounds: PostgresBounds | None = None,
    ) -> None:
        self._store = store
        self._sandbox = sandbox
        self._lease_seconds = lease_seconds
        self._passwords = Passwords(accounts)
        self._tls = tls
        self._bounds = bounds or PostgresBounds()
        self._connections: dict[int, _Connection] = {}
        # The strangers in the order of arrival.
        self._strangers: dict[_Connection, None] = {}
        self._last_process = 0

    @asynccontextmanager
    async def running(self, listening: socket.socket) -> AsyncIterator[None]:
        """Serves clients at a listening socket for the duration of the block."""
        self._line = WaitingLine(self._bounds.wrong_seconds)
        self._answers = SessionAnswers(
            self._store, self._sandbox, lease_seconds=self._lease_seconds
        )
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(ClientBytes(_READ_AHEAD), self._accept)

        server = await loop.create_server(protocol, sock=listening)
        try:
            yield
        finally:
            server.close()
            tasks = [each.task for each in self._all() if each.task is not None]
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(self._answers.close)

    def _all(self) -> list[_Connection]:
        return [*self._connections.values(), *self._strangers]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, ClientBytes), "it was made here"
        connection = _Connection(writer)
        self._strangers[connection] = None
        if len(self._strangers) > self._bounds.strangers:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.writer.transport.abort()
        connection.task = asyncio.ensure_future(self._serve(reader, connection))

    async def _serve(self, reader: ClientBytes, connection: _Connection) -> None:
        writer = connection.writer
        process = 0
        try:
            _keep_alive(writer)
            async with asyncio.timeout(self._bounds.login_seconds):
                started = await self._begin(reader, connection)
            if started is None:
                return
            self._strangers.pop(connection, None)
            process = self._take_process()
            self._connections[process] = connection
            await self._run_session(reader, connection, process, started)
        except PostgresError as error:
            await _say_farewell(writer, error)
        except asyncio.CancelledError:
            writer.write(
                error_message(PostgresError("57P01", "the server ends", hint="connect", fatal=True))
            )
        except (Gone, TimeoutError, OSError, ssl.SSLError):
            pass
        except KappaError as error:
            await _say_farewell(writer, PostgresError("58000", error.message, fatal=True))
        except Exception:  # noqa: BLE001  # whatever it is, it ends this session alone
            traceback.print_exc()
            told = "the server failed here, and its log says why: kappa logs http"
            await _say_farewell(writer, PostgresError("XX000", told, fatal=True))
        finally:
            self._strangers.pop(connection, None)
            self._connections.pop(process, None)
            with suppress(OSError, RuntimeError):
                writer.close()

    async def _begin(self, reader: ClientBytes, connection: _Connection) -> _Login | None:
        """Handles a client's startup messages until the client has logged in.

        Returns the client. Returns None if the connection was only for a cancel request.
        """
        writer, is_encrypted = connection.writer, False
        while True:
            length, code = struct.unpack("!ii", await _exactly(reader, 8))
            if not 8 <= length <= _STARTUP_BYTES:
                raise PostgresError(
                    PROTOCOL_VIOLATION,
                    f"the first message announces {length} bytes: this is no Postgres client",
                    fatal=True,
                )
            content = await _exactly(reader, length - 8)
            match code:
                case n if n == _CANCEL_REQUEST:
                    self._cancel(content)
                    return None
                case n if n == _GSS_REQUEST:
                    writer.write(b"N")
                case n if n == _SSL_REQUEST and (self._tls is None or is_encrypted):
                    writer.write(b"N")
                case n if n == _SSL_REQUEST and self._tls is not None:
                    if reader.has_bytes():
                        # Somebody has put bytes before the encryption, to be taken for its own.
                        raise PostgresError(
                            PROTOCOL_VIOLATION, "bytes came before the encryption", fatal=True
                        )
                    writer.write(b"S")
                    await writer.start_tls(self._tls)
                    is_encrypted = True
                case _:
                    return await self._log_in(reader, writer, code, content, is_encrypted)

    async def _log_in(
        self,
        reader: ClientBytes,
        writer: asyncio.StreamWriter,
        code: int,
        content: bytes,
        is_encrypted: bool,
    ) -> _Login:
        if code >> 16 != _VERSION:
            raise PostgresError(
                UNSUPPORTED,
                f"protocol {code >> 16}.{code & 0xFFFF} is not spoken here: this is 3.0",
                fatal=True,
            )
        fields, given = Fields(content), dict[str, str]()
        while not fields.is_at_end() and (name := fields.text()):
            given[name] = fields.text()
        if given.get("replication", "").lower() not in {"", "false", "off", "no", "0"}:
            raise PostgresError(
                UNSUPPORTED,
                "there is no replication here",
                hint="GET /api/v1/tables/TABLE/changes follows a table",
                fatal=True,
            )
        if self._tls is not None and not is_encrypted and not _is_local(writer):
            raise PostgresError(
                "28000",
                "this server speaks to other machines by TLS only",
                hint="connect with sslmode=require",
                fatal=True,
            )
        unknown = [name for name in given if name.startswith("_pq_.")]
        if code & 0xFFFF or unknown:
            names = b"".join(map(text_bytes, unknown))
            writer.write(message(b"v", struct.pack("!ii", _VERSION << 16, len(unknown)) + names))
        user = given.get("user", "")
        if not user:
            raise PostgresError("28000", "the client names no user", fatal=True)
        verifier = self._passwords.check_token(user)
        if verifier is not None:
            await self._ask_password(reader, writer, user, verifier)
        self._passwords.identity(user, verifier)
        return _Login(user, given, verifier)

    async def _ask_password(
        self, reader: ClientBytes, writer: asyncio.StreamWriter, user: str, verifier: Verifier
    ) -> None:
        """Checks the client's password by SCRAM.

        If the password is wrong, waits in the queue of wrong passwords and then raises
        PostgresError.
        """
        exchange = ScramExchange(verifier)
        try:
            writer.write(message(b"R", struct.pack("!i", 10) + text_bytes(MECHANISM) + b"\0"))
            first = Fields(await _password_message(reader))
            mechanism, (length,) = first.text(), first.numbers("i")
            told = exchange.answer_first(first.raw(length).decode(), mechanism).encode()
            writer.write(message(b"R", struct.pack("!i", 11) + told))
            final = (await _password_message(reader)).decode()
            told = exchange.answer_final(final).encode()
            writer.write(message(b"R", struct.pack("!i", 12) + told))
        except (WrongPassword, UnicodeDecodeError):
            with suppress(KappaError):
                await self._line.wait()
            raise PostgresError(
                "28P01",
                f'password authentication failed for user "{user[:80]}"',
                hint="it is a token: for user NAME that of kappa token add NAME, else serve.token",
                fatal=True,
            ) from None

    async def _run_session(
        self, reader: ClientBytes, connection: _Connection, process: int, login: _Login
    ) -> None:
        writer, user = connection.writer, login.user
        settings = SessionSettings(user)
        self._apply(settings, login.given)
        session = Session(
            reader,
            writer,
            self._answers,
            user=user,
            identity=lambda: self._passwords.identity(user, login.verifier),
            process=process,
            settings=settings,
            bounds=self._bounds.session,
        )
        connection.session = session
        writer.write(message(b"R", struct.pack("!i", 0)))
        for name, value in settings.told():
            writer.write(parameter_status(name, value))
        writer.write(message(b"K", struct.pack("!i", process) + connection.secret))
        await session.run()

    def _apply(self, settings: SessionSettings, given: dict[str, str]) -> None:
        """Applies the settings that a client requests at startup.

        Raises a fatal PostgresError if a setting is refused.
        """
        options = given.get("options", "").replace("\\ ", "\0").replace("--", "-c ").split()
        named = [(name, value) for name, value in given.items() if name not in _NO_SETTINGS]
        for each in options:
            name, equals, value = each.removeprefix("-c").replace("\0", " ").partition("=")
            if name and equals:
                named.append((name.strip(), value))
        for name, value in named:
            if name.startswith("_pq_."):
                continue
            try:
                # asyncpg sends some with quotes.
                settings.put(name, value.strip("'"))
            except PostgresError as error:
                error.fatal = True
                raise

    def _take_process(self) -> int:
        """Returns an unused session number, which the client sees as a process id.

        Raises PostgresError if too many clients are connected.
        """
        if len(self._connections) >= self._bounds.connections:
            raise PostgresError(
                TOO_MANY,
                f"{self._bounds.connections} clients are connected already",
                hint="use a pool of fewer connections, or come back in a while",
                fatal=True,
            )
        while True:
            self._last_process = self._last_process % (2**31 - 2) + 1
            if self._last_process not in self._connections:
                return self._last_process

    def _cancel(self, content: bytes) -> None:
        """Ends the query of the session that a cancel request names.

        Does nothing if the secret in `content`, the content of the request, is wrong.
        """
        if len(content) != 8:
            return
        (process,) = struct.unpack("!i", content[:4])
        found = self._connections.get(process)
        if (
            found is not None
            and found.session is not None
            and hmac.compare_digest(found.secret, content[4:])
        ):
            found.session.cancel()


_NO_SETTINGS = frozenset({"user", "database", "options", "replication"})


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Creates the TLS context of the server, or returns None if no certificate is given.

    Raises SettingsError if only one of the two files, certificate and key, is given, or if the
    files cannot be read.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise SettingsError(
            "TLS takes a certificate and its key, and one of them is not given",
            hint="set serve.postgres.certificate and serve.postgres.key, or neither",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"the certificate {certificate} with the key {key} cannot be read: {error}",
            hint="give a certificate in PEM and its own key, without a passphrase",
        ) from error
    return context


async def _exactly(reader: ClientBytes, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise Gone from error


async def _password_message(reader: ClientBytes) -> bytes:
    kind, content = await reader.read_message(_STARTUP_BYTES, _STARTUP_BYTES)
    if kind != b"p":
        raise PostgresError(PROTOCOL_VIOLATION, "a password was asked for", fatal=True)
    return content


async def _say_farewell(writer: asyncio.StreamWriter, error: PostgresError) -> None:
    error.fatal = True
    with suppress(OSError, RuntimeError, TimeoutError):
        writer.write(error_message(error))
        async with asyncio.timeout(1.0):
            await writer.drain()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connected = writer.get_extra_info("socket")
    if connected is not None:
        # A client whose machine has gone is found out, though a session may wait for ever.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _is_local(writer: asyncio.StreamWriter) -> bool:
    peer = writer.get_extra_info("peername")
    return bool(peer) and ipaddress.ip_address(peer[0]).is_loopback
