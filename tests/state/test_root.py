"""A root identifies itself: nobody changes a copy, and a copy ends no process of the first root."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kappa.base.errors import Conflict, Copied, Damaged, ExitCode, UsageError
from kappa.base.process import MARK, ProcessId, boot, kill_and_see_gone, process_id, started
from kappa.base.settings import load_settings
from kappa.commands.app import run_command
from kappa.declare.sink import SinkBirth
from kappa.kafka.broker.broker import LastRun, end_leftover, read_last_run, write_last_run
from kappa.replay.platform import services
from kappa.replay.platform.child import ChildProcess
from kappa.replay.platform.copy import adopt_copy
from kappa.replay.platform.services import CourierService
from kappa.replay.rollout.garbage import collect_garbage
from kappa.replay.status.doctor.examine import examine_root
from kappa.replay.status.doctor.repair import repair_root
from kappa.replay.status.run_records import (
    Running,
    RunningServer,
    ensure_served,
    put_running,
    running_at,
    served_at,
)
from kappa.serving.collect.collector import SPOOL
from kappa.serving.outlets.sinks import sink_status
from kappa.state import root
from kappa.state.build import Birth
from kappa.state.journal.events import Paused
from kappa.state.journal.journal import Journal
from kappa.state.lock import Holder, Lock, _whole_file, holding_process, is_held
from kappa.state.root import (
    LOCK,
    NAME,
    ROOT_COPY,
    RootPlace,
    RootRelation,
    ensure_root,
    lock_of,
    own_root,
    put_root,
    read_root,
    root_relation,
)
from kappa.state.store import Store

_REST = ("v", {}, 1, {}, "m", (), (), {}, {}, {}, {}, "", "")
THERE = RootPlace("/data/kappa", 7, 1000, "blue")

# Holds the supervisor's lock of a root, has a child that would outlive it, says so, and waits.
HOLDER = """
import signal, subprocess, sys
from kappa.state.root import LOCK, lock_of
from kappa.state.store import Store
lock_of(Store(sys.argv[1]), LOCK, what="kappa").acquire()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


class RunningRoot:
    """A root whose lock is held by a process that has started a child."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.popen = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.popen.stdout is not None
        with self.popen.stdout:
            self.child = named(int(self.popen.stdout.readline()))
        self.holder = named(self.popen.pid)

    def copied(self, name: str = "copy") -> Path:
        """Copies the folder while the process runs, as `cp -a` does; returns the copy."""
        subprocess.run(["cp", "-a", str(self.folder), str(self.folder.with_name(name))], check=True)
        return self.folder.with_name(name)

    def end(self) -> None:
        for each in (self.popen.pid, self.child.pid):
            if process_id(each) in {self.holder, self.child}:
                os.kill(each, signal.SIGKILL)
        self.popen.wait()


def named(pid: int) -> ProcessId:
    found = process_id(pid)
    assert found is not None
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[RunningRoot]:
    root = RunningRoot(tmp_path / "root")
    yield root
    root.end()


@pytest.mark.parametrize(
    ("here", "is_there", "runs", "kin"),
    [
        (THERE, True, False, RootRelation.SAME),
        # mv on one disk, also while it runs, and a restart with another name of the machine's disk.
        (replace(THERE, address="/new"), False, False, RootRelation.MOVED),
        (replace(THERE, device=8), True, False, RootRelation.MOVED),
        # Restored from a backup in place; mv to another disk.
        (replace(THERE, inode=2), True, False, RootRelation.MOVED),
        (replace(THERE, address="/new", device=8, inode=2), False, False, RootRelation.MOVED),
        # mv on one disk, and then cp -a back.
        (replace(THERE, address="/new"), True, False, RootRelation.COPY),
        # cp -a, and then the first one was moved aside, and runs.
        (replace(THERE, address="/new", inode=2), True, False, RootRelation.COPY),
        (replace(THERE, inode=2), True, True, RootRelation.COPY),
        (replace(THERE, address="/new", device=8), False, True, RootRelation.COPY),
        # A snapshot of the disk, and rsync, to another machine.
        (replace(THERE, machine="green"), True, False, RootRelation.COPY),
        (replace(THERE, machine="green", device=8, inode=2), True, False, RootRelation.COPY),
        # Containers: a volume that is mounted anew, one that was copied, one that was moved.
        (replace(THERE, machine=""), True, False, RootRelation.MOVED),
        (replace(THERE, machine="", device=8), True, False, RootRelation.MOVED),
        (replace(THERE, machine="", device=8, inode=2), True, False, RootRelation.COPY),
        (replace(THERE, machine="", address="/new", inode=2), False, False, RootRelation.COPY),
        # To a bucket, by other means than kappa root copy.
        (RootPlace("s3://bucket/kappa"), True, False, RootRelation.COPY),
    ],
)
def test_where_a_root_is_decides_what_it_is(here, is_there, runs, kin):
    assert root_relation(THERE, here, is_there=is_there, runs=runs) is kin


def test_a_prefix_of_another_name_is_a_copy():
    place = RootPlace("s3://bucket/kappa")

    def kin(url: str) -> RootRelation:
        return root_relation(place, RootPlace(url), is_there=True, runs=False)

    assert kin("s3://bucket/kappa") is RootRelation.SAME
    assert kin("s3://bucket/other") is kin("s3://other/kappa") is RootRelation.COPY
    assert root_relation(place, THERE, is_there=True, runs=False) is RootRelation.COPY


def test_a_copy_of_a_running_root_is_refused_and_ends_nothing(runs):
    """A copy of a running root is refused, and ends nothing.

    Once, `acquire` trusted the copied lock, and killed the session that the file names.
    """
    copy = runs.copied()

    with pytest.raises(Copied, match="is a copy of root .*, which is at .*/root"):
        lock_of(Store(copy), LOCK, what="kappa")
    # Whoever takes the lock all the same, such as to adopt it.
    root = read_root(Store(copy))
    assert root is not None
    with Lock(copy / LOCK, what="kappa", root=root.id):
        assert runs.holder.alive()
        assert runs.child.alive()


def test_what_a_copied_lock_names_is_not_asked_to_end(runs):
    """A process that only a copied lock names is not asked to end.

    This happens if `kappa down` runs on a copy whose supervisor has the lock, but has not written
    it yet.
    """
    copy = runs.copied()
    handle = os.open(copy / LOCK, os.O_RDWR)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))

        assert is_held(copy / LOCK)
        assert holding_process(copy / LOCK) is None
        assert holding_process(runs.folder / LOCK) == runs.holder
    finally:
        os.close(handle)


# Starts a process of the root, and one that is nobody's, says their pids, and waits.
_LEADER = """
import os, signal, subprocess, sys
command = [sys.executable, "-c", "import signal; signal.pause()"]
for mark in ({"KAPPA_PROCESS_OF": "root"}, {}):
    print(subprocess.Popen(command, env={**os.environ, **mark}).pid, flush=True)
signal.pause()
"""


def test_a_process_that_is_not_provably_of_the_root_is_left_alone(tmp_path):
    """A process that does not provably belong to the root is left alone.

    A session's id may be reused after its processes have ended, so a file may name a stranger.
    """
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    leader = subprocess.Popen(
        [sys.executable, "-c", _LEADER],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    assert leader.stdout is not None
    with leader.stdout:
        of_root, strange = (named(int(leader.stdout.readline())) for _ in range(2))
    place = Holder(leader.pid, leader.pid, started(leader.pid) or 0, boot(), "root")
    leader.kill()
    leader.wait()
    path = tmp_path / "lock"
    path.touch()
    try:
        for root in ("another", "root"):
            found = path.stat()
            holder = dataclasses.replace(place, device=found.st_dev, inode=found.st_ino)
            path.write_text(json.dumps(dataclasses.asdict(holder)))
            assert of_root.alive()
            with Lock(path, what="kappa", root=root):
                assert of_root.alive() == (root == "another")
        assert strange.alive()
    finally:
        for each in (of_root, strange):
            kill_and_see_gone(each)


def test_what_an_earlier_kappa_has_left_is_named_and_not_ended(runs, tmp_path):
    """Processes that an earlier Kappa has left are named, and not ended.

    The lock of an earlier Kappa does not name its file, and may be a copy.
    """
    path = tmp_path / "lock"
    session = runs.popen.pid
    before = {"pid": session, "session": session, "started": started(session), "boot": boot()}
    path.write_text(json.dumps(before))

    with pytest.raises(Conflict, match=f"{runs.child.pid}") as refused:
        Lock(path, what="build b", root="root").acquire()

    assert f"if this root is a copy, rm {path}; else kill" in refused.value.hint
    assert runs.holder.alive()
    assert runs.child.alive()


def test_a_copied_broker_is_not_ended(tmp_path):
    """A broker that a copied broker.json names is not ended."""
    (tmp_path / "root" / "broker").mkdir(parents=True)
    broker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        folder = tmp_path / "root" / "broker"
        write_last_run(folder, LastRun.of(folder, 1, 2, process_id(broker.pid)))
        copy = shutil.copytree(folder, tmp_path / "copy")

        end_leftover(copy, read_last_run(copy))
        assert broker.poll() is None

        end_leftover(folder, read_last_run(folder))
        assert broker.wait(10) == -signal.SIGKILL
    finally:
        broker.kill()
        broker.wait()


def test_a_copy_does_not_take_the_first_ones_processes_for_its_own(tmp_path):
    store, me = Store(tmp_path / "root"), named(os.getpid())
    put_running(store, Running(me.pid, me.born, "127.0.0.1:9", ""))
    ensure_served(store, RunningServer.of_process(me.pid, "http://there"))
    copy = Store(shutil.copytree(store.folder, tmp_path / "copy"))

    assert (running_at(copy), served_at(copy)) == (None, None)
    assert running_at(store) is not None
    assert served_at(store) == "http://there"


def test_a_copy_is_changed_by_nobody_and_read_by_all(tmp_path):
    store = Store(tmp_path / "root")
    ensure_root(store)
    Journal(store).append(1, Paused("flights"))
    copy = Store(shutil.copytree(store.folder, tmp_path / "copy"))

    for change in (
        lambda: Journal(copy).append(2, Paused("planes")),
        lambda: lock_of(copy, "builds/b/lock", what="build b"),
        lambda: collect_garbage(copy, keep_seconds=1.0, now=9e9),
        lambda: ensure_root(copy),
    ):
        with pytest.raises(Copied, match="kappa root adopt"):
            change()

    assert [record.number for record in Journal(copy).after(0)] == [1]
    assert Journal(store).append(2, Paused("planes")) is not None


def test_what_a_person_types_on_a_copy_says_that_it_is_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "kappa.toml").write_text("[serve]\nlisten = ''\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ensure_root(Store(tmp_path / ".kappa"))
    shutil.copytree(tmp_path / ".kappa", tmp_path / "copy")

    def typed(*words: str) -> tuple[int, str]:
        code = run_command(["--root", "copy", *words])
        return code, " ".join(capsys.readouterr().err.split())

    told = f"the root {tmp_path}/copy is a copy of root"
    for words in (("up",), ("up", "-d"), ("deploy", "--yes"), ("undo", "--yes"), ("gc",)):
        code, said = typed(*words)
        assert code == ExitCode.CONFLICT, words
        assert told in said
    assert typed("status")[0] == ExitCode.OK
    code, said = typed("doctor")
    assert (code, told in said) == (ExitCode.OK, True)
    whole = (tmp_path / "copy" / NAME).read_bytes()
    (tmp_path / "copy" / NAME).write_bytes(whole[:-9])
    code, said = typed("doctor")
    assert (code, "not looked at:" in said) == (ExitCode.FAILED, True)
    (tmp_path / "copy" / NAME).write_bytes(whole)

    code, said = typed("root", "adopt")
    assert code == ExitCode.OK
    assert "kappa up continues from it; its sinks, alerts and pulled sources are off" in said
    assert run_command(["--root", "copy", "status", "-o", "json"]) == ExitCode.OK
    (silent,) = re.findall(r'"silent": "([^"]*)"', capsys.readouterr().out)
    assert "its sinks, alerts and pulled sources are off until kappa root adopt --send" in silent
    assert run_command(["--root", "copy", "status"]) == ExitCode.OK
    assert f"WARNING: {silent}" in capsys.readouterr().out
    assert typed("root", "adopt")[0] == ExitCode.USAGE
    assert typed("root", "adopt", "--send") == (
        ExitCode.OK,
        said.partition("kappa up")[0] + "kappa up continues from it",
    )
    assert typed("gc")[0] == ExitCode.OK


def test_a_root_that_was_moved_is_the_same_and_says_where_it_is(tmp_path):
    first = ensure_root(Store(tmp_path / "root"))
    (tmp_path / "root").rename(tmp_path / "moved")
    store = Store(tmp_path / "moved")

    assert ensure_root(store).id == first.id
    assert read_root(store) == replace(
        first, place=replace(first.place, address=str(tmp_path / "moved"))
    )
    # A copy of it is one of the root that is there now.
    with pytest.raises(Copied, match="/moved"):
        own_root(Store(shutil.copytree(tmp_path / "moved", tmp_path / "root")))


@pytest.mark.parametrize("first", ["root", "moved"])
@pytest.mark.parametrize(("machine", "is_it"), [("blue", "root"), ("", "moved")])
def test_of_a_root_that_was_moved_and_copied_back_one_alone_is_the_root(
    tmp_path, monkeypatch, first, machine, is_it
):
    """The root is the folder at the path that both name, or in a container the first folder."""
    monkeypatch.setattr("kappa.state.root.machine", lambda: machine)
    was = ensure_root(Store(tmp_path / "root"))
    (tmp_path / "root").rename(tmp_path / "moved")
    # Another path of the same folder is no other root.
    (tmp_path / "root").symlink_to("moved")
    assert own_root(Store(tmp_path / "moved")) is not None
    (tmp_path / "root").unlink()
    shutil.copytree(tmp_path / "moved", tmp_path / "root")

    def root_in(name: str) -> str | None:
        try:
            return ensure_root(Store(tmp_path / name)).id
        except Copied:
            return None

    found = {name: root_in(name) for name in sorted(["root", "moved"], key=lambda n: n != first)}
    assert found == {"root": None, "moved": None} | {is_it: was.id}


def test_a_root_that_runs_while_it_is_moved_and_copied_back_is_the_root(
    runs, tmp_path, monkeypatch
):
    monkeypatch.setattr("kappa.state.root.machine", lambda: "blue")
    store = Store(runs.folder)
    root = read_root(store)
    put_root(store, replace(root, place=replace(root.place, machine="blue")))
    runs.folder.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", runs.folder)

    assert own_root(Store(tmp_path / "moved")) is not None
    with pytest.raises(Copied):
        own_root(Store(runs.folder))


def test_an_adopted_copy_is_a_root_of_its_own_that_sends_nothing_until_it_may(tmp_path):
    store = Store(tmp_path / "root")
    first = ensure_root(store)
    store.put(f"{SPOOL}/000000000001.events", b"sent by the first root")
    copy = Store(shutil.copytree(store.folder, tmp_path / "copy"))

    adopted = adopt_copy(copy, sends=False)

    assert adopted.id != first.id
    assert (adopted.adopted_from, adopted.sends) == (first.id, False)
    assert (first.writer, adopted.writer) == ("", adopted.id)
    assert copy.names(SPOOL) == ()
    assert len(copy.names("damaged")) == 1
    with lock_of(copy, LOCK, what="kappa"):
        pass
    with pytest.raises(UsageError, match="not a copy") as refused:
        adopt_copy(copy, sends=False)
    assert "--send" in refused.value.hint

    assert adopt_copy(copy, sends=True) == replace(adopted, sends=True)
    with pytest.raises(UsageError, match="not a copy"):
        adopt_copy(copy, sends=True)
    # The first one goes on, whatever becomes of its copy.
    assert ensure_root(Store(store.folder)) == first
    with pytest.raises(UsageError, match="not a copy"):
        adopt_copy(store, sends=True)


def test_a_root_that_may_not_send_has_no_courier(tmp_path, monkeypatch):
    store = Store(tmp_path / "root")
    ensure_root(store)
    copy = Store(shutil.copytree(store.folder, tmp_path / "copy"))
    served = {"sink there": Birth("b", "p", *_REST, sinks=(SinkBirth("there", "delays"),))}
    for module in (services, sink_status):
        monkeypatch.setattr(module, "served_outlets", lambda _store: served)
    started = []
    monkeypatch.setattr(ChildProcess, "ensure_started", lambda self, *_: started.append(self.what))

    def starts(root: Store) -> bool:
        started.clear()
        courier = CourierService(root, load_settings(tmp_path), say=print)
        courier.ensure_running("127.0.0.1:9")
        return started == ["the courier"]

    def state(root: Store) -> str:
        (found,) = sink_status.sink_statuses(root, 0.0)
        return found.state

    (tmp_path / "kappa.toml").touch()
    adopt_copy(copy, sends=False)
    assert [starts(store), starts(copy)] == [True, False]
    assert [state(store), state(copy)] == ["waits", "off"]
    adopt_copy(copy, sends=True)
    assert starts(Store(copy.folder))
    assert state(copy) == "waits"


@pytest.mark.parametrize("damage", ["deleted", "flipped", "emptied"])
def test_a_silent_copy_whose_file_is_lost_does_not_begin_to_send(
    tmp_path, monkeypatch, capsys, damage
):
    """A silent copy that has lost its root record does not begin to send.

    Once, it was taken for a root of an earlier Kappa, and `kappa up` made it a root that sends.
    """
    (tmp_path / "kappa.toml").touch()
    monkeypatch.chdir(tmp_path)
    ensure_root(Store(tmp_path / "root"))
    copy = shutil.copytree(tmp_path / "root", tmp_path / "copy")
    adopted = adopt_copy(Store(copy), sends=False)
    whole = (copy / NAME).read_bytes()
    if damage == "deleted":
        (copy / NAME).unlink()
    else:
        (copy / NAME).write_bytes(whole.replace(b"false", b"true") if damage == "flipped" else b"")

    for change in (ensure_root, own_root, lambda store: adopt_copy(store, sends=True)):
        with pytest.raises(Damaged, match=r"/copy/root\.json is ") as refused:
            change(Store(copy))
        assert "kappa doctor --repair" in refused.value.hint

    assert run_command(["--root", "copy", "doctor", "--repair", "--yes"]) == ExitCode.OK
    assert "its copy takes its place" in capsys.readouterr().out
    assert (copy / NAME).read_bytes() == whole
    assert ensure_root(Store(copy)) == adopted


def test_the_repair_of_a_roots_file_makes_a_copy_no_root_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "kappa.toml").touch()
    monkeypatch.chdir(tmp_path)
    ensure_root(Store(tmp_path / "root"))
    copy = shutil.copytree(tmp_path / "root", tmp_path / "copy")
    (copy / NAME).unlink()

    run_command(["--root", "copy", "doctor", "--repair", "--yes"])

    with pytest.raises(Copied):
        own_root(Store(copy))


def test_a_roots_file_is_not_repaired_while_the_platform_runs(runs):
    (runs.folder / NAME).unlink()
    found = examine_root(Store(runs.folder), now=0.0)

    with pytest.raises(Conflict, match="kappa is up"):
        repair_root(Store(runs.folder), found)

    assert not (runs.folder / NAME).exists()
    runs.end()
    repair_root(Store(runs.folder), found)
    assert own_root(Store(runs.folder)) is not None


def test_a_copy_is_one_though_the_first_root_has_lost_its_file(tmp_path):
    store = Store(tmp_path / "root")
    ensure_root(store)
    copy = Store(shutil.copytree(store.folder, tmp_path / "copy"))
    (store.folder / NAME).unlink()

    with pytest.raises(Copied):
        ensure_root(copy)


def test_what_a_root_says_has_a_copy_that_is_made_anew(tmp_path):
    store = Store(tmp_path / "root")
    made = ensure_root(store)
    whole = (store.folder / ROOT_COPY).read_bytes()
    for damage in (None, b"", whole.replace(b"true", b"false")):
        (store.folder / ROOT_COPY).write_bytes(damage or b"")
        if damage is None:
            (store.folder / ROOT_COPY).unlink()
        assert ensure_root(Store(store.folder)) == made
        assert (store.folder / ROOT_COPY).read_bytes() == whole


def test_the_doctor_keeps_the_last_sign_that_a_root_was_one(tmp_path, capsys):
    """The doctor keeps the last file that identifies a root.

    Without both files, the next `kappa up` would take the root for one of an earlier Kappa.
    """
    store = Store(tmp_path / "root")
    ensure_root(store)
    whole = (store.folder / NAME).read_bytes()
    (store.folder / ROOT_COPY).write_bytes(b"")

    assert examine_root(Store(store.folder), now=0.0) == ()
    assert "root_copy.json" in capsys.readouterr().err
    assert not (store.folder / ROOT_COPY).exists()

    (store.folder / ROOT_COPY).write_bytes(whole[:-9])
    (store.folder / NAME).unlink()
    (found,) = examine_root(Store(store.folder), now=0.0)
    assert "put the file back from a backup" in found.hint
    with pytest.raises(Damaged, match=r"root\.json is gone"):
        ensure_root(Store(store.folder))


def test_a_root_of_an_earlier_kappa_is_made_one(tmp_path):
    store = Store(tmp_path / "root")
    assert own_root(store) is None
    with pytest.raises(UsageError, match=r"has no root\.json"):
        adopt_copy(store, sends=False)

    made = ensure_root(store)
    assert read_root(store) == made


def test_a_root_on_another_machine_is_a_copy_wherever_it_is_there(tmp_path, monkeypatch):
    """A root on another machine is a copy, even at the same path, as after rsync.

    The path is also the same if a disk was attached there.
    """
    monkeypatch.setattr("kappa.state.root.machine", lambda: "blue")
    first = ensure_root(Store(tmp_path / "root"))
    monkeypatch.setattr("kappa.state.root.machine", lambda: "green")

    with pytest.raises(Copied, match="or is on another machine") as refused:
        own_root(Store(tmp_path / "root"))
    assert "--send it takes the first one's place" in refused.value.hint

    there = adopt_copy(Store(tmp_path / "root"), sends=True)
    assert (there.sends, there.adopted_from, there.place.machine) == (True, first.id, "green")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_neither_the_same_nor_a_copy(tmp_path, damage):
    store = Store(tmp_path / "root")
    ensure_root(store)
    content = bytearray((store.folder / NAME).read_bytes())
    content[content.index(b'"inode":') + 8] ^= 1
    (store.folder / NAME).write_bytes(
        {"flip": bytes(content), "cut": content[:40]}.get(damage, b"")
    )

    with pytest.raises(Damaged, match=r"root\.json is not as it was written"):
        own_root(Store(store.folder))


def test_a_root_that_is_begun_meanwhile_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process puts both files between the looks at the first and at the second file."""
    looked, first = Store(tmp_path), Store(tmp_path)
    get = Store.get

    def begun_meanwhile(store: Store, name: str) -> bytes | None:
        found = get(store, name)
        if name == NAME and found is None:
            monkeypatch.undo()
            ensure_root(first)
        return found

    monkeypatch.setattr(Store, "get", begun_meanwhile)

    assert read_root(looked) == ensure_root(first)


def test_of_processes_that_begin_a_root_at_once_one_gives_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, first = Store(tmp_path), Store(tmp_path)
    place_of = root.place_of

    def begun_meanwhile(store: Store) -> RootPlace:
        monkeypatch.undo()
        ensure_root(first)
        return place_of(store)

    monkeypatch.setattr(root, "place_of", begun_meanwhile)

    assert ensure_root(late) == ensure_root(first) == read_root(Store(tmp_path))
