"""The pipelines that were taken out of service, as a fold of the journal's records. Pure.

A retirement ends when the pipeline serves again, by an undo or a deploy. Readers whose query names
a table of one learn from it when the table left, and how it can be brought back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kappa.state.journal.events import Retired, Served
from kappa.state.journal.journal import JournalRecord
from kappa.state.journal.service import PipelineRetired


@dataclass(frozen=True, slots=True)
class Retirement:
    """A pipeline that does not serve any more; `kept`: its last build can serve again."""

    event: PipelineRetired
    at: str
    by: str
    kept: bool = True

    @property
    def kept_until(self) -> datetime:
        """The time until which the build is kept."""
        return datetime.fromisoformat(self.at).astimezone(UTC) + timedelta(
            seconds=self.event.kept_seconds
        )

    @property
    def text(self) -> str:
        """The retirement in a few words."""
        return f"retired at generation {self.event.generation} by {self.by}"

    @property
    def way_back(self) -> str:
        """Returns what to type so that it serves again."""
        name = self.event.pipeline
        if not self.kept:
            return f"its data are deleted; to replay it: kappa deploy {name}"
        until = self.kept_until.isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"kappa undo {name} brings it back until {until}"


Retirements = Mapping[str, Retirement]


def retired_after(retirements: Retirements, record: JournalRecord) -> Retirements:
    """Returns the retirements by pipeline after one more record, of those before it."""
    match record.event:
        case PipelineRetired() as event:
            return {**retirements, event.pipeline: Retirement(event, record.at, record.by)}
        case Served(serving=serving) if retirements.keys() & serving.keys():
            return {name: each for name, each in retirements.items() if name not in serving}
        case Retired(build=build):
            return {
                name: replace(each, kept=False) if each.event.build == build else each
                for name, each in retirements.items()
            }
        case _:
            return retirements
