"""The embedded broker: its data survive it, and it ends with its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kappa.base.errors import KappaError, Unreachable
from kappa.base.process import ProcessId, process_id
from kappa.declare.topic import Topic
from kappa.kafka.broker.broker import Broker, last_words
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.state.offsets import Offsets

# A parent that starts a broker, prints its pid and address, and then only waits to be killed.
PARENT = """
import sys, time
from pathlib import Path
from kappa.base.java.java import find_java
from kappa.kafka.broker.broker import Broker
from kappa.base.java.jars import ensure_jars
java = find_java()
broker = Broker.start(Path(sys.argv[1]), ensure_jars(java), java)
print(broker.pid, broker.bootstrap_servers, flush=True)
time.sleep(600)
"""


def a_parent(root: Path) -> tuple[subprocess.Popen[str], ProcessId, str]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(root)], stdout=subprocess.PIPE, text=True
    )
    pid, address = parent.stdout.readline().split()
    parent.stdout.close()
    broker = process_id(int(pid))
    assert broker is not None
    return parent, broker, address


def wait_until_gone(process: ProcessId) -> None:
    deadline = time.monotonic() + 60
    while process.alive():
        assert time.monotonic() < deadline, f"{process} is still there"
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.fault
def test_data_survive_a_killed_parent_a_leftover_a_restart_and_a_taken_port(tmp_path, jars, java):
    """The address survives too unless it was taken; two brokers never run on the same data."""
    root = tmp_path / "bröker 日本 🛫"
    parent, orphan, address = a_parent(root)
    assert (root / "broker" / "data" / "meta.properties").is_file()
    assert "Kafka Server started" in (root / "logs" / "broker.log").read_text(encoding="utf-8")
    log = Log(address, patience_seconds=2)
    facts = log.create(Topic("kept", event="id string", partitions=2))
    log.produce([ProducedRecord(b"{}", partition=1)], "kept")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until_gone(orphan)
    client = log.admin
    with pytest.raises(Unreachable):
        log.facts("kept")

    parent, leftover, again = a_parent(root)
    try:
        assert again == address
        mine = Broker.start(root, jars, java)
        try:
            assert not leftover.alive()
            assert mine.bootstrap_servers == address
            # A client of librdkafka that found no broker may never look again.
            assert log.facts("kept") == facts
            assert log.admin is not client
            assert Log(address).end(["kept"]) == Offsets({"kept": {0: 0, 1: 1}})
        finally:
            mine.stop()
        assert not mine.alive()
    finally:
        parent.kill()
        parent.wait()

    with socket.socket() as squatter:
        # The broker's own lingering connections must not keep the port from the test.
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        squatter.listen()
        moved = Broker.start(root, jars, java)
    try:
        assert moved.bootstrap_servers != address
        assert Log(moved.bootstrap_servers).facts("kept") == facts
        assert Log(moved.bootstrap_servers).end(["kept"]) == Offsets({"kept": {0: 0, 1: 1}})
    finally:
        moved.stop()
    assert [path.name for path in tmp_path.iterdir()] == [root.name]


@pytest.mark.jvm
def test_a_broker_that_dies_at_its_start_says_why(tmp_path, jars, java):
    with pytest.raises(KappaError, match="did not start: .*heap"):
        Broker.start(tmp_path, jars, java, heap="1k")


def test_the_last_words_are_the_cause_and_not_the_trace():
    log = """\
2026-01-01 ERROR Exiting Kafka due to fatal exception (Kafka$)
org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:9092: \
Address already in use.
	at org.apache.kafka.network.SocketServer.bind(SocketServer.java:1)
Caused by: java.net.BindException: Address already in use
	at java.base/sun.nio.ch.Net.bind0(Native Method)
	... 12 more
2026-01-01 INFO App info unregistered (AppInfoParser)
"""

    assert last_words(log) == "java.net.BindException: Address already in use"
    assert last_words("one\ntwo\n") == "two"
    assert last_words("") == "it left no word"


def test_a_process_is_known_by_its_birth_and_not_only_by_its_pid():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    named = process_id(child.pid)
    assert named.alive()
    assert not ProcessId(child.pid, "another birth").alive()

    os.kill(child.pid, signal.SIGKILL)
    wait_until_gone(named)
    child.wait()
