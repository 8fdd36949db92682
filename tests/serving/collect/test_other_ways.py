"""Laws of events that do not wait for an answer, and of events over a websocket."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from collecting import Collector, Connected, collecting, request, until, write_project
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kappa import Topic
from kappa.kafka.client import Log
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from losing import Restarted

pytestmark = pytest.mark.jvm

EVENT = "id string, page string not null, ms int"
SETTINGS = "unacknowledged = 20\nwait_seconds = 5\n"


@pytest.fixture(scope="module")
def away(kafka: Restarted) -> str:
    """Returns a topic of a broker that tests suspend."""
    kafka.log.create(Topic("away", event=EVENT, partitions=3))
    return "away"


@pytest.fixture(scope="module")
def collector(
    kafka: Restarted, away: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    project = write_project(tmp_path_factory.mktemp("ways"), away, settings=SETTINGS)
    with collecting(project, kafka.broker.bootstrap_servers) as running:
        yield running


def log_of(kafka: Restarted) -> Log:
    """Returns a new client: librdkafka may end a process whose broker was suspended."""
    return Log(kafka.broker.bootstrap_servers)


def values(kafka: Restarted, topic: str) -> list[bytes | None]:
    log = log_of(kafka)
    return [each.value for each in log.records([topic], Offsets(), log.end([topic]))]


def streaming(collector: Collector, topic: str) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{collector.port}/collect/{topic}", open_timeout=60)


def until_settled(websocket: ClientConnection, count: int) -> list[Any]:
    """Reads messages until this many events are settled."""
    found: list[Any] = []
    while not found or found[-1].get("acknowledged", 0) < count:
        found.append(json.loads(websocket.recv(timeout=60)))
    return found


def test_a_request_that_does_not_wait_can_be_asked_for(
    collector: Collector, kafka: Restarted, away: str
) -> None:
    def state(url: str) -> Any:
        return collector.ask("GET", url).json()

    os.kill(kafka.broker.pid, signal.SIGSTOP)
    begun = collector.post(away, '{"page": "/later"}', prefer="respond-async")
    assert begun.status == 202
    url = begun.headers["location"]
    assert state(url) == {"id": begun.json()["id"], "state": "waiting"}
    os.kill(kafka.broker.pid, signal.SIGCONT)

    until(lambda: state(url)["state"] == "acknowledged", "it to be acknowledged")
    assert state(url)["answer"]["topic"] == away
    invalid = collector.post(away, "{}", prefer="respond-async").headers["location"]
    until(lambda: state(invalid)["state"] == "failed", "it to fail")
    assert (state(invalid)["status"], state(invalid)["answer"]["reason"]) == (422, "missing_field")
    assert collector.ask("GET", "/collect/requests/unknown").status == 404


def test_events_of_a_websocket_are_acknowledged_in_their_order(
    collector: Collector, kafka: Restarted, away: str
) -> None:
    before = len(values(kafka, away))
    with streaming(collector, away) as websocket:
        for number in range(100):
            websocket.send(f'{{"page": "/{number}"}}' if number % 10 else "no event")
        found = until_settled(websocket, 100)

    assert [each["line"] for each in found if "line" in each] == list(range(1, 101, 10))
    assert {each["reason"] for each in found if "line" in each} == {"malformed_json"}
    counts = [each["acknowledged"] for each in found if "acknowledged" in each]
    assert counts == sorted(counts)
    assert len(values(kafka, away)) == before + 90


def test_a_websocket_is_not_read_beyond_what_may_be_unacknowledged(
    collector: Collector, kafka: Restarted, away: str
) -> None:
    with streaming(collector, away) as websocket:
        websocket.send('{"page": "/first"}')
        until_settled(websocket, 1)
        os.kill(kafka.broker.pid, signal.SIGSTOP)
        for number in range(60):
            websocket.send(f'{{"page": "/{number}"}}')
        until(lambda: collector.metric("kappa_collect_queue_events") == 20, "20 to wait")

        with pytest.raises(ConnectionClosed) as closed:
            until_settled(websocket, 61)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013
    os.kill(kafka.broker.pid, signal.SIGCONT)
    until(lambda: collector.ask("GET", "/readyz").status == 200, "it to be ready")


def test_a_websocket_for_no_topic_is_refused(collector: Collector) -> None:
    with pytest.raises(InvalidStatus) as refused, streaming(collector, "nothing"):
        pass

    assert refused.value.response.status_code == 404


def test_what_is_on_its_way_is_answered_before_the_collector_ends(
    kafka: Restarted, tmp_path: Path
) -> None:
    # Of its own: what other tests have sent may come late.
    topic = "last"
    log_of(kafka).create(Topic(topic, event=EVENT, partitions=3))
    project = write_project(tmp_path, topic)
    sent = b"".join(request(topic, f'{{"page": "/last-{number}"}}') for number in range(200))
    with (
        collecting(project, kafka.broker.bootstrap_servers) as ending,
        Connected(ending.port) as connected,
    ):
        os.kill(kafka.broker.pid, signal.SIGSTOP)
        connected.send(sent)
        until(lambda: ending.metric("kappa_collect_queue_events") == 200, "all to be on their way")
        ending.process.terminate()
        os.kill(kafka.broker.pid, signal.SIGCONT)

        assert [status for status, _ in connected.answers(200)] == [200] * 200
        assert ending.process.wait(60) == 130

    assert len(values(kafka, topic)) == 200
