"""The loop of `kappa dev`, which runs the project at each save, and when a key is pressed.

The loop runs in the main thread, which a signal can interrupt at any time. Other threads put events
into a queue. An event is a list of saved files, or a key.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from watchfiles import Change, watch

from kappa.base.settings import Settings
from kappa.develop.run_text import Line, Style, run_lines
from kappa.develop.sample import Samples, TopicLog
from kappa.develop.sample_runs import ProjectRun, SampleRuns

# Vim makes 4913, and deletes it, to see whether it may write in a folder.
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "tests", "4913"})
# Leftovers of editors and other programs.
_LEFT_OUT_SUFFIXES = frozenset({".pyc", ".pyo", ".swp", ".swx", ".tmp", ".bak", ".orig", ".log"})
# The ends of Emacs's, JetBrains's and other editors' copies.
_LEFT_OUT_ENDS = ("~", "___jb_tmp___", "___jb_old___")
_ENDS_WITHIN_SECONDS = 2.0
_KEYS = "r: run again, d: diff in full, q: quit"
# A key, or the paths that were saved.
_Event = str | list[str]


def run_loop(
    settings: Settings,
    scratch: Path,
    open_log: Callable[[], TopicLog | None],
    show: Callable[[Iterable[Line]], None],
    step: Callable[[str], AbstractContextManager[Callable[[str], None]]],
) -> None:
    """Runs the project now and after each save, until the user presses the key q.

    Raises KeyboardInterrupt if a signal interrupts the loop.

    Args:
        settings: The settings of the project. If kappa.toml changes later, its errors are shown.
        scratch: The folder for all files of the runs.
        open_log: Returns the log from which samples are read, or None if no broker is up.
        show: Shows lines of text.
        step: Shows the text of a long step. Yields a function that changes the text.
    """
    events = SimpleQueue[_Event]()
    runs = SampleRuns(settings, scratch, Samples(settings.project, open_log))
    quits = threading.Event()
    url = settings.root_url
    root = settings.project / settings.local if "://" in url else Path(url)
    try:
        with (
            closing(ProjectWatch(settings.project, root, events.put)),
            _keys(events, quits) as has_keys,
        ):
            show([(Style.DIM, f"watches {settings.project}")])
            footer = f" ({_KEYS})" if has_keys else ""
            _follow(runs, events, show, step, footer)
    except KeyboardInterrupt:
        if not quits.is_set():
            raise


def _follow(
    runs: SampleRuns,
    events: SimpleQueue[_Event],
    show: Callable[[Iterable[Line]], None],
    step: Callable[[str], AbstractContextManager[Callable[[str], None]]],
    footer: str,
) -> None:
    folder, event = runs.settings.project, None
    # The last run in which rows changed, for the whole difference.
    changed: ProjectRun | None = None
    while True:
        if event == "d":
            show(run_lines(changed, folder, in_full=True) if changed else [])
        else:
            if event == "r":
                runs.forget()
            show([(Style.DIM, _title(event))])
            with step("reading the project") as say:
                run = runs.run(say)
            show(run_lines(run, folder))
            if any(not each.is_none for pipeline in run.pipelines for each in pipeline.changes):
                changed = run
            show([(Style.DIM, f"{run.seconds:.1f} s; waits for the next save{footer}")])
        event = _next_event(events)


def _title(event: _Event | None) -> str:
    match event:
        case list():
            what = f"saved: {', '.join(event)}"
        case None:
            what = "first run"
        case _:
            what = "once more"
    return f"{time.strftime('%H:%M:%S')} {what}"


def _next_event(events: SimpleQueue[_Event]) -> _Event:
    """Waits for the next event of the loop: a key, or a list of saved files.

    Returns the key, or the paths of all files that were saved before the next key.
    """
    event = events.get()
    if isinstance(event, str):
        return event
    saved = {*event}
    while True:
        try:
            following = events.get_nowait()
        except Empty:
            return sorted(saved)
        if isinstance(following, str):
            events.put(following)
            return sorted(saved)
        saved.update(following)


@contextmanager
def _keys(events: SimpleQueue[_Event], quits: threading.Event) -> Iterator[bool]:
    """Reads keys from the terminal in a thread, and puts the keys r and d into the queue.

    The key q sets `quits`, and interrupts the main thread. Yields True if keys are read. Yields
    False if there is no terminal, or if this process runs in the background of a terminal.
    """
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if not (is_terminal and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()):
        yield False
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        # A terminal that is gone has no more keys.
        with suppress(OSError):
            while pressed := os.read(terminal, 1):
                match pressed.lower():
                    case b"q":
                        quits.set()
                        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                        return
                    case b"r" | b"d":
                        events.put(pressed.decode().lower())

    tty.setcbreak(terminal, termios.TCSADRAIN)
    threading.Thread(target=read, name="keys", daemon=True).start()
    try:
        yield True
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


class ProjectWatch:
    """Two threads that report the saved files of a project, until the watch is closed.

    One thread watches the project's folder itself, to notice folders that are created or deleted
    there. The other thread watches the subfolders, with everything below them. The root, Python
    environments and hidden folders are not watched: they contain very many files, but no file that
    a pipeline reads.
    """

    def __init__(self, project: Path, root: Path, on_saved: Callable[[list[str]], None]) -> None:
        """Starts the threads.

        `on_saved` is called with the paths of saved files, relative to the project's folder. Files
        that are saved at nearly the same time are reported in one call. Files of `root`, the
        project's root, are not reported.
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
        """Stops the threads of the watch."""
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
    """Returns True if a run of the project may depend on the file or folder `path`. Pure."""
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
    """Lists the direct subfolders of a project that `kappa dev` watches."""
    return tuple(
        sorted(
            folder
            for folder in project.iterdir()
            if folder.is_dir()
            and is_of_project(folder, project, root)
            and not (folder / "pyvenv.cfg").exists()
        )
    )
