"""Measures a run: replay, deploy, freshness, CPU time of a query, memory, and load."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from demo.edit import PIPELINE
from demo.judgement.reckoning import seen_fresh
from demo.processes.watch import Watch
from demo.screen import Screen
from kappa.replay.rollout.current_state import current_state
from kappa.state.store import Store


class Measures:
    """Stores the measurements that the story makes during its acts, and prints them."""

    def __init__(self) -> None:
        """Creates an object without measurements."""
        # The length of the log when version 2 was deployed.
        self.history = 0
        self._windows: dict[str, tuple[float, float]] = {}
        self._query_seconds: list[float] = []

    @contextmanager
    def window(self, name: str) -> Iterator[None]:
        """Stores when the block begins and when it ends. `name` is `rest` or `replay`."""
        begun = monotonic()
        yield
        self._windows[name] = (begun, monotonic())

    @contextmanager
    def query(self) -> Iterator[None]:
        """Stores the CPU time of the child processes that run during the block, for a query."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        yield
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._query_seconds.append(
            after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        )

    def show(self, screen: Screen, store: Store, records: Path, watch: Watch) -> None:
        """Prints all measurements.

        `records` is the folder with the producer's ledger and the reader's log. `watch` recorded
        the memory of the run and the progress of the replay.
        """
        screen.heading("Measured on this machine")
        build = current_state(store).serving[PIPELINE]
        replayed = watch.replayed(build, at_least=self.history)
        if replayed is not None:
            screen.say(
                f"replay of version 2: {replayed.offsets:,} events in {replayed.seconds:.1f} s = "
                f"{replayed.rate:,.0f} events/s, the start of its process included"
            )
        begun, ended = self._windows["replay"]
        screen.say(f"deploy of version 2, from the command to the switch: {ended - begun:.1f} s")
        for what, window in (("at rest", "rest"), ("while version 2 was replayed", "replay")):
            since, until = self._windows[window]
            found = seen_fresh(records, topic=PIPELINE, since=since, until=until)
            screen.say(
                f"from produced to visible in a DuckDB query, {what}: "
                f"{found or 'nothing was visible'}"
            )
        screen.say(
            "kappa query, from its start to its end: "
            f"{min(self._query_seconds):.2f} s of CPU, and no JVM"
        )
        screen.say(f"peak memory of all processes together: {watch.peak_resident / 2**30:.2f} GiB")
        screen.say(
            "load of the machine meanwhile, others' work included: "
            f"{os.getloadavg()[2]:.1f} on {os.cpu_count()} cores"
        )
