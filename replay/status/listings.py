"""Formats history, topics, garbage and rejects as listings, that is, rows under columns.

All listings are pure, except for the listing of topics, which sends requests to the broker.
`reject_text` formats one reject in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kappa.replay.rollout.history import (
    ProofRecord,
    RolloutEntry,
    ServiceRecord,
    redrive_text,
)
from kappa.replay.rollout.prove.proof_text import cut_line, proof_line, record_document
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.state import State
from kappa.serving.query.render import Listing, cell_text
from kappa.state.journal.events import PipelineRetired, RedriveAsked

if TYPE_CHECKING:
    from kappa.declare.topic import Topic
    from kappa.kafka.client import Log
    from kappa.replay.rollout.garbage import Garbage
    from kappa.serving.query.rejects import Reject
    from kappa.state.build import TopicBirth


def history_listing(
    chapters: tuple[RolloutEntry, ...],
    proofs: tuple[ProofRecord, ...] = (),
    service: tuple[ServiceRecord, ...] = (),
    *,
    pipeline: str | None = None,
    limit: int | None = None,
) -> Listing:
    """Returns a listing with a row per rollout, proof, retirement and pause, oldest first.

    Full receipts and proofs are only in JSON and CSV. If `pipeline` is given, only the rows of that
    pipeline are listed. `limit` is the maximum number of rows; the newest rows are kept.
    """
    machines = (
        *("served_at", "live_build", "live_offsets", "candidate_offsets"),
        *("checks", "differences", "hint", "accepted", "proof"),
    )
    columns = (
        *("rollout", "generation", "at", "by", "pipeline", "build", "version"),
        *("what", "state", "why", *machines),
    )
    rows = [
        *((chapter.rollout.id, _chapter_row(chapter)) for chapter in chapters),
        *((each.record.number, _proof_row(each)) for each in proofs),
        *((each.record.number, _service_row(each)) for each in service),
    ]
    of = columns.index("pipeline")
    ordered = tuple(
        row for _, row in sorted(rows, key=itemgetter(0)) if pipeline in {None, row[of]}
    )[-limit if limit else None :]
    return Listing(
        columns,
        ordered,
        wide=frozenset(machines),
        is_report=True,
        least=("version", "by", "build", "what"),
        times=frozenset({"at"}),
        empty="nothing was deployed yet: kappa deploy",
    )


def rollouts_listing(state: State, ids: Iterable[int]) -> Listing:
    """Returns a listing with a row for each rollout that a command has begun or changed.

    Commands such as `kappa deploy` print the listing with `-o json`. `generation` is null before
    the rollout serves. `state` is the phase; a rollout that is "ready" waits for an approval.
    """
    rows = []
    for id_ in dict.fromkeys(ids):
        rollout = state.rollout(id_)
        verified = rollout.verified
        rows.append(
            (
                *(rollout.pipeline, rollout.number, rollout.build, rollout.version),
                RolloutEntry(rollout, state.served_in(id_)).generation,
                str(rollout.phase),
                None if verified is None else verified.verdict,
                *(list(rollout.given_reasons), rollout.reason, rollout.hint),
            )
        )
    columns = (
        *("pipeline", "rollout", "build", "version", "generation", "state"),
        *("verdict", "given_reasons", "reason", "hint"),
    )
    return Listing(columns, tuple(rows), is_report=True)


def retirement_listing(state: State, pipeline: str) -> Listing:
    """Returns a listing with one row about a retired pipeline.

    `kappa retire` prints the listing with `-o json`.
    """
    record = next(
        each
        for each in reversed(state.service)
        if isinstance(each.event, PipelineRetired) and each.event.pipeline == pipeline
    )
    retired = record.event
    assert isinstance(retired, PipelineRetired)
    retirement = state.retirements[pipeline]
    columns = (
        *("pipeline", "rollout", "build", "version", "generation", "state"),
        *("given_reasons", "tables", "kept_until"),
    )
    row = (
        *(pipeline, None, retired.build, state.versions[retired.build], retired.generation),
        *("retired", [record.reason] if record.reason else [], list(retired.names)),
        retirement.kept_until,
    )
    return Listing(columns, (row,), is_report=True)


def topics_listing(log: Log, declared: Mapping[str, Topic] | Mapping[str, TopicBirth]) -> Listing:
    """Returns a listing with a row per topic that is on the broker or declared.

    `declared` contains the topics that the project or a build declares.
    """
    found = log.topics()
    begin, end = log.beginning(found), log.end(found)
    rows = []
    for name in sorted({*found, *declared}):
        topic, facts = declared.get(name), found.get(name)
        known = (
            (facts.partitions, end.only({name}).distance(begin), facts.id)
            if facts is not None
            else (None, None, None)
        )
        rows.append(
            (
                name,
                None if topic is None else topic.kind,
                topic is not None,
                facts is not None,
                *known,
            )
        )
    return Listing(
        ("topic", "kind", "declared", "on_broker", "partitions", "records", "id"),
        tuple(rows),
        wide=frozenset({"id"}),
        is_report=True,
        empty="no topic is declared, and none is on the broker",
    )


def gc_listing(found: tuple[Garbage, ...], *, done: bool) -> Listing:
    """Returns a listing with a row per build and kind of garbage.

    `done` is True if the garbage has been deleted, and False after a dry run.
    """
    rows = (
        (
            each.build,
            str(each.what) if each.what else "",
            each.count,
            each.bytes,
            each.left or ("deleted" if done else "would be deleted"),
        )
        for each in found
    )
    return Listing(
        ("build", "what", "count", "bytes", "note"),
        tuple(rows),
        is_report=True,
        empty="nothing to delete",
    )


def rejects_listing(found: Iterable[Reject]) -> Listing:
    """Returns a listing with a row per reject.

    Some columns are only in JSON and CSV; `kappa rejects show` displays them.
    """
    machines = ("redrives", "headers", "build")
    columns = (
        *("pipeline", "topic", "partition", "offset", "timestamp", "reason", "detail"),
        *("key", "value", "redriven_offset", *machines),
    )
    rows = tuple(_reject_row(each) for each in found)
    times = frozenset({"timestamp"})
    return Listing(columns, rows, wide=frozenset(machines), times=times, empty="no rejects")


def reject_text(reject: Reject) -> str:
    """Formats a reject in full for display, with one fact per line.

    Bytes are shown as text if they are valid UTF-8, otherwise as hexadecimal digits.
    """
    original = reject.original.position
    facts = [
        ("place", str(reject.at)),
        ("timestamp", cell_text(reject.timestamp)),
        ("pipeline", reject.pipeline),
        ("build", reject.build),
        ("reason", reject.reason),
        ("detail", cell_text(reject.detail)),
        *([("redrives", str(original))] if original != reject.at else []),
        *(
            [
                (
                    "redriven",
                    f"folded at {reject.at.topic}:{reject.at.partition}:{reject.redriven_at}",
                )
            ]
            if reject.redriven_at is not None
            else []
        ),
        ("key", _bytes_text(reject.key)),
        *(("header", f"{cell_text(name)}: {_bytes_text(value)}") for name, value in reject.headers),
        ("value", _bytes_text(reject.value)),
    ]
    return "".join(f"{name:<10} {text}\n" for name, text in facts)


def _chapter_row(chapter: RolloutEntry) -> tuple[Any, ...]:
    rollout, receipt, served = chapter.rollout, chapter.receipt, chapter.served
    base = rollout.base or (None if receipt is None else receipt.base)
    checks = () if rollout.verified is None else rollout.verified.checks
    differences = () if rollout.verified is None else rollout.verified.differences
    return (
        *(rollout.number, chapter.generation, rollout.at, rollout.by),
        *(rollout.pipeline, rollout.build, rollout.version),
        *(_table_origin(rollout), str(rollout.phase)),
        "; ".join(
            [
                *rollout.given_reasons,
                *rollout.reasons,
                *([] if base is None else [str(base)]),
                *([rollout.reason] if rollout.reason else []),
                *(f"accepted {each}" for each in rollout.accepted),
            ]
        ),
        None if served is None else served.at,
        None if receipt is None else receipt.live_build,
        None if receipt is None or receipt.live_offsets is None else receipt.live_offsets.plain(),
        None if receipt is None else receipt.candidate_offsets.plain(),
        [{**to_builtins(check), "passed": check.passed} for check in checks],
        [to_builtins(difference) for difference in differences],
        *(rollout.hint, rollout.accepted, None),
    )


def _table_origin(rollout: Rollout) -> str:
    """Returns how a rollout's build got its tables.

    The result is `undo`, `redo`, `switch`, `overlay`, `replay` or `branch`.
    """
    if rollout.switch:
        # A deploy of a kept version is a switch, too.
        return next((each for each in rollout.reasons if each in {"undo", "redo"}), "switch")
    if rollout.tables_of is not None:
        return "overlay"
    return "replay" if rollout.base is None else "branch"


def _service_row(kept: ServiceRecord) -> tuple[Any, ...]:
    record, event = kept.record, kept.event
    retired = event if isinstance(event, PipelineRetired) else None
    if isinstance(event, RedriveAsked):
        what, done = "redrive", "asked"
    else:
        # As in the plan: retire, pause, resume.
        what = "retire" if retired is not None else event.kind.removesuffix("d")
        done = f"{what}d"
    return (
        *(None, None if retired is None else retired.generation),
        *(record.at, record.by, event.pipeline),
        None if retired is None else retired.build,
        *(kept.version, what, done),
        "; ".join(
            [
                *([record.reason] if record.reason else []),
                *([] if retired is None else [f"{', '.join(retired.names)} left"]),
                *([redrive_text(event)] if isinstance(event, RedriveAsked) else []),
            ]
        ),
        *(*(None,) * 4, (), (), "", (), None),
    )


def _proof_row(kept: ProofRecord) -> tuple[Any, ...]:
    record, found = kept.record, kept.found
    return (
        *(None, None, record.at, record.by),
        *(found.pipeline, found.build, kept.version, "proof"),
        "proved" if found.equal else "not equal",
        "; ".join([f"{proof_line(found)}, {cut_line(found)}, hash {found.hash}", *found.causes]),
        *(*(None,) * 4, ()),
        [to_builtins(difference) for difference in found.differences],
        *("", ()),
        record_document(record, found),
    )


def _reject_row(reject: Reject) -> tuple[Any, ...]:
    at, original = reject.at, reject.original.position
    headers = [{"name": name, "value": value} for name, value in reject.headers]
    place = (reject.pipeline, at.topic, at.partition, at.offset, reject.timestamp)
    return (
        *(*place, reject.reason, reject.detail),
        *(reject.key, reject.value, reject.redriven_at),
        None if original == at else original.offset,
        headers,
        reject.build,
    )


def _bytes_text(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return cell_text(value.decode())
    except UnicodeDecodeError:
        return f"hex {value.hex()}"
