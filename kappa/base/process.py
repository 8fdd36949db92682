"""Child processes: tied to their parent's life, and known by pid and time of birth.

Run as a program (`python process.py PARENT NICE COMMAND...`) this file is the tie. It asks the
kernel to kill it when PARENT dies, and becomes COMMAND. So it imports the standard library alone.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# prctl(2): the signal of this process when the thread that made it dies. It survives exec.
PR_SET_PDEATHSIG = 1
_NAP_SECONDS = 0.02
# A process has begun its own program within this time.
_STARTS_SECONDS = 1.0
# The variable by which a process of a root is known: children inherit it, daemons too.
MARK = "KAPPA_PROCESS_OF"
# Of systemd, as machine-id(5) says, and of systems without it.
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
# A container has the id of its image, if any.
_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
# The niceness of what others go before: a third of what they get, if both want all of the machine.
# One of 10 is a tenth, and starves beside a few busy processes.
LOW_PRIORITY = 5


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for good: a pid may be reused, a pid with a time of birth may not."""

    pid: int
    born: str

    def alive(self) -> bool:
        """Returns True while a thread of the process runs; a zombie is dead."""
        return born(self.pid) == self.born


def cores_here() -> int:
    """Counts the cores that this process may use: containers often have fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_id(pid: int) -> ProcessId | None:
    """Names a running process. Returns None if none has that pid."""
    found = born(pid)
    return None if found is None else ProcessId(pid, found)


def born(pid: int) -> str | None:
    """Returns a process's birth in the kernel's words, or None if it is gone or a zombie."""
    found = started(pid)
    if found is None:
        return None if Path("/proc/self/stat").exists() else _born_by_ps(pid)
    return f"{boot()} {found}"


def started(pid: int) -> int | None:
    """Returns a process's birth in clock ticks since boot, or None if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def boot() -> str:
    """Returns the id of the machine's boot; pids and times of birth mean nothing beyond it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def mark_children(root: str) -> None:
    """Marks all that this process starts from now on as processes of a root, by its id."""
    if root:
        os.environ[MARK] = root


def marked_root() -> str:
    """Returns the id of the root that this process is of; "" if it is of none."""
    return os.environ.get(MARK, "")


def is_marked(pid: int, root: str) -> bool:
    """Returns True if a process was started as one of this root; False if that cannot be seen."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{MARK}={root}".encode() in variables


def has_open(pid: int, path: Path) -> bool:
    """Returns True if a process has this very file open; False if that cannot be seen."""
    with contextlib.suppress(OSError):
        place = path.stat()
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(each.stat(), place):
                    return True
    return False


def send_signal(process: ProcessId, number: int) -> None:
    """Sends a signal to exactly this process; to none if it is gone, and its pid another's."""
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if process.alive():
                os.kill(process.pid, number)
            return
        # The handle is of one process for good, and the look is behind it.
        handle = os.pidfd_open(process.pid)
        try:
            if process.alive():
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


@functools.cache
def machine() -> str:
    """Returns the id of this machine; "" if none is known, as in a container."""
    if os.environ.get("KUBERNETES_SERVICE_HOST") or any(map(os.path.exists, _OF_CONTAINERS)):
        return ""
    for path in _MACHINE_IDS:
        with contextlib.suppress(OSError):
            if found := Path(path).read_text(encoding="utf-8").strip():
                return found
    return ""


def set_by_sigterm() -> threading.Event:
    """Makes an event that SIGTERM sets from now on."""
    ended = threading.Event()
    # In a thread of its own: the interrupted thread may have the event's lock.
    signal.signal(signal.SIGTERM, lambda _number, _frame: _thread.start_new_thread(ended.set, ()))
    return ended


def start_tied(
    command: Sequence[str],
    *,
    output: IO[bytes],
    nice: int = 0,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    inherits: Sequence[int] = (),
    source: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts a command, in its own session, that is killed (SIGKILL) when this process dies.

    On Linux the kernel does it. By its rule the tie is to the THREAD that starts the command. So
    call it from the main thread, or from one that lives as long as the process. Elsewhere the next
    start kills a command left over from a crash (`kill_and_see_gone`). `nice` is the command's
    niceness, 0 to 19. It `inherits` these open files, by their numbers; its input is `source`.
    """
    return subprocess.Popen(
        tied(command, nice=nice),
        stdin=source,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=folder,
        pass_fds=inherits,
        start_new_session=True,
    )


def start_apart(
    command: Sequence[str], *, output: IO[bytes], inherits: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Starts a command, in its own session, that outlives this process.

    It `inherits` these open files, by their numbers.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=inherits,
        start_new_session=True,
    )


def name_process(name: Callable[[str], str]) -> None:
    """Changes this process's command line, for `ps` and for people; it takes the former one.

    It is cut where the first one ended.
    """
    # Else the environment, which follows in memory, would be written over.
    os.environ["SPT_NOENV"] = "1"
    # Only a process that does something else than it was started for needs it.
    from setproctitle import getproctitle, setproctitle  # noqa: PLC0415

    setproctitle(name(getproctitle()))


def lower_priority(nice: int, pids: Sequence[int]) -> None:
    """Gives processes of this user a niceness, 0 to 19, with all threads that they have now.

    Those that have a greater one keep it: nobody but root may take it away.
    """
    if nice and os.getsid(0) == os.getpid():
        _group_niceness(nice)
    for pid in pids:
        tasks = Path(f"/proc/{pid}/task")
        threads = [int(task.name) for task in tasks.iterdir()] if tasks.is_dir() else [pid]
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):
                if os.getpriority(os.PRIO_PROCESS, thread) < nice:
                    os.setpriority(os.PRIO_PROCESS, thread, nice)


def tied(command: Sequence[str], *, nice: int = 0) -> list[str]:
    """Returns a command that is killed when the thread that starts it ends (`start_tied`)."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(nice), *command]


def kill_and_see_gone(process: ProcessId, *, patience_seconds: float = 10.0) -> bool:
    """Kills a process, if it runs, and waits. Returns False if it stays alive."""
    send_signal(process, signal.SIGKILL)
    deadline = time.monotonic() + patience_seconds
    while process.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_NAP_SECONDS)
    return True


def ensure_session_gone(
    session: int, *, since: int = 0, root: str | None = None, patience_seconds: float = 30.0
) -> bool:
    """Kills every process of a session born at or after `since`, and waits until none is left.

    `since` is in clock ticks since boot. Returns False if one stays alive. A session's id is not
    given to another process while any member lives. So it names what its leader has left behind (a
    job's JVM, Spark's Python workers), whatever their process groups. But once all have ended it
    may: a session that a file names has to be of a `root`, and others than its processes are left.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        members = session_members(session, since=since, root=root)
        for member in members:
            send_signal(member, signal.SIGKILL)
        if not members and (root is None or not _may_be_starting(session, since)):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_NAP_SECONDS)


def _may_be_starting(session: int, since: int) -> bool:
    """Returns True if a process of a session may not have begun its own program yet.

    Until then the process shows no environment, or that of its parent, which has no mark.
    """
    newest = time.clock_gettime(time.CLOCK_BOOTTIME) - _STARTS_SECONDS
    for member in session_members(session, since=since):
        environment = Path(f"/proc/{member.pid}/environ")
        with contextlib.suppress(OSError):
            ticks = int(member.born.rpartition(" ")[2])
            if ticks / os.sysconf("SC_CLK_TCK") > newest or not environment.read_bytes():
                return True
    return False


def session_members(
    session: int, *, since: int = 0, root: str | None = None
) -> tuple[ProcessId, ...]:
    """Lists the processes of a session that are born at or after `since`, or a root's of them.

    Its leader is the root's if it was born at `since`: it marks others, and not itself.
    """
    found = []
    for entry in Path("/proc").iterdir():
        fields = _stat(int(entry.name)) if entry.name.isdigit() else None
        if fields is None or int(fields[3]) != session or int(fields[19]) < since:
            continue
        pid = int(entry.name)
        is_leader = pid == session and int(fields[19]) == since
        if root is None or is_leader or is_marked(pid, root):
            found.append(ProcessId(pid, f"{boot()} {fields[19]}"))
    return tuple(found)


def bytes_moved(program: str) -> dict[int, int]:
    """Returns the bytes that processes of this session have read and written, by process.

    Those are the processes with `program` in their command line. A process that computes for ever
    reads and writes nothing. Where the kernel does not tell them (proc_pid_io(5)) there are none.
    """
    moved: dict[int, int] = {}
    for member in session_members(os.getsid(0)) if Path("/proc/self/io").exists() else ():
        folder = Path(f"/proc/{member.pid}")
        # It may have ended.
        with contextlib.suppress(OSError):
            if program.encode() in (folder / "cmdline").read_bytes():
                counts = dict(
                    line.split(": ") for line in (folder / "io").read_text("ascii").splitlines()
                )
                moved[member.pid] = int(counts["rchar"]) + int(counts["wchar"])
    return moved


def ticks_of_threads(name: str) -> int:
    """Returns for how many clock ticks the threads of this name in this process have computed.

    Where the kernel does not tell them (proc_pid_task(5)) there are none.
    """
    ticks, tasks = 0, Path("/proc/self/task")
    for task in tasks.iterdir() if tasks.is_dir() else ():
        # It may have ended.
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().strip() == name:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks


def _stat(pid: int) -> list[str] | None:
    # Fields are counted behind the last parenthesis, since the program's name may contain anything
    # (proc_pid_stat(5)). A zombie can do nothing any more, and may never be reaped; but one whose
    # first thread alone has ended (the 18th field counts them) still has its ports and locks.
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return None
    ended = fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1)
    return None if ended else fields


def _born_by_ps(pid: int) -> str | None:
    # For systems without /proc; the state letter is first.
    printed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = printed.stdout.strip().partition(" ")
    return started.strip() if printed.returncode == 0 and not state.startswith("Z") else None


def _group_niceness(nice: int) -> None:
    # If the kernel groups processes by session, niceness counts within a session only; the group
    # has a niceness of its own. (sched(7), "The autogroup feature")
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="utf-8")


def _become(parent: int, nice: int, command: list[str]) -> None:
    if nice:
        os.nice(nice)
        _group_niceness(nice)
    if sys.platform == "linux":
        # Only the tie needs it, and every start waits for the tie.
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have died before this call: then this process is adopted already.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    # Spark ends its Python workers by SIGHUP; under nohup they would ignore it and stay.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
