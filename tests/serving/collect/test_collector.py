"""Laws of request and response: an answer means that the broker has the event."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from collecting import Collector, collecting, collector_command, records_of, until, write_project
from house import HOUSE
from typing_in import typist

from kappa import Topic
from kappa.kafka.client import Log
from kappa.kafka.reader import Record

pytestmark = pytest.mark.jvm

TOKEN = "t" * 32


def keys_of(found: list[Record]) -> list[bytes | None]:
    """Returns the idempotency keys of records, sorted."""
    named = (dict(each.headers).get("kappa-idempotency-key") for each in found)
    return sorted(filter(None, named))


def make_topic(log: Log, name: str, *, partitions: int = 3) -> str:
    log.create(Topic(name, event="id string", partitions=partitions))
    return name


@pytest.fixture(scope="module")
def visits(log: Log) -> Iterator[str]:
    name = make_topic(log, "collected-visits")
    yield name
    log.delete(name)


@pytest.fixture(scope="module")
def collector(
    log: Log, visits: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    project = write_project(tmp_path_factory.mktemp("collector"), visits)
    with collecting(project, log.bootstrap_servers) as running:
        yield running


def test_an_event_is_answered_with_its_place_in_the_log(
    collector: Collector, visits: str, log: Log
) -> None:
    event = '{"id": "1", "page": "/jöbs 🎈", "ms": 12}'

    replied = collector.post(visits, event)

    assert replied.status == 200, replied
    found = replied.json()
    (record,) = [
        each
        for each in records_of(log, visits)
        if (each.partition, each.offset) == (found["partition"], found["offset"])
    ]
    assert (record.value, record.key) == (event.encode(), "/jöbs 🎈".encode())
    assert found["token"] == f"{visits}:{found['partition']}={found['offset'] + 1}"


def test_invalid_lines_are_answered_by_line_and_the_others_are_sent(
    collector: Collector, visits: str, log: Log
) -> None:
    before = len(records_of(log, visits))

    lines = '{"page": "/a"}', "", "{no json", '{"page": 7}', b'{"page": "\xff"}', '{"page":"/b"}'
    replied = collector.post_lines(visits, *lines)

    found = replied.json()
    assert (replied.status, found["acknowledged"], found["invalid"]) == (207, 2, 3)
    assert [each["line"] for each in found["events"]] == [1, 3, 4, 5, 6]
    assert [each.get("reason") for each in found["events"]] == [
        *(None, "malformed_json", "wrong_type", "not_utf8", None)
    ]
    assert len(records_of(log, visits)) == before + 2


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        (b"", 422, "the body is empty"),
        (b"[]", 422, "not an object"),
        (b'{"page": null}', 422, "page is null"),
        (b"\xff\xfe", 422, "not UTF-8"),
        (b'{"page": "/a"}\n{"page": "/b"}', 422, "application/x-ndjson"),
        (b'{"page": "' + b"x" * 1_100_000 + b'"}', 413, "a record at most"),
    ],
)
def test_a_bad_event_is_answered_by_a_sentence(
    collector: Collector, visits: str, body: bytes, status: int, part: str
) -> None:
    replied = collector.post(visits, body)

    assert replied.status == status
    assert part in replied.body.decode()


def test_a_body_that_is_too_large_is_refused_unread(collector: Collector, visits: str) -> None:
    connection = collector.connection()
    connection.putrequest("POST", f"/collect/{visits}")
    connection.putheader("Content-Length", str(9 << 20))
    connection.endheaders()

    replied = connection.getresponse()

    assert (replied.status, replied.getheader("connection")) == (413, "close")
    assert "larger than 8192 KiB" in replied.read().decode()
    connection.close()


def test_what_is_no_place_of_events_is_answered(collector: Collector, visits: str) -> None:
    assert collector.post("nothing", "{}").status == 404
    assert collector.post("", "{}").status == 404
    assert collector.ask("GET", f"/collect/{visits}").status == 405
    assert collector.post(visits, b"x", content_encoding="gzip").status == 415
    assert collector.post(visits, '{"page": "/a"}', host="evil.example").status == 403
    assert collector.post(visits, '{"page": "/a"}', origin="https://evil.example").status == 403
    assert collector.post(visits, '{"page": "/a"}', idempotency_key="a b").status == 400


def test_a_repeated_key_is_answered_alike_and_not_sent_again(
    collector: Collector, visits: str, log: Log
) -> None:
    lines = ('{"page": "/a"}', "bad", '{"page": "/b"}')

    first, again = (collector.post_lines(visits, *lines, idempotency_key="k1") for _ in range(2))
    other = collector.post_lines(visits, *lines[::-1], idempotency_key="k1")

    assert (first.status, first.body) == (again.status, again.body)
    assert other.status == 422
    assert "another body" in other.body.decode()
    assert keys_of(records_of(log, visits)) == [b"k1:1", b"k1:3"]


def test_repeats_at_once_are_one(collector: Collector, visits: str, log: Log) -> None:
    found: list[bytes] = []

    def post() -> None:
        found.append(collector.post(visits, '{"page": "/z"}', idempotency_key="at-once").body)

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 1
    assert keys_of(records_of(log, visits)).count(b"at-once") == 1


def test_its_counts_are_metrics_and_it_is_ready(collector: Collector, visits: str) -> None:
    collector.post(visits, '{"page": "/a"}')

    assert collector.metric("kappa_collect_events_total", topic=visits, outcome="acknowledged") > 0
    assert collector.metric("kappa_collect_queue_events") == 0
    until(lambda: collector.ask("GET", "/readyz").status == 200, "it to be ready")


def test_a_source_sends_by_its_token_to_its_topics_as_fast_as_it_may(
    log: Log, tmp_path: Path, topic_name: str
) -> None:
    make_topic(log, topic_name)
    settings = f"""
origins = ["https://shop.example"]
[collect.sources.web]
token = "{TOKEN}"
rate = 5
[collect.sources.app]
token = "{TOKEN[::-1]}2"
"""
    project = write_project(tmp_path, topic_name, settings=settings)
    with collecting(project, log.bootstrap_servers) as collector:
        good = {"authorization": f"Bearer {TOKEN}"}
        event = '{"page": "/a"}'
        assert collector.post(topic_name, event).status == 401
        assert collector.post(topic_name, event, authorization="Bearer wrong").status == 401
        assert TOKEN not in collector.said

        first = collector.post(topic_name, event, origin="https://shop.example", **good)
        assert first.status == 200
        assert first.headers["access-control-allow-origin"] == "https://shop.example"
        assert collector.post(topic_name, event, origin="https://x.example", **good).status == 403
        asked = collector.ask("OPTIONS", f"/collect/{topic_name}", origin="https://shop.example")
        assert asked.status == 204
        assert "POST" in asked.headers["access-control-allow-methods"]

        # A batch is taken whole, and the next have to wait for 40 seconds.
        assert collector.post_lines(topic_name, *[event] * 200, **good).status == 200
        statuses = [collector.post(topic_name, event, **good).status for _ in range(20)]
        assert statuses.count(429) > 5
        assert int(collector.post_lines(topic_name, *[event] * 50, **good).headers["retry-after"])
        by_address = collector.ask("POST", f"/collect/{topic_name}?token={TOKEN[::-1]}2", event)
        assert by_address.status == 200
    log.delete(topic_name)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ('[collect.sources.web]\ntoken = "short"', "can be guessed"),
        ('[collect.sources.web]\ntokn = "x"', "did you mean collect.sources.web.token"),
        ("[collect.sources.web]\nrate = 3", "can be guessed"),
        ("[collect.sources.Web-1]\nrate = 3", "[collect.sources.web_1]"),
        ('[collect.sources.web]\ntoken = "0123456789abcdefg"\ntopics = ["x"]', "not collected"),
        ("queue_events = 0", "collect.queue_events"),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    tmp_path: Path,
    settings: str,
    part: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KAPPA__KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    write_project(tmp_path, "visits", settings=settings)

    kappa = typist(capsys, monkeypatch)
    kappa("--project", str(tmp_path), "collect").has(2, part)


def test_two_collectors_at_one_port_are_refused(
    collector: Collector, log: Log, visits: str, tmp_path: Path
) -> None:
    project = write_project(tmp_path, visits)
    toml = (project / "kappa.toml").read_text()
    (project / "kappa.toml").write_text(toml.replace(":0", f":{collector.port}"))

    ended = subprocess.run(
        collector_command(project, log.bootstrap_servers),
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ended.returncode == 6, ended
    assert "nothing can listen at" in ended.stderr
    assert "kappa collect --listen" in ended.stderr
