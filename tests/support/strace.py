"""Calls of the operating system that really fail, because strace injects errors.

As a program, this module is `kappa`, which stops itself once Python has started. `struck` attaches
strace then, so that only calls of the command itself are counted and fail.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed import Said, Testbed

# What a machine may answer to each call, and strace's names of its variants.
ERRORS = {
    "openat": ("EMFILE", "EIO", "ENOSPC", "EROFS"),
    "write": ("ENOSPC", "EIO", "EDQUOT"),
    "fsync": ("EIO", "ENOSPC", "EDQUOT"),
    "fdatasync": ("EIO", "ENOSPC"),
    "link": ("ENOSPC", "EIO", "EROFS", "EDQUOT"),
    "rename": ("ENOSPC", "EIO", "EROFS"),
    "mkdir": ("ENOSPC", "EIO", "EROFS"),
    "unlink": ("EIO", "EROFS"),
    "pread64": ("EIO",),
}
_ATTACHED_SECONDS = 20.0
_COMMAND_SECONDS = 60.0


def why_not() -> str | None:
    """Returns the reason why this machine cannot inject errors, or None if it can."""
    if shutil.which("strace") is None:
        return "no strace (apt-get install strace)"
    tried = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"ptrace is forbidden: {tried.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Injection:
    """An error for calls with this name, by their numbers in each thread: 3, 3+ or 3+10."""

    call: str
    error: str
    when: str

    def __str__(self) -> str:
        return f"{self.call}:error={self.error}:when={self.when}"


def struck(
    bed: Testbed, arguments: Sequence[str], into: Path, injection: Injection | None = None
) -> Said:
    """Runs a command under an injection; the calls of each thread are written to `into`.TID."""
    from testbed import Said

    for file in into.parent.glob(f"{into.name}.*"):
        file.unlink()
    with subprocess.Popen(
        [sys.executable, "-P", __file__, *arguments],
        cwd=bed.folder,
        env=bed.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        _, status = os.waitpid(command.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status
        with attached(command.pid, into, [] if injection is None else [injection]):
            os.kill(command.pid, signal.SIGCONT)
            try:
                out, err = command.communicate(timeout=_COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                command.kill()
                raise AssertionError(f"{arguments} did not end with {injection}") from None
    return Said(command.returncode, out, err)


def calls_below(root: Path, into: Path) -> dict[str, list[int]]:
    """Returns by name the numbers of the calls that touched `root`, as counted per thread."""
    found: dict[str, set[int]] = {}
    for lines in _threads(into):
        count: Counter[str] = Counter()
        for line in lines:
            call = line.partition("(")[0]
            count[call] += 1
            if str(root) in line:
                found.setdefault(call, set()).add(count[call])
    return {call: sorted(numbers) for call, numbers in sorted(found.items())}


def injected(into: Path) -> list[str]:
    """Returns the calls that failed by injection, as strace wrote them."""
    return [line for lines in _threads(into) for line in lines if line.endswith("(INJECTED)")]


def drawn(draw: random.Random, calls: dict[str, list[int]]) -> Injection:
    """Draws one of these calls and an error, for this call alone or also for all after it."""
    call = draw.choice(sorted(calls))
    # Who cannot write at all cannot say so.
    lasting = call != "write" and draw.random() < 0.3
    return Injection(
        call, draw.choice(ERRORS[call]), f"{draw.choice(calls[call])}{'+' if lasting else ''}"
    )


@contextmanager
def attached(pid: int, into: Path, injections: Sequence[Injection]) -> Iterator[None]:
    """Makes calls of a running process and its new children fail within the block."""
    names = {each.call for each in injections} or set(ERRORS)
    with subprocess.Popen(
        [
            *("strace", "-y", "-p", str(pid), "-e", "signal=none"),
            # Threads wake each other by writes that no machine fails: only the main thread's do.
            *(("-o", f"{into}.{pid}") if names == {"write"} else ("-ff", "-o", str(into))),
            *("-e", f"trace={','.join(sorted(names))}"),
            *(part for each in injections for part in ("-e", f"inject={each}")),
        ],
        stderr=subprocess.PIPE,
        text=True,
    ) as strace:
        assert strace.stderr is not None
        first = strace.stderr.readline()
        assert "attached" in first, first
        try:
            yield
        finally:
            # It lets go of every process, and ends.
            strace.terminate()
            strace.communicate(timeout=_ATTACHED_SECONDS)


def _threads(into: Path) -> Iterator[list[str]]:
    for file in sorted(into.parent.glob(f"{into.name}.*")):
        yield file.read_text(encoding="utf-8", errors="replace").splitlines()


def _stopped_first() -> None:
    from kappa.commands.main import main

    sys.argv = ["kappa", *sys.argv[1:]]
    os.kill(os.getpid(), signal.SIGSTOP)
    main()


if __name__ == "__main__":
    _stopped_first()
