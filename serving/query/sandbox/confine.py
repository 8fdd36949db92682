"""Confines a process for untrusted SQL: limits memory, CPU, files, network and programs.

A process confines itself before it runs the query. There are three layers of limits: rlimits,
Landlock and seccomp. Each layer is final: neither the process nor a thread that starts later can
undo the layer. On Linux, no layer needs privileges. Rlimits work everywhere. Landlock, which
restricts files, needs Linux 5.13. Seccomp, which restricts system calls, works only on x86-64,
because this module lists the numbers of the system calls for x86-64. `available_layers()` returns
the layers that this machine supports. This module imports only the standard library. Sources:
landlock(7), seccomp(2), prctl(2), getrlimit(2).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

# The three calls have these numbers on every machine. Landlock's versions handle: files 1, moves
# between folders 2, truncate 3, TCP 4, ioctl of devices 5, signals and abstract sockets 6.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_ONLY = 1
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP, _SCOPES = 0b11, 0b11
_SCOPES_SINCE = 6
_EXECUTE = 1 << 0
# The rights that a file has, and not only a folder: write, read, truncate. Nobody makes devices.
_OF_FILES = 1 << 1 | 1 << 2 | 1 << 14
_DEVICES = 1 << 6 | 1 << 11 | 1 << 15

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_IFF_UP, _SIOCSIFFLAGS = 0x1, 0x8914
# The kinds of sockets of a confined program: IPv4, IPv6, and the kernel's lists of interfaces.
_FAMILIES = (2, 10, 16)

# Seccomp's answers, and the machine whose call numbers follow.
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X86_64 = 0xC000003E
_X32 = 0x40000000
# The calls that no query needs, by x86-64's numbers: first and last of each range.
# fmt: off
_REFUSED = (
    # Sockets of any kind, to anywhere.
    *((41, 55), (288, 288), (299, 299), (307, 307)),
    # fork, vfork, execve, execveat.
    *((57, 59), (322, 322)),
    # Other processes.
    *((62, 62), (101, 101), (129, 129), (200, 200), (234, 234), (297, 297), (310, 312),
      (424, 424), (434, 434), (438, 438), (440, 440)),
    # Changes to files.
    *((76, 77), (82, 88), (90, 95), (132, 133), (188, 190), (197, 199), (235, 235), (258, 261),
      (263, 266), (268, 268), (280, 280), (285, 285), (316, 316), (452, 452)),
    # Other rights, sessions and limits.
    *((105, 106), (109, 109), (112, 117), (119, 119), (122, 123), (126, 126), (160, 160)),
    # Queues, keys and memory that other processes share.
    *((29, 31), (64, 71), (220, 220), (240, 245), (248, 250), (319, 319), (447, 447)),
    # Mounts and namespaces.
    *((155, 155), (161, 161), (165, 166), (272, 272), (308, 308), (428, 433), (442, 442)),
    # The kernel itself.
    *((134, 135), (139, 139), (153, 154), (156, 156), (159, 159), (163, 164), (167, 180),
      (212, 212), (227, 227), (246, 246), (253, 256)),
    *((275, 276), (278, 279), (298, 298), (300, 301), (303, 306), (313, 313), (320, 321),
      (323, 323), (425, 427)),
)
# fmt: on
_OPEN, _CLONE, _OPENAT, _PRLIMIT, _CLONE3, _OPENAT2 = 2, 56, 257, 302, 435, 437
_CLONE_THREAD = 0x10000
_SOCKET, _IO_URING = 41, 425
# Calls of whole programs that would change the machine, or look into other processes: ptrace,
# mounts, modules, namespaces, keys, traces, memory of others.
_OF_THE_MACHINE = (
    *(101, 155, 161, 163, 165, 166, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 246, 248),
    *(249, 250, 272, 298, 300, 301, 303, 304, 308, 310, 311, 313, 320, 321, 323, 428, 429, 430),
    *(431, 432, 438, 442, 448),
)
# Calls of whole programs whose first argument is a process, 0 for the caller: prlimit64, and
# sched_setaffinity, sched_setparam, sched_setscheduler and sched_setattr.
_OF_A_PROCESS = (302, 203, 142, 144, 314)
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Classic BPF, as the kernel takes it (linux/filter.h).
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


def available_layers() -> tuple[str, ...]:
    """Lists the layers of limits that this machine supports: `rlimits`, `landlock`, `seccomp`."""
    return (
        "rlimits",
        *(("landlock",) if _landlock_version() else ()),
        *(("seccomp",) if platform.machine() == "x86_64" else ()),
    )


def tie_to_parent(parent: int) -> None:
    """Makes the kernel kill this process when its parent process exits.

    If `parent` is no longer the parent process's pid, this process exits at once.
    """
    _call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def close_all_but(kept: int) -> None:
    """Closes all open files of this process, except stdin, stdout, stderr and `kept`.

    `kept` is a file descriptor.
    """
    os.closerange(3, kept)
    os.closerange(kept + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def limit_process(*, memory: int, cpu_seconds: int) -> None:
    """Limits the memory and CPU time of this process, and prevents writes to files and core dumps.

    `memory` is in bytes, in addition to the memory that this process has already mapped.
    """
    mapped = (
        int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        * resource.getpagesize()
    )
    for what, most in (
        (resource.RLIMIT_AS, mapped + memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    # The soft limit sends SIGXCPU, which names the cause; the hard limit sends SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    # If the machine runs out of memory, the kernel ends this process before the server.
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit_next_query(cpu_seconds: int) -> None:
    """Makes the kernel end this process after a further `cpu_seconds` of CPU time, by SIGPROF."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


def confine_process(readable: Iterable[str], listable: Iterable[str] = ()) -> None:
    """Restricts this process to reading the `readable` files.

    The process can use no other file, no network and no other program. The process may also list
    the names in the `listable` folders and in folders below them. The kernel confines only the
    calling thread and the threads that it starts later, so no other thread may run yet.
    """
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    assert threads == 1, f"{threads} threads are there already, and would not be confined"
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if version := _landlock_version():
        _read_only(
            version,
            [*((path, _READ_FILE) for path in readable), *((path, _READ_DIR) for path in listable)],
        )
    if platform.machine() == "x86_64":
        _refuse_calls()


def confine_program(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Restricts this process, and all programs that it starts, to run untrusted code.

    The programs may read and run files below the `readable` paths, and read, write and run files
    below the `writable` folders. The programs get a separate network, with only the loopback
    interface. They can open no other kind of socket, and cannot trace, signal or limit other
    processes. Raises OSError if this machine cannot enforce all of these restrictions, because only
    some of them would give no protection. No other thread may run yet.
    """
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    assert threads == 1, f"{threads} threads are there already, and would not be confined"
    if platform.machine() != "x86_64" or (version := _landlock_version()) < _SCOPES_SINCE:
        raise OSError(errno.ENOSYS, "Landlock with scopes (Linux 6.12) on x86-64 is needed")
    # If the machine runs out of memory, the kernel ends these programs before the server.
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _leave_network()
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)
    files = _FILES[min(version, 5)]
    below = _READ_FILE | _READ_DIR | _EXECUTE
    _allow_files(
        struct.pack("=QQQ", files, 0, _SCOPES),
        [
            *((path, below if Path(path).is_dir() else below & ~_READ_DIR) for path in readable),
            *(
                (path, files & ~_DEVICES if Path(path).is_dir() else files & _OF_FILES)
                for path in writable
            ),
        ],
    )
    _set_filter(_filter_of_program())


def _leave_network() -> None:
    """Moves this process to a separate network, in which only the loopback interface is up."""
    user, group = os.getuid(), os.getgid()
    # In a namespace of users, too, root is nobody special outside, and others may make a network.
    if _libc().unshare(_CLONE_NEWUSER | _CLONE_NEWNET) < 0:
        _checked_call(_libc().unshare(_CLONE_NEWNET))
    else:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        request = struct.pack("16sH14x", b"lo", _IFF_UP)
        fcntl.ioctl(opened, _SIOCSIFFLAGS, request)


def _landlock_version() -> int:
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, _as_long(0), _as_long(_VERSION_ONLY))))


def _read_only(version: int, allowed: Iterable[tuple[str, int]]) -> None:
    rules = struct.pack(
        "=QQQ", _FILES[min(version, 5)], _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0
    )
    _allow_files(rules[: 24 if version >= 6 else 16 if version >= 4 else 8], allowed)


def _allow_files(rules: bytes, allowed: Iterable[tuple[str, int]]) -> None:
    """Restricts the access of this process to files by Landlock, from now on.

    `rules` is the ruleset in Landlock's binary form. All actions that the ruleset covers are
    forbidden, except the given rights on the paths in `allowed`.
    """
    size = _as_long(len(rules))
    ruleset = _checked_call(_libc().syscall(_CREATE_RULESET, rules, size, _as_long(0)))
    for path, rights in allowed:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            # DuckDB reports the missing file by its name.
            continue
        _checked_call(
            _libc().syscall(
                _ADD_RULE,
                _as_long(ruleset),
                _as_long(_PATH_BENEATH),
                struct.pack("=Qi", rights, opened),
                _as_long(0),
            )
        )
        os.close(opened)
    _checked_call(_libc().syscall(_RESTRICT_SELF, _as_long(ruleset), _as_long(0)))
    os.close(ruleset)


def _refuse_calls() -> None:
    _set_filter(_filter_program())


def _set_filter(steps: Iterable[bytes]) -> None:
    program = b"".join(steps)
    held = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(held))
    _checked_call(
        _libc().prctl(
            _PR_SET_SECCOMP, _as_long(_SECCOMP_MODE_FILTER), filter_, _as_long(0), _as_long(0)
        )
    )


def _filter_program() -> Iterator[bytes]:
    """Yields the instructions of the seccomp filter for queries.

    The kernel runs the filter at each system call. The instructions read the number of the system
    call (at byte 0), the machine (at byte 4) and the arguments (from byte 16 on, 8 bytes each).
    """
    refused, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    yield from (
        _filter_step(_LOAD, 4),
        _filter_step(_EQUAL, _X86_64, no=0, yes=1),
        _filter_step(_RETURN, _KILL),
        _filter_step(_LOAD, 0),
    )
    yield from (_filter_step(_AT_LEAST, _X32, yes=0, no=1), _filter_step(_RETURN, refused))
    for number in (_CLONE3, _OPENAT2):
        # Their arguments are in memory, which a filter cannot read. Libraries fall back to older
        # calls if these do not exist.
        yield from (_filter_step(_EQUAL, number, yes=0, no=1), _filter_step(_RETURN, unknown))
    for number, at, flags in ((_OPEN, 24, _FOR_WRITING), (_OPENAT, 32, _FOR_WRITING)):
        yield from (
            _filter_step(_EQUAL, number, yes=0, no=4),
            _filter_step(_LOAD, at),
            _filter_step(_ANY_BIT, flags, yes=0, no=1),
            _filter_step(_RETURN, refused),
            _filter_step(_RETURN, _ALLOW),
        )
    yield from (
        _filter_step(_EQUAL, _CLONE, yes=0, no=4),
        _filter_step(_LOAD, 16),
        _filter_step(_ANY_BIT, _CLONE_THREAD, yes=1, no=0),
        _filter_step(_RETURN, refused),
        _filter_step(_RETURN, _ALLOW),
    )
    # Reading limits is allowed: both halves of the pointer to the new ones are null then.
    yield from (
        _filter_step(_EQUAL, _PRLIMIT, yes=0, no=6),
        _filter_step(_LOAD, 32),
        _filter_step(_EQUAL, 0, yes=0, no=3),
        _filter_step(_LOAD, 36),
        _filter_step(_EQUAL, 0, yes=0, no=1),
    )
    yield from (_filter_step(_RETURN, _ALLOW), _filter_step(_RETURN, refused))
    for first, last in _REFUSED:
        if first == last:
            yield from (_filter_step(_EQUAL, first, yes=0, no=1), _filter_step(_RETURN, refused))
        else:
            yield from (
                _filter_step(_AT_LEAST, first, yes=0, no=2),
                _filter_step(_AT_LEAST, last + 1, yes=1, no=0),
                _filter_step(_RETURN, refused),
            )
    yield _filter_step(_RETURN, _ALLOW)


def _filter_of_program() -> Iterator[bytes]:
    """Yields the instructions of the seccomp filter for whole programs.

    The filter restricts sockets by kind, and other system calls by number. Landlock does not treat
    the socket file of another process (for example, of a spare) as a file, so a program may only
    use Internet sockets and netlink sockets. Pairs of connected sockets remain possible, because
    another system call creates them.
    """
    refused, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    yield from (
        _filter_step(_LOAD, 4),
        _filter_step(_EQUAL, _X86_64, no=0, yes=1),
        _filter_step(_RETURN, _KILL),
        _filter_step(_LOAD, 0),
        _filter_step(_AT_LEAST, _X32, yes=0, no=1),
        _filter_step(_RETURN, refused),
        _filter_step(_EQUAL, _SOCKET, yes=0, no=len(_FAMILIES) + 3),
        _filter_step(_LOAD, 16),
    )
    for place, family in enumerate(_FAMILIES):
        yield _filter_step(_EQUAL, family, yes=len(_FAMILIES) - place, no=0)
    yield from (_filter_step(_RETURN, refused), _filter_step(_RETURN, _ALLOW))
    for number in _OF_A_PROCESS:
        # By its own number a process may ask for its limits: both halves of the pointer to new
        # limits are null then.
        asks = number == _PRLIMIT
        yield from (
            _filter_step(_EQUAL, number, yes=0, no=8 if asks else 4),
            _filter_step(_LOAD, 16),
            _filter_step(_EQUAL, 0, yes=5 if asks else 1, no=0),
        )
        if asks:
            yield from (
                _filter_step(_LOAD, 32),
                _filter_step(_EQUAL, 0, yes=0, no=2),
                _filter_step(_LOAD, 36),
                _filter_step(_EQUAL, 0, yes=1, no=0),
            )
        yield from (_filter_step(_RETURN, refused), _filter_step(_RETURN, _ALLOW))
    # By this call a program would open sockets past the filter.
    yield from (_filter_step(_EQUAL, _IO_URING, yes=0, no=1), _filter_step(_RETURN, unknown))
    for number in _OF_THE_MACHINE:
        yield from (_filter_step(_EQUAL, number, yes=0, no=1), _filter_step(_RETURN, refused))
    yield _filter_step(_RETURN, _ALLOW)


def _filter_step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _call_prctl(what: int, value: int) -> None:
    _checked_call(_libc().prctl(what, _as_long(value), _as_long(0), _as_long(0), _as_long(0)))


def _as_long(value: int) -> ctypes.c_long:
    # The kernel reads whole registers.
    return ctypes.c_long(value)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked_call(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
