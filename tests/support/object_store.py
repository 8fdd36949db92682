"""A real S3 server for tests: versitygw, built by Go once per user."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from registries import answers, free_port

from kappa.base.process import start_tied
from kappa.base.scratch import user_cache
from kappa.base.section.storage import StorageSettings
from kappa.java.jars import ensure_jars
from kappa.java.java import find_java

_VERSION = "1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@v{_VERSION}"
_READY_SECONDS = 60.0
BUCKET = "kappa-tests"
# In the environment, as a user has them.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "kappa-tests-key",
    "AWS_SECRET_ACCESS_KEY": "kappa-tests-secret-2718281828",
}


class NotRunError(Exception):
    """A reason why this machine cannot have the server."""


def ensure_versitygw() -> Path:
    """Returns the server's program; it takes two minutes of CPU to build it the first time.

    Raises NotRunError if it cannot be built.
    """
    folder = user_cache("versitygw")
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / _VERSION
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_file():
            if shutil.which("go") is None:
                raise NotRunError("no go")
            made = folder / "go"
            # Go checks each module against its public database of sums.
            environment = {
                **os.environ,
                "CGO_ENABLED": "0",
                "GOBIN": str(made / "bin"),
                "GOCACHE": str(made / "cache"),
                "GOFLAGS": "-modcacherw",
                "GOPATH": str(made),
            }
            built = subprocess.run(
                ["go", "install", "-ldflags=-s -w", _MODULE],
                env=environment,
                check=False,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            if built.returncode:
                raise NotRunError(f"{_MODULE} cannot be built: {built.stderr.strip()[-500:]}")
            (made / "bin" / "versitygw").rename(place)
            shutil.rmtree(made)
    return place


@dataclass
class ObjectStore:
    """A server of one bucket that listens on this machine alone; its objects are in `folder`."""

    program: Path
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    _roots: Iterator[int] = field(default_factory=itertools.count)

    @property
    def storage(self) -> StorageSettings:
        """Settings of a root that is there."""
        return StorageSettings(endpoint=f"http://127.0.0.1:{self.port}")

    def new_root(self) -> str:
        """Returns the URL of a root of a test's own."""
        return f"s3://{BUCKET}/test-{next(self._roots)}/kappa"

    def start(self) -> None:
        """Starts it, and waits until it answers. It is killed when this process dies."""
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "ROOT_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        }
        options = ["--port", f"127.0.0.1:{self.port}", "--health", "/health", "--quiet"]
        output = self.folder.with_name(f"{self.folder.name}.log")
        with output.open("ab") as log:
            self.process = start_tied(
                [str(self.program), *options, "posix", str(self.folder)],
                output=log,
                environment=environment,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not answers(self.port, "/health"):
            assert self.process.poll() is None, output.read_text()[-2000:]
            assert time.monotonic() < deadline, "the S3 server did not answer in time"
            time.sleep(0.05)

    def kill(self) -> None:
        """Kills it; its objects stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None


@contextmanager
def running_object_store(folder: Path) -> Iterator[ObjectStore]:
    """Gives a server that runs meanwhile; its objects are deleted with it."""
    running = ObjectStore(ensure_versitygw(), folder)
    running.start()
    try:
        yield running
    finally:
        running.kill()
        shutil.rmtree(folder)


if __name__ == "__main__":
    # It is built while packages and jars are fetched, and Spark's jars for it come then, too.
    with suppress(NotRunError):
        ensure_versitygw()
        ensure_jars(find_java(), for_bucket=True)
