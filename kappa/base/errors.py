"""The errors of Kappa, and the exit code of the command line for each error.

    KappaError                  1  something failed
    ├── UsageError              2  a request makes no sense: a wrong name, flag or value
    │   ├── SettingsError       2  a mistake in kappa.toml, the environment or a flag
    │   └── DeclarationError    2  a mistake in a declaration; names the user's file and line
    ├── VerificationFailed      4  a candidate failed a check, and does not serve
    ├── TimedOut                5  this process stopped waiting for work that still runs
    ├── Conflict                6  another writer was first, or a decision is out of date
    ├── Superseded              6  another host has claimed the root
    ├── Copied                  6  a root is a copy of another root, and must not be changed
    ├── ConsentNeeded           7  a question cannot be asked, because there is no terminal
    ├── Unreachable             1  the broker or the supervisor cannot be reached
    │   └── AccessRefused       1  the cluster refuses this client, or is not trusted by it
    ├── AclMissing              1  no rule of the Kafka cluster allows an operation
    ├── NotProvable             1  a build's log, code or rules have changed since its birth
    └── Broken                  1  a law is broken: the job stops before it writes anything wrong
        └── Damaged             1  a stored record or file differs from what was written

The message of an error is a single sentence: the event, the name of the affected thing, and the
reason. The `hint` is the next step for the user, with the command to type. Modules that call other
libraries convert the libraries' errors to these errors, so that users never see the libraries'
errors.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Self, TypeVar

# The text by which Rust's libraries report an error of the machine.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")

# The texts by which the loader of libraries and DuckDB report that memory has run out.
_NO_MEMORY = ("cannot allocate memory", "failed to map segment", "bad allocation")


class ExitCode(IntEnum):
    """The exit codes of `kappa` commands. docs/reference/exit-codes.md describes them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CHANGES_PENDING = 3
    VERIFICATION_FAILED = 4
    TIMED_OUT = 5
    CONFLICT = 6
    CONSENT_NEEDED = 7
    INTERRUPTED = 130


class KappaError(Exception):
    """An error with a message of one sentence for the user, and a hint for the user's next step."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(KappaError):
    """The error for a request that makes no sense: a wrong name, flag or value.

    `others` contains further mistakes in the same file, pipeline or settings.
    """

    exit_code = ExitCode.USAGE
    others: tuple[Self, ...] = ()

    @property
    def each(self) -> tuple[Self, ...]:
        """Returns this error, and then all other mistakes that were found with it."""
        return (self, *(each for other in self.others for each in other.each))


class SettingsError(UsageError):
    """The error for a mistake in the settings: kappa.toml, the environment or a flag."""


class DeclarationError(UsageError):
    """The error for a mistake in a declaration. Its message begins with `file:line`."""


_Mistake = TypeVar("_Mistake", bound=UsageError)


def joined_error(mistakes: Iterable[_Mistake]) -> _Mistake | None:
    """Joins errors into one error: the first error, with the other errors in its `others`.

    If several errors have the same message, only the first of them is kept. Returns None if there
    are no errors.
    """
    found = {mistake.message: mistake for each in mistakes for mistake in each.each}
    if not found:
        return None
    first, *others = found.values()
    for each in others:
        each.others = ()
    first.others = tuple(others)
    return first


class VerificationFailed(KappaError):
    """The error for a candidate that failed a check. The candidate does not serve."""

    exit_code = ExitCode.VERIFICATION_FAILED


class TimedOut(KappaError):
    """The error if a wait took too long. The work for which this process waited continues."""

    exit_code = ExitCode.TIMED_OUT


class Conflict(KappaError):
    """The error if another writer was first, or if a decision was made on an outdated state."""

    exit_code = ExitCode.CONFLICT


class Superseded(KappaError):
    """The error if another host has claimed the root. This host can no longer change the root."""

    exit_code = ExitCode.CONFLICT


class Copied(KappaError):
    """The error if a process tries to change a root that is a copy of another root.

    Processes may still use the original root.
    """

    exit_code = ExitCode.CONFLICT


class ConsentNeeded(KappaError):
    """The error if Kappa must ask the user a question, but there is no terminal."""

    exit_code = ExitCode.CONSENT_NEEDED


class Unreachable(KappaError):
    """The error if a broker or a supervisor does not answer."""


class AccessRefused(Unreachable):
    """The error if a Kafka cluster refuses this client, or is not trusted by this client."""


class AclMissing(KappaError):
    """The error if no rule (ACL) of the Kafka cluster allows this client an operation."""


class NotProvable(KappaError):
    """The error if a build cannot be proved.

    The reason is that its log, its code or the rules of Kappa have changed since its birth.
    """


class Broken(KappaError):
    """The error if a law of the platform is broken. The process must stop, to prevent damage."""


class Damaged(Broken):
    """The error if a stored record or file differs from what was written, or is missing."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the hint `did you mean NAME?`, with the known name that is most similar to `name`.

    Returns "" if no known name is similar. Upper and lower case count as equal.
    """
    import difflib  # noqa: PLC0415  # a command without a mistake does without

    names = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), names, n=1)
    return f"did you mean {names[near[0]]}?" if near else ""


def near_or_all(name: str, known: Iterable[str], *, none: str = "there are none") -> str:
    """Returns a hint with the most similar known name.

    If no known name is similar, the hint lists all known names. If `known` is empty, the hint is
    the text `none`.
    """
    names = list(known)
    return did_you_mean(name, names) or (f"there are {', '.join(names)}" if names else none)


def machine_error(error: Exception) -> int | None:
    """Returns the errno that an error of the operating system or of a Rust library contains.

    Returns None for every other error.
    """
    found = _OS_ERROR.search(str(error))
    if found is not None:
        return int(found[1])
    return error.errno if isinstance(error, OSError) else None


def lacks_memory(error: Exception) -> bool:
    """Returns True if the message of a library's error reports that memory has run out."""
    return any(each in str(error).lower() for each in _NO_MEMORY)


def unreadable(message: str, error: Exception, *, hint: str) -> KappaError:
    """Returns the error to raise if a stored file could not be read because of `error`.

    If the file is missing or its content is wrong, the result is Damaged, with `hint`. If a system
    call failed (EIO, EMFILE), the result is a KappaError with another hint: such a failure does not
    mean that the file is damaged, and the next attempt may succeed. So such a failure does not stop
    a job permanently.
    """
    if machine_error(error) in {None, errno.ENOENT}:
        return Damaged(message, hint=hint)
    return KappaError(message, hint="the disk may be failing or full, or too many files are open")
