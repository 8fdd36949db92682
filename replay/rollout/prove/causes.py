"""Likely causes of a difference that a proof has found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kappa.code.code_snapshot import load_with_place, snapshot_sources
from kappa.replay.rollout.plan.declared import doubts
from kappa.replay.rollout.prove.equality import Compared
from kappa.replay.rollout.prove.row_hash import within
from kappa.state.build import Birth
from kappa.state.journal.events import Check
from kappa.state.store import Store

_SHOWN_LIBRARIES = 3
_CODE = re.compile(r"\S+\.py:\d+ uses ")


def likely_causes(
    found: Iterable[str],
    libraries: tuple[str, ...],
    tables: Iterable[Compared],
    views: Iterable[Check] = (),
) -> Iterator[str]:
    """Yields what may explain that tables differ, likeliest first. Pure.

    These are what the lint finds in the code, libraries, and the order of additions.
    """
    causes = list(found)
    if libraries:
        more = (
            f" and {len(libraries) - _SHOWN_LIBRARIES} more"
            if len(libraries) > _SHOWN_LIBRARIES
            else ""
        )
        causes.append(
            "libraries are others than at the build's birth: "
            f"{', '.join(libraries[:_SHOWN_LIBRARIES])}{more}"
        )
    for table in tables:
        causes += [
            f"{table.difference.table}.{column} is {why}, and differs by more than {within(why)}"
            for column, why in table.left_out.items()
            if column in table.difference.changed_by_column
        ]
    causes += [
        f"view {view.table} is kept by a query that does not mean what its text means:"
        " kappa replay computes the view whole"
        for view in views
        if view.failing
    ]
    yield from causes or [
        (
            "nothing in the code explains it: other rows were written to the tables than their "
            "job's, or Kappa has folded wrongly"
        )
    ]


def doubts_of(store: Store, birth: Birth) -> tuple[str, ...]:
    """Returns what the lint finds in a build's code, and what Spark found and was let through."""
    place, pipeline = load_with_place(store, birth)
    found = [each.message for each in doubts(pipeline, place, snapshot_sources(store, birth).find)]
    return (
        *found,
        *(
            each
            for each in birth.accepted
            if _CODE.match(each) and not any(each.startswith(message) for message in found)
        ),
    )
