"""The errors of Kappa, and the exit codes that the command line gives for them.

    KappaError                  1  something failed
    ├── UsageError              2  what was asked for cannot be meant
    │   ├── SettingsError       2  kappa.toml, environment or flags
    │   └── DeclarationError    2  a topic, table or pipeline; names the user's file and line
    ├── VerificationFailed      4  a candidate did not pass; nothing was swapped
    ├── TimedOut                5  still running, this process stopped waiting
    ├── Conflict                6  somebody else was first, or what was looked at is stale
    ├── ConsentNeeded           7  a question was due and nobody was there to answer
    ├── Unreachable             1  broker or supervisor is not there
    ├── NotProvable             1  the log, the code or the rules are no longer those of the build
    └── Broken                  1  a law does not hold: the job stops before it writes anything wrong
        └── Damaged             1  a stored record or file is not what was written

Every error says in one sentence what happened, to which named thing and why; `hint` says what to do now, with the
command to type. Errors of other libraries are translated at the doors and never reach the user.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a `kappa` command ends with; the same list stands in the README."""

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
    """One sentence for the user, with a hint that says what to do now."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(KappaError):
    """What was asked for cannot be meant: a wrong name, flag or value."""

    exit_code = ExitCode.USAGE


class SettingsError(UsageError):
    """kappa.toml, the environment or a flag holds something that is not a setting."""


class DeclarationError(UsageError):
    """A topic, table or pipeline is declared in a way that cannot be run; the message begins with `file:line`."""


class VerificationFailed(KappaError):
    """A candidate did not pass its checks; nothing was swapped."""

    exit_code = ExitCode.VERIFICATION_FAILED


class TimedOut(KappaError):
    """The work goes on; this process has stopped waiting for it."""

    exit_code = ExitCode.TIMED_OUT


class Conflict(KappaError):
    """Somebody else was first, or what the decision was made on has moved."""

    exit_code = ExitCode.CONFLICT


class ConsentNeeded(KappaError):
    """A question was due, and there is no terminal to ask it on."""

    exit_code = ExitCode.CONSENT_NEEDED


class Unreachable(KappaError):
    """The broker or the supervisor is not there."""


class NotProvable(KappaError):
    """The log, the code or Kappa's rules are not any more what a build was made of: nothing can be said of its rows."""


class Broken(KappaError):
    """A law of the platform does not hold; stopping is the only safe answer."""


class Damaged(Broken):
    """A stored record or file is not what was written."""
