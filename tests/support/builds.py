"""Builds for tests: a project on disk, a build of it, and its job as a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from births import make_birth

from kappa.base.clock import now
from kappa.code.code_snapshot import ensure_snapshot, hash_files, load_snapshot
from kappa.code.fingerprint import SEMANTICS
from kappa.code.importer import open_sources
from kappa.code.project import load_module, pipelines_in
from kappa.code.sources import Sources
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.columns import Type, parse_columns, parse_type
from kappa.kafka.client import Log
from kappa.state.build import Birth, TopicBirth, put_birth, read_birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.views.view_tables import build_tables

_PATIENCE_SECONDS = 120.0
# Settings of Spark under which plans are interpreted. Where each runs over some rows, to compile it
# takes a sixth longer. Jobs of tests/e2e and most files have the product's way to run plans.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def interpreted() -> dict[str, str]:
    """Returns additional environment variables for a test's job."""
    options = (f"-D{name}={value}" for name, value in INTERPRETED.items())
    return {"JDK_JAVA_OPTIONS": " ".join([os.environ.get("JDK_JAVA_OPTIONS", ""), *options])}


@dataclass
class Project:
    """A project folder with one pipeline, in pipelines/p.py."""

    folder: Path
    log: Log

    @property
    def store(self) -> Store:
        return Store(self.folder / ".kappa")

    def bear(self, build: str, source: str, outputs: Mapping[str, str] | None = None) -> Birth:
        """Makes a build of this source.

        `outputs` gives the columns that the function returns, as DDL by table; `*events` stands for
        all columns of `events`. Without `outputs`, the session of this process finds the columns.
        """
        text = textwrap.dedent(source).encode()
        (self.folder / "pipelines").mkdir(parents=True, exist_ok=True)
        (self.folder / "pipelines" / "p.py").write_bytes(text)
        (self.folder / "kappa.toml").touch()
        sources = Sources(self.folder)
        open_sources(sources)
        (_, pipeline), *_ = pipelines_in(load_module("pipelines.p", sources))
        birth = self._birth(build, pipeline, outputs, text)
        ensure_snapshot(self.store, build, {"pipelines/p.py": text})
        put_birth(self.store, birth)
        return birth

    def _birth(
        self, build: str, pipeline: Pipeline, outputs: Mapping[str, str] | None, text: bytes
    ) -> Birth:
        topics = []
        for topic in pipeline.topics:
            facts = self.log.create(topic)
            topics.append(TopicBirth(topic.name, facts.id, str(topic.kind), facts.partitions))
        if outputs is None:
            from kappa.engine.children.rehearsal import local_pipeline

            with local_pipeline(pipeline) as local:
                returned: Mapping[str, Mapping[str, Type]] = local.outputs
        else:
            returned = {name: _returned(pipeline, columns) for name, columns in outputs.items()}
        return make_birth(
            build,
            build_tables(pipeline, returned),
            topics=tuple(topics),
            pipeline=pipeline.name,
            semantics=SEMANTICS,
            sources=hash_files({"pipelines/p.py": text}),
            module="pipelines.p",
            origin=Offsets.zero({topic.name: topic.partitions for topic in topics}).plain(),
            born_at=now(),
        )

    def pipeline(self, build: str) -> Pipeline:
        return load_snapshot(self.store, read_birth(self.store, build))

    def start(self, build: str, leg: str = "tail", **environment: str) -> JobProcess:
        """Starts the build's job in a session of its own, as the supervisor does."""
        log = self.folder / f"{build}.log"
        command = [
            *(sys.executable, "-m", "kappa.engine.job.job"),
            *("--project", str(self.folder), "--root", str(self.folder / ".kappa")),
            *("--bootstrap", self.log.bootstrap_servers, "--build", build),
            *("--leg", leg, "--nice", "0"),
        ]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **interpreted(), **environment},
            )
        return JobProcess(process, log)

    def frontier(self, build: str) -> Frontier | None:
        return Frontiers(self.store, build).newest()

    def wait_until_folded(self, build: str, job: JobProcess) -> Frontier:
        """Waits until the build has published everything that is in its topics now."""
        topics = [topic.name for topic in read_birth(self.store, build).topics]
        end = self.log.end(topics)

        def folded() -> Frontier | None:
            newest = self.frontier(build)
            return newest if newest is not None and newest.offsets.covers(end) else None

        found = job.wait_for(folded)
        assert isinstance(found, Frontier)
        return found


def _returned(pipeline: Pipeline, columns: str) -> Mapping[str, Type]:
    if not columns.startswith("*"):
        return {column.name: column.type for column in parse_columns(columns)}
    given = pipeline.columns_of(pipeline.inputs[columns[1:]][0])
    return {name: parse_type(kind) for name, kind in given}


@dataclass
class JobProcess:
    """A running job."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait_for(self, looked: Callable[[], object]) -> object:
        """Waits until `looked` returns a true value, and returns that value.

        Fails with the job's log if the job ends before that.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (found := looked()):
            assert self.process.poll() is None, (
                f"the job ended with {self.process.returncode}:\n{self.said()}"
            )
            assert time.monotonic() < deadline, f"waited too long:\n{self.said()}"
            time.sleep(0.02)
        return found

    def ended(self) -> int:
        """Waits until the job has ended, and returns its exit code."""
        try:
            return self.process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the job did not end:\n{self.said()}") from None

    def stop(self) -> int:
        self.process.terminate()
        return self.ended()

    def kill(self) -> None:
        """Kills only the job's process, as `kill -9` does.

        The next holder of the lock has to end the JVM.
        """
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]
