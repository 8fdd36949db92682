"""The numbers of rollouts: the n-th record that begins one begins rollout n. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from kappa.state.journal.events import Staged, SwitchAsked
from kappa.state.journal.journal import JournalRecord


def rollout_id(record: JournalRecord) -> int | None:
    """Returns the number of the record that began this record's rollout. None: it has none."""
    if isinstance(record.event, Staged | SwitchAsked):
        return record.number
    id_: int | None = getattr(record.event, "rollout", None)
    return id_


def begun_after(begun: tuple[int, ...], record: JournalRecord) -> tuple[int, ...]:
    """Lists the records that begin a rollout, after one more; `begun` are those before it."""
    return (*begun, record.number) if isinstance(record.event, Staged | SwitchAsked) else begun


def rollout_number(record: JournalRecord, begun: Sequence[int]) -> int | None:
    """Returns the number, 1, 2, 3, of a record's rollout; `begun` are all beginnings up to it."""
    id_ = rollout_id(record)
    return None if id_ is None else bisect_right(begun, id_)
