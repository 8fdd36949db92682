"""The limit on the number of records that a candidate may reject. Pure.

The `max_rejects` of a pipeline is a number of records, or a share of the records that are read. The
limit is part of the birth certificate but not of the version. So a change of the limit needs no
replay, and applies from the next build on. A candidate is stopped as soon as it is certain to
exceed the limit, and is not verified. A serving build that exceeds the limit continues, since stale
tables are worse, and `kappa status` shows a warning. kappa/engine/job/bounded_legs.py and
replay/rollout/verify/verify.py apply the limit. If no limit is declared, a candidate fails its
verification if its function fails on more than 1 % of the records, and on more records than the
function of the live build.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.base.units import count_of
from kappa.declare.options import option_text
from kappa.declare.values.tally import Tally

MaxRejects: TypeAlias = int | float | None
_FAILING_SHARE = 0.01


def check_max_rejects(source: Source, pipeline: str, limit: object) -> None:
    """Raises DeclarationError if `limit` is not a valid value of `max_rejects`.

    Valid are None, a number of records, and a share of the records.
    """
    whole = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    if limit is None or whole or (isinstance(limit, float) and 0 <= limit <= 1):
        return
    raise DeclarationError(
        f"{source}: pipeline {pipeline} has max_rejects={option_text(limit)}, "
        "which is neither a number of records nor a share of them",
        hint=(
            "a whole number is a count of records, max_rejects=100; "
            "one with a point is a share, max_rejects=0.01 is 1 %"
        ),
    )


def rejected_of(tallies: Mapping[str, Mapping[int, Tally]]) -> tuple[int, int]:
    """Returns the number of rejected records, and the number of all records read.

    `tallies` maps each topic and partition to the counts of the partition's offsets by outcome.
    Offsets without a record do not count.
    """
    every = [tally for parts in tallies.values() for tally in parts.values()]
    rejected = sum(tally.rejected for tally in every)
    return rejected, rejected + sum(
        tally.decoded + tally.duplicate + tally.tombstone for tally in every
    )


def is_beyond(limit: MaxRejects, rejected: int, records: int) -> bool:
    """Returns True if `rejected` of `records` records are more than `limit` allows."""
    return limit is not None and rejected > (limit if isinstance(limit, int) else limit * records)


def beyond_text(limit: MaxRejects, rejected: int, records: int) -> str:
    """Returns the message for a candidate that has exceeded its limit, with the counts.

    For instance: `rejected 120 of 2,300 records (5.217 %), and max_rejects is 1 %`.
    """
    share = f" ({100 * rejected / records:.4g} %)" if records else ""
    allowed = f"{100 * limit:.4g} %" if isinstance(limit, float) else f"{limit:,}"
    return (
        f"rejected {rejected:,} of {count_of(records, 'record')}{share}, and max_rejects is "
        f"{allowed}"
    )


def fails_on_more(failing: int, before: int, records: int) -> str:
    """Returns the reason why a candidate without a limit fails its verification, or "".

    The candidate fails if its function fails on more than 1 % of the records, and on more records
    than the function of the live build. `failing` is the number of records on which the candidate's
    function fails, `before` the number for the live build's function, and `records` the number of
    all records. The result is "" if the candidate does not fail.
    """
    if failing <= max(before, _FAILING_SHARE * records):
        return ""
    return (
        f"its function fails on {failing:,} of {count_of(records, 'record')} "
        f"({100 * failing / records:.4g} %), where that of what serves "
        f"fails on {before:,}; if that is meant, declare max_rejects"
    )


def remedy_text(pipeline: str) -> str:
    """Returns advice on how to proceed after a candidate has exceeded the limit."""
    return (
        f"fix the producer, or the declaration of the events, and type kappa deploy {pipeline}; "
        "or allow more: @pipeline(..., max_rejects=...)"
    )
