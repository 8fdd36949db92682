"""The Spark session of a process and its JVM. No other module creates a SparkSession.

A process has one session at a time. A job owns its process, so this module sets environment
variables of the process. The module writes no files outside `local_dir`. The session's JVM boots
while the process does other work (`boot`). The boot takes two seconds, during which a job imports
modules and opens files. docs/performance.md contains the measurements behind the settings.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kappa.base.errors import KappaError
from kappa.base.java.jars import Jars, ensure_jars
from kappa.base.java.java import find_java
from kappa.base.process import lower_priority
from kappa.engine.spark.cluster import SparkCluster, ensure_master, not_begun
from kappa.engine.spark.jvm import FOREIGN, Profile, cluster_for, command, secrets_of
from kappa.engine.spark.s3a import classes_in, compile_log_store, storage_of
from kappa.engine.spark.spark_settings import DECODING, spark_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.base.sections import JarsSettings, StorageSettings
    from kappa.base.settings import Settings

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# PySpark sets these variables when a session begins. Until then the variables have PySpark's
# defaults: a present session reads the variables while the next JVM boots.
_SET_BY_PYSPARK = {
    _PORT: "",
    _SECRET: "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
}
# The process answers Ctrl-C, and its JVM outlives the signal.
_WITHOUT_INTERRUPTS = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
_NAP_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Machine:
    """A JVM that boots for this process's session, and exits when this process exits.

    The JVM writes its port and secret to the file `gateway`.
    """

    process: subprocess.Popen[bytes]
    gateway: Path
    name: str
    memory: str
    # The settings of a cluster may have secrets.
    settings: Mapping[str, str] = field(repr=False)
    profile: Profile
    # For classes that are compiled in the JVM, if the root is in a bucket.
    classes: Path | None = None

    def session(self) -> SparkSession:
        """Waits for the JVM, and returns a session in it.

        If the JVM was booted ahead and already has a session, returns a new session in the JVM, so
        that a task gets no state of an earlier task. Raises KappaError if the JVM has exited.
        """
        # The import runs while the JVM boots, and the boot takes as long as the rest of a process's
        # start.
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        try:
            begun = SparkSession._instantiatedSession  # noqa: SLF001  # a session of its own has no other door
            if begun is not None and self in _ahead:
                spark = SparkSession._instantiatedSession = begun.newSession()  # noqa: SLF001
                return spark
            for other in tuple(_ahead):
                if other is not self:
                    other.end()
            return self._begun(SparkSession.builder, *self._gateway())
        except Py4JJavaError as error:
            told = not_begun(error)
            self.kill()
            raise told from error
        except BaseException:
            self.kill()
            raise

    def end(self) -> None:
        """Stops the session and kills the JVM. Then this process can boot another JVM."""
        from pyspark import SparkContext as Context  # noqa: PLC0415  # it is imported by now

        # PySpark gives up no JVM, and a dead JVM does not end in order.
        with suppress(Exception):
            Context._active_spark_context.stop()  # type: ignore[union-attr]  # noqa: SLF001
        with suppress(Exception):
            Context._gateway.shutdown()  # type: ignore[union-attr]  # noqa: SLF001
        Context._active_spark_context = Context._gateway = Context._jvm = None  # noqa: SLF001
        self.kill()
        # The next session is a session of another JVM.
        if self in _ahead:
            _ahead.remove(self)

    def lower_priority(self, nice: int) -> None:
        """Lowers the priority of this process and its JVM to `nice`, for all later work."""
        lower_priority(nice, (os.getpid(), self.process.pid))

    def kill(self) -> None:
        """Kills the JVM immediately."""
        with self.process:
            self.process.kill()

    def _begun(self, builder: SparkSession.Builder, port: int, secret: str) -> SparkSession:
        builder = builder.master(self.settings["spark.master"]).appName(self.name)
        for key, value in self.settings.items():
            builder = builder.config(key, value)
        # By these variables PySpark connects to an existing JVM.
        os.environ.update({_PORT: str(port), _SECRET: secret})
        try:
            spark = builder.getOrCreate()
        finally:
            os.environ.update({_PORT: "", _SECRET: ""})
        # PySpark keeps its own JVM's process here: the process must not be released while in use.
        spark.sparkContext._gateway.proc = self.process  # type: ignore[union-attr]  # noqa: SLF001
        if self.classes is not None:
            compile_log_store(spark, self.classes)
        return spark

    def _gateway(self) -> tuple[int, str]:
        """Waits for the JVM's gateway file, and returns the port and the secret in the file.

        The JVM creates the file with its whole content at once. Raises KappaError if the JVM exits
        before that.
        """
        while not self.gateway.exists():
            if self.process.poll() is not None:
                raise KappaError(
                    f"Spark's JVM ended with {self.process.returncode} before it could be used",
                    hint=f"its output is above; it asked for {self.memory} of memory",
                )
            time.sleep(_NAP_SECONDS)
        written = self.gateway.read_bytes()
        self.gateway.unlink()
        port, length = struct.unpack_from(">ii", written)
        return port, written[8 : 8 + length].decode()


# The JVM that this process has booted before its task was known (`boot_ahead`).
_ahead: list[Machine] = []


def boot(
    *,
    profile: Profile,
    name: str,
    memory: str,
    jars: Jars,
    local_dir: Path,
    cores: int = 0,
    worker_memory: str = "4g",
    list_classes: Path | None = None,
    output: int | None = None,
    secrets: Mapping[str, str] | None = None,
    cluster: SparkCluster | None = None,
    storage: StorageSettings | None = None,
) -> Machine:
    """Starts the JVM of this process's session, and returns without waiting for the JVM.

    `memory` is the JVM's heap (`2g`), and `worker_memory` is the memory of a Python worker. `cores`
    0 means all cores. Only this process uses `local_dir`, for files that Spark spills or leaves
    behind. `list_classes` is a path for the list of the JVM's classes; only class_list_run.py uses
    it. The JVM's output goes to the file descriptor `output`, or to this process's own output if
    `output` is None. `secrets` are added to the JVM's environment. If `cluster` is not None, tasks
    run on this cluster. If tables are in a bucket of `storage`, `jars` must contain the jars for
    buckets.

    If a JVM was booted ahead for this profile, this JVM is returned, and the other arguments have
    no effect. A JVM that was booted ahead for another profile is ended when the session of the new
    JVM begins.
    """
    for machine in _ahead:
        if machine.profile is profile:
            return machine
    classes = None if storage is None else classes_in(local_dir)
    for folder in filter(None, (local_dir / "tmp", local_dir / "spark", classes)):
        folder.mkdir(parents=True, exist_ok=True)
    for variable in (*FOREIGN, *_SET_BY_PYSPARK):
        os.environ.pop(variable, None)
    os.environ.update({"SPARK_LOCAL_DIRS": str(local_dir / "spark"), "SPARK_LOCAL_IP": "127.0.0.1"})
    # Workers on this machine must be this Python, with these packages.
    python = sys.executable if cluster is None else cluster.python
    os.environ.update({"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable})
    # PySpark uses the time zone of its process, for example for a datetime that is a literal.
    os.environ["TZ"] = "UTC"
    time.tzset()
    gateway = Path(tempfile.mkdtemp(dir=local_dir / "tmp")) / "gateway"
    environment = {
        **os.environ,
        **(secrets or {}),
        "PYTHONHASHSEED": "0",
        DECODING: "" if profile is Profile.TAIL else "1",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway),
    }
    # The JVM ends when its input ends.
    process = subprocess.Popen(
        [*_WITHOUT_INTERRUPTS, *command(profile, memory, jars, local_dir, list_classes)],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env=environment,
    )
    # Another thread may change a variable while it is read, but not add or remove a variable
    # (getenv(3)).
    os.environ.update(_SET_BY_PYSPARK)
    shipped = (*jars.spark, *jars.bucket)
    settings = spark_settings(local_dir, cores, worker_memory, cluster, shipped, storage)
    return Machine(process, gateway, name, memory, settings, profile, classes)


@contextmanager
def booting_session(settings: JarsSettings) -> Iterator[Callable[[], SparkSession]]:
    """Boots a JVM that is killed at the end of the `with` block, and yields a function.

    The function waits for the JVM, and returns a session in it. `settings` is the project's section
    `[jars]`. If this process has opened the sources of a project when the session begins, the
    workers of the session import these sources.
    """
    with tempfile.TemporaryDirectory(prefix="kappa-spark-") as folder:
        machine = boot(
            profile=Profile.TAIL,
            name="rehearsal",
            memory="1g",
            jars=ensure_jars(find_java(), cache=settings.cache, repository=settings.repository),
            local_dir=Path(folder),
        )

        def session() -> SparkSession:
            # The imports run while the JVM boots.
            from kappa.code.importer import FOLDER_VARIABLE  # noqa: PLC0415
            from kappa.engine.spark.workers import tell_workers  # noqa: PLC0415

            spark = machine.session()
            if FOLDER_VARIABLE in os.environ:
                tell_workers(spark)
            return spark

        try:
            yield session
        finally:
            machine.end()


def boot_for(
    settings: Settings,
    *,
    profile: Profile,
    name: str,
    local_dir: Path,
    output: int | None = None,
) -> Machine:
    """Starts the JVM of this process's session, with a project's settings and jars.

    Raises Unreachable if tasks run on a cluster whose master does not answer.
    """
    cluster = cluster_for(settings, profile)
    if cluster is not None:
        ensure_master(cluster)
    storage = storage_of(settings)
    jars = ensure_jars(
        find_java(),
        cache=settings.jars.cache,
        repository=settings.jars.repository,
        for_bucket=storage is not None,
    )
    return boot(
        profile=profile,
        name=name,
        memory=settings.engine.memory,
        jars=jars,
        local_dir=local_dir,
        cores=settings.engine.cores,
        worker_memory=settings.engine.worker_memory,
        output=output,
        secrets=secrets_of(settings),
        cluster=cluster,
        storage=storage,
    )


def boot_ahead(settings: Settings, *, profile: Profile, local_dir: Path) -> Machine:
    """Starts a JVM before this process gets its task.

    The next call of `boot` for `profile` returns this JVM. Everything that the JVM prints is copied
    to this process's standard error.
    """
    says, output = os.pipe()
    try:
        machine = boot_for(
            settings, profile=profile, name="spare", local_dir=local_dir, output=output
        )
    finally:
        os.close(output)
    threading.Thread(target=_relay, args=(says,), name="relay", daemon=True).start()
    _ahead.append(machine)
    return machine


def booted_ahead() -> Machine:
    """Returns the JVM that this process has booted ahead. This process must be a spare."""
    (machine,) = _ahead
    return machine


def warm_ahead(*, other_than: Profile) -> Machine | None:
    """Returns a warm JVM that this process has booted ahead for a profile other than `other_than`.

    Returns None if there is no such JVM.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # it is imported by now

    if SparkSession._instantiatedSession is None:  # noqa: SLF001  # as above
        return None
    return next((each for each in _ahead if each.profile is not other_than), None)


def _relay(says: int) -> None:
    while said := os.read(says, 1 << 16):
        with suppress(OSError):
            os.write(2, said)


def end_process(code: int) -> NoReturn:
    """Ends this process immediately, even if threads of Spark and Kappa still run.

    The process's JVM exits too, since its input is closed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
