"""Formats a proof as text for display, as rows, and as the JSON of `-o json`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kappa.base.units import count_of
from kappa.declare.options import REJECTS
from kappa.replay.rollout.prove.row_hash import tolerance_text
from kappa.replay.rollout.verify.diff_listing import (
    count_line,
    difference_document,
    differing_counts,
    table_lines,
)
from kappa.replay.rollout.verify.view_texts import unlike_text
from kappa.serving.query.render import Listing
from kappa.state.journal.events import Proved
from kappa.state.journal.journal import JournalRecord, as_document

if TYPE_CHECKING:
    # A history shows proofs without the imports of a comparison.
    from kappa.replay.rollout.prove.prove import Proof


def proof_line(found: Proved) -> str:
    """Formats the result of a proof as one line.

    For example: `proved: 3 tables, 1,203,441 rows, equal at offsets hits:0=120`.
    """
    tables = [each for each in found.differences if each.table != REJECTS]
    rejects = sum(each.rows_before or 0 for each in found.differences if each.table == REJECTS)
    also = f" and {count_of(rejects, 'reject')}" if rejects else ""
    base = "" if found.base is None else ", what its base held among them"
    counted = (
        f"{count_of(len(tables), 'table')}, {count_of(found.rows - rejects, 'row')}{also}{base}"
    )
    return (
        f"proved: {counted}, equal at offsets {found.offsets}"
        if found.equal
        else f"not equal: {counted}, at offsets {found.offsets}"
    )


def cut_line(found: Proved) -> str:
    """Describes how a proof cut the log, with the flag that repeats the same cuts.

    For a branch, the text also names the branch's base.
    """
    return _cut_text(found) if found.base is None else f"{_cut_text(found)}, of {found.base}"


def _cut_text(found: Proved) -> str:
    match found.how:
        case "one":
            return "in one slice, read and computed by Spark as a batch job"
        case "even":
            return f"in {found.slices:,} even slices"
        case "random":
            return f"in {found.slices:,} random slices (--seed {found.seed})"


def proof_text(proof: Proof) -> str:
    """Formats a proof for display: its result, hash and cuts, and any differences."""
    return "".join(f"{line}\n" for line in _proof_lines(proof))


def proof_listing(proof: Proof) -> Listing:
    """Returns the proof as a listing with a row per table."""
    rows = [
        {**difference_document(each.difference), "hash": each.hashes[0], "equal": each.equal}
        for each in proof.tables
    ]
    return Listing(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def proof_document(proof: Proof) -> dict[str, Any]:
    """Returns a proof as a JSON document: the journal record, and a comparison per table."""
    found = proof.proved
    return {
        **record_document(proof.record, found),
        "version": proof.birth.version,
        "tables": [
            {
                **difference_document(each.difference),
                "equal": each.equal,
                "hash": each.hashes[0],
                "hash_again": each.hashes[1],
                "samples": [asdict(sample) for sample in each.samples],
            }
            for each in proof.tables
        ],
    }


def record_document(record: JournalRecord, found: Proved) -> dict[str, Any]:
    """Returns the journal record of a proof as a JSON document."""
    fields = {
        name: value
        for name, value in as_document(record)["event"].items()
        if name not in {"kind", "differences", "offsets"}
    }
    return {
        "number": record.number,
        "at": record.at,
        "by": record.by,
        **fields,
        "offsets": found.offsets.plain(),
    }


def view_lines(found: Proved) -> Iterator[str]:
    """Yields lines about maintained views: equal views first, then views that differ.

    A view is equal if its stored rows equal the result of its query.
    """
    if equal := [view.table for view in found.views if view.passed]:
        are = "view is its query" if len(equal) == 1 else "views are their queries"
        yield f"{len(equal)} maintained {are} over the tables: {', '.join(equal)}"
    yield from (unlike_text(view) for view in found.views if not view.passed)


def _proof_lines(proof: Proof) -> Iterator[str]:
    found = proof.proved
    yield proof_line(found)
    yield f"build {found.build} (version {proof.birth.version}), folded again {cut_line(found)}"
    yield f"hash {found.hash}"
    yield from view_lines(found)
    yield from (
        f"not in the hash: {column} is {why}, and equal within {tolerance_text(why)}"
        for column, why in found.left_out.items()
    )
    yield from (
        f"set aside: {count_of(each.unsettled, 'row')} of {each.table}, which compaction decides"
        for each in found.differences
        if each.unsettled
    )
    if found.equal:
        return
    keys = {table.name: table.keys for table in proof.birth.tables}
    yield "before: what serves; after: what the log gives again"
    for table in proof.tables:
        if not table.equal:
            yield ""
            yield from table_lines(table.difference, table.samples, keys[table.difference.table])
    moved = differing_counts(found.counts)
    yield from ["", *map(count_line, moved)] if moved else []
    yield ""
    yield from (f"likely cause: {cause}" for cause in found.causes)
