"""A rehearsal of the files that an agent sends. A confined program runs the rehearsal.

This module prepares the rehearsal and reads the answer of the confined program (trial_program.py).
The program receives copies of the project's files, of samples of the topics that serving builds
read, and of the birth certificates of the serving builds. The program receives no settings, no
secrets, and only a few harmless environment variables of this process. The answer is JSON that
cannot be trusted. Apart from passing the answer on, this module uses only the names of topics in
it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kappa.agents import process_guard
from kappa.agents.given_files import checked_files, copy_project, id_of, project_files
from kappa.base.errors import KappaError, TimedOut
from kappa.base.java.java import find_java
from kappa.base.process import tied
from kappa.base.program import command_of
from kappa.base.temporary_folders import CHILD, make_folder, user_cache
from kappa.base.units import size
from kappa.declare.topic import TOPIC_NAME
from kappa.develop.sample import read_topic
from kappa.records.decode.raw_records import RawRecord
from kappa.replay.status.context import ProjectContext
from kappa.state.build import Birth, read_birth

# Spark starts in six seconds on a quiet machine, and a run on samples has 120.
_SECONDS = 600.0
_MOST_ANSWER, _MOST_SAID = 8 << 20, 2_000
_MOST_BYTES = 2 << 30
# Of the machine, a program with a JVM reads libraries, time zones, and the name of this host.
_OF_THE_MACHINE = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime"),
    *("/etc/hosts", "/etc/nsswitch.conf", "/etc/alternatives", "/etc/ssl/certs"),
    *("/etc/java-17-openjdk", "/etc/java-21-openjdk", "/etc/java-25-openjdk"),
    *("/proc", "/sys/fs/cgroup", "/sys/devices/system", "/sys/kernel/mm"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)
# The variables that the program has of this process: none of them is a secret.
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "LD_LIBRARY_PATH")


def rehearse_files(here: ProjectContext, given: Mapping[str, str]) -> dict[str, Any]:
    """Rehearses a project with given files on samples, and compares the rows of both versions.

    The project is run as it is and with the given files, in a confined process. Returns a document
    with the id, the refusals, the cost of a replay, and for each pipeline a short plan, its effects
    on readers, and the rows that change. Raises UsageError if a path is not allowed, KappaError if
    this machine cannot confine a program, and TimedOut if the rehearsal takes too long.
    """
    given = checked_files(given)
    state = here.state()
    births = {name: read_birth(here.store, build) for name, build in state.serving.items()}
    named = {path for birth in births.values() for path in birth.sources}
    samples = _samples(here, births)
    scratch = make_folder(Path(tempfile.gettempdir()), CHILD)
    try:
        copy_project(project_files(here.settings.project, named), scratch / "project", {})
        (scratch / "project" / "kappa.toml").touch()
        (scratch / "samples").write_bytes(msgspec.msgpack.encode(samples))
        request = {
            "given": given,
            "serving": {name: msgspec.to_builtins(birth) for name, birth in births.items()},
            "readable": _readable(),
        }
        (scratch / "request.json").write_text(json.dumps(request), encoding="utf-8")
        found = _run(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return {
        "id": id_of(given, [state.last, {name: each.version for name, each in births.items()}]),
        "generation": state.generation,
        **found,
        "cost": _cost(here, found),
    }


def _samples(here: ProjectContext, births: Mapping[str, Birth]) -> Mapping[str, list[RawRecord]]:
    """Returns sample records of the topics that the serving builds read, by topic.

    Returns no samples if the broker does not answer. The agent's files cannot choose the topics:
    otherwise an agent could read any topic of the cluster.
    """
    topics = {topic.name for birth in births.values() for topic in birth.topics}
    if not topics or here.bootstrap_servers is None:
        return {}
    try:
        log = here.log(looks=True)
        found = {name: read_topic(log, name) for name in sorted(topics)}
    except KappaError:
        return {}
    return {name: list(each.records) for name, each in found.items() if each is not None}


def _cost(here: ProjectContext, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the number of records that a replay reads, for each changed pipeline.

    The list is empty if the broker does not answer.
    """
    wanted = {
        str(each["pipeline"]): [
            name for name in each["topics"] if isinstance(name, str) and TOPIC_NAME.fullmatch(name)
        ]
        for each in found["pipelines"]
        if each["plan"] != ["as it serves"]
    }
    if not any(wanted.values()) or here.bootstrap_servers is None:
        return []
    try:
        log = here.log(looks=True)
        known = log.topics()
        costs = []
        for pipeline, names in wanted.items():
            there = [name for name in names if name in known]
            records = log.end(there).distance(log.beginning(there)) if there else 0
            costs.append({"pipeline": pipeline, "records_to_replay": records})
    except KappaError:
        return []
    return costs


def _readable() -> list[str]:
    import kappa  # noqa: PLC0415  # the place of the package alone

    places = {
        *_OF_THE_MACHINE,
        sys.prefix,
        sys.base_prefix,
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *(str(Path(each).resolve()) for each in kappa.__path__),
        # In a checkout, `kappa.serving` and `kappa.replay` are folders beside the package.
        *(str((Path(each) / name).resolve()) for each in kappa.__path__ for name in _LINKED),
        str(find_java().home.resolve()),
        *(str(user_cache(name)) for name in ("jars", "compiled", "cds")),
    }
    return sorted(place for place in places if Path(place).exists())


_LINKED = ("serving", "replay")


def _run(scratch: Path) -> dict[str, Any]:
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment |= {
        "HOME": str(scratch),
        "USER": "agent",
        "LOGNAME": "agent",
        "HADOOP_USER_NAME": "agent",
        "TMPDIR": str(scratch),
        "XDG_CACHE_HOME": str(user_cache("jars").parents[1]),
        "PYTHONSAFEPATH": "1",
        "KAPPA_BY": "agent",
    }
    # The program may put a link in place of any file in its folder: this file has no name there.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            tied(
                [
                    *(sys.executable, "-I", "-S", process_guard.__file__),
                    *(str(scratch), str(_MOST_BYTES), str(_SECONDS)),
                    *command_of("kappa.agents.trial_program", str(scratch)),
                ],
                nice=5,
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=scratch,
            check=False,
        )
        if done.returncode == process_guard.TOO_LONG:
            raise TimedOut(
                f"the rehearsal did not end within {_SECONDS:g} s",
                hint="look for a loop without an end in the files",
            )
        if done.returncode == process_guard.TOO_LARGE:
            raise KappaError(
                f"the rehearsal was ended: it wrote more than {size(_MOST_BYTES)}",
                hint="look for what the files write: a rehearsal has some thousand records",
            )
        output.seek(max(0, output.seek(0, os.SEEK_END) - _MOST_SAID))
        said = output.read(_MOST_SAID).decode(errors="replace").strip().splitlines()
    answer = None if done.returncode else _read_plain(scratch / "answer.json", _MOST_ANSWER + 1)
    if answer is None:
        raise KappaError(
            f"the rehearsal gave no answer: {said[-1] if said else 'it said nothing'}",
            hint="files of an agent run only where this machine can confine them: "
            "docs/howto/agents.md says what that needs",
        )
    if len(answer) > _MOST_ANSWER:
        raise KappaError("the rehearsal's answer is too large", hint="change fewer pipelines")
    return _checked(answer)


def _read_plain(path: Path, most: int) -> bytes | None:
    """Reads at most `most` bytes of a file. Returns None if `path` is not a regular file."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    with os.fdopen(opened, "rb") as file:
        return file.read(most)


class _RehearsalAnswer(msgspec.Struct):
    """The form that the answer of a rehearsal must have.

    The answer is checked against this form, because an agent's code may have written the answer.
    """

    seconds: float
    pipelines: list[_AnsweredPipeline]
    refusals: list[dict[str, str]]


class _AnsweredPipeline(msgspec.Struct):
    pipeline: str
    plan: list[str]
    topics: list[str]
    sample: list[str]
    tables: list[dict[str, Any]]
    unchanged: bool


def _checked(answer: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(answer, type=_RehearsalAnswer)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise KappaError(
            f"the rehearsal's answer has another form: {error}",
            hint="the files may have written the answer themselves",
        ) from None
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document
