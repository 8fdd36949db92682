"""Receives events from an MQTT server, and acknowledges them after the Kafka broker has.

The MQTT session continues after the connection, or this process, has ended. So the server keeps
events while the collector is not connected, and sends all unacknowledged events again. The protocol
is version 5: https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import mqtt5
import msgspec
from msgspec.structs import replace

from kappa.serving.collect.pulled.source import PulledSource, SourceAway
from kappa.serving.collect.pulled.source_protocol import PullPosition, Visitor
from kappa.serving.collect.pulled.tls import tls_of

_OPEN_SECONDS = 20.0
_READ_BYTES = 1 << 16
_KEEP_ALIVE_SECONDS = 30
# The longest absence of this client for which the server keeps the session and its events.
_SESSION_SECONDS = 30 * 24 * 3600
# The most events that the server sends before it waits for acknowledgements.
_MOST_UNACKNOWLEDGED = 1_000
# The bytes of a packet beside the event: the topic's name, and properties.
_HEAD_BYTES = 1 << 17
_SUBSCRIPTION, _END_OF_SUBSCRIPTION = 1, 2
_MOVED = frozenset({"USE_ANOTHER_SERVER", "SERVER_MOVED"})


async def visit_mqtt(source: PulledSource, visitor: Visitor) -> None:
    """Receives events from an MQTT server until the connection ends.

    Raises SourceAway if the server delivers no events now. If the connection fails, raises the
    error of the connection, for example OSError.
    """
    position = visitor.position
    if not position.client:
        # A session whose name is not written down would keep events for nobody.
        position = replace(position, client=f"kappa{secrets.token_hex(8)}")
        await visitor.keep(position)
    async with _connected(source) as connection:
        is_known = await connection.log_in(source, position.client)
        if position.filters and not is_known:
            visitor.report(
                f"{source.shown} has forgotten the session: events that it kept for the collector "
                "are lost"
            )
        stale = [each for each in position.filters if each not in source.filters]
        # Each filter that the session may have is written down, so that it can be ended later.
        await _keep_filters(visitor, position, (*source.filters, *stale))
        connection.subscribe(source.filters, stale)
        is_open = False
        while True:
            events = await connection.next_events()
            if not is_open and connection.is_subscribed:
                is_open = True
                visitor.opened()
                await _keep_filters(visitor, position, source.filters)
            await visitor.take(
                [with_mqtt_topic(each.payload, source.topic_field, each.topic) for each in events]
            )
            await connection.acknowledge(events)


async def _keep_filters(visitor: Visitor, position: PullPosition, filters: tuple[str, ...]) -> None:
    if visitor.position.filters != filters:
        await visitor.keep(replace(position, filters=filters))


def with_mqtt_topic(event: bytes, field: str, mqtt_topic: str) -> bytes:
    """Returns an event with the field `field`, which contains the name of its MQTT topic.

    The event is returned unchanged if it is not a JSON object, or if `field` is empty.
    """
    head, brace, rest = event.partition(b"{")
    if not field or not brace or head.strip():
        return event
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    named = msgspec.json.encode({field: mqtt_topic})
    return named.removesuffix(b"}") + comma + rest


@asynccontextmanager
async def _connected(source: PulledSource) -> AsyncIterator[MqttConnection]:
    async with asyncio.timeout(_OPEN_SECONDS):
        reader, writer = await asyncio.open_connection(
            source.host, source.port, ssl=await tls_of(source), limit=_READ_BYTES
        )
    connection = MqttConnection(source, reader, writer)
    try:
        yield connection
    finally:
        connection.close()


class MqttConnection:
    """A connection to an MQTT server, and the packets that have arrived."""

    def __init__(
        self, source: PulledSource, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._largest_packet = source.largest_event + _HEAD_BYTES
        self._rest = b""
        self._packets: deque[mqtt5.Packet] = deque()
        self._silence_seconds = _OPEN_SECONDS
        # The filters of each request that the server has not answered, by the request's number.
        self._unanswered: dict[int, Sequence[str]] = {}
        self._pings: asyncio.Task[None] | None = None

    @property
    def is_subscribed(self) -> bool:
        """Returns True if the server has granted all subscriptions."""
        return not self._unanswered

    def close(self) -> None:
        """Closes the connection at once. The server keeps the session."""
        if self._pings is not None:
            self._pings.cancel()
        self._writer.transport.abort()

    async def log_in(self, source: PulledSource, client: str) -> bool:
        """Connects to the server, and resumes the session named `client` or creates it.

        Returns False if the server did not know the session. Raises SourceAway if the server
        refuses the connection, or offers only QoS 0.
        """
        self._send(
            mqtt5.ConnectPacket(
                client,
                username=source.user or None,
                password=source.password.encode() or None,
                keep_alive=_KEEP_ALIVE_SECONDS,
                session_expiry_interval=_SESSION_SECONDS,
                receive_max=_MOST_UNACKNOWLEDGED,
                max_packet_size=self._largest_packet,
            )
        )
        answer = await self._next_packet()
        if not isinstance(answer, mqtt5.ConnAckPacket):
            raise _unexpected_packet(answer)
        if answer.reason_code != mqtt5.ConnAckReasonCode.SUCCESS:
            raise SourceAway(f"it refuses the connection: {_reason_text(answer)}")
        if answer.max_qos == mqtt5.QoS.AT_MOST_ONCE:
            raise SourceAway("it offers only QoS 0, by which events can be lost")
        keep_alive = answer.server_keep_alive or _KEEP_ALIVE_SECONDS
        self._silence_seconds = 1.5 * keep_alive
        self._pings = asyncio.create_task(self._ping(keep_alive / 2))
        return answer.session_present

    def subscribe(self, filters: Sequence[str], stale: list[str]) -> None:
        """Subscribes to the topics that match `filters`, and ends the `stale` subscriptions."""
        wanted = [
            mqtt5.TopicFilter(
                each,
                max_qos=mqtt5.QoS.AT_LEAST_ONCE,
                retain_as_published=False,
                # Retained events come once a session, not at each connection.
                retain_handling=mqtt5.RetainHandling.SEND_IF_SUBSCRIPTION_NOT_EXISTS,
            )
            for each in filters
        ]
        self._unanswered[_SUBSCRIPTION] = filters
        self._send(mqtt5.SubscribePacket(_SUBSCRIPTION, wanted))
        if stale:
            self._unanswered[_END_OF_SUBSCRIPTION] = stale
            self._send(mqtt5.UnsubscribePacket(_END_OF_SUBSCRIPTION, stale))

    async def next_events(self) -> list[mqtt5.PublishPacket]:
        """Waits for a packet, and returns the events that have arrived, if any.

        Raises SourceAway if the server refuses a subscription, ends the connection, or violates the
        protocol.
        """
        events: list[mqtt5.PublishPacket] = []
        packet = await self._next_packet()
        while isinstance(packet, mqtt5.PublishPacket):
            events.append(_checked_event(packet))
            if not self._packets or not isinstance(self._packets[0], mqtt5.PublishPacket):
                return events
            packet = self._packets.popleft()
        self._settle(packet)
        return events

    async def acknowledge(self, events: Sequence[mqtt5.PublishPacket]) -> None:
        """Acknowledges events to the server, in the order of their arrival."""
        # An event of QoS 0 has no number, and is not acknowledged.
        numbers = [each.packet_id for each in events if each.packet_id is not None]
        if numbers and not self._writer.is_closing():
            self._writer.write(b"".join(mqtt5.PubAckPacket(each).write() for each in numbers))
            async with asyncio.timeout(self._silence_seconds):
                await self._writer.drain()

    def _settle(self, packet: mqtt5.Packet) -> None:
        """Handles a packet that is not an event."""
        match packet:
            case mqtt5.PingRespPacket():
                pass
            case mqtt5.SubAckPacket():
                for pattern, granted in zip(
                    self._answered_filters(packet), packet.reason_codes, strict=True
                ):
                    _ensure_granted(pattern, granted)
            case mqtt5.UnsubAckPacket():
                for pattern, ended in zip(
                    self._answered_filters(packet), packet.reason_codes, strict=True
                ):
                    if ended.value >= mqtt5.UnsubAckReasonCode.UNSPECIFIED_ERROR.value:
                        why = _words(ended.name)
                        raise SourceAway(f"it goes on with the old filter {pattern}: {why}")
            case mqtt5.DisconnectPacket():
                raise SourceAway(f"it has ended the connection: {_reason_text(packet)}")
            case _:
                raise _unexpected_packet(packet)

    def _answered_filters(self, packet: mqtt5.SubAckPacket | mqtt5.UnsubAckPacket) -> Sequence[str]:
        filters = self._unanswered.pop(packet.packet_id, ())
        if len(filters) != len(packet.reason_codes):
            raise _unexpected_packet(packet)
        return filters

    async def _next_packet(self) -> mqtt5.Packet:
        while not self._packets:
            try:
                async with asyncio.timeout(self._silence_seconds):
                    found = await self._reader.read(_READ_BYTES)
            except TimeoutError:
                raise SourceAway(
                    f"nothing came for {self._silence_seconds:,.0f} s, and no answer to a ping"
                ) from None
            if not found:
                raise SourceAway("it has closed the connection")
            self._add(found)
        return self._packets.popleft()

    def _add(self, found: bytes) -> None:
        arrived = memoryview(self._rest + found)
        place = 0
        try:
            while True:
                packet, size = mqtt5.read(arrived[place:])
                self._packets.append(packet)
                place += size
        except IndexError:
            # The rest is not a whole packet.
            self._rest = bytes(arrived[place:])
        except ValueError as error:
            raise SourceAway(f"it does not speak MQTT 5: {error}") from None
        if len(self._rest) > self._largest_packet:
            raise SourceAway(
                f"it sends a packet of more than {self._largest_packet:,} bytes, which it was told "
                "not to send"
            )

    def _send(self, packet: mqtt5.Packet) -> None:
        self._writer.write(packet.write())

    async def _ping(self, seconds: float) -> None:
        # While the Kafka broker is away nothing is read, not even the answers.
        while not self._writer.is_closing():
            await asyncio.sleep(seconds)
            if not self._writer.is_closing():
                self._send(mqtt5.PingReqPacket())


def _checked_event(packet: mqtt5.PublishPacket) -> mqtt5.PublishPacket:
    if packet.qos == mqtt5.QoS.EXACTLY_ONCE:
        raise SourceAway("it sends an event with QoS 2, though QoS 1 was asked for")
    if not packet.topic:
        raise SourceAway("it sends an event without the name of its topic")
    return packet


def _ensure_granted(pattern: str, code: mqtt5.SubAckReasonCode) -> None:
    """Raises SourceAway if a subscription is not granted with QoS 1."""
    if code == mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE:
        raise SourceAway(
            f"it grants only QoS 0 for the filter {pattern}, by which events can be lost"
        )
    if code != mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE:
        raise SourceAway(f"it refuses the filter {pattern}: {_words(code.name)}")


def _unexpected_packet(packet: mqtt5.Packet) -> SourceAway:
    return SourceAway(f"it sends a packet that has no place here: {type(packet).__name__}")


def _reason_text(packet: mqtt5.ConnAckPacket | mqtt5.DisconnectPacket) -> str:
    """Returns the server's reason for refusing or ending the connection, in words.

    Text from the server is shortened.
    """
    name = packet.reason_code.name
    if name in _MOVED:
        to = f", {_short(packet.server_reference)}" if packet.server_reference else ""
        return f"it names another server{to}, and redirects are not followed: give that url"
    if name == "SESSION_TAKEN_OVER":
        return "another program has taken over the session: does a copy of this root run?"
    own = f" ({_short(packet.reason_str)})" if packet.reason_str else ""
    return _words(name) + own


def _words(name: str) -> str:
    return name.replace("_", " ").lower()


def _short(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:200])
