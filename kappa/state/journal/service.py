"""Records about the service of a whole pipeline: its end, a pause, and the end of a pause."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.state.journal.kinds import JournalEvent
from kappa.state.offsets import Offsets


class PipelineRetired(JournalEvent, frozen=True, tag="pipeline_retired"):
    """The end of a pipeline's service: a new generation whose serving map is without it.

    `build` served it last. It is kept for `kept_seconds`, so that an undo is a switch to it.
    `names` are the tables and views that left, and `offsets` what readers saw of them at the yes.
    """

    pipeline: str
    build: str
    generation: int
    serving: Mapping[str, str]
    names: tuple[str, ...]
    offsets: Offsets
    kept_seconds: float
    previous_generation: int | None = None

    @property
    def switched(self) -> tuple[()]:
        """Nothing: no rollout ends with it."""
        return ()


class Paused(JournalEvent, frozen=True, tag="paused"):
    """A pause: no job of the pipeline runs, and its tables serve as they are."""

    pipeline: str


class Resumed(JournalEvent, frozen=True, tag="resumed"):
    """The end of a pause: the pipeline's jobs go on from their frontiers."""

    pipeline: str
