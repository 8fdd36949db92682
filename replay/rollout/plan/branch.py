"""The beginning of a branch: new code that continues from the state of the serving build. Pure.

Use a branch for a change that affects only future records. The branch begins with copies of the
serving build's tables at the nearest kept frontier. The serving build's own code then folds the log
into the copies, up to the requested offsets. The new code must be able to continue from this state.
So the topics, tables, keys, folds and columns of the new code must be the same. This module only
computes where a branch begins; kappa/tables/branch.py creates the copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kappa.base.errors import UsageError
from kappa.code.fingerprint import SEMANTICS, declaration_lines, has_identity
from kappa.declare.topic_options import TopicKind
from kappa.records.tombstones import may_be_missed
from kappa.replay.rollout.plan.facts import Declared, LogFacts
from kappa.replay.rollout.plan.finding import Finding
from kappa.state.build import Base, Birth
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets, lost_ranges
from kappa.state.table import TableBirth

_HINT = "from the log's beginning it can be built: kappa deploy {}"


@dataclass(frozen=True, slots=True)
class Branching:
    """A request for a branch: the offsets at which the branch should begin.

    If `offsets` is None, the branch begins at the serving build's newest offsets. `now` is the time
    of the request.
    """

    offsets: Offsets | None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Branch:
    """The beginning of a branch: its base, and the frontier whose tables are copied.

    `start` contains the offsets of `frontier`. If the branch begins with empty tables, `frontier`
    is None, and `start` contains the offsets at which the serving build began. `at` is the time of
    the request.
    """

    base: Base
    start: Offsets
    frontier: Frontier | None
    at: datetime


def branch_of(born: Birth, shown: Sequence[Frontier], asked: Branching) -> Branch:
    """Returns the beginning of the branch that `asked` requests.

    `born` is the serving build's birth certificate, and `shown` are the build's frontiers that
    still exist, oldest first. Raises UsageError if the build was never at the requested offsets, or
    if its state at these offsets no longer exists.
    """
    if not shown:
        raise UsageError(
            f"build {born.build} has no frontier, so there is nothing to branch from",
            hint=_HINT.format(born.pipeline),
        )
    newest = shown[-1]
    at = newest.offsets if asked.offsets is None else asked.offsets
    for topic, partition, _ in at.items():
        if partition not in newest.offsets.next.get(topic, {}):
            raise UsageError(
                f"build {born.build} reads no {topic} partition {partition}",
                hint=f"it is at {newest.offsets}",
            )
    unnamed = [
        f"{topic} partition {partition}"
        for topic, partition, _ in newest.offsets.items()
        if partition not in at.next.get(topic, {})
    ]
    if unnamed:
        raise UsageError(
            f"--from names no offset of {unnamed[0]}",
            hint=f"name every partition, or say now; build {born.build} is at {newest.offsets}",
        )
    if not newest.offsets.covers(at):
        raise UsageError(
            f"build {born.build} has not folded up to {at}",
            hint=f"it is at {newest.offsets}, where a branch begins that is asked for --from now",
        )
    if not at.covers(born.begins):
        raise UsageError(
            f"{at} is before the beginning of build {born.build}, at {born.begins}",
            hint=_HINT.format(born.pipeline),
        )
    before = [
        each for each in shown if at.covers(each.offsets) and each.offsets.covers(born.begins)
    ]
    if not before and born.base is not None:
        raise UsageError(
            f"what build {born.build} held where it begins, at {born.begins}, is not kept",
            hint=_HINT.format(born.pipeline),
        )
    frontier = before[-1] if before else None
    start = born.origin_offsets if frontier is None else frontier.offsets
    return Branch(
        Base(
            born.build,
            born.version,
            at.plain(),
            None if frontier is None else frontier.number,
            start.plain(),
        ),
        start,
        frontier,
        asked.now,
    )


def branch_refusals(
    born: Birth, declared: Declared, branch: Branch, log: LogFacts
) -> Iterator[Finding]:
    """Yields the reasons why new code cannot continue from a build's state.

    `born` is the build's birth certificate. The operator cannot allow these findings.
    """
    hint = _HINT.format(born.pipeline)

    def refused(why: str) -> Finding:
        return Finding(f"a branch of build {born.build} cannot be made: {why}", hint)

    if born.semantics != SEMANTICS:
        yield refused(
            f"it was folded by Kappa's rules number {born.semantics}, and they are number "
            f"{SEMANTICS} now"
        )
    kinds, there = (
        {topic.name: topic.kind for topic in born.topics},
        {topic.name: str(topic.kind) for topic in declared.pipeline.topics},
    )
    for name in sorted(kinds.keys() | there.keys()):
        if kinds.get(name) != there.get(name):
            yield refused(
                f"topic {name} was {kinds.get(name, 'not read')}, and is "
                f"{there.get(name, 'not read')} now"
            )
    tables, now = (
        {table.name: table for table in born.tables},
        {table.name: table for table in declared.tables},
    )
    for name in sorted(tables.keys() | now.keys()):
        if name not in tables or name not in now:
            how = "is new" if name not in tables else "is gone"
            yield refused(f"{_table_kind({**tables, **now}[name])} {name} {how}")
        else:
            yield from (
                refused(
                    f"the {what} of {_table_kind(now[name])} {name} changed:"
                    f" {before or 'none'} to {after or 'none'}"
                )
                for what, before, after in _state_changes(tables[name], now[name])
            )
    lines = declaration_lines(declared.pipeline)
    for topic in declared.pipeline.topics:
        part = f"topic {topic.name}"
        remembers = has_identity(lines[part]) or has_identity(born.declarations.get(part, ""))
        if remembers and lines[part] != born.declarations.get(part):
            yield refused(
                f"{part} has an identity, and another declaration now: what was a "
                "duplicate before cannot be told by it"
            )
        lost = lost_ranges(
            (born.origin_offsets if remembers else branch.start).only({topic.name}),
            log.beginning.only({topic.name}),
        )
        if topic.kind is TopicKind.COMPACTED and branch.frontier is not None:
            missed = may_be_missed(
                topic.name, branch.frontier.heard_time, log.configs.get(topic.name), branch.at
            )
            if missed is not None:
                yield refused(missed)
        if lost:
            why = ", and what is remembered of identities follows from all of it"
            yield refused(f"{', '.join(lost)}{why if remembers else ''}")


def _table_kind(table: TableBirth) -> str:
    return "table" if table.view is None else "view"


def _state_changes(before: TableBirth, after: TableBirth) -> Iterator[tuple[str, str, str]]:
    """Yields the differences between two declarations of a table that affect its stored state.

    A difference is (aspect, before, after).
    """
    compared = (
        ("keys", ", ".join(before.keys), ", ".join(after.keys)),
        ("topic", before.latest or "", after.latest or ""),
        ("file", (before.file or "")[:12], (after.file or "")[:12]),
        # Expired rows and refused records are not in the state any more.
        ("expiry", str(before.expiry or ""), str(after.expiry or "")),
        # A branch may have no slice in which to compute the view.
        ("query", _query_line(before.view), _query_line(after.view)),
        *(
            (f"fold of {column}", _fold_text(before, column), _fold_text(after, column))
            for column in sorted(before.fold.keys() | after.fold.keys())
        ),
        # An older build has no record of sketched types.
        *(
            (f"type of what {column} counts", of, after.sketched.get(column, ""))
            for column, of in before.sketched.items()
        ),
        *(
            (
                f"column {name}",
                dict(before.columns).get(name, ""),
                dict(after.columns).get(name, ""),
            )
            for name in dict((*before.columns, *after.columns))
        ),
    )
    yield from (change for change in compared if change[1] != change[2])


def _query_line(query: str | None) -> str:
    """Returns a maintained view's query in one line, or "" if the table is not a view."""
    return "" if query is None else " ".join(query.split())


def _fold_text(table: TableBirth, column: str) -> str:
    if column not in table.fold:
        return ""
    kind, taken = table.fold[column]
    options = [f"{name}={value}" for name, value in sorted(table.options.get(column, {}).items())]
    return f"{kind}({', '.join([*([taken] if taken else []), *options])})"
