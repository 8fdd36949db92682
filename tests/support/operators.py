"""An operator who types random commands, and two operators who type at the same time."""

from __future__ import annotations

import random
import re
from collections import Counter
from contextlib import nullcontext

from chaos import judged, typed
from meanwhile import Beside
from soak_shop import SOAK_1, SOAK_2, VIEWS
from testbed import PATIENCE_SECONDS, Said, Testbed
from victims import standing_still

from kappa.base.errors import ExitCode
from kappa.replay.rollout.rollout import Phase
from kappa.state.journal.events import Served

_REST_SECONDS = (0.5, 6.0)
_PAUSE_SECONDS = (0.5, 5.0)


class Operator(Beside):
    """Deploys, replays, undoes, abandons, pauses, collects and scrubs, at random.

    `done` counts the commands by exit code; `told` contains the messages of the refused commands.
    """

    def __init__(self, bed: Testbed, seed: int) -> None:
        super().__init__()
        self._bed = bed
        self._draw = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.told: Counter[str] = Counter()

    def go_on(self) -> None:
        act, *_ = self._draw.choices(
            (
                self._deploy,
                self._replay,
                self._undo,
                self._two_undos,
                self._two,
                self._give_up,
                self._pause,
                self._look,
            ),
            (3, 2, 4, 3, 2, 2, 1, 3),
        )
        act()

    def rest(self) -> None:
        self.ends.wait(self._draw.uniform(*_REST_SECONDS))

    def _type(self, *arguments: str) -> Said:
        said = typed(self._bed, "operator", *arguments)
        self._count(arguments, said)
        return said

    def _count(self, arguments: tuple[str, ...], said: Said) -> None:
        self.done[f"{arguments[0]} {said.code}"] += 1
        if said.code:
            errors = re.findall(r"^error: (.*)$", said.err, re.MULTILINE) or said.err.split("\n")
            self.told[f"{arguments[0]} {said.code}: {re.sub(r'[0-9]+', 'n', errors[-1])}"] += 1

    def _deploy(self) -> None:
        texts = self._draw.choices((SOAK_1, SOAK_2, *VIEWS), (3, 3, 1, 1))
        self._bed.declare("shop", *texts)
        self._type("deploy", "--yes")

    def _replay(self) -> None:
        last = self._bed.state().rollouts[-1]
        if last.phase is Phase.FAILED and not last.switch:
            self._type("retry", "shop", "--yes")
        else:
            self._type("replay", "shop", "--yes")

    def _undo(self) -> None:
        self._type("undo", "shop", "--yes")

    def _two_undos(self) -> None:
        for said in two_undos(self._bed):
            self._count(("undo",), said)

    def _two(self) -> None:
        """Runs two operators' commands at once, each of which changes the serving build."""
        commands = self._draw.choices(
            (("deploy", "--yes"), ("replay", "shop", "--yes"), ("undo", "--yes"), ("abandon",)), k=2
        )
        for arguments, said in zip(commands, at_once(self._bed, *commands), strict=True):
            self._count(arguments, said)

    def _give_up(self) -> None:
        began = self._bed.start("replay", "shop", "--yes", KAPPA_BY="operator")
        self.ends.wait(self._draw.uniform(1.0, 20.0))
        self._type("abandon", "shop")
        out, err = began.communicate(timeout=PATIENCE_SECONDS)
        arguments = ("replay", "shop", "--yes")
        self._count(arguments, judged(Said(began.returncode, out, err), arguments))

    def _pause(self) -> None:
        self._type("pause", "shop")
        self.ends.wait(self._draw.uniform(*_PAUSE_SECONDS))
        self._type("resume", "shop")

    def _look(self) -> None:
        self._type(*self._draw.choice((("gc",), ("scrub",), ("status",), ("history",))))


def at_once(bed: Testbed, *commands: tuple[str, ...], stopped: int | None = None) -> list[Said]:
    """Runs commands of two operators at once; returns the result of each.

    The process `stopped` is suspended until one of the commands has ended.
    """
    with nullcontext() if stopped is None else standing_still(stopped):
        both = [
            bed.start(*arguments, KAPPA_BY=f"operator {number}")
            for number, arguments in enumerate(commands, 1)
        ]
        if stopped is not None:
            bed.wait(lambda: any(each.poll() is not None for each in both), "the end of one")
    ended = [each.communicate(timeout=2 * PATIENCE_SECONDS) for each in both]
    return [
        judged(Said(each.returncode, out, err), arguments)
        for each, (out, err), arguments in zip(both, ended, commands, strict=True)
    ]


def two_undos(bed: Testbed, *, stopped: int | None = None) -> list[Said]:
    """Runs two undos at once, and asserts that each reports its own work.

    The second undo is refused with the name of the first, or comes after the first as a redo.
    """
    said = at_once(bed, *[("undo", "shop", "--yes")] * 2, stopped=stopped)
    assert_each_tells_its_own(bed, said)
    return said


def overtaken_undo(bed: Testbed) -> list[Said]:
    """Undoes, and redoes before the first operator is told; returns both results."""
    before = bed.state()
    slow = bed.start("undo", "shop", "--yes", KAPPA_BY="operator 1")
    bed.wait(lambda: bed.state().rollouts[-1].id > before.last, "the request")
    with standing_still(slow.pid):
        bed.wait(lambda: bed.state().generation > before.generation, "the switch")
        second = typed(bed, "operator 2", "undo", "shop", "--yes")
    out, err = slow.communicate(timeout=PATIENCE_SECONDS)
    said = [Said(slow.returncode, out, err), second]
    assert_each_tells_its_own(bed, said)
    return said


def assert_each_tells_its_own(bed: Testbed, said: list[Said]) -> None:
    """Asserts that each undo reports its own generation, and a refused undo the first operator."""
    state, made = bed.state(), []
    for each in said:
        if each.code == ExitCode.OK:
            (number,) = re.findall(r"^rollout (\d+): build", each.err, re.MULTILINE)
            # Behind it may be what serves by now, with its generation.
            generation = re.findall(r"\) serve[sd], generation (\d+)", each.out)[0]
            record = state.served_in(state.rollouts[int(number) - 1].id)
            assert record is not None, (said, number)
            assert isinstance(record.event, Served)
            assert record.event.generation == int(generation), said
            made.append(generation)
        if each.code == ExitCode.CONFLICT:
            assert "was first" in each.err, said
    assert len({*made}) == len(made), said
