"""The SQL shell: a prompt whose statements are all answered from one pinned snapshot."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from kappa.base.errors import ExitCode, KappaError, UsageError, did_you_mean
from kappa.commands.prompt.answers import (
    answer_text,
    count_text,
    listing_of,
    parse_form,
    show_text,
    write_reply,
)
from kappa.commands.prompt.completion import KnownNames, written_name
from kappa.commands.prompt.editor import LineEditor, edit_text
from kappa.commands.terminal.moment import moment_text, read_time
from kappa.commands.terminal.output import say, show_failure
from kappa.commands.terminal.progress import moving
from kappa.replay.page.table import (
    DescribedTable,
    boards_naming,
    described_listing,
    described_text,
    table_view,
)
from kappa.replay.status.column_graph import column_origins
from kappa.replay.status.context import ProjectContext
from kappa.serving.query.pin.moments import AtGeneration, AtTime, Past, time_text
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.reader.views import tables_named
from kappa.serving.query.render import Form, Listing, printable_text, render_listing
from kappa.serving.query.sandbox.question import Allowance, Format, Question, Reply
from kappa.serving.query.session import QuerySession, known_words
from kappa.serving.query.statements import split_statements
from kappa.serving.query.tables import ServedTable

# Nobody waits for a query for a day: Ctrl-C ends it before.
_NO_SECONDS = 86_400.0
_NO_BYTES = 1 << 50
# How often a wait for an answer looks whether a signal has come.
_SIGNAL_SECONDS = 0.1
_WORDS = {"exit": r"\q", "quit": r"\q", "help": r"\?"}


class _Ended(Exception):
    r"""The exception that ends the loop of the shell after the user has typed the command \q."""


@dataclass(frozen=True, slots=True)
class Command:
    """A backslash command of the shell.

    `argument` describes the command's argument, `what` is the help text, and `run` is the function
    that runs the command with the argument.
    """

    argument: str
    what: str
    run: Callable[[str], None]


def open_shell(here: ProjectContext, when: Past | None = None) -> None:
    """Opens the shell, and answers the statements that the user types, until the shell ends.

    `when` is the moment of the snapshot, or None for now. Raises UsageError if nothing was served
    at the moment `when`, and KappaError if the files of this moment are no longer kept.
    """
    settings = here.settings.serve
    allowance = replace(
        Allowance.of(settings), seconds=_NO_SECONDS, rows=sys.maxsize, bytes=_NO_BYTES
    )
    with (
        _ended_by_signals(),
        QuerySession(here.store, allowance, lease_seconds=here.lease_seconds) as session,
    ):
        if when is not None:
            session.pin_snapshot(when)
        shell = SqlShell(
            session,
            project=here.settings.project,
            most_rows=settings.query_rows,
            most_bytes=Allowance.of(settings).bytes,
        )
        shell.greet_person(here.settings.root_url)
        shell.run_loop()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the process during the block.

    Otherwise, the shell would treat these signals like Ctrl-C.
    """

    def end_process(*_: object) -> NoReturn:
        raise SystemExit(ExitCode.INTERRUPTED)

    before = {
        number: signal.signal(number, end_process) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class SqlShell:
    """A prompt that answers statements from one pinned snapshot.

    An answer on the screen has at most `most_rows` rows and `most_bytes` bytes. An answer in a file
    has all rows.
    """

    def __init__(
        self, session: QuerySession, *, project: Path, most_rows: int, most_bytes: int
    ) -> None:
        self._session = session
        self._project = project
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._is_expanded = False
        self._is_timed = False
        # The format and the file of the next answer, if not the screen.
        self._next_file: tuple[Format, Path] | None = None
        self._last_statement = ""
        self._edited = ""
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="query")
        self._tables = session.list_tables()
        self._commands = {
            r"\d": Command("[TABLE]", "list tables and views, or describe a table", self._describe),
            r"\dt": Command("", "list tables alone", self._list_stored),
            r"\pin": Command("", "take a new snapshot, of what is served now", self._pin_now),
            r"\at": Command("TIME|off", "look back at what was served then", self._pin_time),
            r"\generation": Command(
                "N|off", "look back at what a generation showed last", self._pin_generation
            ),
            r"\o": Command(
                "[FORMAT FILE]",
                f"write the next answer to a file: {', '.join(Format)}",
                self._name_file,
            ),
            r"\x": Command("", "show a row as lines, or as a table again", self._toggle_expanded),
            r"\timing": Command("", "show how long each answer takes", self._toggle_timing),
            r"\e": Command("", "edit the last statement in $EDITOR", self._edit),
            r"\?": Command("", "list these commands", self._help),
            r"\q": Command("", "end the shell, as Ctrl-D does", self._quit),
        }

    def greet_person(self, root: str) -> None:
        """Prints a greeting: the root, the snapshot, and the most important commands."""
        snapshot = self._session.snapshot
        print(
            printable_text(
                f"Kappa {version('kappa')}, root {root}\n"
                + (
                    f"generation {snapshot.generation}, {len(self._tables)} tables and views; "
                    "every answer is of this snapshot until "
                    r"\pin"
                    if snapshot.serving
                    else r"nothing is served yet: kappa deploy, then \pin"
                )
                + "\n"
                + r"A statement ends with a semicolon. \? lists commands, \q ends."
            )
        )

    def run_loop(self) -> None:
        """Reads and answers texts, until Ctrl-D or a command ends the shell."""
        editor = LineEditor(lambda: self._known_names)
        # The processes start while the person types.
        self._worker.submit(self._session.start_processes)
        try:
            while True:
                try:
                    default, self._edited = self._edited, ""
                    text = editor.read_text(self._prompt, default)
                except KeyboardInterrupt:
                    continue
                except EOFError:
                    return
                try:
                    self.run_text(text)
                except _Ended:
                    return
        finally:
            self._worker.shutdown(cancel_futures=True)

    def run_text(self, text: str) -> None:
        """Runs a backslash command, or answers the statements in a text. Prints errors."""
        line = text.strip()
        line = _WORDS.get(line.rstrip(";").lower(), line)
        if line.startswith("\\"):
            self._survive(lambda: self._run_command(line))
            return
        for statement in split_statements(text).whole:
            self._last_statement = f"{statement.text};"
            if not self._survive(lambda sql=statement.text: self._answer(sql)):  # type: ignore[misc]
                return

    @property
    def _prompt(self) -> str:
        match self._session.when:
            case None:
                moment = ""
            case AtGeneration(number):
                moment = f" (generation {number})"
            case AtTime(at):
                moment = f" (at {time_text(at)})"
            case other:
                moment = f" ({other})"
        return printable_text(f"{self._project.absolute().name}{moment}> ")

    @cached_property
    def _words(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return known_words()

    @property
    def _known_names(self) -> KnownNames:
        functions, keywords = self._words
        names = [written_name(each.name) for each in self._tables]
        follow: dict[str, Sequence[str]] = {
            r"\d": names,
            r"\at": ["off"],
            r"\generation": ["off"],
            r"\o": [f"{form} " for form in Format],
        }
        return KnownNames(
            self._tables,
            functions,
            keywords,
            {command: follow.get(command, ()) for command in self._commands},
        )

    def _survive(self, act: Callable[[], None]) -> bool:
        """Calls `act`, and prints the error if `act` raises one.

        Returns False if the user has cancelled `act` with Ctrl-C, otherwise True.
        """
        try:
            act()
        except KappaError as error:
            show_failure(error)
        except KeyboardInterrupt:
            say("cancelled")
            return False
        except _Ended:
            raise
        except BrokenPipeError:
            # The terminal is gone.
            raise _Ended from None
        except Exception as error:  # noqa: BLE001  # the shell outlives every error
            say(printable_text(f"error: {type(error).__name__}: {error}"))
        return True

    def _run_command(self, line: str) -> None:
        name, _, argument = line.rstrip(";").partition(" ")
        command = self._commands.get(name)
        if command is None:
            raise UsageError(
                f"there is no command {name}",
                hint=did_you_mean(name, self._commands) or r"\? lists the commands",
            )
        argument = argument.strip()
        if argument and not command.argument:
            raise UsageError(f"{name} takes no argument", hint=r"\? shows what each command takes")
        command.run(argument)

    def _answer(self, sql: str) -> None:
        begun = time.perf_counter()
        if self._next_file is None:
            text = self._screen_text(sql)
        else:
            text = self._written_text(sql, *self._next_file)
        seconds = time.perf_counter() - begun
        show_text(text + (f"Time: {1000 * seconds:,.1f} ms\n" if self._is_timed else ""))

    def _screen_text(self, sql: str) -> str:
        question = Question(sql, Format.JSONL, self._most_rows, self._most_bytes)
        reply = self._ask(question)
        with reply.body:
            listing = listing_of(reply)
        shown = answer_text(listing, expanded=self._is_expanded)
        return f"{shown}{count_text(len(listing.rows), is_cut=reply.truncated)}\n"

    def _written_text(self, sql: str, form: Format, file: Path) -> str:
        reply = self._ask(Question(sql, form))
        # A file that cannot be written is named again; a query that fails keeps its file.
        self._next_file = None
        with reply.body:
            write_reply(reply, file)
        return printable_text(f"{count_text(reply.rows, is_cut=False)} written to {file}\n")

    def _ask(self, question: Question) -> Reply:
        """Answers a query in a separate process. If the user presses Ctrl-C, the query ends."""
        client, before = Client(), self._session.snapshot
        asked: Future[Reply] | None = None
        try:
            # Ctrl-C may come before `submit` returns, when the query may run already.
            asked = self._worker.submit(self._session.ask_query, question, client=client)
            with moving("answering", on_terminal=True):
                # A signal just before an endless wait would be handled after the wait.
                while not wait([asked], _SIGNAL_SECONDS).done:
                    pass
            reply = asked.result()
        except BaseException:
            # Unless the query has failed, Ctrl-C or another signal has ended the wait.
            client.leave_now()
            if asked is not None:
                wait([asked])
                if asked.exception() is None:
                    asked.result().body.close()
            raise
        if self._session.snapshot is not before:
            self._tables = self._session.list_tables()
            say("the lease on the snapshot had ended; the answer is of a newer snapshot")
            say(moment_text(self._session.snapshot))
        return reply

    def _describe(self, name: str) -> None:
        if not name:
            self._list_relations(self._tables)
            return
        found = relations_named(name, self._tables)
        show_text(
            "\n".join(
                relation_text(each, self._session.snapshot, self._project, tables_named)
                for each in found
            )
        )

    def _list_stored(self, _: str) -> None:
        self._list_relations([each for each in self._tables if each.kind != VIEW])

    def _list_relations(self, tables: Sequence[ServedTable]) -> None:
        if not tables:
            print("nothing is served yet: kappa deploy")
            return
        show_text(render_listing(Form.TABLE, relations_listing(tables)))

    def _pin(self, when: Past | None) -> None:
        self._session.pin_snapshot(when)
        self._tables = self._session.list_tables()
        print(printable_text(moment_text(self._session.snapshot)))

    def _pin_now(self, _: str) -> None:
        self._pin(None)

    def _pin_time(self, argument: str) -> None:
        if not argument:
            print(printable_text(moment_text(self._session.snapshot)))
            return
        self._pin(None if argument.lower() == "off" else AtTime(read_time(argument)))

    def _pin_generation(self, argument: str) -> None:
        if argument.lower() == "off":
            self._pin(None)
            return
        if not argument.isascii() or not argument.isdigit():
            raise UsageError(
                f"{argument!r} is not the number of a generation", hint="kappa history lists them"
            )
        self._pin(AtGeneration(int(argument)))

    def _name_file(self, argument: str) -> None:
        if not argument:
            self._next_file = None
            print("answers go to the screen")
            return
        form, _, named = argument.partition(" ")
        chosen = parse_form(form)
        path = named.strip().strip("'\"")
        if not path:
            raise UsageError("no file is named", hint=rf"write \o {chosen} FILE")
        file = Path(path).expanduser()
        self._next_file = chosen, file
        print(printable_text(f"the next answer goes to {file}, as {chosen}"))

    def _toggle_expanded(self, _: str) -> None:
        self._is_expanded = not self._is_expanded
        print(f"a row is shown as {'lines' if self._is_expanded else 'a line of a table'}")

    def _toggle_timing(self, _: str) -> None:
        self._is_timed = not self._is_timed
        print(f"timing is {'on' if self._is_timed else 'off'}")

    def _edit(self, _: str) -> None:
        self._edited = edit_text(self._last_statement)

    def _help(self, _: str) -> None:
        usages = {
            f"{name} {command.argument}".rstrip(): command.what
            for name, command in self._commands.items()
        }
        width = max(map(len, usages))
        show_text("".join(f"{usage.ljust(width)}  {what}\n" for usage, what in usages.items()))

    def _quit(self, _: str) -> None:
        raise _Ended


VIEW = "view"


def relations_listing(tables: Iterable[ServedTable]) -> Listing:
    """Returns a listing with one row for each table and view."""
    rows = tuple(
        (
            each.name,
            each.kind,
            each.pipeline,
            f"BROKEN: {each.broken}"
            if each.broken
            else ", ".join(name for name, _ in each.columns),
        )
        for each in tables
    )
    return Listing(("table", "kind", "pipeline", "columns"), rows)


def relations_named(name: str, tables: Iterable[ServedTable]) -> list[ServedTable]:
    """Lists the tables and views with the given name.

    The name may include the schema. Raises UsageError, with the most similar name, if no table or
    view has the given name.
    """
    tables = tuple(tables)
    asked = name.replace('"', "").lower()
    found = [
        each
        for each in tables
        if asked in {each.name.lower(), f"{schema_of(each.pipeline)}.{each.name}".lower()}
    ]
    if not found:
        names = [each.name for each in tables]
        raise UsageError(
            f"there is no table {name}",
            hint=did_you_mean(asked, names) or r"\d lists all tables and views",
        )
    return found


def relation_text(
    table: ServedTable,
    snapshot: Snapshot,
    project: Path,
    names_in: Callable[[str], frozenset[str]],
) -> str:
    """Describes a table as `kappa tables TABLE` does, but without the numbers of rows and files.

    `names_in` returns the names of the tables that an SQL text reads.
    """
    birth = snapshot.births[table.build]
    found = DescribedTable(
        table_view(
            *(table, birth, (), names_in),
            whole="",
            costs={},
            origins=column_origins(birth).get(table.name, {}),
        ),
        None,
        birth,
        boards_naming(project, frozenset({table.name}), names_in),
    )
    return render_listing(
        Form.TABLE, described_listing(found), heading=printable_text(described_text(found))
    )
