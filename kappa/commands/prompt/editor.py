"""The line editor of the shell: history, keys, colours and completion, with prompt_toolkit."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from kappa.base.duck import sql_tokens
from kappa.base.errors import UsageError
from kappa.base.temporary_folders import user_state
from kappa.commands.prompt.completion import KnownNames, suggest_names
from kappa.commands.terminal.output import say
from kappa.serving.query.render import printable_text
from kappa.serving.query.statements import split_statements

# Colours of the terminal's own palette, which fit on light and on dark.
_STYLE = Style.from_dict(
    {
        "keyword": "ansiblue",
        "string_const": "ansigreen",
        "numeric_const": "ansimagenta",
    }
)
_HISTORY = "shell_history"


class LineEditor:
    """A prompt at which a user types SQL statements and backslash commands.

    `names` returns the names for completion. A statement may have several lines, and ends with a
    semicolon.
    """

    def __init__(self, names: Callable[[], KnownNames]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_private_history(),
            completer=_NameCompleter(names),
            complete_while_typing=True,
            lexer=_SqlLexer(),
            style=_STYLE,
            multiline=Condition(lambda: not is_whole(get_app().current_buffer.text)),
            prompt_continuation=lambda width, _line, _wraps: "-> ".rjust(width),
            enable_open_in_editor=True,
        )

    def read_text(self, prompt: str, default: str = "") -> str:
        """Returns the text that the user types. The line initially contains `default`.

        Raises EOFError for Ctrl-D at an empty prompt, and KeyboardInterrupt for Ctrl-C.
        """
        return self._session.prompt(prompt, default=default)


def is_whole(text: str) -> bool:
    """Returns True if `text` is complete, so that Enter submits it.

    A complete text is a backslash command, or statements that all end with semicolons.
    """
    begun = text.strip()
    if not begun or begun.startswith("\\") or begun.lower() in {"exit", "quit", "help"}:
        return True
    split = split_statements(text)
    return bool(split.statements) and split.rest is None


def edit_text(text: str) -> str:
    """Opens a text in the user's editor, and returns the edited text.

    Raises UsageError if the editor cannot be started, or exits with an error.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="kappa-shell-") as folder:
        file = Path(folder) / "statement.sql"
        file.write_text(text, encoding="utf-8", errors="replace")
        try:
            ended = subprocess.run([*shlex.split(command), str(file)], check=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the editor {command!r} cannot be started: {error}",
                hint="name yours in the variable EDITOR",
            ) from error
        if ended.returncode:
            raise UsageError(
                f"the editor {command!r} ended with code {ended.returncode}",
                hint="the statement is as it was",
            )
        return file.read_text(encoding="utf-8", errors="replace").rstrip("\n")


def coloured_text(sql: str) -> StyleAndTextTuples:
    """Splits SQL into (style, text) pairs, one for each token. All characters are kept."""
    # DuckDB takes no lone surrogates, and stops at a NUL.
    whole = sql.replace("\0", "?").encode(errors="replace")
    tokens = sql_tokens(whole.decode())
    if not tokens:
        return [("", sql)]
    ends = [*(offset for offset, _ in tokens[1:]), len(whole)]
    first = len(whole[: tokens[0][0]].decode())
    found: StyleAndTextTuples = [("", sql[:first])]
    for (_, kind), end in zip(tokens, ends, strict=True):
        last = len(whole[:end].decode())
        found.append((f"class:{kind}", sql[first:last]))
        first = last
    return found


class _SqlLexer(Lexer):
    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        is_command = document.text.lstrip().startswith("\\")
        text: StyleAndTextTuples = [("", document.text)]
        lines = [*split_lines(text if is_command else coloured_text(document.text))]
        return lambda number: lines[number] if number < len(lines) else []


class _NameCompleter(Completer):
    def __init__(self, names: Callable[[], KnownNames]) -> None:
        self._names = names

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        # Where no word has begun, names are for who asks by Tab.
        if not event.completion_requested and before[-1:].strip() == "":
            return
        for each in suggest_names(before, document.text, self._names()):
            yield Completion(each.text, start_position=-each.length, display_meta=each.kind)


class _PrivateHistory(FileHistory):
    """A history in a file that only the user can read.

    If the history cannot be written, for example to a full disk, the prompt continues.
    """

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string.encode(errors="replace").decode())
        except OSError as error:
            say(printable_text(f"the history is not kept: {error}"))


def _private_history() -> History:
    try:
        file = user_state(_HISTORY)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # Whatever its mode was: statements may name what is secret.
            os.fchmod(opened, 0o600)
        finally:
            os.close(opened)
    except (OSError, RuntimeError) as error:
        say(printable_text(f"the history is not kept: {error}"))
        return InMemoryHistory()
    return _PrivateHistory(str(file))
