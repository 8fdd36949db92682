"""Servers of MQTT: a real one (mosquitto), and one whose packets a test chooses."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import mqtt5
from ports import free_port

# Debian's place of servers may be off the user's path.
PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_PATIENCE_SECONDS = 60.0


def packets(connection: socket.socket) -> Iterator[mqtt5.Packet]:
    """Yields the packets that arrive, until the connection ends."""
    rest = b""
    while True:
        with suppress(IndexError):
            packet, size = mqtt5.read(memoryview(rest))
            rest = rest[size:]
            yield packet
            continue
        found = connection.recv(1 << 16)
        if not found:
            return
        rest += found


class Mosquitto:
    """A mosquitto whose sessions are in a folder. It can be stopped and started again."""

    def __init__(
        self, folder: Path, *, tls: tuple[Path, Path] | None = None, password: str = ""
    ) -> None:
        """Takes the certificate and key for TLS, and the password of the user `kappa`, if any."""
        self.port = free_port()
        self.folder = folder
        self._tls, self._password = tls, password
        folder.mkdir()
        lines = [
            f"listener {self.port} 127.0.0.1",
            # Else it runs as another user, who may not write here.
            *("user root", "persistence true", f"persistence_location {folder}/"),
            "max_queued_messages 0",
            f"allow_anonymous {'false' if password else 'true'}",
        ]
        if tls is not None:
            lines += [f"certfile {tls[0]}", f"keyfile {tls[1]}"]
        if password:
            passwords = folder / "passwords"
            command = ["mosquitto_passwd", "-b", "-c", passwords, "kappa", password]
            subprocess.run(command, check=True)
            lines.append(f"password_file {passwords}")
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def come(self) -> None:
        assert PROGRAM is not None
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "-c", self.folder / "mosquitto.conf"], stdout=log, stderr=log
            )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)

    def go(self) -> None:
        """Stops the server; the sessions stay in the folder."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def publish(self, *events: str | bytes, topic: str = "plant/1", retain: bool = False) -> None:
        """Publishes events with QoS 1, and waits until the server has them."""
        with self._connected() as connection:
            login = mqtt5.ConnectPacket(
                "publisher",
                clean_start=True,
                username="kappa" if self._password else None,
                password=self._password.encode() or None,
            )
            connection.sendall(login.write())
            arriving = packets(connection)
            next(arriving)
            # Servers allow a bounded number of events that they have not acknowledged.
            for begin in range(0, len(events), 20):
                part = events[begin : begin + 20]
                for number, event in enumerate(part, start=1):
                    connection.sendall(
                        mqtt5.PublishPacket(
                            topic,
                            event.encode() if isinstance(event, str) else event,
                            qos=mqtt5.QoS.AT_LEAST_ONCE,
                            packet_id=number,
                            retain=retain,
                        ).write()
                    )
                for _ in part:
                    assert isinstance(next(arriving), mqtt5.PubAckPacket)

    def _connected(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        if self._tls is None:
            return plain
        context = ssl.create_default_context(cafile=str(self._tls[0]))
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(plain)


class ToldServer:
    """A server of MQTT that answers with exactly the packets that a test has given.

    `welcome` is sent after the connection's first packet, `granted` after a subscription, and then
    each of `sends`. All are sent again at each connection. A mute server does not answer pings.
    """

    def __init__(self) -> None:
        self.welcome = mqtt5.ConnAckPacket().write()
        self.granted = [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE]
        self.sends: list[bytes] = []
        self.sent = 0
        self.is_mute = False
        self.arrived: list[mqtt5.Packet] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []

    def come(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    def go(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """Ends all connections."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @property
    def acknowledged(self) -> list[int]:
        return [each.packet_id for each in self.arrived if isinstance(each, mqtt5.PubAckPacket)]

    def of_kind(self, kind: type) -> list:
        return [each for each in self.arrived if isinstance(each, kind)]

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._open.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            for packet in packets(connection):
                self.arrived.append(packet)
                match packet:
                    case mqtt5.ConnectPacket():
                        connection.sendall(self.welcome)
                    case mqtt5.SubscribePacket():
                        answer = mqtt5.SubAckPacket(packet.packet_id, self.granted)
                        connection.sendall(answer.write())
                        for each in self.sends:
                            connection.sendall(each)
                            self.sent += 1
                    case mqtt5.PingReqPacket() if not self.is_mute:
                        connection.sendall(mqtt5.PingRespPacket().write())


def told_event(number: int, event: str, **more: object) -> bytes:
    """Returns an event of QoS 1 as a packet; `more` sets further fields of the packet."""
    fields = {"topic": "plant/1", "qos": mqtt5.QoS.AT_LEAST_ONCE, "packet_id": number, **more}
    return mqtt5.PublishPacket(payload=event.encode(), **fields).write()
