"""The pipelines that are paused, as a fold of the journal's records. Pure.

It is decided in this one place: the supervisor, the plan and the readers' catalogue call it. A
pause ends with a Resumed, or with the last build of a pipeline that was retired meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kappa.state.journal.events import Retired, Served
from kappa.state.journal.journal import JournalRecord
from kappa.state.journal.service import Paused, PipelineRetired, Resumed


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause: when it began, and who asked for it.

    `kept` is the build of a pipeline that was retired in its pause, while an undo may want it.
    """

    at: str
    by: str
    kept: str | None = None

    @property
    def text(self) -> str:
        """The pause in a few words."""
        return f"paused since {self.at} by {self.by}"


Pauses = Mapping[str, Pause]


def paused_after(pauses: Pauses, record: JournalRecord) -> Pauses:
    """Returns the pauses by pipeline after one more record; `pauses` are those before it."""
    match record.event:
        case Paused(pipeline=pipeline):
            return {**pauses, pipeline: Pause(record.at, record.by)}
        case Resumed(pipeline=pipeline):
            return _without(pauses, pipeline)
        case PipelineRetired(pipeline=pipeline, build=build) if pipeline in pauses:
            return {**pauses, pipeline: replace(pauses[pipeline], kept=build)}
        case Served(serving=serving) if any(
            each.kept and name in serving for name, each in pauses.items()
        ):
            # It was undone, and is as it was.
            return {
                name: replace(each, kept=None) if name in serving else each
                for name, each in pauses.items()
            }
        case Retired(build=build):
            return _without(pauses, *(name for name, each in pauses.items() if each.kept == build))
        case _:
            return pauses


def _without(pauses: Pauses, *pipelines: str) -> Pauses:
    return {name: each for name, each in pauses.items() if name not in pipelines}
