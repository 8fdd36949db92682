"""A simulation of the control plane. A seed decides who acts, and what fails.

Everything is real except Spark, Kafka and the processes (crashing.py). The seed decides who acts
next and what happens: a process dies at any of its effects (failpoints, syncs); power fails, and
unsynced data are lost, torn or reordered (power.py); calls of the operating system fail
(faulty.py); clocks jump; a second supervisor decides in parallel with the first; and any of them
pauses in the middle of a step while the others act (paused.py).

A reader that never dies checks after each step, and another reader pauses while it reads: nothing
goes back, no switch is an error, rows are those of the log, and each offset has one fate (I1 to I4,
I6, I13). A build that is being written has no second writer (I8), and an error says what to do
(I10). When faults end, interrupted commands are run again (I7), everything comes to rest at the
log's end (I9), and the files on disk are the files that are referenced (I5). If the root is in a
bucket, power is lost and calls fail in the folder of the host.

    python tests/support/simulated.py SEED [SEED ...]    runs these seeds again, and tells each step
"""

from __future__ import annotations

import random
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from crashing import HOUR, Died, Outage, World
from faulty import Faults
from paused import Act
from power import Disk

from kappa.base.errors import Broken, KappaError
from kappa.base.failpoint import acting
from kappa.base.sections import RolloutSettings
from kappa.replay.platform.controller import Controller
from kappa.replay.rollout.operator_requests import (
    abandon_rollout,
    ask_pause,
    ask_promote,
    ask_resume,
    ask_undo,
    ask_verify,
)
from kappa.state.store import Store

STEPS = 30
# More than any seed takes to come to rest once faults have ended.
REST = 120
VERSIONS = ("one", "two", "three", "one/names", "two/names")
# How often who acts, in relation to the others.
OFTEN = {
    "_round": 30,
    "_produce": 9,
    "_operate": 15,
    "_second": 6,
    "_clock": 4,
    "_collect": 4,
    "_read": 8,
}
# How often, of a hundred steps, something fails in one, and what.
FAULTS = {"kill": 16, "power": 12, "disk": 8}
# At which of its effects who acts stands still; half of all do not.
PAUSES = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)


class Fate(Outage):
    """A counter of all effects. At some effects it kills, and at some it pauses the current act."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: dict[str, Act] = {}

    def effect(self) -> None:
        """Counts one effect. An act that was paused dies here if everything has died meanwhile."""
        super().effect()
        if self.spares:
            return
        for act in tuple(self.acts.values()):
            act.effect()
        if self.dead:
            raise Died


@dataclass
class Simulation:
    """One run of a seed."""

    seed: int
    folder: Path
    tell: Callable[[str], None] = lambda _line: None
    # Opens the root, by the folder of this host: the one that loses power, and whose calls fail.
    opened: Callable[[Path], Store] = Store
    # The time in which the server that has the root fails now and then.
    failing: Callable[[], AbstractContextManager[None]] = nullcontext
    happened: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """Plays the seed. Raises AssertionError if an invariant does not hold."""
        self.draw = random.Random(self.seed)
        root = self.folder / "root"
        root.mkdir(parents=True)
        self.fate = Fate()
        # Each has its own: how many files there are decides nothing about who acts.
        self.disk = Disk(root, random.Random(f"disk {self.seed}"), self.fate.effect)
        self.faults = Faults(root, random.Random(f"faults {self.seed}"), 0.04)
        self.fails = ""
        self.faults.on = False
        with ExitStack() as ending:
            ending.enter_context(_names_by(random.Random(f"names {self.seed}")))
            ending.enter_context(acting(self.fate))
            ending.enter_context(self.disk.watching())
            ending.enter_context(self.faults.injected())
            self.root = root
            self.world = World(
                self.opened(root), self.fate, keep_every_seconds=0.0, keep_seconds=60.0
            )
            self.second: Controller | None = None
            self.interrupted: list[Callable[[], object]] = []
            self.world.log.ensure(self.draw.randrange(6, 16))
            self.world.stage("one")
            with self.failing():
                for number in range(STEPS):
                    self._step(number)
            self.fate.at = set()
            for act in tuple(self.fate.acts):
                try:
                    self._act(act)
                except Died:
                    # What was beside it has ended.
                    continue
                except KappaError:
                    self.fate.dead |= act == "_round"
            if self.fate.dead:
                self._begin_anew(power=False)
            self._come_to_rest()

    def _step(self, number: int) -> None:
        # Who stands still does so for a while.
        chances = [OFTEN[name] // (3 if name in self.fate.acts else 1) for name in OFTEN]
        act = self.draw.choices([*OFTEN], chances)[0]
        if not self.fate.armed:
            chances = [*FAULTS.values(), 100 - sum(FAULTS.values())]
            self.fails = self.draw.choices([*FAULTS, ""], chances)[0]
            if self.fails in {"kill", "power"}:
                # It stays so until that effect, whoever is at it then.
                self.fate.at = {self.fate.count + self.draw.randrange(1, 60)}
        fails, said = self.fails, ""
        self.faults.on = fails == "disk"
        try:
            self._act(act)
        except Died:
            said = "died"
            if act == "_operate":
                self.interrupted.append(self.typed)
        except Broken:
            raise
        except KappaError as error:
            # Its message is for people; any other error than this would end the simulation (I10).
            said = error.message
            if not error.hint:
                raise AssertionError(f"it does not say what to do: {said}") from error
            # A process that meets it ends. So does a job whose file was collected while it stood
            # still.
            self.fate.dead |= fails == "disk" or act == "_round"
        self.faults.on = False
        stands = " ".join(sorted(self.fate.acts))
        self.tell(
            f"{number:3} {act[1:]:8} {fails:5} {said} {stands and f'({stands[1:]} stand still)'}"
        )
        if self.fate.dead:
            self.happened[fails or "error"] += 1
            self._begin_anew(power=fails == "power")
        self.world.look()
        self.world.check_writers()

    def _act(self, name: str) -> None:
        """Runs one act to its end or to its pause, or continues the act if it was paused."""
        if name not in self.fate.acts:
            stops_at = self.draw.choice(PAUSES)
            stops_at += self.draw.randrange(stops_at) if stops_at else 0
            self.fate.acts[name] = Act(name, getattr(self, name), stops_at=stops_at)
        else:
            self.happened["pause"] += 1
        act = self.fate.acts[name]
        try:
            act.go_on()
        finally:
            if act.ended:
                del self.fate.acts[name]

    def _begin_anew(self, *, power: bool) -> None:
        for act in tuple(self.fate.acts):
            with suppress(Died, KappaError):
                self._act(act)
        self.world.end()
        if power:
            self.disk.cut()
        # A store remembers which folders it has synced.
        self.world.store = self.opened(self.root)
        self.second = None
        self.world.begin()

    def _round(self) -> None:
        self.world.round()

    def _produce(self) -> None:
        self.world.log.ensure(self.world.log.count + self.draw.randrange(1, 6))

    def _second(self) -> None:
        """Lets a second supervisor decide too, as if no lock prevented that."""
        if self.second is None:
            self.second = Controller(
                self.world.store,
                log=self.world.log,  # type: ignore[arg-type]
                processes=self.world,
                rules=RolloutSettings(),
                clock=self.world.clock,
            )
        self.second.tick()

    def _clock(self) -> None:
        self.world.ahead += self.draw.choice([-30.0, 5.0, 61.0, 2 * HOUR])

    def _collect(self) -> None:
        # As its upkeep does, a job deletes nothing while another collects its builds.
        self.world.collect()

    def _read(self) -> None:
        """Reads as a second reader, which may pause anywhere."""
        self.world.read(self.fate.effect)

    def _operate(self) -> None:
        store = self.world.store
        intents: list[Callable[[], Callable[[], object]]] = [
            lambda: partial(self.world.stage, self.draw.choice(VERSIONS), auto_promote=True),
            lambda: partial(self.world.stage, self.draw.choice(VERSIONS), auto_promote=False),
            *(
                lambda ask=ask: partial(ask, store, "ships")  # type: ignore[misc]
                for ask in (
                    ask_promote,
                    ask_verify,
                    ask_undo,
                    abandon_rollout,
                    ask_pause,
                    ask_resume,
                )
            ),
        ]
        self.typed = self.draw.choices(intents, [6, 3, 3, 1, 2, 1, 1, 3])[0]()
        self.typed()

    def _come_to_rest(self) -> None:
        """Asserts that everything that was begun ends, and that readers see the whole log (I9).

        Interrupted commands are run again. Each is either done or refused (I7).
        """
        world = self.world
        for command in self.interrupted:
            with suppress(KappaError):
                command()
        with suppress(KappaError):
            ask_resume(world.store, "ships")
        for _ in range(REST):
            state = world.state()
            waiting = state.active("ships")
            if waiting is not None and waiting.waits:
                with suppress(KappaError):
                    ask_promote(world.store, "ships")
            world.round()
            world.look()
            if (
                waiting is None
                and world.state().last == state.last
                and (
                    "ships" not in state.serving or world.shown[1].equals(world.log.end(["ships"]))
                )
            ):
                break
        else:
            raise AssertionError(f"it does not come to rest: {world.controller.waits}")
        world.end()
        world.ahead += 3 * HOUR
        world.collect()
        world.check_collected()
        self.tell(f"    rests at {world.shown}, after {dict(self.happened)}")


@contextmanager
def _names_by(draw: random.Random) -> Iterator[None]:
    """Takes names from a seed that are otherwise random, because they decide the order of files."""
    hexes, bits = secrets.token_hex, secrets.randbits
    secrets.token_hex = lambda count=16: draw.randbytes(count or 16).hex()
    secrets.randbits = draw.getrandbits
    try:
        yield
    finally:
        secrets.token_hex, secrets.randbits = hexes, bits


def simulate(
    seed: int,
    tell: Callable[[str], None] = lambda _line: None,
    opened: Callable[[Path], Store] = Store,
    failing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Counter[str]:
    """Runs one seed in its own folder. Returns the counts of the events."""
    # In memory, where there is such a folder: nothing here has to be on a disk.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="kappa-simulated-", dir=memory) as folder:
        simulation = Simulation(seed, Path(folder), tell, opened, failing)
        simulation.run()
        return simulation.happened


if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(f"seed {given}", flush=True)
        simulate(int(given), lambda line: print(line, flush=True))
