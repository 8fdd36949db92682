"""A real schema registry for tests: Apicurio, fetched once per user by PySpark's Ivy."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ports import free_port

from demo.cluster.answering import answers
from kappa.base.java.jars import spark_home
from kappa.base.java.java import find_java
from kappa.base.temporary_folders import user_cache

_VERSION = "3.0.9"
_SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_READY_SECONDS = 180.0
# Its parent's POM is not served, so none is read.
_SETTINGS = """<ivysettings><settings defaultResolver="r"/><resolvers>
  <ibiblio name="r" m2compatible="true" usepoms="false"/>
</resolvers></ivysettings>"""
_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kappa" module="registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies><dependency org="io.apicurio" name="apicurio-registry-app" rev="{_VERSION}"
    transitive="false" conf="default->default">
    <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
  </dependency></dependencies></ivy-module>"""


def ensure_registry() -> Path | None:
    """Returns the folder of the registry's program, or None if it cannot be fetched here."""
    folder = user_cache("registry")
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / _VERSION
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return place
        packed = _fetched(folder / "ivy")
        if packed is None:
            return None
        with tarfile.open(packed) as content:
            content.extractall(folder / "new", filter="data")
        (folder / "new").rename(place)
        shutil.rmtree(folder / "ivy")
    return place


def _fetched(ivy: Path) -> Path | None:
    ivy.mkdir(exist_ok=True)
    (ivy / "settings.xml").write_text(_SETTINGS, encoding="utf-8")
    (ivy / "ivy.xml").write_text(_MODULE, encoding="utf-8")
    program = next(spark_home().glob("jars/ivy-*.jar"))
    command = [find_java().command, f"-Divy.default.ivy.user.dir={ivy / 'user'}", "-jar", program]
    command += ["-ivy", ivy / "ivy.xml", "-settings", ivy / "settings.xml", "-cache", ivy / "cache"]
    subprocess.run(command, check=False, capture_output=True, timeout=600)
    for found in ivy.glob("cache/io.apicurio/*/*/*.tar.gz"):
        with found.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() == _SHA256:
                return found
    return None


@dataclass
class RunningRegistry:
    """An in-memory registry that listens on this machine only."""

    program: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the registry's Confluent-compatible API."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        """Starts the registry, and waits until it answers."""
        runner = next(self.program.rglob("apicurio-registry-app-*-runner.jar"))
        options = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": free_port(),
        }
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(find_java().command, "-Xmx128m"),
                    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *(f"-D{name}={value}" for name, value in options.items()),
                    *("-jar", str(runner)),
                ],
                cwd=runner.parent,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not answers(self.port, "/apis/ccompat/v7/subjects"):
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the registry did not answer in time"
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends the registry; its content is lost."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None


@contextmanager
def running_registry(folder: Path) -> Iterator[RunningRegistry | None]:
    """Runs a registry within the block. Yields None if this machine cannot have one."""
    program = ensure_registry()
    if program is None:
        yield None
        return
    running = RunningRegistry(program, folder, free_port())
    running.start()
    try:
        yield running
    finally:
        running.stop()
