"""Formats a comparison of two builds as text, as rows, and as the JSON of `-o json`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kappa.base.units import count_of, exact_number
from kappa.serving.query.render import Form, Listing, cell_text, json_value, render_listing
from kappa.state.journal.events import Check, Difference, OutcomeCount

if TYPE_CHECKING:
    # A history shows differences without the imports of a comparison.
    from kappa.replay.rollout.verify.diff import Comparison, RowSample, Sums
    from kappa.replay.rollout.verify.pairs import Pair


def difference_line(difference: Difference) -> str:
    """Formats a table's difference as one line.

    For example: `delays: 7,034 rows, 0 added, 0 removed, 412 changed (5.857 %): on_time 412`.
    """
    before, after = difference.rows_before, difference.rows_after
    if before is None:
        return f"{difference.table}: new, {count_of(after or 0, 'row')}"
    if after is None:
        return f"{difference.table}: gone, {count_of(before, 'row')}"
    parts = [
        count_of(before, "row")
        if before == after
        else f"{count_of(before, 'row')} before and {after:,} after"
    ]
    if difference.incomparable:
        return f"{difference.table}: {parts[0]}, not compared: {difference.incomparable}"
    parts += [
        f"{rows:,} {what}" + (f" ({100 * difference.share(rows):.4g} %)" if rows else "")
        for what, rows in _kind_counts(difference)
    ]
    if difference.unsettled:
        parts.append(f"{difference.unsettled:,} unsettled")
    parts += [f"column {column} is gone" for column in difference.columns_gone]
    parts += [f"column {column} is new" for column in difference.columns_new]
    parts += [
        f"column {column} is {now}, was {was}"
        for column, (was, now) in difference.columns_retyped.items()
    ]
    by_column = ", ".join(
        f"{column} {rows:,}" for column, rows in difference.changed_by_column.items()
    )
    return f"{difference.table}: {', '.join(parts)}{f': {by_column}' if by_column else ''}"


def differing_counts(counts: Iterable[OutcomeCount]) -> tuple[OutcomeCount, ...]:
    """Returns the counts whose values differ between the two builds."""
    return tuple(count for count in counts if count.before != count.after)


def count_line(count: OutcomeCount) -> str:
    """Formats the number of records of one kind in both builds as one line."""
    return f"{count.topic}: {count.what}: {count.before:,} before, {count.after:,} after"


def rejects_line(counts: Iterable[OutcomeCount]) -> str:
    """Formats the numbers of rejects of both builds as one line, or returns "" without rejects.

    For example: `rejects: 120 before, 3 after`.
    """
    rejected = [count for count in counts if count.what == "rejected"]
    before, after = sum(count.before for count in rejected), sum(count.after for count in rejected)
    return f"rejects: {before:,} before, {after:,} after" if before or after else ""


def diff_text(pair: Pair, found: Comparison, keys: Mapping[str, tuple[str, ...]]) -> str:
    """Formats the comparison for display. `keys` maps each table to its keys."""
    return "".join(f"{line}\n" for line in _diff_lines(pair, found, keys))


def diff_listing(found: Comparison) -> Listing:
    """Returns the comparison as a listing with a row per table."""
    columns = tuple(difference_document(Difference("", None, None)))
    return Listing(
        columns, tuple(tuple(difference_document(each).values()) for each in found.differences)
    )


def diff_document(pair: Pair, found: Comparison) -> dict[str, Any]:
    """Returns the comparison as a JSON document."""
    return {
        "before": {"build": pair.before.build, "frontier": pair.before.number},
        "after": {"build": pair.after.build, "frontier": pair.after.number},
        "offsets": pair.offsets.plain(),
        "aligned": pair.lease is not None,
        "incomparable_topics": found.incomparable_topics,
        "equal": all(difference.equal for difference in found.differences),
        "tables": [
            {
                **difference_document(each),
                "samples": [asdict(sample) for sample in found.samples[each.table]],
                "sums": found.sums.get(each.table, {}),
            }
            for each in found.differences
        ],
        "counts": [to_builtins(count) for count in found.counts],
    }


def difference_document(difference: Difference) -> dict[str, Any]:
    """Returns a table's difference as a JSON document."""
    shares = {
        f"{what}_share": difference.share(rows) if difference.compared else None
        for what, rows in _kind_counts(difference)
    }
    return {**to_builtins(difference), **shares}


def _kind_counts(difference: Difference) -> tuple[tuple[str, int], ...]:
    return (
        ("added", difference.added),
        ("removed", difference.removed),
        ("changed", difference.changed),
    )


def _diff_lines(
    pair: Pair, found: Comparison, keys: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    yield (
        f"before: build {pair.before.build}; after: build {pair.after.build}; both at "
        f"{pair.offsets}"
    )
    yield from (
        f"topic {topic} is not the same for both: rows from it are not comparable"
        for topic in found.incomparable_topics
    )
    for difference in found.differences:
        yield ""
        yield from table_lines(
            difference,
            found.samples[difference.table],
            keys.get(difference.table, ()),
            found.sums.get(difference.table, {}),
        )
    lines = [
        line
        for line in (rejects_line(found.counts), *map(count_line, differing_counts(found.counts)))
        if line
    ]
    if lines:
        yield ""
        yield from lines


def table_lines(
    difference: Difference,
    samples: Iterable[RowSample],
    keys: tuple[str, ...],
    sums: Mapping[str, Sums] | None = None,
) -> Iterator[str]:
    """Yields the lines that describe a table's difference, with samples of the differing rows.

    `keys` are the columns by which rows were matched. `sums` maps columns to their sums.
    """
    samples = tuple(samples)
    yield difference_line(difference)
    yield from (
        f"  largest change of {column}: {100 * change:.4g} % of the larger value"
        for column, change in difference.largest_relative_change.items()
    )
    yield from (
        f"  sum of {column}: {exact_number(before)} -> {exact_number(after)}"
        for column, (before, after) in (sums or {}).items()
    )
    for kind, rows in _kind_counts(difference):
        shown = [sample for sample in samples if sample.kind == kind]
        if shown:
            yield (
                f"  {kind}, {len(shown):,} of them:"
                if rows > sum(sample.times for sample in shown)
                else f"  {kind}:"
            )
            table = render_listing(Form.TABLE, _sample_listing(shown, keys))
            yield from (f"    {line}" for line in table.splitlines())


def _sample_listing(samples: list[RowSample], keys: tuple[str, ...]) -> Listing:
    """Returns sampled rows of one kind as a listing.

    For changed rows, the columns are the keys and each column that changed in some row. If a value
    has changed, its cell shows the values before and after.
    """
    sides = [(sample.before or {}, sample.after or {}) for sample in samples]
    if samples[0].kind != "changed":
        rows = [before or after for before, after in sides]
        repeated = any(sample.times > 1 for sample in samples)
        times = [(sample.times,) if repeated else () for sample in samples]
        return Listing(
            (*rows[0], *(("times",) if repeated else ())),
            tuple((*row.values(), *more) for row, more in zip(rows, times, strict=True)),
        )
    changed = {
        column
        for before, after in sides
        for column in after
        if not _is_same(before[column], after[column])
    }
    shown = [column for column in sides[0][1] if column in keys or column in changed]
    return Listing(
        tuple(shown),
        tuple(
            tuple(_change_text(before[column], after[column]) for column in shown)
            for before, after in sides
        ),
    )


def _change_text(before: object, after: object) -> str:
    return (
        cell_text(after)
        if _is_same(before, after)
        else f"{cell_text(before)} -> {cell_text(after)}"
    )


def _is_same(before: object, after: object) -> bool:
    # As documents, since NaN is not equal to NaN; and by type, since null is not the text null.
    return type(before) is type(after) and json_value(before) == json_value(after)


def check_text(check: Check) -> str:
    """Describes the result of a declared check, such as `3 of 120 rows fail`."""
    return (
        f"could not be run: {check.error}"
        if check.failing is None
        else f"{check.failing:,} of {count_of(check.rows, 'row')} fail"
        if check.failing
        else f"{count_of(check.rows, 'row')} pass"
    )
