"""Laws of the collector under faults: acknowledged events are in the log, whatever dies."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from collecting import (
    EVENT,
    IDENTIFIED,
    Collector,
    collecting,
    folded,
    records_of,
    until,
    write_project,
)
from ports import free_port

from kappa import Topic
from kappa.kafka.client import Log

if TYPE_CHECKING:
    from losing import Restarted

pytestmark = [pytest.mark.jvm, pytest.mark.fault]
# Debian's place of servers may be off the user's path.
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Client(threading.Thread):
    """A client that sends events singly and in batches, and repeats each one until it gets 200."""

    def __init__(self, name: str, port: list[int], topic: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.repeats = 0
        self._port = port
        self._topic = topic
        self._ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            ids = [f"{self.name}-{number}-{each}" for each in range(1 + number % 3 * 5)]
            while not self._sent(ids):
                self.repeats += 1
                if self._ending.wait(0.02):
                    return

    def end(self) -> None:
        self._ending.set()
        self.join(90)
        assert not self.is_alive()

    def _sent(self, ids: list[str]) -> bool:
        body = "\n".join(json.dumps({"id": each, "page": f"/{each}"}) for each in ids)
        # A single event goes the short way, and is repeated by its id alone.
        headers = {"content_type": "application/x-ndjson", "idempotency_key": ids[0]}
        try:
            replied = Collector(None, "127.0.0.1", self._port[0], "").post(  # type: ignore[arg-type]  # asked only
                self._topic, body, **(headers if len(ids) > 1 else {})
            )
            found = replied.json()
        except (OSError, ValueError, HTTPException):
            # It was killed in the middle of an answer, or is not there yet.
            return False
        if replied.status != 200:
            assert replied.status == 503, replied
            return False
        for each, name in zip(found.get("events", [found]), ids, strict=True):
            self.acknowledged[name] = each["partition"], each["offset"]
        return True


def test_a_killed_collector_keeps_what_it_acknowledged_and_repeats_fold_once(
    log: Log, tmp_path: Path
) -> None:
    log.create(IDENTIFIED)
    project = write_project(tmp_path, "kept", key=None, identity="id")
    toml = (project / "kappa.toml").read_text()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = [free.getsockname()[1]]
    (project / "kappa.toml").write_text(toml.replace(":0", f":{port[0]}"))
    clients = [Client(f"c{number}", port, "kept") for number in range(6)]
    draw = random.Random(7)

    for _ in range(3):
        with collecting(project, log.bootstrap_servers) as collector:
            for client in clients:
                if not client.is_alive():
                    client.start()
            had = sum(len(client.acknowledged) for client in clients)
            until(
                lambda had=had: sum(len(each.acknowledged) for each in clients) > had + 1_000,
                "events to be acknowledged",
            )
            time.sleep(draw.random() / 5)
            collector.process.kill()
    with collecting(project, log.bootstrap_servers):
        for client in clients:
            client.end()

    ensure_kept_once(log, clients)
    log.delete("kept")


def ensure_kept_once(log: Log, clients: list[Client]) -> None:
    """Asserts that each acknowledged event is in the log, and is folded once."""
    found = records_of(log, "kept")
    by_place = {(each.partition, each.offset): each for each in found}
    acknowledged = {name: at for each in clients for name, at in each.acknowledged.items()}
    assert len(acknowledged) > 3_000
    assert {
        name
        for name, at in acknowledged.items()
        if f'"{name}"'.encode() not in (by_place[at].value or b"")
    } == set()
    counts = folded(found)
    assert {name for name in acknowledged if counts[name] != 1} == set()
    assert max(counts.values()) == 1
    # Some were sent twice: else nothing was tried.
    assert sum(client.repeats for client in clients) > 0


@pytest.mark.long
@pytest.mark.skipif(HAPROXY is None, reason="not run: no haproxy (apt-get install haproxy)")
def test_two_collectors_behind_a_balancer_lose_and_double_nothing(log: Log, tmp_path: Path) -> None:
    """A repeat may reach either collector; the identity removes what both have sent."""
    log.create(IDENTIFIED)
    ports, projects = [free_port(), free_port()], []
    for port in ports:
        folder = tmp_path / str(port)
        projects.append(write_project(folder, "kept", key=None, identity="id"))
        toml = folder / "kappa.toml"
        toml.write_text(toml.read_text().replace(":0", f":{port}"))
    with ExitStack() as running, balanced(tmp_path, ports) as port:
        both = [running.enter_context(collecting(each, log.bootstrap_servers)) for each in projects]
        clients = [Client(f"c{number}", [port], "kept") for number in range(6)]
        for client in clients:
            client.start()

        def acknowledged() -> int:
            return sum(len(client.acknowledged) for client in clients)

        for turn in range(3):
            had = acknowledged()
            until(lambda had=had: acknowledged() > had + 300, "events by both")
            # In the middle of answers; once the other one dies, too.
            dead = [turn % 2]
            both[dead[0]].process.kill()
            had = acknowledged()
            until(lambda had=had: acknowledged() > had + 300, "events by the other one")
            if turn == 2:
                dead.append(1)
                both[1].process.kill()
            for each in dead:
                begin = collecting(projects[each], log.bootstrap_servers)
                both[each] = running.enter_context(begin)
        for client in clients:
            client.end()
        for each in both:
            assert each.metric("kappa_collect_events_total", outcome="acknowledged") > 0
    ensure_kept_once(log, clients)
    log.delete("kept")


@contextmanager
def balanced(folder: Path, ports: list[int]) -> Iterator[int]:
    """Runs a balancer in front of these ports, and yields the balancer's port."""
    port, settings = free_port(), folder / "haproxy.cfg"
    servers = "\n".join(
        f"  server s{each} 127.0.0.1:{each} check inter 200ms fall 1 rise 1" for each in ports
    )
    settings.write_text(
        "defaults\n  mode tcp\n  timeout connect 2s\n  timeout client 1m\n  timeout server 1m\n"
        f"listen events\n  bind 127.0.0.1:{port}\n  balance roundrobin\n"
        f"  option httpchk GET /readyz\n{servers}\n"
    )
    process = subprocess.Popen([str(HAPROXY), "-db", "-f", settings])
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_while_the_broker_is_away_room_ends_at_once_and_all_is_well_after(
    kafka: Restarted, tmp_path: Path
) -> None:
    kafka.log.create(Topic("away", event=EVENT))
    project = write_project(tmp_path, "away", settings="queue_events = 500\nwait_seconds = 20\n")
    with collecting(project, kafka.broker.bootstrap_servers) as collector:
        assert collector.post("away", '{"page": "/before"}').status == 200
        os.kill(kafka.broker.pid, signal.SIGSTOP)
        answers: list[tuple[int, float]] = []

        def post() -> None:
            began = time.monotonic()
            status = collector.post_lines("away", *['{"page": "/x"}'] * 100).status
            answers.append((status, time.monotonic() - began))

        threads = [threading.Thread(target=post) for _ in range(20)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) >= 15, "15 to be refused at once")
        assert {status for status, _ in answers} == {503}
        assert collector.metric("kappa_collect_queue_events") == 500
        until(lambda: collector.ask("GET", "/readyz").status == 503, "it to be unready")
        assert "full" in collector.ask("GET", "/readyz").body.decode()
        refused = collector.post("away", '{"page": "/y"}')
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        for thread in threads:
            thread.join(120)
        assert sum(seconds > 15 for _, seconds in answers) == 5
        os.kill(kafka.broker.pid, signal.SIGCONT)

        until(
            lambda: collector.post("away", '{"page": "/after"}').status == 200,
            "events to be acknowledged again",
        )
        assert collector.ask("GET", "/readyz").status == 200
        assert collector.metric("kappa_collect_queue_events") == 0
        assert collector.metric("kappa_collect_queue_bytes") == 0


@pytest.mark.long
def test_a_topic_that_is_missing_is_a_sentence_until_it_is_made(
    log: Log, tmp_path: Path, topic_name: str
) -> None:
    project = write_project(tmp_path, topic_name)
    with collecting(project, log.bootstrap_servers) as collector:
        until(lambda: collector.ask("GET", "/readyz").status == 503, "the topic to be missed")
        refused = collector.post(topic_name, '{"page": "/a"}')
        assert (refused.status, "kappa topics create" in refused.body.decode()) == (503, True)

        log.create(Topic(topic_name, event=EVENT, partitions=1))

        until(
            lambda: collector.post(topic_name, '{"page": "/a"}').status == 200,
            "the topic to be found",
        )
    log.delete(topic_name)


def test_a_changed_declaration_is_loaded_and_a_broken_one_is_not(
    log: Log, tmp_path: Path, topic_name: str
) -> None:
    log.create(Topic(topic_name, event=EVENT))
    project = write_project(tmp_path, topic_name)
    file = project / "pipelines" / "web.py"
    with collecting(project, log.bootstrap_servers) as collector:
        event = '{"page": "/a", "ms": "slow"}'
        assert collector.post(topic_name, event).status == 422
        text = file.read_text()

        file.write_text(text.replace("ms int", "ms string"))
        until(lambda: collector.post(topic_name, event).status == 200, "the change to be loaded")

        file.write_text("this is not Python")
        log_of = project / "collector.log"
        until(lambda: "stay as they were" in log_of.read_text(), "the mistake to be reported")
        assert collector.post(topic_name, event).status == 200
    log.delete(topic_name)


@pytest.mark.long
def test_slow_and_silent_clients_keep_nobody_out(log: Log, tmp_path: Path, topic_name: str) -> None:
    log.create(Topic(topic_name, event=EVENT))
    project = write_project(tmp_path, topic_name, settings="queue_bytes = '1m'\nbody_bytes = '1m'")
    with collecting(project, log.bootstrap_servers) as collector:
        slow = [socket.create_connection((collector.host, collector.port)) for _ in range(200)]
        try:
            for number, each in enumerate(slow):
                head = f"POST /collect/{topic_name} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                each.sendall(head.encode() if number % 2 else b"")
            assert collector.post(topic_name, '{"page": "/a"}').status == 200
            # A body that never ends has the room of what arrived, and no more.
            for each in slow[1::2]:
                each.sendall(b"Content-Length: 900000\r\n\r\n" + b"x" * 20_000)
            large = json.dumps({"page": "x" * 50_000})
            until(lambda: collector.post(topic_name, large).status == 503, "the room to be full")
            until(
                lambda: collector.post(topic_name, large).status == 200,
                "slow bodies to be given up",
            )
        finally:
            for each in slow:
                each.close()
    log.delete(topic_name)
