"""Shows the answers of the shell as tables or expanded rows, or writes them to files.

A long answer is shown in the user's pager.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from kappa.base.errors import UsageError
from kappa.base.program import hand_out
from kappa.base.units import count_of
from kappa.serving.query.render import Form, Listing, render_expanded, render_listing
from kappa.serving.query.sandbox.question import Format, Reply

# Screens keep room for the next prompt.
_LINES_OF_PROMPT = 2
# Without options of the user's own, less ends at once for a short text and cuts no screen.
_LESS = "-FSX"


def listing_of(reply: Reply) -> Listing:
    """Parses an answer in JSON lines to a listing, with the same values as in `kappa query`."""
    names = [column["name"] for column in reply.columns]
    reads = [_READERS.get(column["type"].partition("(")[0], _as_it_is) for column in reply.columns]
    rows = []
    for line in reply.body:
        row = json.loads(line)
        rows.append(
            tuple(
                None if row[name] is None else read(row[name])
                for name, read in zip(names, reads, strict=True)
            )
        )
    return Listing(tuple(names), tuple(rows))


def _as_it_is(value: Any) -> Any:
    return value


# JSON has no decimals, no bytes, and no number that is not finite.
_READERS: dict[str, Callable[[Any], Any]] = {
    "DECIMAL": Decimal,
    "DOUBLE": float,
    "FLOAT": float,
    "BLOB": base64.b64decode,
}


def answer_text(listing: Listing, *, expanded: bool) -> str:
    """Renders rows as a table. With `expanded`, each column of a row has its own line."""
    return render_expanded(listing) if expanded else render_listing(Form.TABLE, listing)


def count_text(rows: int, *, is_cut: bool) -> str:
    """Returns a text with the number of an answer's rows.

    With `is_cut`, the text also says that the query has more rows.
    """
    counted = count_of(rows, "row")
    return rf"({counted}, and there are more: \o csv FILE writes all)" if is_cut else f"({counted})"


def write_reply(reply: Reply, file: Path) -> None:
    """Writes an answer to a file. If the file exists, it is replaced atomically.

    Raises UsageError if the file cannot be written.
    """
    written = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        with written.open("wb") as opened:
            shutil.copyfileobj(reply.body, opened)
        hand_out(written)
        written.replace(file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}", hint=r"name a file you may write: \o"
        ) from error
    finally:
        written.unlink(missing_ok=True)


def parse_form(word: str) -> Format:
    """Returns the file format whose name a user has typed.

    Raises UsageError if there is no such format.
    """
    try:
        return Format(word.lower())
    except ValueError as error:
        raise UsageError(
            f"{word!r} is not a format of a file",
            hint=rf"write \o FORMAT FILE; formats are {', '.join(Format)}",
        ) from error


def show_text(text: str) -> None:
    """Writes a text to stdout, or shows it in the pager if it is larger than the terminal."""
    pager = _pager_command()
    if pager is None or not sys.stdout.isatty() or not _is_larger_than_screen(text):
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    environment = {**os.environ, "LESS": os.environ.get("LESS", _LESS), "LESSCHARSET": "utf-8"}
    # Ctrl-C is the pager's own key.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        subprocess.run(pager, input=text.encode(errors="replace"), env=environment, check=False)
    except OSError:
        sys.stdout.write(text)
    finally:
        signal.signal(signal.SIGINT, before)


def _pager_command() -> list[str] | None:
    """Returns the command of the user's pager, or None if the pager is not installed."""
    try:
        command = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:
        return None
    return command if command and shutil.which(command[0]) else None


def _is_larger_than_screen(text: str) -> bool:
    size = shutil.get_terminal_size()
    lines = text.splitlines()
    return len(lines) > size.lines - _LINES_OF_PROMPT or any(
        cell_len(line) > size.columns for line in lines
    )
