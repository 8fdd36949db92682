"""The session of a client: statements, portals, and transactions with their snapshot.

A transaction pins a snapshot at its first query, and reads only that snapshot until the transaction
ends, even if a promote happens meanwhile. Each statement outside a transaction reads its own
snapshot, but several statements in one message read the same snapshot. Nothing is ever written, so
a rollback only releases the snapshot. Source: PostgreSQL 16, "Message Flow".
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from kappa.base.errors import KappaError
from kappa.serving.access.roles import Identity
from kappa.serving.postgres.answers import (
    AnswerRows,
    SessionAnswers,
    TransactionPin,
    ended_snapshot_error,
    snapshot_text,
)
from kappa.serving.postgres.commands import (
    Begin,
    Close,
    Command,
    CopyOut,
    Deallocate,
    Declare,
    Discard,
    End,
    Fetch,
    Nothing,
    SelectQuery,
    SetValue,
    Show,
    command_of,
)
from kappa.serving.postgres.messages import (
    PROTOCOL_VIOLATION,
    ClientBytes,
    Fields,
    Gone,
    PostgresError,
    as_postgres_error,
    data_row,
    error_message,
    message,
    notice_message,
    parameter_status,
    row_description,
    text_bytes,
)
from kappa.serving.postgres.parameters import parameter_sql
from kappa.serving.postgres.settings import SNAPSHOT, SessionSettings
from kappa.serving.postgres.translation import names_snapshot, translate
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.postgres.placeholders import fill_placeholders, placeholders_in
from kappa.serving.query.postgres.wire import Wire
from kappa.serving.query.postgres.wire_types import TEXT, oid_of_name
from kappa.serving.query.reader.client import Client, ClientLeft
from kappa.serving.query.sandbox.question import Format, Question
from kappa.serving.query.statements import split_statements

_TEXT_COLUMN = (TEXT.oid, -1, -1)
# The protocol counts them so far.
_MOST_PARAMETERS = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class SessionBounds:
    """The limits of a session.

    `message_bytes` is the largest size of a message. `kept_bytes` limits the total size of all
    prepared statements, and also the total size of all portals' parameter values. `statements` and
    `portals` are the largest numbers of prepared statements and of open portals. `message_seconds`
    is the time in which the rest of a message must arrive, `send_seconds` is the time in which a
    client must read sent data, and `idle_seconds` is the time for which the snapshot of an idle
    transaction stays pinned.
    """

    message_bytes: int = 1 << 20
    kept_bytes: int = 4 << 20
    statements: int = 1000
    portals: int = 32
    message_seconds: float = 20.0
    send_seconds: float = 30.0
    idle_seconds: float = 300.0


@dataclass(slots=True)
class _Statement:
    """A prepared statement. `columns` is None until the statement has been described."""

    sql: str
    command: Command
    oids: tuple[int, ...]
    columns: Sequence[Mapping[str, Any]] | None = None


@dataclass(slots=True)
class _Portal:
    """A statement with its parameter values, and the rows of its result not yet sent.

    `formats` are the client's format codes for the columns. `described` are the columns that the
    server has described to the client, or None. A cursor that was declared in SQL is also a portal.
    If `holds` is True, the cursor can also be used after the end of its transaction.
    """

    command: Command
    values: Mapping[int, str]
    formats: tuple[int, ...] = ()
    described: Sequence[Mapping[str, Any]] | None = None
    rows: AnswerRows | None = None
    is_cursor: bool = False
    holds: bool = False
    is_done: bool = False

    def close(self) -> None:
        """Releases the rows that were not sent."""
        # The rows of a FETCH are the cursor's.
        if self.rows is not None and not isinstance(self.command, Fetch):
            self.rows.close()
        self.rows = None


@dataclass(slots=True)
class _Transaction:
    """The state of a session's transaction.

    `status` is `I` outside a transaction, `T` inside a transaction, and `E` if the transaction has
    failed.
    """

    status: str = "I"
    pin: TransactionPin | None = None
    # The pin was given up while the client did nothing.
    lost: Snapshot | None = None
    # One message has several statements, which share a snapshot outside of a transaction.
    is_implicit: bool = False


class Session:
    """The session of one client that has logged in."""

    def __init__(
        self,
        reader: ClientBytes,
        writer: asyncio.StreamWriter,
        answers: SessionAnswers,
        *,
        user: str,
        identity: Callable[[], Identity],
        process: int,
        settings: SessionSettings,
        bounds: SessionBounds,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._answers = answers
        self._user = user
        self._identity = identity
        self._process = process
        self._settings = settings
        self._bounds = bounds
        self._out = bytearray()
        self._statements: dict[str, _Statement] = {}
        self._portals: dict[str, _Portal] = {}
        self._transaction = _Transaction()
        # The client of the query that runs.
        self._client: Client | None = None
        self._idle: asyncio.TimerHandle | None = None
        reader.on_left = self.cancel

    def cancel(self) -> None:
        """Cancels the running query, if there is one."""
        if self._client is not None:
            self._client.leave_now()

    async def run(self) -> None:
        """Answers messages until the client leaves.

        Raises Gone if the connection ends, and PostgresError if a fatal error occurs.
        """
        try:
            await self._ready()
            while True:
                kind, content = await self._reader.read_message(
                    self._bounds.message_bytes, self._bounds.message_seconds
                )
                self._stop_idle()
                if kind == b"X":
                    return
                if kind == b"Q":
                    await self._simple(Fields(content))
                else:
                    await self._extended(kind, content)
        finally:
            self._stop_idle()
            self._close_portals(keeps_held=False)
            self._give_up_pin()

    # -- what is sent

    async def _send(self, *messages: bytes) -> None:
        for each in messages:
            self._out += each
        if len(self._out) >= 1 << 16:
            await self._flush()

    async def _flush(self) -> None:
        content, self._out = bytes(self._out), bytearray()
        try:
            self._writer.write(content)
            async with asyncio.timeout(self._bounds.send_seconds):
                await self._writer.drain()
        except (TimeoutError, OSError) as error:
            self._writer.transport.abort()
            raise Gone from error

    async def _ready(self) -> None:
        await self._send(message(b"Z", self._transaction.status.encode()))
        await self._flush()
        if self._transaction.pin is not None:
            self._idle = asyncio.get_running_loop().call_later(
                self._bounds.idle_seconds, self._lose_pin
            )

    def _stop_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _lose_pin(self) -> None:
        pin = self._transaction.pin
        if pin is not None:
            self._transaction.lost = pin.snapshot
            self._give_up_pin()

    # -- the two ways of asking

    async def _simple(self, fields: Fields) -> None:
        try:
            statements = [each.text for each in split_statements(fields.text()).whole]
            if not statements:
                await self._send(message(b"I"))
            self._transaction.is_implicit = len(statements) > 1
            for each in statements:
                await self._run_simple(each)
        except (KappaError, ClientLeft) as error:
            await self._fail(error)
        self._transaction.is_implicit = False
        self._end_implicit()
        await self._ready()

    async def _run_simple(self, sql: str) -> None:
        portal = _Portal(command_of(sql), {})
        self._ensure_may_run(portal.command)
        try:
            await self._start(portal)
            if portal.rows is not None and not isinstance(portal.command, CopyOut):
                await self._send(row_description(portal.rows.columns, portal.formats))
            await self._finish(portal, None)
        finally:
            portal.close()

    async def _extended(self, kind: bytes, content: bytes) -> None:
        """Answers a message of Postgres's extended query protocol.

        After an error, all messages up to the next Sync message are ignored.
        """
        fields = Fields(content)
        try:
            match kind:
                case b"P":
                    await self._parse(fields)
                case b"B":
                    await self._bind(fields)
                case b"D":
                    await self._describe(fields)
                case b"E":
                    await self._execute(fields)
                case b"C":
                    await self._close(fields)
                case b"H":
                    await self._flush()
                case b"S":
                    self._end_implicit()
                    await self._ready()
                case b"d" | b"c" | b"f":
                    # The rest of a copy to the server, which was refused.
                    pass
                case _:
                    raise PostgresError(
                        PROTOCOL_VIOLATION,
                        f"a message of the kind {kind!r} is not known",
                        fatal=True,
                    )
        except (KappaError, ClientLeft) as error:
            await self._fail(error)
            await self._flush()
            await self._skip_to_sync()

    async def _skip_to_sync(self) -> None:
        kind = b""
        while kind != b"S":
            kind, _ = await self._reader.read_message(
                self._bounds.message_bytes, self._bounds.message_seconds
            )
            if kind == b"X":
                raise Gone
        self._end_implicit()
        await self._ready()

    async def _fail(self, error: KappaError | ClientLeft) -> None:
        found = as_postgres_error(error)
        if found.fatal:
            raise found
        if self._reader.at_eof():
            raise Gone
        if self._transaction.status == "T":
            self._transaction.status = "E"
        await self._send(error_message(found))

    # -- messages of prepared statements

    async def _parse(self, fields: Fields) -> None:
        name, sql, oids = fields.text(), fields.text(), fields.listed("i")
        if name and name in self._statements:
            raise PostgresError("42P05", f"prepared statement {name[:80]} exists already")
        statements = [each.text for each in split_statements(sql).whole]
        if len(statements) > 1:
            raise PostgresError(
                "42601", "cannot insert multiple commands into a prepared statement"
            )
        self._keep_statement(name, statements[0] if statements else "", oids)
        await self._send(message(b"1"))

    def _keep_statement(self, name: str, sql: str, oids: tuple[int, ...]) -> None:
        kept = {each: statement for each, statement in self._statements.items() if each != name}
        size = sum(len(each.sql) for each in kept.values()) + len(sql)
        if len(kept) >= self._bounds.statements or size > self._bounds.kept_bytes:
            raise PostgresError(
                "54000",
                f"{len(kept)} statements are prepared, and no more are kept",
                hint="DEALLOCATE those that are not needed",
            )
        self._statements[name] = _Statement(sql, command_of(sql), oids)

    async def _bind(self, fields: Fields) -> None:
        portal_name, name = fields.text(), fields.text()
        statement = self._statement(name)
        codes = fields.listed("h")
        (count,) = fields.numbers("h")
        contents: list[bytes | None] = []
        for _ in range(count):
            (length,) = fields.numbers("i")
            contents.append(None if length == -1 else fields.raw(length))
        formats = fields.listed("h")
        numbers = placeholders_in(statement.sql)
        if count < len(numbers) or not {*codes, *formats} <= {0, 1}:
            raise PostgresError(
                PROTOCOL_VIOLATION,
                f"{count} values came, and the statement has {len(numbers)} parameters",
            )
        codes = codes * count if len(codes) == 1 else (*codes, *(0,) * count)[:count]
        oids = (*statement.oids, *(0,) * count)[:count]
        values = {
            number: parameter_sql(content, oid, binary=bool(code))
            for number, (content, oid, code) in enumerate(
                zip(contents, oids, codes, strict=True), 1
            )
        }
        self._close_portal(portal_name)
        self._open_portal(
            portal_name, _Portal(statement.command, values, formats, described=statement.columns)
        )
        await self._send(message(b"2"))

    async def _describe(self, fields: Fields) -> None:
        kind, name = fields.raw(1), fields.text()
        if kind == b"S":
            statement = self._statement(name)
            await self._describe_statement(statement)
            listed = struct.pack(f"!h{len(statement.oids)}i", len(statement.oids), *statement.oids)
            await self._send(message(b"t", listed))
            columns, formats = statement.columns or (), tuple[int, ...]()
        else:
            portal = self._portal(name)
            self._ensure_may_run(portal.command)
            if portal.is_cursor:
                # How its rows are fetched is not known yet.
                columns = await self._cursor_columns(portal)
                await self._send(row_description(columns, ()))
                return
            await self._start(portal)
            is_shown = portal.rows is not None and not isinstance(portal.command, CopyOut)
            columns = portal.rows.columns if is_shown and portal.rows is not None else ()
            formats = portal.formats
        await self._send(row_description(columns, formats) if columns else message(b"n"))

    async def _execute(self, fields: Fields) -> None:
        name = fields.text()
        (most,) = fields.numbers("i")
        portal = self._portal(name)
        self._ensure_may_run(portal.command)
        await self._start(portal)
        await self._finish(portal, most if most > 0 else None)

    async def _close(self, fields: Fields) -> None:
        kind, name = fields.raw(1), fields.text()
        if kind == b"S":
            self._statements.pop(name, None)
        else:
            self._close_portal(name)
        await self._send(message(b"3"))

    def _statement(self, name: str) -> _Statement:
        found = self._statements.get(name)
        if found is None:
            raise PostgresError("26000", f'prepared statement "{name[:80]}" does not exist')
        return found

    def _portal(self, name: str) -> _Portal:
        found = self._portals.get(name)
        if found is None:
            raise PostgresError("34000", f'portal "{name[:80]}" does not exist')
        return found

    def _open_portal(self, name: str, portal: _Portal) -> None:
        # The portal without a name, of the statement that is answered, has a place of its own.
        named = len(self._portals.keys() - {""})
        if name and named >= self._bounds.portals:
            raise PostgresError("54000", f"{named} portals are open, and no more may be")
        kept = (each for other, each in self._portals.items() if other not in {"", name})
        size = sum(len(value) for each in (*kept, portal) for value in each.values.values())
        if name and size > self._bounds.kept_bytes:
            raise PostgresError(
                "54000",
                f"the values of {named + 1} portals take {size} bytes, and no more are kept",
                hint="CLOSE those that are not needed",
            )
        self._portals[name] = portal

    async def _describe_statement(self, statement: _Statement) -> None:
        """Finds the types of parameters and columns, and stores the types in `statement`."""
        columns: Sequence[Mapping[str, Any]] = ()
        oids: tuple[int, ...] = ()
        match statement.command:
            case SelectQuery(sql, known):
                columns, oids = await self._description(sql, statement.oids or known)
            case Show(name):
                columns = _show_columns(name)
            case Fetch(name, _, False):
                columns = await self._cursor_columns(self._cursor(name))
            case Declare(_, sql, _) | CopyOut(sql, _):
                _, oids = await self._description(sql, statement.oids)
            case _:
                pass
        statement.columns, statement.oids = columns, oids

    async def _cursor_columns(self, cursor: _Portal) -> Sequence[Mapping[str, Any]]:
        if cursor.rows is not None:
            return cursor.rows.columns
        assert isinstance(cursor.command, SelectQuery), "a cursor is declared for a query"
        filled = fill_placeholders(cursor.command.sql, cursor.values)
        columns, _ = await self._description(filled, ())
        return columns

    async def _description(
        self, sql: str, oids: tuple[int, ...]
    ) -> tuple[Sequence[Mapping[str, Any]], tuple[int, ...]]:
        known = {
            number: parameter_sql(None, oid, binary=False)
            for number, oid in enumerate(oids, 1)
            if oid
        }
        rows = await self._ask(fill_placeholders(sql, known), Wire(describes=True))
        try:
            described = json.loads(rows.body.read())
        finally:
            rows.close()
        found = {int(number): str(kind) for number, kind in described.items()}
        count = max((*placeholders_in(sql), len(oids)), default=0)
        if count > _MOST_PARAMETERS:
            raise PostgresError(
                "54000", f"parameter ${count} is one too many: there are {_MOST_PARAMETERS}"
            )
        return rows.columns, tuple(
            (oids[number - 1] if number <= len(oids) else 0) or oid_of_name(found.get(number, ""))
            for number in range(1, count + 1)
        )

    # -- running a statement

    def _ensure_may_run(self, command: Command) -> None:
        """Raises PostgresError if the transaction has failed and does not accept the command.

        A failed transaction accepts only commands that end the transaction, or that roll it back to
        a savepoint.
        """
        if self._transaction.status == "E" and not isinstance(command, End):
            if isinstance(command, Nothing) and command.goes_back:
                self._transaction.status = "T"
                return
            raise PostgresError(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
                hint="ROLLBACK",
            )

    async def _start(self, portal: _Portal) -> None:
        """Runs the query of a portal, unless the portal already has the rows of the query."""
        if portal.rows is not None or portal.is_done:
            return
        match portal.command:
            case SelectQuery(sql):
                rows = await self._ask(fill_placeholders(sql, portal.values), Wire(portal.formats))
            case CopyOut(sql, copy):
                rows = await self._ask(fill_placeholders(sql, portal.values), Wire(copy=copy))
            case Fetch(name, _, False):
                rows = await self._cursor_rows(self._cursor(name), portal.formats)
            case Show(name):
                rows = await self._shown(name)
            case _:
                return
        if len(portal.formats) not in {0, 1, len(rows.columns)}:
            rows.close()
            raise PostgresError(
                PROTOCOL_VIOLATION,
                f"{len(portal.formats)} formats came for {len(rows.columns)} columns",
                hint="send one format for all columns, or one for each",
            )
        if portal.described is not None and not _are_alike(portal.described, rows.columns):
            rows.close()
            raise PostgresError(
                "0A000",
                "cached plan must not change result type",
                hint="prepare the statement anew: another version of a table serves",
            )
        portal.rows = rows

    async def _finish(self, portal: _Portal, most: int | None) -> None:
        """Sends at most `most` rows of a portal, and then the message that ends the answer.

        If `most` rows were sent, this message reports that the portal is suspended. Otherwise, it
        reports that the statement is complete. If the command of the portal returns no rows, the
        command runs now.
        """
        rows = portal.rows
        match portal.command:
            case SelectQuery() if rows is not None:
                sent = await self._send_rows(rows, most)
                if sent == most:
                    await self._send(message(b"s"))
                else:
                    await self._complete(f"SELECT {sent}")
            case Show() if rows is not None:
                await self._send_rows(rows, None)
                await self._complete("SHOW")
            case Fetch(_, count, False) if rows is not None:
                sent = await self._send_rows(rows, count)
                await self._complete(f"FETCH {sent}")
                # The rows are the cursor's.
                portal.rows, portal.is_done = None, True
            case CopyOut(_, copy) if rows is not None:
                binary = int(copy.form == "binary")
                width = len(rows.columns)
                head = struct.pack(f"!bh{width}h", binary, width, *[binary] * width)
                await self._send(message(b"H", head))
                sent = await self._send_rows(rows, None)
                await self._send(message(b"c"))
                await self._complete(f"COPY {sent}")
            case command:
                if portal.is_done:
                    raise PostgresError("55000", "this statement has run; bind it again")
                await self._run_command(command, portal)
        portal.is_done = portal.is_done or portal.rows is None

    async def _send_rows(self, rows: AnswerRows, most: int | None) -> int:
        """Sends the next `most` rows, or all remaining rows if `most` is None.

        Returns the number of sent rows.
        """
        before = rows.given
        for each in rows.take(most):
            await self._send(each)
        return rows.given - before

    async def _complete(self, tag: str) -> None:
        await self._send(message(b"C", text_bytes(tag)))

    async def _ask(self, sql: str, wire: Wire) -> AnswerRows:
        """Runs a query in the sandbox, and returns the rows of the answer.

        The query reads the transaction's snapshot. Outside a transaction, the query reads the
        snapshot that the session's settings select: of now, or of a moment of the past.
        """
        reader, is_named = self._identity(), names_snapshot(sql)
        async with self._pinned(reader, always=is_named) as pin:
            translated = translate(
                sql,
                user=self._user,
                setting=self._setting,
                process=self._process,
                snapshot=(
                    snapshot_text(pin.snapshot, reader) if is_named and pin is not None else ""
                ),
            )
            wire = replace(wire, catalogue=translated.catalogue)
            self._client = Client()
            timer = self._statement_timer(self._client)
            try:
                reply = await self._answers.ask(
                    Question(translated.sql, Format.POSTGRES, reader=reader, wire=wire),
                    pin=pin,
                    moment=self._settings.when(),
                    client=self._client,
                )
                return self._answers.rows_of(reply)
            finally:
                self._client = None
                if timer is not None:
                    timer.cancel()

    @asynccontextmanager
    async def _pinned(
        self, reader: Identity, *, always: bool
    ) -> AsyncIterator[TransactionPin | None]:
        """Yields the pinned snapshot that the next query must read.

        Within a transaction, the first query pins the transaction's snapshot. Outside a
        transaction, a snapshot is pinned only if `always` is True, and only for the block;
        otherwise, None is yielded. Raises PostgresError if the transaction's snapshot is no longer
        pinned.
        """
        work = self._transaction
        if work.lost is not None:
            raise ended_snapshot_error(work.lost, reader)
        if work.pin is None and (always or work.status == "T" or work.is_implicit):
            work.pin = await self._answers.pin(reader.name, self._settings.when())
        try:
            yield work.pin
        finally:
            if work.status == "I" and not work.is_implicit:
                self._give_up_pin()

    def _statement_timer(self, client: Client) -> asyncio.TimerHandle | None:
        """Starts a timer that ends a query when the session's `statement_timeout` has passed.

        Returns None if the session has no `statement_timeout`, or if the server ends the query
        earlier.
        """
        said = self._settings.value("statement_timeout").removesuffix("ms").strip()
        milliseconds = int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else 0
        if not milliseconds or milliseconds >= self._answers.seconds * 1000:
            return None
        return asyncio.get_running_loop().call_later(milliseconds / 1000, client.leave_now)

    def _setting(self, name: str) -> str | None:
        try:
            return self._settings.value(name)
        except PostgresError:
            return None

    # -- commands that are answered here

    async def _run_command(self, command: Command, portal: _Portal) -> None:
        match command:
            case Nothing(""):
                await self._send(message(b"I"))
            case Begin(tag):
                await self._begin(tag)
            case End(commits):
                await self._end(commits=commits)
            case Nothing(tag):
                await self._complete(tag)
            case SetValue(name, value, local, tag):
                await self._set(name, value, local=local)
                await self._complete(tag)
            case Declare(name, sql, hold):
                self._declare(name, sql, portal.values, hold=hold)
                await self._complete("DECLARE CURSOR")
            case Fetch(name, count, True):
                rows = await self._cursor_rows(self._cursor(name), None)
                before = rows.given
                for _ in rows.take(count):
                    pass
                await self._complete(f"MOVE {rows.given - before}")
            case Close(name):
                await self._close_cursor(name)
            case Deallocate(name):
                await self._deallocate(name)
            case Discard(what):
                await self._discard(what)
            case _:
                raise PostgresError("XX000", "a statement without rows was to give rows")
        portal.is_done = True

    async def _begin(self, tag: str) -> None:
        if self._transaction.status == "T":
            await self._warn("25001", "there is already a transaction in progress")
        else:
            self._give_up_pin()
            self._transaction.status = "T"
            self._settings.begin()
        await self._complete(tag)

    async def _end(self, *, commits: bool) -> None:
        work = self._transaction
        if work.status == "I":
            await self._warn("25P01", "there is no transaction in progress")
        committed = commits and work.status != "E"
        if committed:
            await self._read_held_cursors()
        self._settings.end(committed=committed)
        self._transaction = _Transaction("I", work.pin, is_implicit=work.is_implicit)
        self._give_up_pin()
        self._close_portals(keeps_held=committed)
        await self._complete("COMMIT" if committed else "ROLLBACK")

    async def _read_held_cursors(self) -> None:
        """Runs the queries of the cursors that can be used after the end of the transaction.

        The queries read the transaction's snapshot, so this method is called before the transaction
        ends.
        """
        for cursor in self._portals.values():
            if cursor.holds and not cursor.is_done:
                await self._cursor_rows(cursor, None)
                cursor.is_done = True

    async def _set(self, name: str, value: str | None, *, local: bool) -> None:
        is_moment = name.lower().startswith("kappa.")
        if is_moment and self._transaction.pin is not None:
            raise PostgresError(
                "25001",
                f"{name} must be set before the first query of a transaction",
                hint="COMMIT or ROLLBACK, then set it",
            )
        if self._settings.is_kept_in_utc(name, value):
            await self._warn("01000", "times are given in UTC here, whatever TimeZone is set to")
        told = self._settings.put(name, value, local=local)
        if is_moment and (moment := self._settings.when()) is not None:
            # A moment that is not kept is refused now, and not at a later query.
            try:
                self._answers.release(await self._answers.pin(self._identity().name, moment))
            except BaseException:
                self._settings.put(name, None, local=local)
                raise
        if told is not None:
            await self._send(parameter_status(*told))

    async def _shown(self, name: str) -> AnswerRows:
        if name == "all":
            rows: list[tuple[str, ...]] = [
                (each, *rest, "") for each, *rest in self._settings.all()
            ]
        elif name == SNAPSHOT:
            rows = [(await self._snapshot_text(),)]
        else:
            rows = [(self._settings.value(name),)]
        return AnswerRows(BytesIO(b"".join(map(data_row, rows))), _show_columns(name), len(rows))

    async def _snapshot_text(self) -> str:
        reader = self._identity()
        async with self._pinned(reader, always=True) as pin:
            assert pin is not None, "a snapshot was asked for"
            return snapshot_text(pin.snapshot, reader)

    def _declare(self, name: str, sql: str, values: Mapping[int, str], *, hold: bool) -> None:
        if self._transaction.status == "I" and not hold:
            raise PostgresError("25P01", "DECLARE CURSOR can only be used in transaction blocks")
        if name in self._portals:
            raise PostgresError("42P03", f'cursor "{name[:80]}" already exists')
        command = command_of(sql)
        if not isinstance(command, SelectQuery):
            raise PostgresError("42601", "a cursor is declared for a query")
        self._open_portal(name, _Portal(command, values, is_cursor=True, holds=hold))

    def _cursor(self, name: str) -> _Portal:
        found = self._portals.get(name)
        if found is None or not found.is_cursor:
            raise PostgresError("34000", f'cursor "{name[:80]}" does not exist')
        return found

    async def _cursor_rows(self, cursor: _Portal, formats: tuple[int, ...] | None) -> AnswerRows:
        """Returns the rows of a cursor in the given formats.

        If `formats` is None, the rows are returned in the formats of the cursor. Raises
        PostgresError if rows were already fetched in other formats.
        """
        if cursor.rows is not None and formats not in {None, cursor.formats}:
            if cursor.rows.given or cursor.is_done:
                raise PostgresError(
                    "0A000", "a cursor's rows are all fetched as text, or all as binary"
                )
            cursor.close()
        if cursor.rows is None:
            cursor.formats = formats or ()
            await self._start(cursor)
        assert cursor.rows is not None, "a query has rows"
        return cursor.rows

    async def _close_cursor(self, name: str | None) -> None:
        cursors = [each for each, portal in self._portals.items() if portal.is_cursor]
        for each in cursors if name is None else [name]:
            self._cursor(each).close()
            del self._portals[each]
        await self._complete("CLOSE CURSOR ALL" if name is None else "CLOSE CURSOR")

    async def _deallocate(self, name: str | None) -> None:
        if name is None:
            self._statements.clear()
        else:
            self._statement(name)
            del self._statements[name]
        await self._complete("DEALLOCATE ALL" if name is None else "DEALLOCATE")

    async def _discard(self, what: str) -> None:
        if what in {"all", "settings"}:
            self._settings.reset()
        if what == "all":
            self._statements.clear()
            self._close_portals(keeps_held=False)
        await self._complete("RESET" if what == "settings" else f"DISCARD {what.upper()}")

    async def _warn(self, code: str, text: str) -> None:
        await self._send(notice_message(PostgresError(code, text)))

    # -- the ends of things

    def _end_implicit(self) -> None:
        """Closes the portals and releases the snapshot at the end of a client's message.

        Does nothing within a transaction. Cursors that can be used after their transaction stay
        open.
        """
        if self._transaction.status == "I":
            self._close_portals(keeps_held=True)
            self._give_up_pin()

    def _give_up_pin(self) -> None:
        pin, self._transaction.pin = self._transaction.pin, None
        if pin is not None:
            self._answers.release(pin)

    def _close_portal(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            portal.close()

    def _close_portals(self, *, keeps_held: bool) -> None:
        for name, portal in [*self._portals.items()]:
            if not (keeps_held and portal.holds):
                self._close_portal(name)


def _show_columns(name: str) -> Sequence[Mapping[str, Any]]:
    names = ("name", "setting", "description") if name == "all" else (name,)
    return [{"name": each, "wire": _TEXT_COLUMN} for each in names]


def _are_alike(before: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[str, Any]]) -> bool:
    # The name of a column without one shows its expression, with the values of parameters.
    return [tuple(each["wire"]) for each in before] == [tuple(each["wire"]) for each in columns]
