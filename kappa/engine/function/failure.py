"""Functions that find failures of the user's function in exceptions of Python and Spark."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException

from kappa.base.errors import Broken, KappaError
from kappa.declare.pipeline import Pipeline

REPLAY = "mend the function and deploy it, as a new version: kappa deploy"
# How Spark reports a value that does not fit (SQLSTATE class 22), a name or type (42), or an error
# that SQL raises (P0), however deep in the causes of an error (ISO 9075-2, table 38).
_UNFIT = re.compile(r"(\[[A-Z_.]+\] [^\n]*?) SQLSTATE: (?:22|42|P0)\w{3}")

# How a Python worker reports an error: its indented frames, the error, and the note of a step's
# loop.
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(\S.*)(?:\n(the step of table .*))?"
)
_OURS = f"{Broken.__module__}.{Broken.__qualname__}: "
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_KAPPA = Path(__file__).parents[2]
# A value in an error may be long, and the error is kept.
_LONGEST = 400


class Hoarded(KappaError):
    """An error: a function exceeded the memory limit of a Spark worker.

    The job adds the name of the slice to the error.
    """


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a function: the line (`file:line`), the error, and a hint for the user."""

    line: str
    # The error with its verb: `raised ZeroDivisionError: division by zero`.
    error: str
    hint: str


def user_line(error: BaseException, pipeline: Pipeline) -> str:
    """Returns the last line of the user's code in an error's traceback, as `file:line`.

    If the traceback contains no line of the user's code, returns the line of the pipeline's
    declaration.
    """
    source = Path(pipeline.source.file)
    # A project's modules are beside or below the folder of its pipelines (kappa/code/project.py).
    project = source.parent.parent
    passed = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(project) and not _is_ours(frame.filename)
    ]
    return f"{passed[-1].filename}:{passed[-1].lineno}" if passed else str(pipeline.source)


def raised_here(error: Exception, pipeline: Pipeline) -> Broken:
    """Returns Broken for an error that the user's code raised in this process.

    The message of Broken contains the line of the user's code, the error's text, and the notes that
    were added to the error.
    """
    noted = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return Broken(
        f"{user_line(error, pipeline)}: pipeline {pipeline.name} raised "
        f"{_error_text(error)}{noted}",
        hint=REPLAY,
    )


def failure_of(error: Exception, pipeline: Pipeline) -> Failure | None:
    """Finds the function's failure in a Spark error from an action on the user's rows.

    Returns None if the function did not cause the error, or if the cause is uncertain. The cause is
    uncertain in two cases: a worker died or had no memory left (it may succeed with fewer rows), or
    a step of an ordered fold failed (a step depends on earlier rows).
    """
    return failure_in(str(error), _called_at(error), pipeline)


def failure_in(text: str, line: str, pipeline: Pipeline) -> Failure | None:
    """Finds the function's failure in the text of a Spark error.

    `line` is the line of the user's code that defined the failing part of a plan, or "" if unknown.
    Returns None in the same cases as `failure_of`.
    """
    raised = _RAISED.search(text)
    if _of_step(raised, pipeline) is not None:
        return None
    if raised is not None and not raised[1].startswith("MemoryError"):
        frames = _FRAME.findall(raised[0])
        lines = [f"{file}:{line}" for file, line in frames if not _is_ours(file)]
        if lines:
            return Failure(lines[-1], _shortened(f"raised {raised[1]}"), REPLAY)
        # PySpark's code alone finds a value of another type than its UDF declares. Our own code
        # decodes in workers, too.
        if not any(Path(file).is_relative_to(_KAPPA) for file, _ in _FRAME.findall(text)):
            return Failure(
                str(pipeline.source),
                _shortened(f"raised {raised[1]}"),
                f"see that each udf returns the type that it is declared with; {REPLAY}",
            )
    unfit = unfit_in(text)
    if unfit is not None:
        return Failure(
            line or str(pipeline.source),
            _shortened(f"failed on a row: {unfit}"),
            "fold into a wider type, or use try_cast and the like where a value may not fit;"
            f" {REPLAY}",
        )
    return None


def explained(error: Exception, pipeline: Pipeline) -> KappaError | None:
    """Returns Broken for a Spark error that the user's function or step has caused.

    Returns None if neither the function nor a step has caused the error.
    """
    failure = failure_of(error, pipeline)
    if failure is None:
        return _of_step(_RAISED.search(str(error)), pipeline)
    return Broken(f"{failure.line}: pipeline {pipeline.name} {failure.error}", hint=failure.hint)


def _of_step(raised: re.Match[str] | None, pipeline: Pipeline) -> Broken | None:
    """Returns the error that a step raised on a worker, or None if the error is not from a step.

    The loop that called the step has added the place of the record to the error.
    """
    if raised is None or not (raised[2] or raised[1].startswith(_OURS)):
        return None
    if raised[1].startswith(_OURS):
        return Broken(raised[1].removeprefix(_OURS), hint=REPLAY)
    lines = [f"{file}:{line}" for file, line in _FRAME.findall(raised[0]) if not _is_ours(file)]
    return Broken(
        f"{lines[-1] if lines else pipeline.source}: pipeline {pipeline.name} raised {raised[1]};"
        f" {raised[2]}",
        hint=REPLAY,
    )


def hoarded(error: Exception, pipeline: Pipeline) -> Hoarded | None:
    """Translates a Spark error into Hoarded if the function exceeded a worker's memory limit.

    Returns None for any other error. With fewer rows the function may need less memory. So after
    two jobs have failed in the same slice, the slice is folded in parts.
    """
    raised = _RAISED.search(str(error))
    if raised is None or not raised[1].startswith("MemoryError"):
        return None
    lines = [f"{file}:{line}" for file, line in _FRAME.findall(raised[0]) if not _is_ours(file)]
    return Hoarded(
        f"{lines[-1] if lines else pipeline.source}: pipeline {pipeline.name} took more memory than"
        " a worker may have",
        hint="the slice is folded again, and in parts after two such ends; engine.worker_memory in"
        " kappa.toml is the limit",
    )


def unfit_in(text: str) -> str | None:
    """Returns the message of a Spark error about a value, a name or a type.

    Such an error has an SQLSTATE of class 22 (a value does not fit its type), 42 (a name or type is
    wrong), or P0 (SQL raised the error). Returns None if `text` contains no such error.
    """
    unfit = _UNFIT.search(text)
    return None if unfit is None else unfit[1]


def _called_at(error: Exception) -> str:
    if not isinstance(error, PySparkException):
        return ""
    for context in error.getQueryContext():
        site = context.callSite() if context.contextType().name == "DataFrame" else ""
        if found := line_of_site(str(site)):
            return found
    return ""


def line_of_site(site: str) -> str:
    """Returns the call site in a plan as `file:line`, or "" if the site has no line."""
    file, separator, line = site.strip().rpartition(":")
    return f"{file}:{line.strip()}" if separator and line.strip().isdigit() else ""


def _is_ours(file: str) -> bool:
    # Compiled modules name their sources as they were where they were compiled.
    return (
        "site-packages" in file
        or "/pyspark/" in file
        or not Path(file).is_absolute()
        or Path(file).is_relative_to(_KAPPA)
    )


def _shortened(error: str) -> str:
    return error if len(error) <= _LONGEST else f"{error[: _LONGEST - 3]}..."


def _error_text(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
