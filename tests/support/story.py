"""A long story of switches: followers have exactly the served rows, at every cursor."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from audit import Audit
from book import faults
from chaos import ensure_up, judged, typed
from consumers import Consumers, Wanted, consuming
from meanwhile import Producing, beside, note
from story_shop import FIRST, SAME_ROWS, SINKS, TABLES, VERSIONS, Orders
from testbed import Said, Testbed
from victims import CANDIDATE, LIVE, SUPERVISOR, kill, pids_of

from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.state import State
from kappa.state.build import folded_by

CONSUMERS = (
    Wanted("command", "by_customer", "by_customer"),
    *(Wanted("events", table, table) for table in TABLES),
    *(Wanted("topic", topic, table) for topic, table in SINKS.items()),
)
SETTINGS = """
[engine]
maintenance_seconds = 10
large_rows = 10
[rollout]
soak = "2h"
[history]
every_seconds = 5
keep_seconds = 60
[changes]
keep_seconds = 300
"""
# Some slices for each switch: the machine is there for the switches.
_TURN_SECONDS = 4.0
_ATTEMPTS = 6
# So long after a command began a victim is killed at most: an undo takes seconds, a deploy replays.
_UNDO_SECONDS, _DEPLOY_SECONDS = 3.0, 10.0
_PATIENCE_SECONDS = 600.0


class Story:
    """Switches at random, and compares the consumers with the served tables."""

    def __init__(self, bed: Testbed, seed: int, consumers: Consumers, audit: Audit) -> None:
        self._bed = bed
        self._draw = random.Random(seed)
        self._orders = Orders(seed)
        self._consumers = consumers
        self._audit = audit
        # The version of each build that has served.
        self._versions = {bed.live("shop"): FIRST}
        self.commands: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.acknowledged = 0

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Produces orders within the block."""
        with beside(Producing(self._bed, self._orders, turn_seconds=_TURN_SECONDS)) as produced:
            yield
        self.acknowledged += produced.acknowledged

    def switch(self, victims: Sequence[str], *, is_first: bool) -> None:
        """Undoes or deploys; deploys at first, and if an undo would lead to the same rows."""
        idle = self._state().idle.get("shop")
        of_both = {self._version(), None if idle is None else self._versions[idle]}
        if is_first or of_both <= SAME_ROWS:
            self.deploy(victims)
        else:
            self.undo(victims)

    def deploy(self, victims: Sequence[str]) -> None:
        """Makes a new build of another version serve, and kills each victim meanwhile."""
        serves = self._version()
        version = self._draw.choice([each for each in VERSIONS if each != serves])
        self._bed.declare("shop", version)
        self._switch(("deploy", "--allow-breaking", "--yes"), victims, _DEPLOY_SECONDS)
        self._versions[self._state().serving["shop"]] = version

    def undo(self, victims: Sequence[str]) -> None:
        """Makes the build serve again that served before, and kills the victims meanwhile."""
        self._switch(("undo", "shop", "--yes"), victims, _UNDO_SECONDS)

    def _switch(
        self, arguments: tuple[str, ...], victims: Sequence[str], longest_seconds: float
    ) -> None:
        """Runs a command, repeats it if it was not done, and waits until each consumer sees it."""
        before = self._state().generation
        self._type(arguments, partial(self._kill, victims, longest_seconds))
        for _ in range(_ATTEMPTS):
            self._bed.wait(self._is_settled, "the end of the rollout", _PATIENCE_SECONDS)
            generation = self._state().generation
            if generation > before:
                break
            self._type(arguments, lambda: None)
        else:
            raise AssertionError(f"nothing else serves; {self._bed.logs()}")
        note(self._bed, f"generation {generation} serves")
        self.wait(lambda: self._consumers.have(generation), f"generation {generation}")
        note(self._bed, f"all have generation {generation}")

    def _version(self) -> str:
        return self._versions[self._state().serving["shop"]]

    def _state(self) -> State:
        return current_state(self._bed.store)

    def _type(self, arguments: tuple[str, ...], meanwhile: Callable[[], None]) -> None:
        process = self._bed.start(*arguments, KAPPA_BY="operator")
        note(self._bed, " ".join(arguments))
        meanwhile()
        out, err = process.communicate(timeout=_PATIENCE_SECONDS)
        said = judged(Said(process.returncode, out, err), arguments)
        note(self._bed, f"{arguments[0]} ended with {said.code}: {err!r}")
        self.commands[f"{arguments[0]} {said.code}"] += 1

    def _is_settled(self) -> bool:
        active = self._state().active("shop")
        if active is not None and active.waits:
            typed(self._bed, "operator", "promote", "shop", "--yes")
        return active is None

    def _kill(self, victims: Sequence[str], longest_seconds: float) -> None:
        """Kills one process of each victim with -9, each some seconds after the one before."""
        for victim in victims:
            self._consumers.ends.wait(self._draw.uniform(0, longest_seconds))
            self._bed.wait(partial(self._is_killed, victim), f"a {victim}")
            if victim == SUPERVISOR:
                ensure_up(self._bed, "operator")

    def _is_killed(self, victim: str) -> bool:
        """Kills a process of a victim. Returns False if there is none, or if it ended before."""
        state = self._state()
        active = state.active("shop")
        candidate = state.idle.get("shop") if active is None else active.build
        builds = {LIVE: state.serving["shop"], CANDIDATE: candidate}
        found = pids_of(
            self._bed,
            victim,
            {name: folded_by(self._bed.store, build) for name, build in builds.items() if build},
        )
        if not found or not kill(pid := self._draw.choice(sorted(found))):
            return False
        self.killed[victim] += 1
        note(self._bed, f"kill {victim} {pid}")
        return True

    def rest(self) -> None:
        """Waits until all is folded and sent; asserts that all consumers have the served rows."""
        bed = self._bed
        bed.wait(lambda: not self._state().active_rollouts, "the end of the rollout")
        bed.wait(lambda: bed.log.wait_until_ready(1.0), "the broker")
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
        served = self._audit.served()
        self.wait(
            lambda: all(
                (last := self._consumers.last(each)) is not None
                and last.digest == served[each.table]
                for each in CONSUMERS
            ),
            "what is served",
        )
        assert self._audit.served() == served

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Waits for a state of the consumers; on failure reports the faults of each."""
        try:
            self._bed.wait(until, what)
        except AssertionError as error:
            raise AssertionError(f"{self.found()}\n{self._consumers.said()}\n{error}") from None

    def found(self) -> str:
        """Returns the last applied change set and the faults of each consumer."""
        return "\n".join(
            f"{each.book}: {self._consumers.last(each)} {faults(self._consumers.book(each))[:5]}"
            for each in CONSUMERS
        )

    def end(self) -> str:
        """Asserts that each change set of each consumer was right; returns the counts."""
        self._audit.catch_up()
        lines = [
            (
                f"generations {self._state().generation}, commands {dict(self.commands)}, "
                f"kills {dict(self.killed)}, starts of consumers {self._consumers.starts}, "
                f"records {self.acknowledged}, cursors read {len(self._audit.known)}"
            )
        ]
        wrong = list[str]()
        for each in CONSUMERS:
            found, counted = self._audit.wrong(self._consumers.book(each), each.table)
            wrong += (f"{each.book}: {fault}" for fault in found)
            kinds = Counter(fault.partition(":")[0] for fault in found)
            lines.append(
                f"{each.way} {each.name}: {dict(counted)}; gaps {kinds['gap']}, duplicates "
                f"{kinds['duplicate']}, backward {kinds['backward']}, half {kinds['half']}"
            )
            assert not counted["reset"], lines
            assert not counted["not compared"], lines
        assert not wrong, "\n".join((*lines, *wrong[:20]))
        return "\n".join(lines)


@contextmanager
def story(bed: Testbed, seed: int, folder: Path) -> Iterator[Story]:
    """Serves the first version; runs consumers and an audit within the block."""
    bed.log.produce((record for _, record in Orders(seed + 1, 100)(0)), "orders")
    bed.must("deploy", "--yes")
    audit = Audit(bed, TABLES)
    with beside(audit), consuming(bed, folder, *CONSUMERS) as consumers:
        made = Story(bed, seed, consumers, audit)
        made.wait(
            lambda: all(consumers.last(each) is not None for each in CONSUMERS), "all consumers"
        )
        yield made
