"""Laws of pulled sources: each continues where it was, and errors of a source are shown."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from collecting import EVENT, Collector, collecting, ids_of, until, write_project
from msgspec.structs import replace
from pulled_sources import DocumentSource, SseSource, WebsocketSource, event, running

from kappa import Topic
from kappa.base.errors import SettingsError
from kappa.base.sections import CollectSettings, PullKind, PullSettings
from kappa.kafka.client import Log
from kappa.serving.collect.pulled.source import sources_of
from kappa.state.root import Root, place_of, put_root
from kappa.state.store import Store

TOKEN = "canary-of-a-token"


def project_of(folder: Path, topic: str, kind: str, port: int, more: str = "") -> Path:
    scheme = "ws" if kind == "websocket" else "http"
    pull = f"""
[collect.pull.shop]
url = "{scheme}://127.0.0.1:{port}/events?key=hidden"
topic = "{topic}"
kind = "{kind}"
{more}
"""
    return write_project(folder, topic, settings=pull)


def state(collector: Collector) -> dict[str, object]:
    (found,) = collector.ask("GET", "/collect/pulls").json()
    assert isinstance(found, dict)
    return found


@pytest.mark.jvm
@pytest.mark.fault
def test_a_stream_goes_on_after_kills_of_the_collector_and_of_its_source(
    log: Log, tmp_path: Path, topic: str
) -> None:
    draw = random.Random(3)
    with running(SseSource()) as source:
        project = project_of(tmp_path, topic, "sse", source.port)
        for _ in range(4):
            had = len(source.events)
            with collecting(project, log.bootstrap_servers) as collector:
                source.add(*(event(number) for number in range(had + 1, had + 301)))
                until(lambda had=had: len({*ids_of(log, topic)}) > had + 100, "events")
                source.go()
                time.sleep(draw.random() / 10)
                source.come()
                until(lambda had=had: len({*ids_of(log, topic)}) > had + 200, "more events")
                # In the middle of the rest, or when it has all.
                time.sleep(draw.random() / 10)
                collector.process.kill()
        with collecting(project, log.bootstrap_servers) as collector:
            until(lambda: len({*ids_of(log, topic)}) == 1_200, "all events")
            assert collector.ask("GET", "/readyz").status == 200

    counted = Counter(ids_of(log, topic))
    assert sorted(counted) == list(range(1, 1_201))
    # At most what was on its way at a kill is there twice: not all from the beginning.
    assert counted.total() < 1_200 + 4 * 150
    assert any(asked.get("last-event-id", "0") != "0" for asked in source.asked)


@pytest.mark.jvm
@pytest.mark.fault
@pytest.mark.parametrize("kind", ["sse", "poll"])
def test_what_was_read_and_not_acknowledged_at_a_kill_is_read_again(
    log: Log, tmp_path: Path, topic_name: str, kind: str
) -> None:
    events = [event(number) for number in range(1, 101)]
    document, stream = DocumentSource(), SseSource()
    document.put(f"[{', '.join(events)}]".encode(), '"1"')
    stream.add(*events)
    with running(document), running(stream):
        port = (stream if kind == "sse" else document).port
        project = project_of(tmp_path, topic_name, kind, port)
        with collecting(project, log.bootstrap_servers) as collector:
            # Its topic is not there, so none can be acknowledged.
            until(lambda: collector.metric("kappa_collect_queue_events") > 0, "some to be read")
            collector.process.kill()
        log.create(Topic(topic_name, event=EVENT))
        with collecting(project, log.bootstrap_servers):
            until(lambda: len(ids_of(log, topic_name)) >= 100, "all events")
    assert sorted(ids_of(log, topic_name)) == list(range(1, 101))
    log.delete(topic_name)


@pytest.mark.jvm
def test_an_adopted_copy_pulls_nothing_until_it_may(log: Log, tmp_path: Path, topic: str) -> None:
    with running(SseSource()) as source:
        source.add(event(1))
        project = project_of(tmp_path, topic, "sse", source.port)
        store = Store(project / ".kappa")
        copy = Root("copy", "then", place_of(store), adopted_from="first", sends=False)
        put_root(store, copy)
        with collecting(project, log.bootstrap_servers) as collector:
            assert collector.ask("GET", "/collect/pulls").json() == []
            # What it is sent, it takes all the same.
            assert collector.ask("POST", f"/collect/{topic}", event(2).encode()).status == 200
            collector.process.kill()
        assert (source.asked, ids_of(log, topic)) == ([], [2])

        put_root(store, replace(copy, sends=True))
        with collecting(project, log.bootstrap_servers):
            until(lambda: sorted(ids_of(log, topic)) == [1, 2], "what is pulled")


@pytest.mark.jvm
def test_a_changed_document_is_sent_and_an_unchanged_one_is_not(
    log: Log, tmp_path: Path, topic: str
) -> None:
    with running(DocumentSource()) as source:
        source.put(f"[{event(1)}, {event(2)}, 7]".encode(), '"1"')
        project = project_of(tmp_path, topic, "poll", source.port, 'every = "1s"')
        with collecting(project, log.bootstrap_servers) as collector:
            until(lambda: source.statuses.count(304) > 1, "it to be unchanged")
            assert sorted(ids_of(log, topic)) == [1, 2]
            assert "not an object" in str(state(collector)["last_invalid"])
            asked = {"pull": "shop", "outcome": "invalid"}
            assert collector.metric("kappa_collect_pull_events_total", **asked) == 1
            collector.process.kill()
        before = len(source.statuses)
        with collecting(project, log.bootstrap_servers):
            until(lambda: len(source.statuses) > before + 1, "it to be asked again")
            assert {*source.statuses[before:]} == {304}
            source.put(f"{event(3)}\n{event(4)}\n".encode(), '"2"', "application/x-ndjson")
            until(lambda: sorted(ids_of(log, topic)) == [1, 2, 3, 4], "the change")
            # Without a tag, its bytes show that it is the same.
            source.tag = ""
            before = len(source.statuses)
            until(lambda: source.statuses[before:].count(200) > 1, "the whole of it")
    assert sorted(ids_of(log, topic)) == [1, 2, 3, 4]


@pytest.mark.jvm
def test_a_broker_that_refuses_a_batch_gets_its_events_in_smaller_ones(
    log: Log, tmp_path: Path, topic_name: str
) -> None:
    # Of a batch, not of an event.
    config = {"max.message.bytes": "2000"}
    log.create(Topic(topic_name, event="id string, page string not null", config=config))
    draw = random.Random(5)

    def large(number: int, size: int) -> str:
        return json.dumps({"id": str(number), "page": draw.randbytes(size).hex()})

    sizes = dict.fromkeys(range(1, 201), 100) | {50: 2_000}
    with running(DocumentSource()) as source:
        source.put("\n".join(large(*each) for each in sizes.items()).encode(), '"1"', "text/plain")
        project = project_of(tmp_path, topic_name, "poll", source.port)
        with collecting(project, log.bootstrap_servers) as collector:
            until(
                lambda: state(collector)["events"] == {"acknowledged": 199, "failed": 1},
                "all to be settled",
            )
    assert sorted(ids_of(log, topic_name)) == [each for each in sizes if each != 50]
    log.delete(topic_name)


@pytest.mark.jvm
def test_a_websocket_is_connected_to_again_and_its_token_is_sent(
    log: Log, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA__COLLECT__PULL__SHOP__TOKEN", TOKEN)
    with running(WebsocketSource()) as source:
        project = project_of(tmp_path, topic, "websocket", source.port)
        with collecting(project, log.bootstrap_servers) as collector:
            until(lambda: source.is_heard, "a connection")
            source.send(*map(event, range(1, 2_001)), b"no json")
            until(lambda: len(ids_of(log, topic)) == 2_000, "its events")
            source.go()
            until(lambda: state(collector)["state"] == "away", "it to be missed")
            assert collector.metric("kappa_collect_pull_up", pull="shop") == 0
            assert collector.ask("GET", "/readyz").status == 200
            source.come()
            until(lambda: source.is_heard, "a new connection")
            source.send(event(2_001))
            until(lambda: len(ids_of(log, topic)) == 2_001, "the event after it")
            found = state(collector)
    assert found["last_invalid"] is not None
    assert {*source.asked} == {f"Bearer {TOKEN}"}
    said = (project / "collector.log").read_text()
    assert TOKEN not in said
    assert said.count("gives no events") == said.count("is there again") == 1


@pytest.mark.long
@pytest.mark.jvm
def test_a_source_that_does_not_answer_well_is_shown_and_reported_once(
    log: Log, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA__COLLECT__PULL__SHOP__HEADERS", json.dumps({"X-Key": TOKEN}))
    with running(DocumentSource()) as source, running(DocumentSource()) as other:
        source.status, source.headers = 302, {"Location": f"http://127.0.0.1:{other.port}/"}
        project = project_of(tmp_path, topic, "poll", source.port, 'every = "1s"')
        with collecting(project, log.bootstrap_servers) as collector:

            def shows(part: str) -> None:
                until(lambda: part in str(state(collector)["why"]), part)

            shows("redirects are not followed")
            source.headers, source.status = {}, 500
            shows("it answers 500")
            source.status, source.document = 0, b"x" * (9 << 20)
            shows("more than 8,388,608 bytes")
            source.go()
            shows("refused")
            source.document, source.tag = f"[{event(1)}]".encode(), '"2"'
            source.come()
            until(lambda: ids_of(log, topic) == [1], "it to be well")
            assert collector.post(topic, '{"page": "/a"}').status == 200
    assert other.asked == []
    assert source.asked[0]["x-key"] == TOKEN
    said = (project / "collector.log").read_text()
    assert TOKEN not in said
    assert "hidden" not in said
    assert said.count("gives no events") == said.count("is there again") == 1


@pytest.mark.parametrize(
    ("name", "pull", "part"),
    [
        ("a b", PullSettings(url="http://x/", topic="visits"), "not a valid source name"),
        ("Shop", PullSettings(url="http://x/", topic="visits"), "not a valid source name"),
        ("a__b", PullSettings(url="http://x/", topic="visits"), "not a valid source name"),
        ("a_", PullSettings(url="http://x/", topic="visits"), "not a valid source name"),
        ("a", PullSettings(url="http://x/", topic="visits", ca=Path("/ca")), "not encrypted"),
        ("a", PullSettings(url="http://x/", topic="orders"), "not collected"),
        ("a", PullSettings(url="", topic="visits"), "a.url is not an address"),
        ("a", PullSettings(url="http://x:99999/", topic="visits"), "a.url is not an address"),
        ("a", PullSettings(url="http://x/\n", topic="visits"), "a.url is not an address"),
        ("a", PullSettings(url="ws://x/", topic="visits"), "a.url is not an address"),
        ("a", PullSettings(url="https://me:canary@x/", topic="visits"), "user or password"),
        ("a", PullSettings(url="http://x/", topic="visits", token="canary"), "not encrypted"),
        ("a", PullSettings(url="https://x/", topic="visits", token="canary\r\nX: y"), "cannot be"),
        (
            "a",
            PullSettings(url="https://x/", topic="visits", headers={"Host": "canary"}),
            "not a header that can be given",
        ),
        ("a", PullSettings(url="https://x/", topic="visits", every="0s"), "a.every is 0s"),
    ],
)
def test_a_source_that_cannot_be_is_one_sentence(name: str, pull: PullSettings, part: str) -> None:
    with pytest.raises(SettingsError, match=part) as refused:
        sources_of(CollectSettings(topics=["visits"], pull={name: pull}), 1_000)

    assert "canary" not in f"{refused.value}{refused.value.hint}"


def test_a_source_is_reached_at_its_place_and_shown_without_its_query() -> None:
    pull = PullSettings(
        url="wss://[::1]/a?key=canary#x", topic="visits", kind=PullKind.WEBSOCKET, token="t"
    )

    (found,) = sources_of(CollectSettings(topics=["visits"], pull={"a": pull}), 1_000)

    assert (found.host, found.port, found.target) == ("::1", 443, "/a?key=canary")
    assert found.shown == "wss://[::1]:443/a"
    assert found.url == "wss://[::1]/a?key=canary"
