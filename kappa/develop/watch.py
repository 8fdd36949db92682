"""The files of a project that were saved, as the system reports them.

Two watches are needed: of the project's folder itself, where folders come and go, and of the
folders in it, with all that is below. The root, environments and hidden folders are left out: they
have very many files, but no file that a pipeline reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from watchfiles import Change, watch

# Vim makes 4913, and deletes it, to see whether it may write in a folder.
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "tests", "4913"})
# Leftovers of editors and other programs.
_LEFT_OUT_SUFFIXES = frozenset({".pyc", ".pyo", ".swp", ".swx", ".tmp", ".bak", ".orig", ".log"})
# The ends of Emacs's, JetBrains's and other editors' copies.
_LEFT_OUT_ENDS = ("~", "___jb_tmp___", "___jb_old___")
_ENDS_WITHIN_SECONDS = 2.0


class ProjectWatch:
    """A watch of a project's files in threads of its own, until it is closed."""

    def __init__(self, project: Path, root: Path, on_saved: Callable[[list[str]], None]) -> None:
        """Calls `on_saved` with the paths of saved files, from the project's folder.

        Files saved at nearly the same time are reported at once.
        """
        self._project = project.resolve()
        self._root = root.resolve()
        self._on_saved = on_saved
        self._ends = threading.Event()
        self._folders_end = threading.Event()
        self._folders: tuple[Path, ...] = ()
        self._below: threading.Thread | None = None
        self._watch_folders()
        self._top = threading.Thread(target=self._watch_top, name="watch", daemon=True)
        self._top.start()

    def close(self) -> None:
        """Ends the watch."""
        self._ends.set()
        self._folders_end.set()
        for thread in (self._top, self._below):
            if thread is not None:
                thread.join(_ENDS_WITHIN_SECONDS)

    def _watch_top(self) -> None:
        for changes in self._changes((self._project,), self._ends, recursive=False):
            # A folder that was deleted and made again is another one.
            touched = {Path(path) for _, path in changes} & {*self._folders}
            if touched or watched_folders(self._project, self._root) != self._folders:
                self._folders_end.set()
                self._watch_folders()
            self._report(changes)

    def _watch_folders(self) -> None:
        self._folders = watched_folders(self._project, self._root)
        self._folders_end = threading.Event()
        if not self._folders:
            return
        self._below = threading.Thread(
            target=self._watch_below, args=(self._folders, self._folders_end), daemon=True
        )
        self._below.start()

    def _watch_below(self, folders: tuple[Path, ...], ends: threading.Event) -> None:
        # A folder may go before the watch begins: the other watch sees that.
        with suppress(FileNotFoundError):
            for changes in self._changes(folders, ends, recursive=True):
                self._report(changes)

    def _changes(
        self, folders: tuple[Path, ...], ends: threading.Event, *, recursive: bool
    ) -> Iterator[set[tuple[Change, str]]]:
        begin = partial(
            watch,
            *folders,
            watch_filter=self._is_of_project,
            stop_event=ends,
            recursive=recursive,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        try:
            yield from begin()
        except FileNotFoundError:
            raise
        except OSError:
            # The system has no watch left for this user: looks at the files now and then instead.
            yield from begin(force_polling=True)

    def _report(self, changes: set[tuple[Change, str]]) -> None:
        paths = {Path(path).relative_to(self._project).as_posix() for _, path in changes}
        self._on_saved(sorted(paths))

    def _is_of_project(self, _change: Change, path: str) -> bool:
        return is_of_project(Path(path), self._project, self._root)


def is_of_project(path: Path, project: Path, root: Path) -> bool:
    """Returns True for a path that a run of the project may depend on. Pure."""
    if path == root or path.is_relative_to(root) or not path.is_relative_to(project):
        return False
    parts = path.relative_to(project).parts
    return (
        bool(parts)
        and not any(part.startswith((".", "#")) or part in _LEFT_OUT for part in parts)
        and path.suffix not in _LEFT_OUT_SUFFIXES
        and not path.name.endswith(_LEFT_OUT_ENDS)
    )


def watched_folders(project: Path, root: Path) -> tuple[Path, ...]:
    """Lists the folders in a project to watch, with all that is below."""
    return tuple(
        sorted(
            folder
            for folder in project.iterdir()
            if folder.is_dir()
            and is_of_project(folder, project, root)
            and not (folder / "pyvenv.cfg").exists()
        )
    )
