"""An S3 server on 127.0.0.1: versitygw, which is built with Go once per user.

When run as a program, this module builds the server and fetches Spark's jars for buckets, so that
the server and the jars are ready before they are first used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from demo.cluster.answering import answers
from kappa.base.errors import KappaError
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.base.process import start_tied
from kappa.base.sections import StorageSettings
from kappa.base.temporary_folders import user_cache
from kappa.kafka.broker.broker import HOST, free_ports

VERSION = "1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
_READY_SECONDS = 60.0
_NAP_SECONDS = 0.05
# In the environment, as a user has them.
KEY, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"


class NotRunError(Exception):
    """The error that the server cannot run on this machine, with the reason."""


def ensure_versitygw() -> Path:
    """Returns the path of the versitygw program, after building it if necessary.

    The build takes two minutes of CPU time. Raises NotRunError if the program cannot be built.
    """
    folder = user_cache("versitygw")
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / VERSION
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
class RunningStore:
    """An S3 server with one bucket. The objects of the bucket are stored in `folder`.

    Clients need the credentials in `environment`.
    """

    program: Path
    folder: Path
    bucket: str
    environment: Mapping[str, str]
    # Further ones of versitygw.
    options: Sequence[str] = ()
    port: int = field(default_factory=lambda: free_ports(None)[0])
    process: subprocess.Popen[bytes] | None = None

    @property
    def storage(self) -> StorageSettings:
        """Returns the storage settings of a root in the server's bucket."""
        return StorageSettings(endpoint=f"http://{HOST}:{self.port}")

    def start(self) -> None:
        """Starts the object store and waits until it answers.

        The object store is killed when this process exits. Raises KappaError if the object store
        does not answer in time.
        """
        (self.folder / self.bucket).mkdir(parents=True, exist_ok=True)
        environment = {
            **self.environment,
            "ROOT_ACCESS_KEY": self.environment[KEY],
            "ROOT_SECRET_KEY": self.environment[SECRET],
        }
        options = [
            "--port",
            f"{HOST}:{self.port}",
            "--health",
            "/health",
            "--quiet",
            "--keep-alive",
            *self.options,
        ]
        output = self.folder.with_name(f"{self.folder.name}.log")
        with output.open("ab") as log:
            self.process = start_tied(
                [str(self.program), *options, "posix", str(self.folder)],
                output=log,
                environment=environment,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not answers(self.port, "/health"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise KappaError(f"the S3 server does not answer: {output.read_text()[-2000:]}")
            time.sleep(_NAP_SECONDS)

    def kill(self) -> None:
        """Kills the object store. Its objects are kept."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


if __name__ == "__main__":
    # It is built while packages and jars are fetched, and Spark's jars for it come then, too.
    with suppress(NotRunError):
        ensure_versitygw()
        ensure_jars(find_java(), for_bucket=True)
