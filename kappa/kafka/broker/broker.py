"""The embedded broker: a real Apache Kafka on 127.0.0.1, as a child process.

The process runs in KRaft mode, as broker and controller together. The broker's data remain in
`<root>/broker/` between runs. The broker exits when its parent process exits. Do not store the only
copy of any data in this broker; use a cluster for that, with `kafka.bootstrap_servers`.

`broker.json` describes the process and the ports of the last run. The next run uses the same ports,
so that clients find the broker again. If the broker of the last run still runs after a crash, the
next run kills it. A broker that uses another folder is not killed: in a copied root, `broker.json`
describes the broker of the first root.

Kafka's settings: https://kafka.apache.org/documentation/#configuration
"""

from __future__ import annotations

import base64
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Self

from kappa.base.disk import put_file, sync_folders, sync_tree
from kappa.base.document_seal import sealed, unsealed
from kappa.base.errors import Conflict, KappaError
from kappa.base.java.class_archive import ClassArchive
from kappa.base.java.jars import Jars
from kappa.base.java.java import Java
from kappa.base.process import ProcessId, has_open, kill_and_see_gone, process_id, start_tied
from kappa.kafka.client import Log

# 3 s on a quiet machine, 10 s at load 10; a slow disk and a recovery after a crash take longer.
_READY_SECONDS = 120.0
# Another process may take a free port before Kafka binds the port.
_PORT_ATTEMPTS = 3
_STOP_SECONDS = 20.0
_NAP_SECONDS = 0.05


class Broker:
    """A running broker process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log_file: Path) -> None:
        """Stores the process, the port and the log file of a broker.

        Only `Broker.start` calls this method.
        """
        self._process = process
        self._port = port
        self.log_file = log_file

    @classmethod
    def start(
        cls,
        root: Path,
        jars: Jars,
        java: Java,
        *,
        heap: str = "512m",
        syncs: bool = True,
        list_classes: Path | None = None,
    ) -> Self:
        """Starts the broker of a root folder, and returns when the broker answers.

        Call this method from the main thread (`start_tied` explains why). If a broker of an earlier
        run still uses the same data, it is killed first. If `syncs` is True, acknowledged records
        survive a power loss. `list_classes` is the path of a file to which the JVM writes the list
        of the broker's classes. Raises KappaError, with the reason from the broker's log, if the
        broker exits before it answers.
        """
        folder = root / "broker"
        folder.mkdir(parents=True, exist_ok=True)
        (root / "logs").mkdir(exist_ok=True)
        log_file = root / "logs" / "broker.log"
        (folder / "log4j2.properties").write_bytes(java_text(log4j2_properties(log_file)))
        last = read_last_run(folder)
        end_leftover(folder, last)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            port, controller_port = free_ports(last if attempt == 1 else None)
            settings = partial(
                server_properties, port=port, controller_port=controller_port, syncs=syncs
            )
            (folder / "server.properties").write_bytes(java_text(settings(folder / "data")))
            _ensure_formatted(folder, jars, java, settings)
            sharing = broker_archive(jars, java.command).options(list_classes)
            process, written_before = _launch_broker(
                folder, jars, java, [f"-Xmx{heap}", *sharing], log_file
            )
            write_last_run(
                folder, LastRun.of(folder, port, controller_port, process_id(process.pid))
            )
            broker = cls(process, port, log_file)
            try:
                answers = broker._wait_until_ready()
            except BaseException:
                broker.stop()
                raise
            if answers:
                return broker
            broker.stop()
            words = last_words(
                _written_since(log_file, written_before) or _written_since(folder / "output.log", 0)
            )
            if "already in use" not in words or attempt == _PORT_ATTEMPTS:
                raise KappaError(f"the Kafka broker did not start: {words}", hint=f"see {log_file}")
        raise AssertionError("the last attempt returns or raises")

    @property
    def bootstrap_servers(self) -> str:
        """Returns the address (`host:port`) to which clients connect."""
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Returns the broker's process id, which is also the id of the process group."""
        return self._process.pid

    def alive(self) -> bool:
        """Returns True while the broker's process runs."""
        return self._process.poll() is None

    def stop(self, patience_seconds: float = _STOP_SECONDS) -> None:
        """Stops the broker with SIGTERM, and kills it if it still runs after `patience_seconds`.

        A second call does nothing.
        """
        if self.alive():
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(patience_seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _wait_until_ready(self) -> bool:
        """Returns True when the broker answers, and False if the process has exited.

        Raises KappaError if neither happens in time.
        """
        deadline = time.monotonic() + _READY_SECONDS
        # The port opens last; until then clients would only make noise.
        while self.alive() and not _accepts_connections(self._port):
            if time.monotonic() > deadline:
                raise KappaError(
                    f"the Kafka broker has not opened its port within {_READY_SECONDS:.0f} seconds",
                    hint=f"see {self.log_file}",
                )
            time.sleep(_NAP_SECONDS)
        log = Log(self.bootstrap_servers)
        while self.alive():
            if log.wait_until_ready(1.0):
                # Another process may have the port, and our broker may be about to die for that.
                return self.alive()
            if time.monotonic() > deadline:
                raise KappaError(
                    f"the Kafka broker does not answer at {self.bootstrap_servers} within "
                    f"{_READY_SECONDS:.0f} seconds",
                    hint=f"see {self.log_file}",
                )
        return False


def broker_archive(jars: Jars, java: str) -> ClassArchive:
    """Returns the archive of loaded classes with which the broker's JVM starts faster."""
    return ClassArchive("broker", _class_path(jars.broker), jars.broker, java)


def last_words(log: str) -> str:
    """Returns the line of a broker's log file that explains why the broker exited.

    This is the last exception or error that the log file contains. If there is none, it is the last
    line that is not part of a stack trace.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    # Frames of a stack trace show places, not reasons.
    spoken = [
        line
        for line in lines
        if not line.startswith("at ") and not re.match(r"\.\.\. \d+ more", line)
    ]
    causes = [
        line for line in spoken if re.match(r"(Caused by: )?[\w.$]+(Exception|Error)\b", line)
    ]
    return (causes or spoken or ["it left no word"])[-1].removeprefix("Caused by: ")


def _accepts_connections(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _ensure_formatted(
    folder: Path, jars: Jars, java: Java, settings: Callable[[Path], str]
) -> None:
    """Creates the data folder with a cluster id, if the folder is missing.

    The program `kafka-storage format` would do the same. Kafka does not sync the folder to the
    disk, and a broker does not start with an incomplete folder. So the folder is created under
    another name, synced and renamed.
    """
    data, unfinished = folder / "data", folder / "data.new"
    if (data / "meta.properties").exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    written = folder / "format.properties"
    written.write_bytes(java_text(settings(unfinished)))
    command = [
        *(
            java.command,
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            *broker_archive(jars, java.command).options(),
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            "-cp",
            _class_path(jars.broker),
        ),
        *(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            _new_cluster_id(),
            "-c",
            str(written),
        ),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    failed = last_words(done.stderr or done.stdout) if done.returncode else ""
    try:
        if not failed:
            sync_tree(unfinished)
            unfinished.rename(data)
            sync_folders([folder])
    except OSError as error:
        failed = str(error)
    if failed:
        raise KappaError(
            f"the Kafka broker's folder {data} could not be made: {failed}",
            hint="see whether the disk is full or the folder may be written",
        )


def _new_cluster_id() -> str:
    """Returns a new id in the form of a Kafka Uuid: 16 bytes in URL-safe base 64 without padding.

    The id does not begin with a dash, since Kafka would parse such an id as an option.
    """
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith(
        "-"
    ):
        pass
    return text


def _launch_broker(
    folder: Path, jars: Jars, java: Java, options: Sequence[str], log_file: Path
) -> tuple[subprocess.Popen[bytes], int]:
    written_before = log_file.stat().st_size if log_file.exists() else 0
    command = [
        *(
            java.command,
            *options,
            "-XX:+UseSerialGC",
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            "-Djava.net.preferIPv4Stack=true",
        ),
        *("-cp", _class_path(jars.broker), "kafka.Kafka", str(folder / "server.properties")),
    ]
    # The JVM's own messages (out of memory, a bad flag) do not pass through log4j.
    with (folder / "output.log").open("wb") as output:
        return start_tied(command, output=output, folder=folder), written_before


def _class_path(jars: Sequence[Path]) -> str:
    return ":".join(str(jar) for jar in jars)


def _written_since(log_file: Path, position: int) -> str:
    if not log_file.exists():
        return ""
    with log_file.open("rb") as log:
        # A log that was rolled meanwhile begins anew.
        log.seek(position if log_file.stat().st_size >= position else 0)
        return log.read().decode(errors="replace")


FORMAT = 1


@dataclass(frozen=True, slots=True)
class LastRun:
    """The content of `broker.json`: the process of the last run, and its ports.

    `device` and `inode` identify the broker's folder. They are 0 in a file that an earlier version
    of Kappa has written.
    """

    format: int
    port: int
    controller_port: int
    process: ProcessId | None
    device: int = 0
    inode: int = 0

    @classmethod
    def of(cls, folder: Path, port: int, controller_port: int, process: ProcessId | None) -> Self:
        """Returns the description of a broker process that was just started in `folder`."""
        place = folder.stat()
        return cls(FORMAT, port, controller_port, process, place.st_dev, place.st_ino)


def end_leftover(folder: Path, last: LastRun | None) -> None:
    """Kills the broker of the last run if it still runs and works in this folder.

    Raises Conflict if the broker cannot be killed.
    """
    if last is None or last.process is None or not last.process.alive():
        return
    place = folder.stat()
    is_here = (last.device, last.inode) == (place.st_dev, place.st_ino)
    # Kafka's own lock on the data.
    if not is_here and not has_open(last.process.pid, folder / "data" / ".lock"):
        return
    if not kill_and_see_gone(last.process):
        raise Conflict(
            f"a broker left over from an earlier run (process {last.process.pid}) cannot be killed",
            hint=f"end it with: kill -9 {last.process.pid}",
        )


def read_last_run(folder: Path) -> LastRun | None:
    """Reads `broker.json`. Returns None if the file is missing or damaged."""
    try:
        found, _ = unsealed((folder / "broker.json").read_bytes())
        process = (
            ProcessId(int(found["process"]["pid"]), str(found["process"]["born"]))
            if found["process"]
            else None
        )
        return LastRun(
            *(FORMAT, int(found["port"]), int(found["controller_port"]), process),
            *(int(found.get("device", 0)), int(found.get("inode", 0))),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        # The file only saves a search for ports and leftovers. A leftover that the file does not
        # name has Kafka's own lock on the data.
        return None


def write_last_run(folder: Path, run: LastRun) -> None:
    """Writes `broker.json`, and overwrites the description of an earlier run."""
    put_file(folder / "broker.json", sealed(asdict(run))[0], synced=False)


def free_ports(last: LastRun | None) -> tuple[int, int]:
    """Returns two free ports for the broker and the controller.

    A port of the last run is used again if it is free, so that clients find the broker again.
    """
    with socket.socket() as one, socket.socket() as other:
        ports = []
        for held, wanted in (
            (one, last.port if last else 0),
            (other, last.controller_port if last else 0),
        ):
            # Bound as Kafka binds: a lingering connection of the last run must not change the port.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind((HOST, wanted))
            except OSError:
                held.bind((HOST, 0))
            ports.append(int(held.getsockname()[1]))
        return ports[0], ports[1]


HOST = "127.0.0.1"


def server_properties(data: Path, port: int, controller_port: int, *, syncs: bool) -> str:
    """Returns Kafka's settings for a data folder and two ports, as a properties file.

    If `syncs` is True, the broker syncs each record to the disk before it acknowledges the record.
    So acknowledged records survive a power loss, which matters since there is no other replica.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        # Topics are declared; a typing error must not make a topic.
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a crash the broker is back only when its old session has ended: 9 s by default.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        # The default of 128 MB would be a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        **({"log.flush.interval.messages": "1"} if syncs else {}),
    }
    # Java's properties files take a backslash as an escape, so a backslash is doubled.
    return "".join(
        f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()
    )


def java_text(text: str) -> bytes:
    """Encodes the text of a properties file in the form that java.util.Properties reads.

    Java reads the file as Latin-1. All characters beyond ASCII are written as UTF-16 escapes.
    """
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(pair) for pair in zip(units[::2], units[1::2], strict=True))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes).encode("ascii")


def log4j2_properties(log_file: Path) -> str:
    """Returns log4j's settings for up to four log files of 20 MB; `log_file` is the newest."""
    return f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.filePattern = {log_file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %m (%c{{1}})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def partition_bytes(root: Path, topics: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
    """Returns the size of the log segments of each partition in a root's broker, in bytes.

    The result maps each topic to its partitions and their sizes. A topic is left out if the broker
    has no folder of any of its partitions.
    """
    data = root / "broker" / "data"
    found: dict[str, dict[int, int]] = {}
    folders = [path for path in data.iterdir() if path.is_dir()] if data.is_dir() else []
    wanted = frozenset(topics)
    for path in folders:
        # Kafka's own rule: the partition's number is behind the last dash. The folder of a
        # partition that is being deleted ends otherwise.
        name, _, partition = path.name.rpartition("-")
        if name in wanted and partition.isdigit():
            found.setdefault(name, {})[int(partition)] = sum(map(_segment_size, path.glob("*.log")))
    return found


def _segment_size(segment: Path) -> int:
    try:
        return segment.stat().st_size
    except FileNotFoundError:
        # The file was compacted or deleted since the listing.
        return 0
