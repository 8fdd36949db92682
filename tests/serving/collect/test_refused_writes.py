"""Laws of events for which nobody waits: they survive a refusal that may be lifted later."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from collecting import collecting, until, write_project
from pulled_sources import DocumentSource, event, running
from secured import SecuredBroker

from kappa import Topic
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.jvm

USER, PASSWORD = "collector", "collector-pw"


@pytest.fixture
def topic(secured: SecuredBroker, topic_name: str) -> Iterator[str]:
    """Yields a topic that the user may see but not write; the user may write another topic."""
    secured.add_user(USER, PASSWORD)
    secured.log.create(Topic(topic_name, event="id string, page string not null, ms int"))
    seen = [("topic", topic_name, each) for each in ("Describe", "DescribeConfigs")]
    secured.allow(USER, [*seen, ("topic", "another", "Write")])
    yield topic_name
    secured.forbid(USER)
    secured.log.delete(topic_name)


def ids(secured: SecuredBroker, topic: str) -> list[int]:
    found = secured.log.records([topic], Offsets(), secured.log.end([topic]))
    return sorted(int(json.loads(each.value or b"")["id"]) for each in found)


def project_of(folder: Path, secured: SecuredBroker, topic: str, settings: str) -> Path:
    auth = f"""
[kafka]
bootstrap_servers = "{secured.at("sasl")}"

[kafka.auth]
mechanism = "SCRAM-SHA-512"
user = "{USER}"
ca = "{secured.authority.ca}"
"""
    return write_project(folder, topic, settings=settings + auth)


def test_a_pull_waits_for_a_rule_that_is_missing_and_loses_no_event(
    secured: SecuredBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__PASSWORD", PASSWORD)
    with running(DocumentSource()) as source:
        source.put(f"[{event(1)}, {event(2)}, {event(3)}]".encode(), '"1"')
        pull = f"""
[collect.pull.shop]
url = "http://127.0.0.1:{source.port}/"
topic = "{topic}"
kind = "poll"
every = "1s"
"""
        project = project_of(tmp_path, secured, topic, pull)
        with collecting(project, secured.at("sasl")) as collector:

            def why() -> str:
                (found,) = collector.ask("GET", "/collect/pulls").json()
                return str(found["why"])

            until(lambda: "the broker refuses its events, which wait" in why(), "a refusal")
            missed = f"does not allow the operation Write on topic {topic} ("
            assert missed in why()
            refused = collector.post(topic, '{"page": "/a"}')
            assert (refused.status, missed in refused.body.decode()) == (502, True)
            assert not list((project / ".kappa").rglob("shop.json"))

            secured.allow(USER, [("topic", topic, "Write")])

            until(lambda: ids(secured, topic) == [1, 2, 3], "the rule to be there")
            until(lambda: not why(), "it to be well")
    assert (project / "collector.log").read_text().count("which wait") == 1


def test_the_spool_waits_for_a_rule_that_is_missing_and_loses_no_event(
    secured: SecuredBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA__KAFKA__AUTH__PASSWORD", PASSWORD)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        port = sender.getsockname()[1]
    project = project_of(tmp_path, secured, topic, f'udp = "127.0.0.1:{port}"\n')
    with (
        collecting(project, secured.at("sasl")),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        for number in (1, 2, 3):
            sender.sendto(f"{topic} {event(number)}".encode(), ("127.0.0.1", port))
        log = project / "collector.log"
        until(lambda: "refuses events of the spool, which wait" in log.read_text(), "a refusal")
        assert f"the operation Write on topic {topic} (" in log.read_text()

        secured.allow(USER, [("topic", topic, "Write")])

        until(lambda: ids(secured, topic) == [1, 2, 3], "the rule to be there")
