"""The errors of Kappa, and the exit code of the command line for each error.

    KappaError                  1  something failed
    ├── UsageError              2  a request that cannot be meant
    │   ├── SettingsError       2  kappa.toml, environment or flags
    │   └── DeclarationError    2  a topic, table or pipeline; names the user's file and line
    ├── VerificationFailed      4  a candidate did not pass; nothing was swapped
    ├── TimedOut                5  still running, this process stopped waiting
    ├── Conflict                6  somebody else was first, or the decision's ground is stale
    ├── Superseded              6  another host has claimed the root
    ├── Copied                  6  a root that is a copy of another root: read, and not changed
    ├── ConsentNeeded           7  a question was due, without a terminal to ask on
    ├── Unreachable             1  broker or supervisor cannot be reached
    │   └── AccessRefused       1  the cluster does not let this client in, or is not trusted
    ├── AclMissing              1  no rule of the Kafka cluster allows an operation
    ├── NotProvable             1  the log, the code or the rules are no longer those of the build
    └── Broken                  1  a law is broken: the job stops before writing anything wrong
        └── Damaged             1  a stored record or file differs from the written one

Every error is a single sentence: the event, the name of the affected thing, and the reason. The
`hint` is the next step for the user, with the command to type. Errors of other libraries are
translated at the doors and never reach the user.
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
    """The exit code of a `kappa` command; docs/reference/exit-codes.md has the same list."""

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
    """A single sentence for the user, with a hint at the next step."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(KappaError):
    """A request that cannot be meant: a wrong name, flag or value.

    `others` are further mistakes of the same file, pipeline or settings.
    """

    exit_code = ExitCode.USAGE
    others: tuple[Self, ...] = ()

    @property
    def each(self) -> tuple[Self, ...]:
        """The mistake, and then all others."""
        return (self, *(each for other in self.others for each in other.each))


class SettingsError(UsageError):
    """Something in kappa.toml, the environment or a flag that is not a setting."""


class DeclarationError(UsageError):
    """A declaration that cannot be run; the message begins with `file:line`."""


_Mistake = TypeVar("_Mistake", bound=UsageError)


def joined_error(mistakes: Iterable[_Mistake]) -> _Mistake | None:
    """Returns the first of some mistakes, with the others, each once, or None if there are none."""
    found = {mistake.message: mistake for each in mistakes for mistake in each.each}
    if not found:
        return None
    first, *others = found.values()
    for each in others:
        each.others = ()
    first.others = tuple(others)
    return first


class VerificationFailed(KappaError):
    """A candidate that failed a check; nothing was swapped."""

    exit_code = ExitCode.VERIFICATION_FAILED


class TimedOut(KappaError):
    """The end of a wait for work that continues."""

    exit_code = ExitCode.TIMED_OUT


class Conflict(KappaError):
    """A loss to an earlier writer, or a decision whose ground has moved."""

    exit_code = ExitCode.CONFLICT


class Superseded(KappaError):
    """A root that another host has claimed: no work of this host can be seen."""

    exit_code = ExitCode.CONFLICT


class Copied(KappaError):
    """A copied root: nobody may change the copy, since the original may be running."""

    exit_code = ExitCode.CONFLICT


class ConsentNeeded(KappaError):
    """A question that is due without a terminal to ask on."""

    exit_code = ExitCode.CONSENT_NEEDED


class Unreachable(KappaError):
    """A broker or supervisor that does not answer."""


class AccessRefused(Unreachable):
    """A Kafka cluster that refuses this client, or that the client does not trust."""


class AclMissing(KappaError):
    """An operation that no rule of the Kafka cluster allows to this client."""


class NotProvable(KappaError):
    """A build whose log, code or rules have since changed: no proof is possible."""


class Broken(KappaError):
    """A broken law of the platform; stopping is the only safe answer."""


class Damaged(Broken):
    """A stored record or file that differs from what was written."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the known name nearest to a wrong name, or "" if no name is near.

    Capital letters count as small letters.
    """
    import difflib  # noqa: PLC0415  # a command without a mistake does without

    names = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), names, n=1)
    return f"did you mean {names[near[0]]}?" if near else ""


def near_or_all(name: str, known: Iterable[str], *, none: str = "there are none") -> str:
    """Returns a hint with the nearest known name or all names, or `none` if no name is known."""
    names = list(known)
    return did_you_mean(name, names) or (f"there are {', '.join(names)}" if names else none)


def machine_error(error: Exception) -> int | None:
    """Returns the errno of the machine's error behind an error, or None."""
    found = _OS_ERROR.search(str(error))
    if found is not None:
        return int(found[1])
    return error.errno if isinstance(error, OSError) else None


def lacks_memory(error: Exception) -> bool:
    """Returns True if a library's error says that this process ran out of memory."""
    return any(each in str(error).lower() for each in _NO_MEMORY)


def unreadable(message: str, error: Exception, *, hint: str) -> KappaError:
    """Returns the error of a stored file that could not be read; `hint` is for damage.

    The error is Damaged if the file is gone, or was read and has wrong content. A failed call of
    the machine (EIO, EMFILE) shows no damage, and may succeed the next time: so this error stops no
    job for good.
    """
    if machine_error(error) in {None, errno.ENOENT}:
        return Damaged(message, hint=hint)
    return KappaError(message, hint="the disk may be failing or full, or too many files are open")
