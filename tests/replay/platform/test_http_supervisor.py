"""Laws of the HTTP supervisor: the address stays the same if server or supervisor change.

The HTTP supervisor ends when it is asked to, when the next supervisor starts, or when its root is
gone. The next supervisor takes over its socket with the waiting connections, and no connection is
reset.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from kappa.base.errors import Conflict
from kappa.base.process import ProcessId, boot, kill_and_see_gone, process_id, start_tied, started
from kappa.base.settings import load_settings
from kappa.commands.app import run_command
from kappa.replay.platform.http_port import (
    KeptPort,
    holder_of_port,
    listening_at_kept_port,
    read_kept_port,
)
from kappa.replay.platform.http_supervisor import SocketHandover, keep_server, socket_handed_over
from kappa.replay.platform.services import HttpService, ensure_no_http_supervisor
from kappa.replay.status.run_records import (
    HTTP_LOCK,
    RunningServer,
    ensure_served,
    ensure_unserved,
    served_at,
)
from kappa.serving.http.address import HttpAddress, listening_at
from kappa.state.lock import Lock, current_holder
from kappa.state.store import Store

pytestmark = pytest.mark.slow
TREE = Path(__file__).resolve().parents[3]
FOREIGN = "another boot"
ANY = HttpAddress("127.0.0.1", 0)


class World:
    """A root, and the HTTP supervisors that its supervisors have left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "kappa.toml").write_text('[serve]\nlisten = "127.0.0.1:0"\n', encoding="utf-8")
        self.store = Store(folder / ".kappa")
        self.said: list[str] = []
        self.seen: set[ProcessId] = set()
        self._supervisors: list[HttpService] = []

    def kept(self) -> ProcessId:
        """Starts an HTTP supervisor as a new supervisor does, and returns its process."""
        http = HttpService(self.store, load_settings(self.folder), say=self.said.append)
        self._supervisors.append(http)
        http.ensure_running()
        return self.next_http_supervisor()

    def next_http_supervisor(self) -> ProcessId:
        """Waits for an HTTP supervisor that was not seen before, and returns it."""
        before = {each.pid for each in self.seen}

        def pid() -> int:
            held = current_holder(self.store.path(HTTP_LOCK))
            return 0 if held is None or held.pid in before else held.pid

        self.wait(lambda: pid() > 0, "the HTTP supervisor")
        return self.named(pid())

    def tick(self) -> list[str]:
        """Does the newest supervisor's work of one tick, and returns its messages."""
        self._supervisors[-1].ensure_running()
        return self.said

    def server(self, own: ProcessId) -> ProcessId:
        """Returns the server that an HTTP supervisor has started."""
        children = Path(f"/proc/{own.pid}/task/{own.pid}/children")
        self.wait(lambda: bool(children.read_text(encoding="utf-8").split()), "the server")
        return self.named(int(children.read_text(encoding="utf-8")))

    def named(self, pid: int) -> ProcessId:
        found = process_id(pid)
        self.seen.add(found)
        return found

    @property
    def url(self) -> str:
        """Waits until the root is served, and returns its URL."""
        self.wait(lambda: served_at(self.store) is not None, "the place")
        return served_at(self.store)

    def ensure_gone(self) -> None:
        """Ends all processes that are left."""
        for each in self._supervisors:
            each.end()
        for each in self.seen:
            kill_and_see_gone(each)

    def wait(self, until: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 60
        while not until():
            assert time.monotonic() < deadline, f"{what} did not come; {self.said}"
            time.sleep(0.01)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("PYTHONPATH", str(TREE))
    # An HTTP supervisor outlives its supervisor, and not a test that is killed.
    monkeypatch.setattr("kappa.replay.platform.child.start_apart", start_tied)
    world = World(tmp_path)
    yield world
    world.ensure_gone()


def test_a_client_that_comes_while_there_is_no_server_waits_for_the_next(world: World) -> None:
    own = world.kept()
    url, server = world.url, world.server(own)

    os.kill(server.pid, signal.SIGKILL)
    with urlopen(f"{url}/healthz", timeout=60) as answered:
        assert json.loads(answered.read()) == {"status": "ok"}

    assert not server.alive()
    assert served_at(world.store) == url
    assert own.alive()


def test_the_next_supervisor_ends_it_and_starts_its_own(world: World) -> None:
    before = world.kept()
    server = world.server(before)
    # A torn record of where it was hides no HTTP supervisor.
    world.store.put("run/http.json", b"{")

    after = world.kept()

    assert after != before
    assert not before.alive()
    assert not server.alive()
    assert world.said == ["the HTTP server that an earlier kappa has left is ended"]


def test_the_next_supervisor_takes_the_socket_over(world: World) -> None:
    """No client is refused or reset: its connection waits in the kernel during the change."""
    before = world.kept()
    world.server(before)
    url = world.url
    failed, answered, over = list[OSError](), list[int](), threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                with urlopen(f"{url}/healthz", timeout=60) as found:
                    answered.append(found.status)
            except OSError as error:
                failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        world.wait(lambda: len(answered) > 3, "an answer")
        after = world.kept()
        world.server(after)
        so_far = len(answered)
        world.wait(lambda: len(answered) > so_far + 3, "an answer of the next")
    finally:
        over.set()
        asking.join()

    assert failed == []
    assert not before.alive()
    assert served_at(world.store) == url


def test_the_supervisor_starts_it_again_if_it_dies(world: World) -> None:
    before = world.kept()
    server = world.server(before)

    os.kill(before.pid, signal.SIGKILL)
    world.wait(lambda: bool(world.tick()), "its death")
    lock = world.store.path(HTTP_LOCK)
    world.wait(lambda: bool(world.tick()) and current_holder(lock) is not None, "the next")

    assert world.next_http_supervisor().alive()
    assert not server.alive()
    assert "the HTTP supervisor ended with -9" in world.said[0]


def test_down_ends_it_without_supervisor(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    own = world.kept()
    server = world.server(own)

    for left in ("; the HTTP server that one had left is ended", ""):
        assert run_command(["--project", str(world.folder), "down"]) == 0
        assert capsys.readouterr().err.endswith(f"kappa was not up{left}\n")

    assert not own.alive()
    assert not server.alive()


def test_stopped_one_ends_with_its_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    own = world.kept()
    server = world.server(own)
    os.kill(own.pid, signal.SIGSTOP)
    monkeypatch.setattr("kappa.replay.platform.services._HTTP_PATIENCE_SECONDS", 0.1)

    assert ensure_no_http_supervisor(world.store)

    assert not own.alive()
    world.wait(lambda: not server.alive(), "the end of the server")


def test_it_ends_when_its_root_is_gone_and_makes_no_new_one(world: World) -> None:
    own = world.kept()
    server = world.server(own)
    assert world.url

    shutil.rmtree(world.store.folder)

    world.wait(lambda: not own.alive(), "the end of the HTTP supervisor")
    assert not server.alive()
    assert not world.store.folder.exists()


def test_what_is_no_http_supervisor_of_this_root_is_not_ended(world: World) -> None:
    """Neither a user's `kappa serve` nor another container's process with the same id is ended."""
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        ensure_served(world.store, RunningServer.of_process(other.pid, "http://127.0.0.1:1"))
        assert not ensure_no_http_supervisor(world.store)
        with Lock(world.store.path(HTTP_LOCK), what="another root"):
            born = started(other.pid)
            for machine, at in ((FOREIGN, born), (boot(), born + 1)):
                named = {"pid": other.pid, "session": 1, "started": at, "boot": machine}
                world.store.path(HTTP_LOCK).write_text(json.dumps(named), encoding="utf-8")
                assert not ensure_no_http_supervisor(world.store)

        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_second_http_supervisor_of_a_root_is_refused(world: World) -> None:
    path = world.store.path(HTTP_LOCK)
    with Lock(path, what="this one"), pytest.raises(Conflict, match="HTTP is held by"):
        keep_server(
            HttpAddress("127.0.0.1", 0),
            (),
            lock=Lock(path, what="HTTP"),
            log=path,
            door=path.with_name("door"),
            port=path.with_name("port"),
            say=print,
        )


def test_a_server_deletes_its_own_record_alone(world: World) -> None:
    urls = (f"http://127.0.0.1:{port}" for port in (1, 2))
    mine, other = (RunningServer.of_process(os.getpid(), url) for url in urls)
    ensure_served(world.store, other)

    ensure_unserved(world.store, mine)
    assert served_at(world.store) == other.url

    ensure_unserved(world.store, other)
    assert served_at(world.store) is None


def test_a_place_without_the_token_it_needs_is_told_once_and_not_served(world: World) -> None:
    (world.folder / "kappa.toml").write_text('[serve]\nlisten = "0.0.0.0:0"\n', encoding="utf-8")
    http = HttpService(world.store, load_settings(world.folder), say=world.said.append)

    http.ensure_running()
    http.ensure_running()

    assert len(world.said) == 1
    assert "nothing serves HTTP: error: at 0.0.0.0 other machines could ask" in world.said[0]
    assert not world.store.path("logs/http.log").exists()


def test_it_is_small() -> None:
    large = ("uvicorn", "fastapi", "duckdb", "pyarrow", "pydantic", "obstore")
    named = "[name for name in sys.argv[1:] if name in sys.modules]"
    code = f"import sys, kappa.replay.platform.http_supervisor; print({named})"
    command = [sys.executable, "-c", code, *large]

    assert subprocess.check_output(command, cwd=TREE, text=True) == "[]\n"


def test_a_connection_that_waits_is_answered_by_the_next_owner(tmp_path: Path) -> None:
    # A socket's name has at most 108 bytes.
    door = tmp_path / ("x" * 120) / "http.door"
    door.parent.mkdir()
    listening = listening_at(ANY)
    with listening, SocketHandover(door, ANY, listening) as before:
        client = socket.create_connection(listening.getsockname())
        waiting = threading.Thread(target=before.wait_for_caller, args=(20,))
        waiting.start()
        handed = socket_handed_over(door, ANY)
        waiting.join()

    with handed, client:
        client.sendall(b"x")
        accepted, _ = handed.accept()
        with accepted:
            assert accepted.recv(1) == b"x"
        # A new client finds it at the same place.
        socket.create_connection(client.getpeername()).close()
    assert not door.exists()


def test_a_project_keeps_its_port_from_start_to_start(tmp_path: Path) -> None:
    """Of two projects that want the same port, neither gets the port that the other one had."""
    first, second = tmp_path / "first", tmp_path / "second"
    with listening_at(ANY) as free:
        wished = HttpAddress("127.0.0.1", free.getsockname()[1])

    def kept(*projects: Path) -> list[int]:
        """Lists the ports of projects that start one after the other."""
        with ExitStack() as up:
            opened = [up.enter_context(listening_at_kept_port(wished, each)) for each in projects]
            return [each.getsockname()[1] for each in opened]

    ports = kept(first, second)
    assert ports[0] == wished.port != ports[1]
    assert kept(second, first) == ports[::-1]
    (mine, theirs) = (read_kept_port(path) for path in (first, second))
    assert mine == KeptPort(f"127.0.0.1:{wished.port}", wished.port)
    assert mine.text == ""
    taken = f"port {wished.port} was taken by {holder_of_this_process()}"
    assert theirs.text == f"{taken}, so this project keeps port {ports[1]}"

    # Other settings wish for another port, and a broken file keeps none.
    with listening_at_kept_port(ANY, second) as two:
        assert read_kept_port(second) == KeptPort("127.0.0.1:0", two.getsockname()[1])
    second.write_text("{", encoding="utf-8")
    assert read_kept_port(second) is None


def holder_of_this_process() -> str:
    # pytest-xdist gives its workers a title of their own.
    title = Path("/proc/self/cmdline").read_bytes().partition(b"\0")[0].decode()
    return f"process {os.getpid()} ({os.path.basename(title)})"  # noqa: PTH119  # as the product does


def test_the_holder_of_a_port_is_named_by_its_project() -> None:
    with listening_at(ANY) as listening:
        port = listening.getsockname()[1]
        assert holder_of_port(port) == holder_of_this_process()
        code = "import sys; sys.stdin.read()"
        command = [sys.executable, "-c", code, "--project", "/tmp/shop", "--root", ".kappa"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]) as it:
            listening.close()
            assert holder_of_port(port) == "project shop (/tmp/shop)"
            it.communicate()
    assert holder_of_port(port) == "a process of another user"


def test_a_socket_of_another_address_is_not_taken_over(tmp_path: Path) -> None:
    with listening_at(ANY) as listening, SocketHandover(tmp_path / "d", ANY, listening) as before:
        waiting = threading.Thread(target=before.wait_for_caller, args=(20,))
        waiting.start()
        assert socket_handed_over(tmp_path / "d", HttpAddress("127.0.0.1", 8717)) is None
        waiting.join()


def test_a_door_of_a_killed_http_supervisor_gives_nothing_and_is_made_anew(tmp_path: Path) -> None:
    door = tmp_path / "d"
    assert socket_handed_over(door, ANY) is None
    if (own := os.fork()) == 0:
        with listening_at(ANY) as listening, SocketHandover(door, ANY, listening):
            os._exit(0)
    os.waitpid(own, 0)

    assert door.exists()
    assert socket_handed_over(door, ANY) is None
    with listening_at(ANY) as listening, SocketHandover(door, ANY, listening):
        pass
    assert not door.exists()
