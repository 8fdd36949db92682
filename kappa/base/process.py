"""Starts child processes that end with their parent, and identifies processes.

A process is identified by its pid and its start time. This file is also a program: `python
process.py PARENT NICE COMMAND...`. The program adds NICE to its niceness, and asks the kernel to
kill the program's own process when the process PARENT dies. Then it replaces itself by COMMAND
(exec). Python runs the program with the options `-I -S`, without installed packages. So this file
imports only the standard library.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# prctl(2): the option that sends this process a signal when the thread that started the process
# dies. The setting survives exec.
PR_SET_PDEATHSIG = 1
_NAP_SECONDS = 0.02
# The longest time after its start within which a process begins its own program.
_STARTS_SECONDS = 1.0
# The variable that marks the processes of a root: all children inherit the variable, daemons too.
MARK = "KAPPA_PROCESS_OF"
# The file of systemd, by machine-id(5), and the file of systems without systemd.
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
# Files that show that this is a container, which has the machine id of its image, if any.
_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
# The niceness of processes that give way to others: such a process gets half of the share of an
# ordinary process if both want the whole machine. A niceness of 10 would get a tenth, and starve
# beside a few busy processes.
LOW_PRIORITY = 3
_NICENESS_TRIES, _NICENESS_SECONDS = 40, 0.05


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The unique identity of a process: its pid and its start time.

    The system may give the same pid to a later process, but then the start time, `born`, differs.
    """

    pid: int
    born: str

    def alive(self) -> bool:
        """Returns True while any thread of the process runs. A zombie counts as dead."""
        return born(self.pid) == self.born


def cores_here() -> int:
    """Returns the number of cores that this process may use.

    In a container, this is often less than the number of cores of the machine.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_id(pid: int) -> ProcessId | None:
    """Returns the identity of a running process, or None if no process has that pid."""
    found = born(pid)
    return None if found is None else ProcessId(pid, found)


def born(pid: int) -> str | None:
    """Returns the start time of a process as text, or None if the process is dead.

    Start times before and after a restart of the machine also have different texts.
    """
    found = started(pid)
    if found is None:
        return None if Path("/proc/self/stat").exists() else _born_by_ps(pid)
    return f"{boot()} {found}"


def started(pid: int) -> int | None:
    """Returns a process's start time in clock ticks since boot, or None if it is dead."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def boot() -> str:
    """Returns the id that the kernel has assigned to the present boot of the machine.

    Pids and start times are comparable only within a boot.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def mark_children(root: str) -> None:
    """Marks all processes that this process starts from now on as processes of a root.

    `root` is the id of the root. The id is stored in an environment variable, which children
    inherit. If `root` is "", nothing is stored.
    """
    if root:
        os.environ[MARK] = root


def marked_root() -> str:
    """Returns the root id in this process's environment, or "" if it contains no root id.

    The process that started this process stores the id (`mark_children`).
    """
    return os.environ.get(MARK, "")


def is_marked(pid: int, root: str) -> bool:
    """Returns True if the environment of a process contains the root id `root`.

    `mark_children` stores this id. Returns False also if the environment of the process cannot be
    read.
    """
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{MARK}={root}".encode() in variables


def has_open(pid: int, path: Path) -> bool:
    """Returns True if a process has the file `path` open.

    Returns False also if the open files of the process cannot be read.
    """
    with contextlib.suppress(OSError):
        place = path.stat()
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(each.stat(), place):
                    return True
    return False


def listening_process(port: int) -> tuple[int, list[str]] | None:
    """Finds the process that listens on a TCP port. Returns its pid and its command line as words.

    If a child process has inherited the socket, the result is the process that opened the socket.
    Returns None if no process of this user listens on the port.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    pids = (int(each.name) for each in Path("/proc").glob("[0-9]*")) if sockets else ()
    for pid in sorted(pids):
        # The process may have ended, or belong to another user.
        with contextlib.suppress(OSError):
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(each.readlink()) in sockets:
                        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                        return pid, [os.fsdecode(word) for word in words if word]
    return None


def _listening_inodes(port: int) -> set[str]:
    """Returns the inodes of the sockets that listen on a TCP port (proc_net_tcp(5))."""
    found = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found


def send_signal(process: ProcessId, number: int) -> None:
    """Sends a signal to a process, unless the process has ended.

    The signal never reaches another process that now has the same pid.
    """
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if process.alive():
                os.kill(process.pid, number)
            return
        # The handle always refers to the same process, and `alive` is checked after it is opened.
        handle = os.pidfd_open(process.pid)
        try:
            if process.alive():
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


@functools.cache
def machine() -> str:
    """Returns the id of this machine, or "" if it is not known, for example in a container."""
    if os.environ.get("KUBERNETES_SERVICE_HOST") or any(map(os.path.exists, _OF_CONTAINERS)):
        return ""
    for path in _MACHINE_IDS:
        with contextlib.suppress(OSError):
            if found := Path(path).read_text(encoding="utf-8").strip():
                return found
    return ""


def set_by_sigterm() -> threading.Event:
    """Installs a handler for SIGTERM, and returns the event that the handler sets."""
    ended = threading.Event()
    # The event is set in another thread, since the interrupted thread may hold the event's lock.
    signal.signal(signal.SIGTERM, lambda _number, _frame: _thread.start_new_thread(ended.set, ()))
    return ended


@contextlib.contextmanager
def set_by_interrupt() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets within the block, instead of raising KeyboardInterrupt.

    A second Ctrl-C raises KeyboardInterrupt. SIGINT (Ctrl-C), SIGTERM and SIGHUP set the event, but
    only those whose handler before the block is Python's default handler of Ctrl-C.
    """
    ended = threading.Event()

    def note(_number: int, _frame: object) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        _thread.start_new_thread(ended.set, ())

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {
        each: signal.signal(each, note)
        for each in signals
        if signal.getsignal(each) is signal.default_int_handler
    }
    try:
        yield ended
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


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
    """Starts a command in a new session. The command is killed when this process dies.

    On Linux the kernel kills the command with SIGKILL as soon as the THREAD that started
    the command ends. So call this function from the main thread, or from a thread that
    lives as long as the process. On other systems, a command that outlives this process is
    killed at the next start (`kill_and_see_gone`). `nice` is the command's niceness, 0 to
    19. The command inherits the open files whose file descriptors are in `inherits`, and
    reads its standard input from the file descriptor `source`.
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
    """Starts a command in a new session. The command continues after this process exits.

    The command inherits the open files whose file descriptors are in `inherits`.
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
    """Changes the command line that `ps` shows for this process.

    The function `name` gets the present command line and returns the new command line. The new
    command line is cut to the length of the original command line.
    """
    # Without this variable setproctitle would overwrite the environment, which follows in memory.
    os.environ["SPT_NOENV"] = "1"
    # Only a process that changes its task needs this library.
    from setproctitle import getproctitle, setproctitle  # noqa: PLC0415

    setproctitle(name(getproctitle()))


def lower_priority(nice: int, pids: Sequence[int]) -> None:
    """Raises the niceness of the processes in `pids` to `nice` (0 to 19).

    The niceness of all present threads of these processes is set. A thread with a greater niceness
    is not changed, since only root may reduce a niceness. If this process leads a session, the
    niceness of the whole session is set too.
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


@contextlib.contextmanager
def yielding_to_others(nice: int) -> Iterator[Callable[[], None]]:
    """Gives this process's session a smaller share of processor time within the block.

    Yields a function that ends this already before the end of the block.
    Only the niceness of the session is changed. Unlike the niceness of a thread, it can be reset to
    0 after the block. The function has no effect if this process does not lead its session, or if
    the kernel does not group processes by session.
    """
    is_leader = nice > 0 and os.getsid(0) == os.getpid()

    def stop() -> None:
        # The kernel lets all users together change niceness only ten times a second.
        for _ in range(_NICENESS_TRIES if is_leader else 0):
            if _group_niceness(0):
                break
            time.sleep(_NICENESS_SECONDS)

    if is_leader:
        _group_niceness(nice)
    try:
        yield stop
    finally:
        stop()


def tied(command: Sequence[str], *, nice: int = 0) -> list[str]:
    """Returns a command line that runs `command`, and kills it when this process dies.

    `nice` is the command's niceness. `start_tied` describes when the command is killed.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(nice), *command]


def kill_and_see_gone(process: ProcessId, *, patience_seconds: float = 10.0) -> bool:
    """Kills a process, and waits until the process is dead.

    Returns False if the process is still alive after `patience_seconds`.
    """
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
    """Kills the processes of a session that started at or after `since`, and waits for them.

    `since` is in clock ticks since boot. Returns False if a process is still alive after
    `patience_seconds`, otherwise True.

    A session keeps its id while any of its processes lives. So the id also identifies the processes
    of a job (its JVM, Spark's Python workers) after the job itself has died. After the last process
    has exited, the system may use the id for another session. So if the id was read from a file,
    pass the root's id as `root`: then only processes are killed whose environment contains this
    root id.
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
    """Returns True if a process of a session may not yet have executed its own program.

    Such a process has no readable environment, or the environment of its parent, which does not
    contain a root id (`mark_children`).
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
    """Returns the processes of a session that started at or after `since` (ticks since boot).

    With `root`, the result contains only the processes whose environment contains this root id, and
    the leader of the session if it started exactly at `since`. The leader passes the root id to its
    children, but its own environment does not contain the id.
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
    """Returns the bytes that each process of this session has read and written, by pid.

    The value is the sum of both counts. The result contains only processes whose command line
    contains `program`. The counts show whether a process is stuck: a process in an endless
    computation reads and writes nothing. The result is empty if the kernel does not count these
    bytes (proc_pid_io(5)).
    """
    moved: dict[int, int] = {}
    for member in session_members(os.getsid(0)) if Path("/proc/self/io").exists() else ():
        folder = Path(f"/proc/{member.pid}")
        # The process may have ended.
        with contextlib.suppress(OSError):
            if program.encode() in (folder / "cmdline").read_bytes():
                counts = dict(
                    line.split(": ") for line in (folder / "io").read_text("ascii").splitlines()
                )
                moved[member.pid] = int(counts["rchar"]) + int(counts["wchar"])
    return moved


def ticks_of_threads(name: str) -> int:
    """Returns the processor time of this process's threads named `name`, in clock ticks.

    Returns 0 if the kernel does not list the threads (proc_pid_task(5)).
    """
    ticks, tasks = 0, Path("/proc/self/task")
    for task in tasks.iterdir() if tasks.is_dir() else ():
        # The thread may have ended.
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().strip() == name:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks


def _stat(pid: int) -> list[str] | None:
    # Fields are counted behind the last parenthesis, since the program's name may contain anything
    # (proc_pid_stat(5)). A zombie counts as dead: it does nothing any more, and may never be
    # reaped. But a process whose first thread alone has ended also shows as a zombie, and still
    # has its ports and locks; the 18th field counts the threads.
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
    # This is for systems without /proc. The state letter is first.
    printed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = printed.stdout.strip().partition(" ")
    return started.strip() if printed.returncode == 0 and not state.startswith("Z") else None


def _group_niceness(nice: int) -> bool:
    """Sets the niceness of this process's session, if the kernel groups processes by session.

    In this case, the niceness of a process counts only within its session, and the session has a
    niceness of its own (sched(7), "The autogroup feature"). Returns False if the caller must try
    again later, otherwise True.
    """
    try:
        Path("/proc/self/autogroup").write_text(str(nice), encoding="utf-8")
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _become(parent: int, nice: int, command: list[str]) -> None:
    if nice:
        os.nice(nice)
        # The group of a session that is not this command's own is that of the starting process.
        if os.getsid(0) == os.getpid():
            _group_niceness(nice)
    if sys.platform == "linux":
        # Only the tie needs this module, and every start waits for the tie.
        import ctypes  # noqa: PLC0415

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # If the parent died before this call, this process has been adopted.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    # Spark ends its Python workers by SIGHUP; under nohup they would ignore it and stay.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
