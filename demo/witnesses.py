"""The witnesses: a producer and a reader that run until the story ends and record their actions.

Each witness is a separate process. At the end, the story compares the witnesses' records with the
tables of the platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from time import monotonic

from demo.edit import PIPELINE
from demo.judgement.verdict import Verdict
from demo.processes.child import Child
from demo.producer.feed import Progress, offsets_of
from demo.project import Project
from demo.screen import Screen
from kappa.base.errors import KappaError
from kappa.replay.rollout.current_state import current_state
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_LOAD_SECONDS = 300.0
_READER_SECONDS = 120.0
_FEED = "demo.producer.feed"
_READER = "demo.judgement.reader"


class Witnesses:
    """The producer and the reader of one run. `close` ends both."""

    def __init__(
        self, screen: Screen, store: Store, project: Project, environment: Mapping[str, str]
    ) -> None:
        """Prepares the witnesses without starting them.

        The witnesses write their records and logs to the folder `project.records`.
        """
        self._screen = screen
        self._store = store
        self._project = project.folder
        self._records = project.records
        self._environment = environment
        self._stack = ExitStack()
        self._produced: Progress | None = None

    def close(self) -> None:
        """Ends the witnesses that still run."""
        self._stack.close()

    def start_producer(self, bootstrap_servers: str, *, rate: float, flights: int | None) -> None:
        """Starts the producer, which sends `rate` events per second and writes the ledger."""
        arguments = [
            bootstrap_servers,
            str(self._records / "ledger.parquet"),
            "--rate",
            str(rate),
            *([] if flights is None else ["--flights", str(flights)]),
        ]
        self._feed = self._started(_FEED, arguments)

    def wait_for_the_load(self) -> None:
        """Waits until the first events are acknowledged.

        Raises KappaError if this takes longer than five minutes.
        """
        self._feed.wait_until_it_speaks(_LOAD_SECONDS)
        loaded = self._screen.wait(
            lambda: self.produced.loaded,
            lambda: _loading(self.produced),
            patience_seconds=_LOAD_SECONDS,
        )
        if not loaded:
            raise KappaError(f"the load did not end within {_LOAD_SECONDS:.0f} seconds")

    def start_reader(self) -> None:
        """Starts the reader, and waits for its first verdict."""
        arguments = [str(self._project), str(self._records / "answers.jsonl")]
        self._reader = self._started(_READER, arguments)
        self._reader.wait_until_it_speaks(_READER_SECONDS)

    @property
    def produced(self) -> Progress:
        """Returns the producer's last progress, which is final after `finish_producer`."""
        return self._produced or Progress(**(self._feed.last or {}))

    def pause(self, seconds: float) -> None:
        """Waits for `seconds` seconds while both witnesses run, and displays their progress."""
        until = monotonic() + seconds
        self._screen.wait(lambda: monotonic() >= until, self.line, patience_seconds=seconds + 1)
        self._screen.say(self.line())

    def line(self) -> str:
        """Returns a line with the progress of the producer, the platform and the reader."""
        produced = self.produced
        verdict = Verdict(**(self._reader.last or {}))
        behind = offsets_of(produced).distance(self._served())
        return (
            f"producer: {produced.acknowledged:,} acknowledged · "
            f"served: {max(0, behind):,} records behind · "
            f"reader: {verdict.queries:,} queries, {verdict.errors} errors, {verdict.mixed} mixed, "
            f"{verdict.backward} backward, {verdict.switches} switches seen"
        )

    def finish_producer(self) -> Progress:
        """Ends the producer, and returns its final progress. Raises KappaError if it failed."""
        code, words = self._feed.finish()
        if code != 0:
            raise KappaError(
                "the producer did not end in order", hint=f"see {self._records}/{_FEED}.log"
            )
        self._produced = Progress(**words)
        return self._produced

    def finish_reader(self) -> Verdict:
        """Ends the reader, and returns its verdict."""
        _, words = self._reader.finish()
        return Verdict(**words)

    def _started(self, module: str, arguments: list[str]) -> Child:
        child = Child(module, arguments, environment=self._environment, folder=self._records)
        self._stack.callback(child.ensure_ended)
        return child

    def _served(self) -> Offsets:
        serving = current_state(self._store).serving
        return folded(self._store, serving[PIPELINE]) if PIPELINE in serving else Offsets()


def folded(store: Store, build: str) -> Offsets:
    """Returns the offsets of a build's newest frontier, or empty offsets without a frontier."""
    newest = Frontiers(store, build).newest()
    return Offsets() if newest is None else newest.offsets


def _loading(progress: Progress) -> str:
    return f"producing: {progress.acknowledged:,} of {progress.first:,} records acknowledged"
