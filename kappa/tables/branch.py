"""Begins a build where another one stood: with its tables at one of its frontiers, and all that they tell of the log up to there.

What is kept afterwards is the frontier at which the build's own code begins: a proof of it starts there (law 15). Read next:
kappa/tables/delta.py, which makes the tables; replay/plan/branch.py, which decides where a branch may begin. What is remembered of identities
is not taken along: it follows from the log (engine/read/identities.py).
"""

from __future__ import annotations

from dataclasses import replace

from kappa.base.clock import now
from kappa.base.errors import Broken, Damaged
from kappa.state.build import Birth, read_birth, recent_names, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept import Kept, kept_of, put_kept, with_newest
from kappa.state.mark import origin_mark
from kappa.state.store import Store
from kappa.tables.delta import adopt

_REPLAY = "kappa replay makes a new build from the log's beginning"


def begin_from(into: Store, birth: Birth, source: Store, frontier: Frontier) -> None:
    """Makes a build's tables, below `into`, as another's were at a frontier that is kept meanwhile, and publishes its first frontier.

    Nobody else may know of the build yet. Raises Damaged where the other's tables are not there (any more).
    """
    mark = replace(
        origin_mark(birth.build, frontier.offsets), log_time=frontier.log_time, tally=frontier.tally
    )
    versions = {
        name: adopt(
            table_path(into, birth.build, name),
            table_path(source, frontier.build, name),
            frontier.versions[name],
            mark.of_table(table.name),
        )
        for table in birth.tables
        for name in (table.name, *recent_names(table.name))
        if name in frontier.versions
    }
    first = Frontier(
        1,
        birth.build,
        1,
        frontier.offsets,
        versions,
        now(),
        log_time=frontier.log_time,
        tally=frontier.tally,
        heard_at=frontier.heard,
    )
    Frontiers(into, birth.build).publish(first)


def keep_base(store: Store, birth: Birth, newest: Frontier) -> None:
    """Keeps the frontier at which a branch's own code begins, for as long as the build is, where that is the newest one and none is kept yet."""
    if (
        birth.base is None
        or not newest.offsets.equals(birth.begins)
        or any(each.frontier.offsets.equals(birth.begins) for each in kept_of(store, birth.build))
    ):
        return
    # Readers never saw it: it is the answer to no time.
    put_kept(store, Kept(newest, stays=True, until=newest.published_at))


def shown_of(store: Store, build: str) -> tuple[Frontier, ...]:
    """The frontiers of a build that are there to begin a branch with, the newest last."""
    # The newest first: one that is published in between is kept, if at all, before the next one is.
    newest = Frontiers(store, build).newest()
    return tuple(each.frontier for each in with_newest(kept_of(store, build), newest))


def stands_before_base(store: Store, build: str) -> bool:
    """True where a build is a branch whose tables are not yet where its own code begins; what cannot be read is its job's to say."""
    try:
        birth, newest = read_birth(store, build), Frontiers(store, build).newest()
    except Damaged:
        return False
    return birth.base is not None and not (
        birth.origin_offsets if newest is None else newest.offsets
    ).covers(birth.begins)


def base_frontier(store: Store, birth: Birth) -> Frontier:
    """The frontier that `keep_base` keeps. Raises Broken where there is none: the branch has not come to its base."""
    found = next(
        (
            each.frontier
            for each in kept_of(store, birth.build)
            if each.frontier.offsets.equals(birth.begins)
        ),
        None,
    )
    if found is None:
        raise Broken(
            f"build {birth.build} has not come to where its branch begins, at {birth.begins}",
            hint=_REPLAY,
        )
    return found
