"""The events of a request, the outcome of each event, and the answer with all outcomes.

Each line is validated separately. The answer contains the reason for each invalid line, and the
events of the valid lines are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kappa.base.errors import KappaError
from kappa.declare.values.reason import Rejected
from kappa.kafka.headers import Headers
from kappa.kafka.live_producer import Placed, Undelivered
from kappa.kafka.producer import ProducedRecord
from kappa.serving.collect.declared_topics import CollectedTopic
from kappa.serving.http.problem import MEDIA_TYPE, HttpError, problem_of
from kappa.serving.query.pin.moments import written_offsets
from kappa.state.offsets import Offsets

# The header of a record with the key of the request, a colon, and the number of the line.
KEY_HEADER = "kappa-idempotency-key"
JSON = "application/json"
_LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
# The number of lines that are read before other requests have their turn.
_AT_ONCE = 200
TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Invalid:
    """An event that was not sent, with the reason as a word for programs and as a sentence."""

    reason: str
    detail: str
    hint: str = ""


# For each event in turn: the record until it is sent, then the outcome.
Outcome = ProducedRecord | Invalid | Placed | Undelivered


@dataclass(frozen=True, slots=True)
class Lines:
    """The events of a request for one topic, with the outcome of each event.

    `numbers` contains the line number of each event. A single event has the line number 1.
    """

    topic: str
    numbers: Sequence[int]
    outcomes: list[Outcome]
    is_batch: bool

    def unsent(self) -> list[int]:
        """Returns the indexes in `outcomes` of the events that have not been sent yet."""
        return [
            place for place, each in enumerate(self.outcomes) if isinstance(each, ProducedRecord)
        ]

    def records(self, places: Sequence[int]) -> list[ProducedRecord]:
        """Returns the records at the given indexes of `outcomes`."""
        found = (self.outcomes[place] for place in places)
        return [each for each in found if isinstance(each, ProducedRecord)]

    @property
    def is_settled(self) -> bool:
        """Returns True if each event is either in the topic's log or invalid.

        In this case, nothing is sent if the request is repeated.
        """
        return not any(isinstance(each, Undelivered) for each in self.outcomes)

    def tally(self) -> Mapping[str, int]:
        """Returns the number of events by outcome: `acknowledged`, `invalid` or `failed`."""
        placed = sum(isinstance(each, Placed) for each in self.outcomes)
        invalid = sum(isinstance(each, Invalid) for each in self.outcomes)
        return {
            "acknowledged": placed,
            "invalid": invalid,
            "failed": len(self.outcomes) - placed - invalid,
        }


def is_batch(content_type: str | None) -> bool:
    """Returns True if a body with this media type contains one event per line."""
    return (content_type or JSON).partition(";")[0].strip().lower() in _LINES


async def read_lines(topic: CollectedTopic, body: bytes, key: str, most: int) -> Lines:
    """Reads a body with one event per line, and skips blank lines.

    `key` is the request's Idempotency-Key, or "". `most` is the largest number of bytes of an
    event.
    """
    numbers: list[int] = []
    outcomes: list[Outcome] = []
    for number, line in enumerate(body.split(b"\n"), start=1):
        if not line.strip():
            continue
        numbers.append(number)
        headers = ((KEY_HEADER, f"{key}:{number}".encode()),) if key else ()
        outcomes.append(read_event(topic, line.rstrip(b"\r"), headers, most))
        if len(numbers) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return Lines(topic.name, numbers, outcomes, is_batch=True)


def read_one(topic: CollectedTopic, body: bytes, key: str, most: int) -> Lines:
    """Reads a body that is a single event.

    `key` is the request's Idempotency-Key, or "". `most` is the largest number of bytes of an
    event.
    """
    headers = ((KEY_HEADER, key.encode()),) if key else ()
    found = read_event(topic, body, headers, most)
    if isinstance(found, Invalid):
        if not body.strip():
            found = replace(found, detail="the body is empty")
        elif b"\n" in body.strip():
            hint = "several events are sent a line each, as application/x-ndjson"
            found = replace(found, hint=hint)
    return Lines(topic.name, (1,), [found], is_batch=False)


def read_event(
    topic: CollectedTopic, event: bytes, headers: Headers, most: int
) -> ProducedRecord | Invalid:
    """Returns the record of an event, or the reason why the event is refused.

    An event of more than `most` bytes is refused.
    """
    if len(event) > most:
        return Invalid(TOO_LARGE, f"it has {len(event):,} bytes, and a record at most {most:,}")
    try:
        return topic.record(event, headers)
    except Rejected as rejected:
        return Invalid(str(rejected.reason), rejected.detail)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The answer to a request."""

    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] | None = None


def reply_of(lines: Lines) -> HttpReply:
    """Returns the answer that reports the outcome of each event."""
    if not lines.is_batch:
        return _reply_to_one(lines.topic, lines.outcomes[0])
    tally = lines.tally()
    if tally["failed"]:
        status = 503 if _is_passing(lines.outcomes) else 502
    elif not tally["invalid"]:
        status = 200
    else:
        status = 207 if tally["acknowledged"] else 422
    return HttpReply(
        status,
        msgspec.json.encode(document_of(lines, tally)),
        headers={"Retry-After": "1"} if status == 503 else None,
    )


def document_of(lines: Lines, tally: Mapping[str, int]) -> Mapping[str, Any]:
    """Returns the JSON document that answers a request with several lines.

    The document contains a part for each event. `tally` contains the number of events by outcome.
    """
    return {
        "topic": lines.topic,
        **tally,
        "token": token_of(lines),
        "events": [
            _outcome_part(number, outcome)
            for number, outcome in zip(lines.numbers, lines.outcomes, strict=True)
        ],
    }


def token_of(lines: Lines) -> str | None:
    """Returns the write token of the acknowledged events, or None if there are none.

    The token is text, as `kappa produce` prints it.
    """
    ends: dict[int, int] = {}
    for each in lines.outcomes:
        if isinstance(each, Placed) and each.offset >= ends.get(each.partition, 0):
            ends[each.partition] = each.offset + 1
    return written_offsets(Offsets({lines.topic: ends})) if ends else None


def _outcome_part(line: int, outcome: Outcome) -> Mapping[str, Any]:
    match outcome:
        case Placed():
            return {"line": line, "partition": outcome.partition, "offset": outcome.offset}
        case Invalid():
            return {"line": line, "reason": outcome.reason, "detail": outcome.detail}
        case Undelivered():
            return {"line": line, "error": outcome.why}
    return {"line": line, "error": "it was not sent"}


def _is_passing(outcomes: Sequence[Outcome]) -> bool:
    return all(each.is_passing for each in outcomes if isinstance(each, Undelivered))


def _reply_to_one(topic: str, outcome: Outcome) -> HttpReply:
    match outcome:
        case Placed(partition, offset):
            # Names of topics, and numbers, are JSON without a change.
            text = (
                f'{{"topic":"{topic}","partition":{partition},"offset":{offset},'
                f'"token":"{topic}:{partition}={offset + 1}"}}'
            )
            return HttpReply(200, text.encode())
        case Invalid(reason, detail, hint):
            return problem_reply(
                HttpError(
                    413 if reason == TOO_LARGE else 422,
                    f"the event is not valid: {detail}",
                    hint=hint,
                ),
                reason=reason,
            )
        case Undelivered(why, is_passing):
            return problem_reply(
                HttpError(
                    503 if is_passing else 502,
                    f"the broker has not acknowledged the event: {why}",
                    hint="it may be in the log all the same: send it again with its "
                    "Idempotency-Key, to a topic with an identity",
                    headers={"Retry-After": "1"} if is_passing else None,
                )
            )
    raise AssertionError(outcome)


def problem_reply(error: KappaError, **more: str) -> HttpReply:
    """Returns the answer that reports an error as a problem document.

    `more` contains further members of the document.
    """
    problem = problem_of(error)
    return HttpReply(
        problem.status,
        msgspec.json.encode({**problem.document, **more}),
        MEDIA_TYPE,
        problem.headers,
    )
