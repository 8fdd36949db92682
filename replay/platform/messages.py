"""The supervisor's messages to the operator: lines with time and level, and errors as sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self, TextIO

from kappa.base.errors import Broken, KappaError, Superseded
from kappa.base.log_lines import Level, log_line

if TYPE_CHECKING:
    # The HTTP supervisor imports this module, and is small, because it needs no journal.
    from kappa.replay.rollout.state import State


class LeveledText(str):
    """A text with a log level, for functions that print messages.

    Such a function prints a text without a level at the level INFO.
    """

    __slots__ = ("level",)
    level: Level

    def __new__(cls, text: str, level: Level) -> Self:
        """Creates a text with the given log level."""
        made = super().__new__(cls, text)
        made.level = level
        return made


def warning(text: str) -> LeveledText:
    """Returns a text of the level WARN, for a problem that the platform resolves by itself."""
    return LeveledText(text, Level.WARN)


def failure(text: str) -> LeveledText:
    """Returns a text of the level ERROR, for a problem that a person must resolve."""
    return LeveledText(text, Level.ERROR)


def message_printer(*files: TextIO) -> Callable[[str], None]:
    """Returns a function that prints a line with time and level to each file.

    The line has the same form as all lines that Kappa writes to logs (kappa/base/log_lines.py).
    """

    def say(text: str) -> None:
        level = text.level if isinstance(text, LeveledText) else Level.INFO
        for file in files:
            # A full disk or a closed terminal loses the line, and ends no job.
            with contextlib.suppress(OSError):
                print(log_line(text, level), file=file, flush=True)

    return say


class ErrorReport:
    """Reports errors that the next tick of the supervisor may resolve.

    Examples are a full disk, a failed fork, and a broker that is down. Jobs continue meanwhile. If
    the same error occurs at each tick, it is reported only once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._reported = ""

    @contextlib.contextmanager
    def reported_once(self) -> Iterator[None]:
        """Catches and reports an error that is raised in the `with` block.

        An error that equals the last reported error is not reported again. Broken and Superseded
        are not caught, because no later tick can resolve them.
        """
        try:
            yield
        except (Broken, Superseded):
            raise
        except (KappaError, OSError) as error:
            if str(error) != self._reported:
                self._reported = str(error)
                self._say(warning(self._reported))
        else:
            self._reported = ""


@contextlib.contextmanager
def named_errors() -> Iterator[None]:
    """Converts an OSError that is raised in the `with` block to a KappaError.

    Typical causes are a full disk, and a folder that belongs to another user.
    """
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise KappaError(
            f"kappa cannot run: {error.strerror or error}{where}",
            hint="see whether the disk is full, and whether you may write below the root; "
            "then: kappa up",
        ) from error


def news_lines(before: State, after: State) -> Iterator[str]:
    """Yields messages about the changes between two states of the journal.

    There is a message for each rollout with a new phase, and for each pipeline that was retired,
    paused or resumed.
    """
    # Imported late: the HTTP supervisor, which imports this module, stays small.
    from kappa.replay.rollout.rollout import Phase  # noqa: PLC0415  # as said above

    known = {rollout.id: rollout.phase for rollout in before.rollouts}
    for rollout in after.rollouts:
        if rollout.phase != known.get(rollout.id) and (before.last or rollout.active):
            told = (
                f"rollout {rollout.number} of pipeline {rollout.pipeline}, build "
                f"{rollout.build}: "
                f"{rollout.phase}{f' ({rollout.reason})' if rollout.reason else ''}"
            )
            yield failure(told) if rollout.phase is Phase.FAILED else told
    if not before.last:
        return
    for name in sorted(after.retirements.keys() - before.retirements.keys()):
        yield f"pipeline {name} was {after.retirements[name].text}"
    for name in sorted(after.paused.keys() - before.paused.keys()):
        yield f"pipeline {name} is {after.paused[name].text}"
    for name in sorted(before.paused.keys() - after.paused.keys()):
        yield f"pipeline {name} is paused no more"
