"""Spark's Python workers: it is no error if the JVM closes a worker's socket."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import BinaryIO, cast

DAEMON = [sys.executable, "-m", "kappa.engine.spark.workers", "pyspark.worker"]
PIPE = subprocess.PIPE


def number_from(source: BinaryIO) -> int:
    """Reads a number in the form of PySpark's protocol."""
    return int(struct.unpack("!i", source.read(4))[0])


def end_of_worker(path: str) -> None:
    """Makes the daemon start a worker, closes its socket as the JVM does, and waits for its end."""
    with closing(socket.socket(socket.AF_UNIX)) as jvm:
        jvm.connect(path)
        with jvm.makefile("rb") as from_worker:
            handle = os.pidfd_open(number_from(cast("BinaryIO", from_worker)))
    try:
        assert select.select([handle], [], [], 60)[0], "the worker did not end"
    finally:
        os.close(handle)


def test_a_limit_of_memory_is_set_in_silence() -> None:
    """A memory limit is set without the four lines that PySpark prints per worker.

    A limit that cannot be set is still reported.
    """
    program = """
import resource
import sys
from kappa.engine.spark.workers import limit_memory
limit_memory(4096)
print(resource.getrlimit(resource.RLIMIT_AS)[0])
print("--", file=sys.stderr)
resource.setrlimit = lambda *_: (_ for _ in ()).throw(OSError("refused"))
limit_memory(2048)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == f"{4096 << 20}\n"
    silence, _, report = done.stderr.partition("--\n")
    assert silence == ""
    assert "Failed to set memory limit: refused" in report


def test_a_worker_whose_socket_the_jvm_closes_ends_in_silence() -> None:
    """A worker exits quietly if the JVM closes its socket.

    The JVM closes the sockets of idle workers, and of tasks that need no more rows. Each of these
    workers left a BrokenPipeError with a traceback in the log of a healthy job.
    """
    # A socket's path may not be long, as a test's own folder is.
    with TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
            "SPARK_REUSE_WORKER": "1",
        }
        with subprocess.Popen(
            DAEMON, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE
        ) as daemon:
            answers = cast("BinaryIO", daemon.stdout)
            end_of_worker(answers.read(number_from(answers)).decode())
            # The daemon ends with its input.
            errors = daemon.communicate(timeout=60)[1].decode()

    assert errors == ""
