"""Laws of events from MQTT: each is acknowledged once Kafka has it, and lies are reported."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import mqtt5
import pytest
from certificates import Authority
from collecting import EVENT, collecting, folded, ids_of, records_of, until, write_project
from mqtt_servers import PROGRAM, Mosquitto, ToldServer, told_event
from pulled_sources import event, running

from kappa import Topic
from kappa.base.errors import SettingsError, UsageError
from kappa.base.sections import CollectSettings, PullKind, PullSettings
from kappa.commands.app import run_command
from kappa.kafka.client import Log
from kappa.serving.collect.declared_topics import ensure_topic_fields
from kappa.serving.collect.lines import Invalid
from kappa.serving.collect.pulled.mqtt import visit_mqtt, with_mqtt_topic
from kappa.serving.collect.pulled.source import SourceAway, sources_of
from kappa.serving.collect.pulled.source_protocol import PullPosition

PASSWORD = "canary-of-a-password"
needs_mosquitto = pytest.mark.skipif(
    PROGRAM is None, reason="not run: no mosquitto (apt-get install mosquitto)"
)


def settings(port: int, topic: str, more: str = "") -> str:
    return f"""
[collect.pull.plant]
url = "mqtt://127.0.0.1:{port}"
topic = "{topic}"
kind = "mqtt"
filters = ["plant/#"]
{more}
"""


@pytest.fixture
def topic(log: Log, topic_name: str) -> Iterator[str]:
    log.create(
        Topic(
            topic_name,
            event=EVENT,
            partitions=3,
            identity="id",
            config={"message.timestamp.type": "LogAppendTime"},
        )
    )
    yield topic_name
    log.delete(topic_name)


@needs_mosquitto
@pytest.mark.jvm
@pytest.mark.fault
def test_a_session_outlives_kills_of_the_collector_and_its_server(
    log: Log, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, authority = random.Random(3), Authority(tmp_path / "authority")
    monkeypatch.setenv("KAPPA__COLLECT__PULL__PLANT__TOKEN", PASSWORD)
    server = Mosquitto(tmp_path / "mqtt", tls=authority.issue("server"), password=PASSWORD)
    with running(server):
        pull = settings(server.port, topic, f'ca = "{authority.ca}"\nuser = "kappa"')
        pull = pull.replace("mqtt://", "mqtts://")
        project = write_project(tmp_path, topic, key=None, identity="id", settings=pull)
        server.publish(event(1), topic="plant/0", retain=True)
        for turn in range(3):
            first = 2 + turn * 300
            with collecting(project, log.bootstrap_servers) as collector:
                until(lambda first=first: len({*ids_of(log, topic)}) >= first - 1, "earlier events")
                server.publish(*map(event, range(first, first + 200)), b"no json")
                until(lambda first=first: len({*ids_of(log, topic)}) > first + 50, "events")
                # In the middle of the rest, or when it has all.
                time.sleep(draw.random() / 10)
                collector.process.kill()
            # Nobody is connected, and the server goes away with the events.
            server.publish(*map(event, range(first + 200, first + 300)))
            server.go()
            server.come()
        with collecting(project, log.bootstrap_servers) as collector:
            until(lambda: len({*ids_of(log, topic)}) == 901, "all events")
            (shown,) = collector.ask("GET", "/collect/pulls").json()
            assert (shown["state"], shown["url"]) == ("there", f"mqtts://127.0.0.1:{server.port}")
            assert PASSWORD not in (project / "collector.log").read_text()

    counted = Counter(ids_of(log, topic))
    assert sorted(counted) == list(range(1, 902))
    # A retained event comes once a session; at a kill, at most what was on its way comes twice.
    assert counted[1] == 1
    assert counted.total() < 901 + 3 * 150
    assert folded(records_of(log, topic)).total() == 901


@pytest.mark.jvm
@pytest.mark.fault
def test_what_kafka_has_not_is_not_acknowledged_to_the_server(
    log: Log, tmp_path: Path, topic_name: str
) -> None:
    server = ToldServer()
    server.sends = [told_event(number, event(number)) for number in range(1, 101)]
    with running(server):
        project = write_project(tmp_path, topic_name, settings=settings(server.port, topic_name))
        with collecting(project, log.bootstrap_servers) as collector:
            # Its topic is not there, so none can be acknowledged.
            until(lambda: collector.metric("kappa_collect_queue_events") > 0, "some to be read")
            collector.process.kill()
        assert server.acknowledged == []
        log.create(Topic(topic_name, event=EVENT))
        server.sends = [
            told_event(number, event(number), duplicate=True) for number in range(1, 101)
        ]
        with collecting(project, log.bootstrap_servers):
            until(lambda: len(server.acknowledged) == 100, "all to be acknowledged")
            assert sorted(ids_of(log, topic_name)) == list(range(1, 101))
            # A server that repeats what was acknowledged is told so again.
            server.drop()
            until(lambda: len(server.acknowledged) == 200, "the repeats to be acknowledged")
    assert server.acknowledged == [*range(1, 101), *range(1, 101)]
    clients = {each.client_id for each in server.of_kind(mqtt5.ConnectPacket)}
    assert len(clients) == 1
    assert not any(each.clean_start for each in server.of_kind(mqtt5.ConnectPacket))
    log.delete(topic_name)


class Visits:
    """A visitor that remembers its events. It accepts events while `room` is set."""

    def __init__(self, position: PullPosition | None = None) -> None:
        self.position = position or PullPosition("plant")
        self.again_seconds = 1.0
        self.is_open = False
        self.taken: list[bytes] = []
        self.said: list[str] = []
        self.kept: list[PullPosition] = []
        self.room = asyncio.Event()
        self.room.set()

    def opened(self) -> None:
        self.is_open = True

    async def take(
        self, events: Sequence[bytes | Invalid], position: PullPosition | None = None
    ) -> None:
        assert position is None
        await self.room.wait()
        self.taken += events

    async def keep(self, position: PullPosition) -> None:
        self.position = position
        self.kept.append(position)

    def report(self, what: str) -> None:
        self.said.append(what)


def visited(port: int, visits: Visits, until_so: Callable[[], bool], **more: Any) -> str:
    """Visits a server until `until_so` returns True.

    Returns the reason if the visit ended before that.
    """
    pull = {"url": f"mqtt://127.0.0.1:{port}", "topic": "visits", "kind": PullKind.MQTT}
    declared = PullSettings(**{**pull, "filters": ["plant/#"], **more})
    (source,) = sources_of(CollectSettings(topics=["visits"], pull={"plant": declared}), 1_000)

    async def visit_for_a_while() -> str:
        visit = asyncio.ensure_future(visit_mqtt(source, visits))
        deadline = time.monotonic() + 60
        try:
            while not visit.done() and not until_so():
                assert time.monotonic() < deadline, visits.taken
                await asyncio.sleep(0.01)
        finally:
            visit.cancel()
            with suppress(asyncio.CancelledError, SourceAway):
                await visit
        found = None if visit.cancelled() else visit.exception()
        return found.why if isinstance(found, SourceAway) else ""

    return asyncio.run(visit_for_a_while())


def never() -> bool:
    return False


def connack(**more: Any) -> bytes:
    return mqtt5.ConnAckPacket(**more).write()


def disconnect(code: mqtt5.DisconnectReasonCode) -> bytes:
    return mqtt5.DisconnectPacket(reason_code=code).write()


# What a server tells, and a part of the reason.
LIES: dict[str, tuple[dict[str, Any], str]] = {
    "password": (
        {
            "welcome": connack(
                reason_code=mqtt5.ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD,
                reason_str="try\nagain",
            )
        },
        "refuses the connection: bad user name or password (try again)",
    ),
    "redirect": (
        {
            "welcome": connack(
                reason_code=mqtt5.ConnAckReasonCode.USE_ANOTHER_SERVER,
                server_reference="mqtt.example",
            )
        },
        "another server, mqtt.example, and redirects are not followed",
    ),
    "offer": ({"welcome": connack(max_qos=mqtt5.QoS.AT_MOST_ONCE)}, "offers only QoS 0"),
    # "Unacceptable protocol version" of MQTT 3.1.1.
    # "Unacceptable protocol version" of MQTT 3.1.1.
    "old": ({"welcome": b"\x20\x02\x00\x01"}, "does not speak MQTT 5"),
    "strange": ({"welcome": b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10}, "does not speak MQTT 5"),
    "granted": (
        {"granted": [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE]},
        "grants only QoS 0 for the filter plant/#",
    ),
    "refused": (
        {"granted": [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]},
        "refuses the filter plant/#: not authorized",
    ),
    "answers": (
        {"granted": [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * 2},
        "has no place here: SubAckPacket",
    ),
    "twice": (
        {"sends": [told_event(1, event(1), qos=mqtt5.QoS.EXACTLY_ONCE)]},
        "QoS 2, though QoS 1 was asked for",
    ),
    "alias": (
        {"sends": [told_event(1, event(1), topic="", topic_alias=1)]},
        "without the name of its topic",
    ),
    "large": ({"sends": [told_event(1, "x" * 300_000)]}, "more than 132,072 bytes"),
    "other": (
        {"sends": [disconnect(mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER)]},
        "has taken over the session: does a copy of this root run",
    ),
    "end": (
        {"sends": [disconnect(mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN)]},
        "has ended the connection: server shutting down",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_gets_no_acknowledgement(name: str) -> None:
    told, part = LIES[name]
    server, visits = ToldServer(), Visits()
    vars(server).update(told)
    with running(server):
        why = visited(server.port, visits, never)

    assert part in why
    assert (visits.taken, server.acknowledged) == ([], [])
    # Which session it was is known all the same.
    assert visits.position.client == server.of_kind(mqtt5.ConnectPacket)[0].client_id


@pytest.mark.slow
def test_a_server_is_not_read_while_kafka_takes_nothing() -> None:
    """A flood of events without acknowledgements waits in the network, and not in memory."""
    server, visits = ToldServer(), Visits()
    flood = told_event(1, "x" * 900, qos=mqtt5.QoS.AT_MOST_ONCE, packet_id=None) * 1_000
    server.sends = [flood] * 40
    visits.room.clear()
    seen = [-1, 0.0]

    def is_stuck() -> bool:
        if seen[0] != server.sent:
            seen[:] = server.sent, time.monotonic()
        return server.sent == len(server.sends) or time.monotonic() > seen[1] + 1

    with running(server):
        assert visited(server.port, visits, is_stuck) == ""
    # Some of it is in the kernel's buffers.
    assert 0 < server.sent < len(server.sends)
    assert visits.taken == []


@pytest.mark.slow
def test_pings_go_out_while_kafka_takes_nothing() -> None:
    server, visits = ToldServer(), Visits()
    server.welcome = connack(server_keep_alive=1)
    server.sends = [told_event(1, event(1))]
    visits.room.clear()
    with running(server):
        pings = lambda: len(server.of_kind(mqtt5.PingReqPacket)) > 3  # noqa: E731
        assert visited(server.port, visits, pings) == ""
        assert server.acknowledged == []
        server.is_mute, server.sends = True, []
        assert "no answer to a ping" in visited(server.port, Visits(), never)


@pytest.mark.slow
def test_filters_that_are_declared_no_more_end_in_the_session() -> None:
    server = ToldServer()
    before = PullPosition("plant", client="kappa1", filters=("old/#", "plant/#"))
    visits = Visits(before)
    server.sends = [mqtt5.UnsubAckPacket(2, [mqtt5.UnsubAckReasonCode.SUCCESS]).write()]
    with running(server):
        assert visited(server.port, visits, lambda: visits.is_open) == ""

    assert [each.patterns for each in server.of_kind(mqtt5.UnsubscribePacket)] == [["old/#"]]
    assert visits.position == PullPosition("plant", client="kappa1", filters=("plant/#",))
    (said,) = visits.said
    assert said.startswith(f"mqtt://127.0.0.1:{server.port} has forgotten the session: events")


@needs_mosquitto
@pytest.mark.slow
def test_a_server_by_tls_gets_the_password_and_topics_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server = Mosquitto(tmp_path / "mqtt", tls=authority.issue("server"), password=PASSWORD)
    more = {"url": f"mqtts://127.0.0.1:{server.port}", "user": "kappa", "topic_field": "from"}
    with running(server):
        wrong = visited(server.port, Visits(), never, **more, ca=authority.ca, token="wrong")
        strange = Visits()
        with pytest.raises(OSError, match="certificate verify failed"):
            visited(server.port, strange, never, **more, token=PASSWORD)
        visits = Visits()
        more = {**more, "ca": authority.ca, "token": PASSWORD, "filters": ["plant/+", "hall"]}
        assert visited(server.port, visits, lambda: visits.is_open, **more) == ""
        server.publish(event(1), "{}", "21.5")
        assert visited(server.port, visits, lambda: len(visits.taken) == 3, **more) == ""

    assert wrong.startswith("it refuses the connection: ")
    assert visits.taken == [
        b'{"from":"plant/1","id": "1", "page": "/1"}',
        b'{"from":"plant/1"}',
        b"21.5",
    ]
    assert visits.said == []


@needs_mosquitto
@pytest.mark.slow
def test_a_filter_can_be_shared_with_other_clients(tmp_path: Path) -> None:
    both = Visits(), Visits()
    with running(Mosquitto(tmp_path / "mqtt")) as server:
        for visits in both:
            shared = {"filters": ["$share/kappa/plant/#"]}
            assert visited(server.port, visits, lambda each=visits: each.is_open, **shared) == ""
        server.publish(*map(event, range(10)))
        for visits in both:
            assert (
                visited(server.port, visits, lambda each=visits: len(each.taken) > 4, **shared)
                == ""
            )

    assert sorted(each for visits in both for each in visits.taken) == [
        event(number).encode() for number in range(10)
    ]


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b' {"a": 1}', b'{"at":"a\\"b/1","a": 1}'),
        (b"{ }", b'{"at":"a\\"b/1" }'),
        (b"[1]", b"[1]"),
        (b"", b""),
        (b"7 {", b"7 {"),
        (b"{", b'{"at":"a\\"b/1",'),
    ],
)
def test_the_name_of_a_topic_is_a_field_of_an_object(payload: bytes, found: bytes) -> None:
    assert with_mqtt_topic(payload, "at", 'a"b/1') == found
    assert with_mqtt_topic(payload, "", 'a"b/1') == payload


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"url": "https://x:8883"}, "a.url is not an address of a source of the kind mqtt"),
        ({"url": "mqtts://x/plant"}, "a.url names more than a server"),
        ({"url": "mqtts://x?a=b"}, "a.url names more than a server"),
        ({"url": "mqtts://me:canary@x"}, "user or password"),
        ({"url": "mqtt://x", "token": "canary"}, "not encrypted"),
        ({"headers": {"X-Key": "canary"}}, "MQTT has no headers"),
        ({"filters": []}, "a.filters is empty"),
        ({"filters": ["plant/#/1"]}, "which is no filter of MQTT"),
        ({"filters": ["plant+"]}, "which is no filter of MQTT"),
        ({"filters": [""]}, "which is no filter of MQTT"),
        ({"token": "canary\0"}, "a.token cannot be sent"),
        ({"user": "x" * 70_000}, "a.user cannot be sent"),
        ({"kind": PullKind.SSE, "url": "https://x/", "user": ""}, "a.filters is set, and a source"),
    ],
)
def test_a_server_that_cannot_be_is_one_sentence(change: dict[str, Any], part: str) -> None:
    given = {"url": "mqtts://x", "topic": "visits", "kind": PullKind.MQTT, "filters": ["plant/#"]}
    pull = PullSettings(**{**given, "user": "kappa", **change})
    with pytest.raises(SettingsError, match=part) as refused:
        sources_of(CollectSettings(topics=["visits"], pull={"a": pull}), 1_000)

    assert "canary" not in f"{refused.value}{refused.value.hint}"


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mqtt5", None)
    pull = PullSettings(url="mqtts://x", topic="visits", kind=PullKind.MQTT, filters=["a"])
    with pytest.raises(SettingsError, match="a needs mqtt5, which is not installed") as refused:
        sources_of(CollectSettings(topics=["visits"], pull={"a": pull}))

    assert refused.value.hint == "pip install 'kappa[mqtt]'"


@pytest.mark.parametrize(
    ("field", "topic", "part"),
    [
        ("from", Topic("visits", event="at string"), "declares no such field of text"),
        ("n", Topic("visits", event="n int"), "declares no such field of text"),
        ("at", Topic("visits", event="at string", format="csv"), "are not JSON"),
    ],
)
def test_a_field_for_the_topic_must_be_declared(field: str, topic: Topic, part: str) -> None:
    pull = PullSettings(topic="visits", kind=PullKind.MQTT, topic_field=field)
    with pytest.raises(UsageError, match=part):
        ensure_topic_fields({"a": pull}, {"visits": topic})


@pytest.mark.slow
def test_validate_refuses_a_server_without_a_filter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = settings(1883, "visits").replace('["plant/#"]', "[]")
    write_project(tmp_path, "visits", settings=declared)

    code = run_command(["--project", str(tmp_path), "validate"])

    err = capsys.readouterr().err
    assert code == 2, err
    assert "collect.pull.plant.filters is empty" in err
