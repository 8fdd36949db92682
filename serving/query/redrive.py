"""Redriving: exports rejects, and produces their corrected records again.

The exported lines are corrected by a user. The corrected record of a line is a redriven record: it
is sent to the partition of the original record, and its header names the original record
(kappa/records/redrive.py). Each build decides from the log alone whether to fold a redriven record,
so producing a record twice does no harm. All lines are checked before the first record is sent: if
a line is wrong, nothing is sent. The format of a line is described in
kappa/records/lines/envelope.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.code.fingerprint import has_changes
from kappa.declare.topic_options import TopicKind
from kappa.declare.values.reason import FOLDED_REASONS, Reason
from kappa.kafka.client import TopicFacts
from kappa.kafka.producer import Acknowledged, ProducedRecord
from kappa.records.lines.envelope import envelope_line, envelope_record
from kappa.records.redrive import HEADER, Position, named_original
from kappa.serving.query.rejects import Reject, RejectFilter, rejects_in_order
from kappa.state.build import Birth, read_birth
from kappa.state.drift import DriftKind, put_drifts, read_drifts
from kappa.state.store import Store

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_EXPORT = "lines come from: kappa rejects export > rejects.jsonl"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file: a corrected record, and the reject that the record corrects.

    `number` is the number of the line in the file. `names` is the reject's position in the log.
    """

    number: int
    record: ProducedRecord
    names: Position


@dataclass(frozen=True, slots=True)
class Redrive:
    """The corrected records to produce, by topic, and the numbers of skipped lines.

    `folded_already` counts the lines whose corrected record was already folded, and `unmended`
    counts the lines whose record is unchanged since the reject.
    """

    records: Mapping[str, tuple[ProducedRecord, ...]]
    folded_already: int
    unmended: int
    pipelines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def as_text(self) -> str:
        """Describes the records to produce, with a line for each topic.

        Another line follows for each kind of skipped lines.
        """
        lines = [
            f"{len(records):,} record{'s' * (len(records) != 1)} to topic {topic}"
            for topic, records in self.records.items()
        ]
        lines += (
            [
                (
                    f"{self.folded_already:,} of the lines were redriven and folded before, "
                    "and are skipped"
                )
            ]
            if self.folded_already
            else []
        )
        lines += (
            [f"{self.unmended:,} of the lines are as they were rejected, and are skipped"]
            if self.unmended
            else []
        )
        return "".join(f"{line}\n" for line in lines)


def rejects_to_mend(rejects: Iterable[Reject]) -> tuple[Reject, ...]:
    """Returns the rejects for which no corrected record was folded, ordered by position. Pure.

    If a corrected record was rejected again, only the last reject is returned.
    """
    newest: dict[Position, Reject] = {}
    for each in sorted(rejects, key=lambda each: each.at):
        if each.redriven_at is None:
            newest[each.original.position] = each
    return tuple(sorted(newest.values(), key=lambda each: each.at))


def is_mendable(reject: Reject) -> bool:
    """Returns True if a corrected record can replace a reject. Pure.

    A late or expired reject cannot be corrected, because its corrected record would be late, too.
    Some rejected records were folded nevertheless, for example if the step of an ordered fold
    failed when it was woken, or if a key has records in a lower partition. The reject of such a
    record needs no correction.
    """
    return reject.reason not in {Reason.LATE, Reason.EXPIRED, *FOLDED_REASONS}


def export_line(reject: Reject) -> str:
    """Formats a reject as a line of a file, which a user can correct and send again. Pure.

    A header in the line names the original record.
    """
    headers = (
        *((name, value) for name, value in reject.headers if name != HEADER),
        reject.original.header(),
    )
    # Kafka marks a record without a time by a time before 1970, which no producer may send.
    timestamp = reject.timestamp_ms if reject.timestamp_ms >= 0 else None
    return envelope_line(
        ProducedRecord(reject.value, reject.key, timestamp, headers, reject.at.partition),
        note=f"{reject.at}: {reject.reason}: {reject.detail}",
    )


def read_lines(lines: Iterable[bytes]) -> tuple[Line, ...]:
    """Parses the lines of a file of corrected records.

    Raises UsageError with the line's number if a line does not have the form of an envelope
    (kappa/records/lines/envelope.py), names no reject, or names the same reject as another line.
    Raises UsageError if the file contains no record.
    """
    found: list[Line] = []
    seen: dict[Position, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            each = _parse_line(number, line.rstrip(b"\r\n"))
        except UsageError as error:
            raise UsageError(
                f"line {number} {error.message}; nothing was sent", hint=error.hint
            ) from error
        first = seen.setdefault(each.names, number)
        if first != number:
            raise UsageError(
                f"line {number} names {each.names}, as line {first} does; nothing was sent",
                hint="one line mends one reject; send further records by kappa produce",
            )
        found.append(each)
    if not found:
        raise UsageError("the file has no record", hint=_EXPORT)
    return tuple(found)


def _parse_line(number: int, line: bytes) -> Line:
    record = envelope_record(line)
    try:
        original = named_original(record.headers)
    except ValueError as error:
        raise UsageError(f"cannot be redriven: {error}", hint=_EXPORT) from error
    if original is None:
        raise UsageError(
            f"names no reject: it has no header {HEADER}",
            hint=f"{_EXPORT}; send a line that mends no reject by kappa produce --envelope",
        )
    if record.partition not in {None, original.position.partition}:
        raise UsageError(
            f"has the partition {record.partition}, and {original.position} is in another one",
            hint="a redriven record goes to its original's partition: leave partition out",
        )
    return Line(number, record, original.position)


def plan_redrive(
    lines: Iterable[Line],
    rejects: Iterable[Reject],
    births: Mapping[str, Birth],
    facts: Mapping[str, TopicFacts | None],
) -> Redrive:
    """Returns the records to produce for the corrected lines of a file. Pure.

    `rejects` and `births` belong to the serving builds. `facts` describes the topics of the lines,
    by name. Raises UsageError if a line does not name a reject that can be corrected. Raises
    Conflict if the topic was deleted or created again since the reject, or if the build cannot fold
    corrected records.
    """
    by_place: dict[Position, list[Reject]] = {}
    for reject in rejects:
        by_place.setdefault(reject.at, []).append(reject)
    records: dict[str, list[ProducedRecord]] = {}
    originals: dict[Position, int] = {}
    pipelines: dict[str, Counter[str]] = {}
    folded_already = unmended = 0
    for line in lines:
        found = by_place.get(line.names)
        if found is None:
            raise UsageError(
                f"line {line.number} names {line.names}, which is not a reject of what serves; "
                "nothing was sent",
                hint="see kappa rejects list; a folded record needs no redriving",
            )
        for reject in found:
            _check_topic(line, births[reject.build], facts.get(line.names.topic))
        original = found[0].original
        first = originals.setdefault(original.position, line.number)
        if first != line.number:
            raise UsageError(
                f"line {line.number} mends {original.position}, as line {first} does; "
                "nothing was sent",
                hint="one line mends one reject: keep the line that is mended",
            )
        if all(reject.redriven_at is not None for reject in found):
            folded_already += 1
        elif (line.record.key, line.record.value) == (found[0].key, found[0].value):
            unmended += 1
        else:
            there = facts.get(line.names.topic)
            for reject in found:
                if line.record.key != reject.key and there is not None and there.partitions > 1:
                    _check_order(line, births[reject.build])
            headers = (
                *((name, value) for name, value in line.record.headers if name != HEADER),
                original.header(),
            )
            records.setdefault(line.names.topic, []).append(
                replace(line.record, headers=headers, partition=line.names.partition)
            )
            for pipeline in {each.pipeline for each in found if each.redriven_at is None}:
                pipelines.setdefault(pipeline, Counter())[line.names.topic] += 1
    return Redrive(
        {topic: tuple(each) for topic, each in records.items()},
        folded_already,
        unmended,
        {pipeline: dict(counts) for pipeline, counts in sorted(pipelines.items())},
    )


def plan_lines(
    store: Store,
    lines: Iterable[bytes],
    connect: Callable[[], Log],
    *,
    lease_seconds: float = 60.0,
) -> Redrive:
    """Returns the records to produce for the corrected lines of a file.

    The lines are compared with the rejects of the serving builds. `connect` returns the broker's
    client; it is called after the lines and the rejects were read. Nothing is sent. Raises the
    errors of `read_lines`, `connect` and `plan_redrive`.
    """
    read = read_lines(lines)
    topics = sorted({line.names.topic for line in read})
    found = rejects_in_order(store, RejectFilter(topics=topics), lease_seconds=lease_seconds)
    births = {build: read_birth(store, build) for build in {reject.build for reject in found}}
    log = connect()
    return plan_redrive(read, found, births, {topic: log.facts(topic) for topic in topics})


def produce_redrive(
    store: Store, planned: Redrive, log: Log, *, lease_seconds: float = 60.0
) -> Mapping[str, Acknowledged]:
    """Produces corrected records, and removes the corrected rejects from the recorded drift.

    Returns the records that the broker has acknowledged, by topic.
    """
    sent = {topic: log.produce(records, topic) for topic, records in planned.records.items()}
    # Drift is for people: the records are in the log, whether or not the drift can be written.
    with suppress(KappaError, OSError):
        settle_drifts(store, planned, lease_seconds=lease_seconds)
    return sent


def settle_drifts(store: Store, planned: Redrive, *, lease_seconds: float = 60.0) -> None:
    """Removes the rejects that were corrected from the recorded drift of the serving builds.

    `planned` contains the corrected records. If another reject with the same reason is left, the
    drift refers to that reject instead.
    """
    originals = (
        named_original(record.headers) for each in planned.records.values() for record in each
    )
    sent = {each.position for each in originals if each is not None}
    found = rejects_in_order(
        store, RejectFilter(topics=sorted(planned.records)), lease_seconds=lease_seconds
    )
    left: dict[tuple[str, str, str], Reject] = {}
    for each in rejects_to_mend(found):
        if each.original.position not in sent:
            left.setdefault((each.build, each.at.topic, each.reason), each)
    for build in {each.build for each in found}:
        folder = read_birth(store, build).folded_by
        drifts = read_drifts(store, folder)
        kept = []
        for drift in drifts:
            if drift.kind is not DriftKind.REASON or drift.proof not in map(str, sent):
                kept.append(drift)
            elif other := left.get((build, drift.topic, drift.name.partition(" ")[0])):
                shown = (other.value or b"").decode(errors="backslashreplace")
                proof, value = str(other.at), shown[: max(len(drift.value), 1)]
                kept.append(replace(drift, proof=proof, value=value))
        if tuple(kept) != drifts:
            put_drifts(store, folder, kept)


def _check_order(line: Line, birth: Birth) -> None:
    """Raises UsageError if the key in a corrected record would break an ordered fold.

    The key in the record differs from the key of the reject. An ordered fold needs all rows of a
    key in a single partition, but a corrected record goes to the partition of the original record.
    There, a record with another key would be folded into a state that readers may not see.
    """
    ordered = [table.name for table in birth.tables if table.steps_over]
    if ordered:
        raise UsageError(
            f"line {line.number} has another key than {line.names}, and would be sent to its "
            f"partition; table {ordered[0]} of pipeline {birth.pipeline} is folded in the order of "
            "the log, and needs all rows of a key in one partition; nothing was sent",
            hint="send it to its own key's partition, as a record that mends no other: "
            f"without `partition` and the header {HEADER}, "
            f"kappa produce {line.names.topic} FILE --envelope",
        )


def _check_topic(line: Line, birth: Birth, facts: TopicFacts | None) -> None:
    topic = next(topic for topic in birth.topics if topic.name == line.names.topic)
    if topic.kind == TopicKind.COMPACTED:
        raise UsageError(
            f"line {line.number} names {line.names}, and topic {topic.name} is compacted: "
            "a record of it is its key's present value, and mends no other; nothing was sent",
            hint="if it should still be the key's value: "
            f"kappa produce {topic.name} FILE --envelope",
        )
    if has_changes(birth.declarations.get(f"topic {topic.name}", "")):
        raise UsageError(
            f"line {line.number} names {line.names}, and topic {topic.name} has a database's "
            "changes: a mended old one would be its row's newest; nothing was sent",
            hint="write the row anew at its source (update ... set id = id), so that its change "
            "comes again",
        )
    if facts is None or facts.id != topic.id:
        raise Conflict(
            f"topic {topic.name} {'is gone' if facts is None else 'was created again'} "
            f"since {line.names} was rejected; nothing was sent",
            hint="its rejects are those of a log that no longer exists",
        )
    if "_redrives" not in dict(birth.table("rejects").columns):
        raise Conflict(
            f"build {birth.build}, which serves, was born before Kappa had redriven records, "
            "and would fold a record twice; nothing was sent",
            hint=f"make a build that remembers them: kappa replay {birth.pipeline}",
        )
