"""Laws of the door of HTTP's socket: who takes it over has its connections, and none is reset."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from kappa.replay.platform.socket_door import SocketDoor, socket_handed_over
from kappa.serving.http.address import HttpAddress, listening_at

ANY = HttpAddress("127.0.0.1", 0)


def test_a_connection_that_waits_is_answered_by_the_next_owner(tmp_path: Path) -> None:
    # A socket's name has at most 108 bytes.
    door = tmp_path / ("x" * 120) / "http.door"
    door.parent.mkdir()
    listening = listening_at(ANY)
    with listening, SocketDoor(door, ANY, listening) as before:
        client = socket.create_connection(listening.getsockname())
        waiting = threading.Thread(target=before.wait, args=(20,))
        waiting.start()
        handed = socket_handed_over(door, ANY)
        waiting.join()

    assert handed is not None
    with handed, client:
        client.sendall(b"x")
        accepted, _ = handed.accept()
        with accepted:
            assert accepted.recv(1) == b"x"
        # A new client finds it at the same place.
        socket.create_connection(client.getpeername()).close()
    assert not door.exists()


def test_a_socket_of_another_address_is_not_taken_over(tmp_path: Path) -> None:
    with listening_at(ANY) as listening, SocketDoor(tmp_path / "d", ANY, listening) as before:
        waiting = threading.Thread(target=before.wait, args=(20,))
        waiting.start()
        assert socket_handed_over(tmp_path / "d", HttpAddress("127.0.0.1", 8717)) is None
        waiting.join()


def test_a_door_of_a_killed_keeper_gives_nothing_and_is_made_anew(tmp_path: Path) -> None:
    door = tmp_path / "d"
    assert socket_handed_over(door, ANY) is None
    if (keeper := os.fork()) == 0:
        with listening_at(ANY) as listening, SocketDoor(door, ANY, listening):
            os._exit(0)
    os.waitpid(keeper, 0)

    assert door.exists()
    assert socket_handed_over(door, ANY) is None
    with listening_at(ANY) as listening, SocketDoor(door, ANY, listening):
        pass
    assert not door.exists()
