"""Laws of events without an answer: they wait on the disk, and delay nobody."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from collecting import Collector, collecting, until, write_project
from ports import free_port

from kappa import Topic
from kappa.kafka.client import Log
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from losing import Restarted

pytestmark = [pytest.mark.jvm, pytest.mark.fault]

COUNT = 300


def pages(log: Log, topic: str) -> list[str]:
    found = log.records([topic], Offsets(), log.end([topic]))
    return [json.loads(each.value or b"{}")["page"] for each in found]


def pixel(collector: Collector, topic: str, event: str, **headers: str) -> int:
    path = f"/collect/{topic}/pixel.gif?event={quote(event)}"
    replied = collector.ask("GET", path, **headers)
    assert replied.status != 200 or replied.body.startswith(b"GIF89a")
    return replied.status


@pytest.fixture
def topic(kafka: Restarted, topic_name: str) -> str:
    kafka.log.create(Topic(topic_name, event="page string", partitions=1))
    return topic_name


def test_while_the_broker_is_away_they_wait_on_the_disk_and_survive_a_kill(
    kafka: Restarted, topic: str, tmp_path: Path
) -> None:
    port = free_port(socket.SOCK_DGRAM)
    # The queue is smaller than a batch of the spool.
    settings = f'udp = "127.0.0.1:{port}"\nwait_seconds = 3\nqueue_events = 50\n'
    project = write_project(tmp_path, topic, settings=settings)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    servers = kafka.broker.bootstrap_servers
    with collecting(project, servers) as collector:
        assert pixel(collector, topic, '{"page": "/before"}') == 200
        until(lambda: pages(kafka.log, topic) == ["/before"], "the first event")
        os.kill(kafka.broker.pid, signal.SIGSTOP)
        began = time.monotonic()
        for number in range(COUNT):
            datagram = f'{topic} {{"page": "/{number}"}}'
            sender.sendto(datagram.encode(), ("127.0.0.1", port))
            if number % 10 == 9:
                assert pixel(collector, topic, "no event") == 200
        assert time.monotonic() - began < 30
        until(
            lambda: (
                collector.metric("kappa_collect_events_total", way="udp", outcome="taken") == COUNT
            ),
            "all to be on the disk",
        )
        assert (
            collector.metric("kappa_collect_events_total", way="pixel", outcome="invalid")
            == COUNT / 10
        )
        collector.process.kill()
        collector.process.wait()
    os.kill(kafka.broker.pid, signal.SIGCONT)

    with collecting(project, servers) as collector:
        until(lambda: len(set(pages(kafka.log, topic))) == COUNT + 1, "all to be in the log")
        found = pages(kafka.log, topic)
        # Those that were on their way when it was killed are there twice, in their order.
        first = list(dict.fromkeys(found))
        assert first == ["/before", *(f"/{number}" for number in range(COUNT))]

        # Bad datagrams are counted, and end nothing.
        for bad in (b"", b"{", b"nothing {}", b"\xff\xfe{}", b"x" * 60_000, topic.encode()):
            sender.sendto(bad, ("127.0.0.1", port))
        sender.sendto(f'{topic} {{"page": "/last"}}'.encode(), ("127.0.0.1", port))
        until(lambda: pages(kafka.log, topic)[-1] == "/last", "the last event")
        assert collector.metric("kappa_collect_requests_total", way="udp", status="404") >= 3
    sender.close()


def test_a_full_spool_drops_and_counts(kafka: Restarted, topic: str, tmp_path: Path) -> None:
    port = free_port(socket.SOCK_DGRAM)
    settings = f'udp = "127.0.0.1:{port}"\nwait_seconds = 3\nspool = "1m"\n'
    project = write_project(tmp_path, topic, settings=settings)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    event = f'{topic} {{"page": "{"x" * 30_000}"}}'.encode()
    with collecting(project, kafka.broker.bootstrap_servers) as collector:
        os.kill(kafka.broker.pid, signal.SIGSTOP)

        def dropped() -> bool:
            sender.sendto(event, ("127.0.0.1", port))
            return collector.metric("kappa_collect_events_total", outcome="dropped") > 0

        until(dropped, "events to be dropped")
        assert collector.metric("kappa_collect_spool_bytes") <= 1 << 20
        assert "the spool is full" in (project / "collector.log").read_text()
        os.kill(kafka.broker.pid, signal.SIGCONT)
        taken = collector.metric("kappa_collect_events_total", outcome="taken")
        until(lambda: len(pages(kafka.log, topic)) >= taken, "the spool to be sent")
        until(lambda: pixel(collector, topic, '{"page": "/new"}') == 200, "a new event")
        until(lambda: pages(kafka.log, topic)[-1] == "/new", "room again")
    sender.close()


def test_an_image_on_a_page_of_another_site_sends_nothing(
    kafka: Restarted, topic: str, tmp_path: Path
) -> None:
    project = write_project(tmp_path, topic, settings='origins = ["https://shop.example"]\n')
    with collecting(project, kafka.broker.bootstrap_servers) as collector:
        event = '{"page": "/ö"}'
        other = {"sec_fetch_site": "cross-site"}
        assert pixel(collector, topic, event, **other) == 403
        assert pixel(collector, topic, event, referer="https://x.example/", **other) == 403
        assert pixel(collector, topic, event, referer="https://shop.example/p", **other) == 200
        until(lambda: pages(kafka.log, topic) == ["/ö"], "the event of the shop's page")


def test_a_line_of_text_by_udp_is_an_event_behind_its_token(
    kafka: Restarted, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, token, port = kafka.log, "a-token-of-24-characters", free_port(socket.SOCK_DGRAM)
    log.create(Topic(topic_name, event="page string", partitions=1))
    monkeypatch.setenv("KAPPA__COLLECT__SOURCES__WEB__TOKEN", token)
    settings = f'udp = "127.0.0.1:{port}"\n[collect.sources.web]\n'
    project = write_project(tmp_path, topic_name, settings=settings)
    pipeline = project / "pipelines" / "web.py"
    declared = pipeline.read_text().replace("import Table", "import Text, Table")
    declared = declared.replace("id string, ", "").replace(
        "partitions=3", r'format=Text(r"(?P<page>[^:]+):(?P<ms>[0-9]+)[|]ms")'
    )
    pipeline.write_text(declared)
    lines = (f"{topic_name} /a:1|ms", f"{topic_name} wrong /a:2|ms", f"{topic_name} {token} /a|c")
    with (
        collecting(project, kafka.broker.bootstrap_servers) as collector,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        for line in (*lines, f"{topic_name} {token} /a b:3|ms\n"):
            sender.sendto(line.encode(), ("127.0.0.1", port))
        until(lambda: log.end([topic_name]).at(topic_name, 0) == 1, "the line")
        counts = collector.ask("GET", f"/metrics?token={token}").body.decode()
    udp = [line for line in counts.splitlines() if 'way="udp"' in line]
    assert {line.rpartition(" ")[2] for line in udp if 'status="401"' in line} == {"2"}
    assert {line.rpartition(" ")[2] for line in udp if 'outcome="invalid"' in line} == {"1"}
    (record,) = log.records([topic_name], Offsets(), log.end([topic_name]))
    assert (record.key, record.value) == (b"/a b", b"/a b:3|ms\n")
