"""The loop of `kappa dev`: a run of the project at each save, and at a key.

The loop itself is in the main thread, which a signal interrupts at any time. Other threads put what
happens in a queue: files that were saved, and keys.
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
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from kappa.base.settings import Settings
from kappa.develop.run_text import Line, Style, run_lines
from kappa.develop.sample import Samples, TopicLog
from kappa.develop.sample_runs import ProjectRun, SampleRuns
from kappa.develop.watch import ProjectWatch

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
    """Runs the project now and at each save, until the key q. Raises KeyboardInterrupt at a signal.

    Args:
        settings: The project's settings; an error in a later kappa.toml is shown.
        scratch: The folder below which a run keeps all that it keeps.
        open_log: Returns the log of which samples are taken, or None if no broker is up.
        show: Shows lines.
        step: Shows a step that takes a while. Gives the function that changes the step's text.
    """
    events = SimpleQueue[_Event]()
    runs = SampleRuns(settings, scratch, Samples(settings.project, open_log))
    quits = threading.Event()
    try:
        with _watching(settings, events), _keys(events, quits) as has_keys:
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
    """Waits for a key or a save. Saves that have come by then count as one save."""
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
def _watching(settings: Settings, events: SimpleQueue[_Event]) -> Iterator[None]:
    root = (
        Path(settings.root_url)
        if "://" not in settings.root_url
        else settings.project / settings.local
    )
    watch = ProjectWatch(settings.project, root, events.put)
    try:
        yield
    finally:
        watch.close()


@contextmanager
def _keys(events: SimpleQueue[_Event], quits: threading.Event) -> Iterator[bool]:
    """Puts each key that is pressed on the terminal. The key q interrupts the main thread.

    Gives False without a terminal, or in the background of a terminal.
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
