"""The boards of a project: the files `boards/NAME.toml` beside kappa.toml."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from pathlib import Path

from kappa.base.errors import DeclarationError
from kappa.declare.board import Board, board_of

FOLDER = "boards"
# Larger than any board that people write, and read at each request.
_MOST_BYTES = 256 << 10


def boards_in(project: Path) -> Mapping[str, Board | DeclarationError]:
    """Reads all boards of a project, by name; a file with a mistake costs the others nothing.

    The name is that of the file. Two files may have one name, in two forms of Unicode.
    """
    found: dict[str, Board | DeclarationError] = {}
    for path in sorted((project / FOLDER).glob("*.toml")):
        # Editors keep their own files beside it, with a point.
        if path.name.startswith("."):
            continue
        name = board_name(path.stem)
        file = f"{FOLDER}/{name}.toml"
        if name in found:
            found[name] = DeclarationError(
                f"{file} is there twice, and its two names look alike",
                hint="they are two forms of Unicode; rename one of them",
            )
            continue
        try:
            found[name] = board_of(_content(path, file), file)
        except DeclarationError as error:
            found[name] = error
    return dict(sorted(found.items()))


def board_name(stem: str) -> str:
    """Returns the name of a board as its address has it: one form, whatever the disk's is."""
    return unicodedata.normalize(
        "NFC", stem.encode(errors="surrogateescape").decode(errors="replace")
    )


def _content(path: Path, file: str) -> bytes:
    try:
        with path.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DeclarationError(
            f"{file} cannot be read: {error.strerror}", hint="a board is a file of text"
        ) from None
    if len(content) > _MOST_BYTES:
        raise DeclarationError(
            f"{file} has more than {_MOST_BYTES:,} bytes",
            hint="put some charts into another board, and long queries into views",
        )
    return content
