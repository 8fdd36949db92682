"""Laws of single events: however requests arrive, answers are the same and in order."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from collecting import EVENT, Collector, Connected, collecting, records_of, request, write_project

from kappa import Topic
from kappa.kafka.client import Log

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def single(log: Log) -> Iterator[str]:
    log.create(Topic("single-events", event=EVENT, partitions=1))
    yield "single-events"
    log.delete("single-events")


@pytest.fixture(scope="module")
def collector(
    log: Log, single: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    project = write_project(tmp_path_factory.mktemp("single"), single)
    with collecting(project, log.bootstrap_servers) as running:
        yield running


def ids(log: Log, topic: str, prefix: str) -> list[str]:
    found = "\n".join((each.value or b"").decode() for each in records_of(log, topic))
    return re.findall(rf'"{prefix}-\w+"', found)


def test_requests_behind_one_another_are_answered_in_their_order(
    collector: Collector, single: str, log: Log
) -> None:
    """Simple and complex requests arrive together, in one piece of bytes."""
    event = '{{"id": "p-{}", "page": "/"}}'.format
    keyed = "Idempotency-Key: behind"
    lines = "Content-Type: application/x-ndjson"
    with Connected(collector.port) as connected:
        connected.send(
            b"".join(
                (
                    request(single, event(1)),
                    request(single, event(2)),
                    request(single, '{"page": 7}'),
                    request(single, event(4)),
                    request(single, event(5), keyed),
                    request(single, event(7)),
                    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                    request(single, f"{event(9)}\n{event(10)}", lines),
                    *(request(single, event(number)) for number in range(11, 411)),
                    # Its body is not read, so it ends the connection.
                    request("nothing", event(411)),
                )
            )
        )
        found = connected.answers(409)

    statuses = [status for status, _ in found]
    assert statuses == [200, 200, 422, *[200] * 405, 404]
    assert "ok" in found[6][1]
    in_log = [number for number in range(1, 411) if number not in {3, 6, 8}]
    assert ids(log, single, "p") == [f'"p-{number}"' for number in in_log]
    offsets = [int(place) for _, body in found for place in re.findall(r'"offset":(\d+)', body)]
    assert offsets == sorted(offsets)
    assert len(offsets) == len(in_log)


def test_a_request_may_come_in_two_pieces_cut_anywhere(
    collector: Collector, single: str, log: Log
) -> None:
    sent = request(single, '{"id": "cut-x", "page": "/"}', "Content-Type: application/json")
    before = len(ids(log, single, "cut"))
    with Connected(collector.port) as connected:
        for cut in range(1, len(sent)):
            connected.send(sent[:cut])
            # The next answer shows that the collector has read the first piece before.
            assert collector.ask("GET", "/healthz").status == 200
            connected.send(sent[cut:])
            assert connected.answer()[0] == 200

    assert len(ids(log, single, "cut")) - before == len(sent) - 1


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ('{"page": "/alike"}', ()),
        ('{"page": 7}', ()),
        ("{}", ("Host: evil.example",)),
        ("[]", ("Content-Type: text/plain",)),
    ],
)
def test_an_answer_is_the_same_at_once_and_in_pieces(
    collector: Collector, single: str, body: str, headers: tuple[str, ...]
) -> None:
    def shown(answer: tuple[int, dict[str, str], str]) -> tuple[int, dict[str, str], str]:
        status, found, text = answer
        same = {
            name: value for name, value in found.items() if name not in {"date", "content-length"}
        }
        return status, same, re.sub(r"\d+", "N", text)

    sent = request(single, body, *headers)
    found = []
    for cut in (len(sent), len(sent) - 1):
        with Connected(collector.port) as connected:
            connected.send(sent[:cut])
            if cut < len(sent):
                assert collector.ask("GET", "/healthz").status == 200
                connected.send(sent[cut:])
            found.append(shown(connected.answer()))

    assert found[0] == found[1]


def test_an_event_that_offers_http_2_is_taken_whole(
    collector: Collector, single: str, log: Log
) -> None:
    sent = request(
        single,
        '{"id": "offer-x", "page": "/"}',
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQ",
    )
    with Connected(collector.port) as connected:
        connected.send(sent * 3)
        assert [status for status, _ in connected.answers(3)] == [200] * 3

    assert ids(log, single, "offer") == ['"offer-x"'] * 3
