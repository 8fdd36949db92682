"""Status, history and collection as rows under columns, and as the documents that `-o json` promises. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from replay.prove.proof_text import cut_line, proof_line, record_document
from replay.rollout.history import Chapter, ProofRecord
from replay.rollout.rollout import Phase
from serving.query.render import Listing, cell

if TYPE_CHECKING:
    # Each comes with what it takes to ask a broker, to run jobs; a history is told without.
    from kappa.declare.topic import Topic
    from kappa.log.client import Log
    from kappa.state.build import TopicBirth
    from replay.look.running import Running
    from replay.look.status import BuildStatus, Status
    from replay.retire.garbage import Garbage
    from serving.rejects.rejects import Reject

_SHOWN_LIBRARIES = 3


def status_listing(status: Status, now: datetime) -> Listing:
    """A row per wanted build."""
    machines = (
        "phase",
        "total",
        "offsets",
        "kept_until",
        "waits_for",
        "rate",
        "eta_seconds",
        "trouble",
        "verdict",
        "checks",
        "libraries",
        "late",
        "duplicate",
        "broken",
    )
    columns = (
        "pipeline",
        "role",
        "build",
        "version",
        "state",
        "folded",
        "behind",
        "age_seconds",
        "rejected",
        *machines,
        "note",
    )
    return Listing(
        columns, tuple(_build_row(build, now) for build in status.builds), wide=frozenset(machines)
    )


def status_document(
    status: Status, running: Running | None, broker: str | None, now: datetime
) -> dict[str, Any]:
    """All of it: what runs, the generation, and a row per wanted build."""
    return {
        "generation": status.generation,
        "supervisor": None if running is None else {"pid": running.pid, "started": running.started},
        "broker": {"bootstrap_servers": broker, "error": status.broker_error or None},
        "builds": status_listing(status, now).objects(),
    }


def status_heading(status: Status, running: Running | None, broker: str | None) -> str:
    """What runs, in a line each, and loudly which builds have rejected too much."""
    supervisor = (
        "kappa is not up: kappa up -d starts it"
        if running is None
        else f"kappa is up: process {running.pid} since {running.started}"
    )
    kafka = status.broker_error or (
        "no broker is known" if broker is None else f"Kafka at {broker}"
    )
    served = (
        f"generation {status.generation}"
        if status.generation
        else "nothing is served yet: kappa deploy"
    )
    loud = "".join(
        f"WARNING: pipeline {each.pipeline}: build {each.build} ({each.role}) has {each.beyond}: kappa rejects list --build {each.build}\n"
        for each in status.builds
        if each.beyond
    )
    loud += "".join(
        f"WARNING: {why}: all else is served; mend it and deploy again\n"
        for each in status.builds
        for why in each.broken
    )
    return f"{supervisor}\n{kafka}\n{served}\n{loud}"


def history_listing(chapters: tuple[Chapter, ...], proofs: tuple[ProofRecord, ...] = ()) -> Listing:
    """A row per rollout and per proof, oldest first; receipts and proofs in full are for machines."""
    columns = (
        "rollout",
        "generation",
        "at",
        "by",
        "pipeline",
        "build",
        "version",
        "what",
        "state",
        "why",
        "served_at",
        "live_build",
        "live_offsets",
        "candidate_offsets",
        "checks",
        "differences",
        "hint",
        "accepted",
        "proof",
    )
    wide = frozenset(
        {
            "served_at",
            "live_build",
            "live_offsets",
            "candidate_offsets",
            "checks",
            "differences",
            "hint",
            "accepted",
            "proof",
        }
    )
    rows = [(chapter.rollout.number, _chapter_row(chapter)) for chapter in chapters] + [
        (each.record.number, _proof_row(each)) for each in proofs
    ]
    return Listing(columns, tuple(row for _, row in sorted(rows, key=itemgetter(0))), wide=wide)


def rejects_listing(found: Iterable[Reject]) -> Listing:
    """A row per reject; the table leaves out what `kappa rejects show` has."""
    columns = (
        "pipeline",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "reason",
        "detail",
        "key",
        "value",
        "redriven_at",
        "redrives",
        "headers",
        "build",
    )
    return Listing(
        columns,
        tuple(_reject_row(each) for each in found),
        wide=frozenset({"redrives", "headers", "build"}),
    )


def _reject_row(reject: Reject) -> tuple[Any, ...]:
    at, original = reject.at, reject.original.position
    headers = [{"name": name, "value": value} for name, value in reject.headers]
    place = (reject.pipeline, at.topic, at.partition, at.offset, reject.timestamp)
    return (
        *place,
        reject.reason,
        reject.detail,
        reject.key,
        reject.value,
        reject.redriven_at,
        None if original == at else original.offset,
        headers,
        reject.build,
    )


def reject_text(reject: Reject) -> str:
    """All of one reject for people, a fact a line; bytes as text where they are UTF-8, else in hexadecimal digits."""
    original = reject.original.position
    facts = [
        ("place", str(reject.at)),
        ("timestamp", cell(reject.timestamp)),
        ("pipeline", reject.pipeline),
        ("build", reject.build),
        ("reason", reject.reason),
        ("detail", cell(reject.detail)),
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
        ("key", _raw(reject.key)),
        *(("header", f"{cell(name)}: {_raw(value)}") for name, value in reject.headers),
        ("value", _raw(reject.value)),
    ]
    return "".join(f"{name:<10} {told}\n" for name, told in facts)


def _raw(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return cell(value.decode())
    except UnicodeDecodeError:
        return f"hex {value.hex()}"


def topics_listing(log: Log, declared: Mapping[str, Topic] | Mapping[str, TopicBirth]) -> Listing:
    """A row per topic that is declared, now or by a build, or is on the broker."""
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
    )


def gc_listing(found: tuple[Garbage, ...], *, done: bool) -> Listing:
    """A row per build and kind of thing; `done`: it is deleted, and not only found."""
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
    return Listing(("build", "what", "count", "bytes", "note"), tuple(rows))


def _build_row(build: BuildStatus, now: datetime) -> tuple[Any, ...]:
    age, verified = (
        build.age_seconds(now),
        None if build.rollout is None else build.rollout.verified,
    )
    return (
        build.pipeline,
        build.role,
        build.build,
        build.version,
        _state(build),
        build.folded,
        build.lag,
        None if age is None else round(age, 1),
        build.rejected,
        None if build.rollout is None else str(build.rollout.phase),
        None if build.lag is None else build.folded + build.lag,
        build.offsets.plain(),
        build.kept_until,
        build.waits_for,
        build.rate,
        None if build.eta_seconds is None else round(build.eta_seconds, 1),
        build.trouble,
        None if verified is None else verified.verdict,
        []
        if verified is None
        else [{**asdict(check), "passed": check.passed} for check in verified.checks],
        build.libraries,
        build.late,
        build.duplicate,
        build.broken,
        _note(build),
    )


def _note(build: BuildStatus) -> str:
    """What a person should know of a build, the worst first."""
    if build.stopped is not None:
        return build.stopped.message
    said = [
        f"has {build.beyond}" if build.beyond else "",
        *build.broken,
        build.base,
        build.trouble,
        "" if build.rollout is None else build.rollout.reason,
        f"waits for {build.waits_for}" if build.waits_for else "",
    ]
    if (
        build.rate
        and build.eta_seconds is not None
        and build.rollout is not None
        and build.rollout.phase is Phase.REPLAYING
    ):
        said.append(f"{build.rate:,.0f}/s, {build.eta_seconds:,.0f} s left")
    said += [
        f"{each.count:,} offsets of {each.topic} partition {each.partition} are held back by a transaction that is open since offset {each.offset}"
        for each in build.held_back
    ]
    if build.kept_until is not None and build.rollout is None:
        said.append(
            f"kept until {build.kept_until.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
        )
    said += [
        f"{count:,} {what}"
        for count, what in ((build.late, "late"), (build.duplicate, "duplicate"))
        if count
    ]
    if build.libraries:
        more = (
            f" and {len(build.libraries) - _SHOWN_LIBRARIES} more"
            if len(build.libraries) > _SHOWN_LIBRARIES
            else ""
        )
        said.append(
            f"born with other libraries: {', '.join(build.libraries[:_SHOWN_LIBRARIES])}{more}"
        )
    return "; ".join(each for each in said if each)


def _state(build: BuildStatus) -> str:
    if build.stopped is not None:
        return "stopped"
    if build.rollout is None:
        return "serving" if build.role == "live" else "kept"
    if build.rollout.phase is Phase.REPLAYING and build.read is not None:
        folded, total = build.read
        return f"{build.rollout.phase} {100 * folded // max(1, total)} %"
    return str(build.rollout.phase)


def _chapter_row(chapter: Chapter) -> tuple[Any, ...]:
    rollout, receipt, served = chapter.rollout, chapter.receipt, chapter.served
    base = rollout.base or (None if receipt is None else receipt.base)
    checks = () if rollout.verified is None else rollout.verified.checks
    differences = () if rollout.verified is None else rollout.verified.differences
    return (
        rollout.number,
        chapter.generation,
        rollout.at,
        rollout.by,
        rollout.pipeline,
        rollout.build,
        rollout.version,
        "switch" if rollout.switch else "replay" if rollout.base is None else "branch",
        str(rollout.phase),
        "; ".join(
            [
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
        [{**asdict(check), "passed": check.passed} for check in checks],
        [asdict(difference) for difference in differences],
        rollout.hint,
        rollout.accepted,
        None,
    )


def _proof_row(kept: ProofRecord) -> tuple[Any, ...]:
    record, found = kept.record, kept.found
    return (
        None,
        None,
        record.at,
        record.by,
        found.pipeline,
        found.build,
        kept.version,
        "proof",
        "proved" if found.equal else "not equal",
        "; ".join([f"{proof_line(found)}, {cut_line(found)}, hash {found.hash}", *found.causes]),
        *(None,) * 4,
        (),
        [asdict(difference) for difference in found.differences],
        "",
        (),
        record_document(record, found),
    )
