"""Measures the time that a user waits for a change, and the resources of idle processes.

    python bench --cell change

Commands are run on a platform with the default settings, as users run them. Each command is
measured in several rounds, in turns with the start of an empty Spark session. After each round, the
served rows must equal DuckDB's result over the events.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from ground import say
from project import Project, empty_session, private_and_shared
from screen import Report, spread_of, table

from demo.processes.family import members
from kappa.base.errors import KappaError

_EVENTS = 1_000
# As many as the setting `engine.spares` has by default. A platform that has run for a while has
# them all warm.
_SPARES = 2
# The platform is up for so long before a person types.
_UP_SECONDS = 20.0
_RESTING = 10
_MEASURED_SECONDS = 30.0
_TICK = os.sysconf("SC_CLK_TCK")
# Rows of the table, in order: the target in seconds, or in sessions of Spark where it has some.
_TARGETS = {
    "deploy of a new pipeline": "6, or 1.5 sessions",
    "deploy of a one-line change": "6",
    "plan after a change": "1.5",
    "plan after a change, without a spare": "4",
    "plan of what is unchanged": "0.5",
    "kill -9 of a live job, to the sight of the next event": "2.5",
    "killed again twice within ten seconds, the slower of both": "3.5",
    "a record wakes a build at rest, to its sight": "2.5",
    "two builds are woken at once, to the sight of both": "4",
    "up of an existing project, to the sight of the first event": "6",
}


def main(home: Path, rounds: int) -> Report | None:
    """Measures all commands. Returns None if served rows differed from DuckDB's result."""
    took: dict[str, list[float]] = defaultdict(list)
    empty_session()
    for number in range(rounds):
        session = empty_session()
        found = _round(home / "change")
        if found is None:
            return None
        for name, seconds in {"an empty session of Spark": session, **found}.items():
            took[name].append(seconds)
        say(f"round {number + 1}: " + ", ".join(f"{n} {s:.2f}" for n, s in found.items()))
    spare = _spare(home / "change")
    rest = _rest(home / "change")
    return None if rest is None else _report(took, {**spare, **rest})


def _round(folder: Path) -> Mapping[str, float] | None:
    took: dict[str, float] = {}
    at = Project(folder)
    with at.ended():
        at.declare("web")
        at.kappa("up", "-d")
        at.kappa("topics", "create")
        at.send("web", _EVENTS)
        time.sleep(_UP_SECONDS)
        took["deploy of a new pipeline"] = at.kappa("deploy", "--yes")
        wrong = at.wrong("web")
        at.wait_for_spares(_SPARES)
        took["plan of what is unchanged"] = at.kappa("plan")
        at.declare("web", least=10)
        took["plan after a change"] = at.kappa("plan")
        at.declare("web", least=20)
        at.wait_for_spares(_SPARES)
        took["deploy of a one-line change"] = at.kappa("deploy", "--yes")
        wrong = wrong or at.wrong("web")
        at.wait_for_spares(_SPARES)
        at.seconds_until_seen("web")
        took["kill -9 of a live job, to the sight of the next event"] = _kill(at)
        took["killed again twice within ten seconds, the slower of both"] = max(
            _kill(at), _kill(at)
        )
        at.kappa("down")
        up = at.kappa("up", "-d")
        seen = at.seconds_until_seen("web")
        took["up of an existing project, to the sight of the first event"] = up + seen
        at.kappa("down")
        at.kappa("up", "-d")
        at.wait_for_spares(_SPARES)
        if _jobs(at):
            raise KappaError("a job runs that has nothing to do")
        took["a record wakes a build at rest, to its sight"] = at.seconds_until_seen("web")
        wrong = wrong or at.wrong("web")
        took["two builds are woken at once, to the sight of both"] = _wake_two(at)
        wrong = wrong or at.wrong("web") or at.wrong("other")
        at.kappa("down")
        at.environment["KAPPA__ENGINE__SPARES"] = "0"
        at.kappa("up", "-d")
        at.declare("web", least=30)
        took["plan after a change, without a spare"] = at.kappa("plan")
    if wrong is not None:
        say(f"no figure: what serves is not DuckDB's: {wrong}")
        return None
    return {name: took[name] for name in _TARGETS}


def _kill(at: Project) -> float:
    """Kills the only job. Returns the seconds until the next event is visible to a query."""
    os.kill(_job(at), signal.SIGKILL)
    return at.seconds_until_seen("web")


def _wake_two(at: Project) -> float:
    """Deploys a second pipeline, restarts the platform, and wakes both builds from rest.

    Returns the seconds until the new events of both pipelines are visible.
    """
    at.declare("other")
    at.kappa("topics", "create")
    at.send("other", _EVENTS)
    at.kappa("deploy", "--yes")
    at.kappa("down")
    at.kappa("up", "-d")
    at.wait_for_spares(_SPARES)
    if _jobs(at):
        raise KappaError("a job runs that has nothing to do")
    return at.seconds_until_seen("web", "other")


def _spare(folder: Path) -> Mapping[str, str]:
    at = Project(folder)
    with at.ended():
        at.kappa("up", "-d")
        at.wait_for_spares(_SPARES)
        pids = [each.pid for each in members(at.mark) if _of_spare(each.command)]
        private, shared = private_and_shared(pids)
    return {
        "memory of each of two spares": f"{private / _SPARES / 2**20:.0f} MiB, and "
        f"{shared / _SPARES / 2**20:.0f} MiB shared (700 MiB)"
    }


def _rest(folder: Path) -> Mapping[str, str] | None:
    """Measures ten pipelines without new events, first with running jobs and then at rest.

    Returns None if served rows differ from DuckDB's result.
    """
    at = Project(folder, "[verify]\nlaw_records = 0\n")
    names = [f"web{number}" for number in range(_RESTING)]
    with at.ended():
        for name in names:
            at.declare(name)
        at.kappa("up", "-d")
        at.kappa("topics", "create")
        for name in names:
            at.send(name, _EVENTS)
        at.kappa("deploy", "--yes")
        at.wait_for_spares(_SPARES)
        time.sleep(_UP_SECONDS)
        if len(_jobs(at)) != _RESTING:
            raise KappaError(f"{len(_jobs(at))} jobs run, and not {_RESTING}")
        awake = _cores(at)
        at.environment["KAPPA__ENGINE__REST_AFTER"] = "1"
        at.kappa("down")
        at.kappa("up", "-d")
        at.wait_for_spares(_SPARES)
        if _jobs(at):
            raise KappaError("jobs run that have nothing to do")
        time.sleep(_UP_SECONDS)
        asleep = _cores(at)
        private, shared = private_and_shared([each.pid for each in members(at.mark)])
        wrong = next(filter(None, map(at.wrong, names)), None)
    if wrong is not None:
        say(f"no figure: what serves is not DuckDB's: {wrong}")
        return None
    return {
        f"a job to which nothing comes, of {_RESTING}": (
            f"{awake['job'] / _RESTING:.2%} of a core (1 %)"
        ),
        "the broker beside them": f"{awake['broker']:.1%} of a core (5 %)",
        f"all of a platform with {_RESTING} pipelines at rest": (
            f"{(private + shared) / 2**30:.2f} GiB (3), {sum(asleep.values()):.1%} of a core, "
            f"of it the broker {asleep['broker']:.1%}"
        ),
    }


def _jobs(at: Project) -> list[int]:
    return [
        each.pid for each in members(at.mark) if " -m kappa.engine.job.job " in f"{each.command} "
    ]


def _job(at: Project) -> int:
    (pid,) = _jobs(at)
    return pid


def _of_spare(command: str) -> bool:
    return "kappa.engine.children.spare" in command or "PythonGatewayServer" in command


def _cores(at: Project) -> Mapping[str, float]:
    """Returns the shares of a core that jobs, the broker and all other processes use.

    The shares are measured over 30 seconds.
    """
    before = _ticks(at)
    time.sleep(_MEASURED_SECONDS)
    shares: dict[str, float] = {"job": 0.0, "broker": 0.0, "others": 0.0}
    for (pid, role), ticks in _ticks(at).items():
        shares[role] += (ticks - before.get((pid, role), 0)) / _TICK / _MEASURED_SECONDS
    return shares


def _ticks(at: Project) -> Mapping[tuple[int, str], int]:
    jobs, found = set(_jobs(at)), {}
    for each in members(at.mark):
        try:
            stat = Path(f"/proc/{each.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        # A job's JVM is its child (proc_pid_stat(5)).
        role = (
            "job"
            if each.pid in jobs or int(fields[1]) in jobs
            else "broker"
            if "kafka.Kafka" in each.command
            else "others"
        )
        found[each.pid, role] = int(fields[11]) + int(fields[12])
    return found


def _report(took: Mapping[str, Sequence[float]], rest: Mapping[str, str]) -> Report:
    sessions = took["an empty session of Spark"]
    rows = (
        (
            *(name, spread_of(seconds, "{:.2f}"), _ratio(seconds, sessions)),
            _TARGETS.get(name, ""),
        )
        for name, seconds in took.items()
    )
    times = table(("what", "seconds", "sessions of Spark", "target, s"), rows)
    kept = table(("what it keeps", "measured (target)"), rest.items(), words=(0, 1))
    line = "; ".join(
        f"{name} {median(seconds):.2f} s ({_ratio(seconds, sessions)} sessions)"
        for name, seconds in took.items()
    )
    return Report(
        f"bench change, {len(sessions)} rounds: {line}; "
        + "; ".join(f"{name}: {text}" for name, text in rest.items()),
        {"took": took, "rest": rest},
        f"{times}\n\n{kept}",
    )


def _ratio(seconds: Sequence[float], sessions: Sequence[float]) -> str:
    return spread_of([one / other for one, other in zip(seconds, sessions, strict=True)], "{:.2f}")
