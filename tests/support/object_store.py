"""A real S3 server for tests, and roots in its bucket."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.cluster.object_store import KEY, SECRET, RunningStore, ensure_versitygw
from kappa.base.sections import StorageSettings

BUCKET = "kappa-tests"
# In the environment, as a user has them.
CREDENTIALS = {KEY: "kappa-tests-key", SECRET: "kappa-tests-secret-2718281828"}


class ObjectStore(RunningStore):
    """A server with one bucket that listens on this machine only; its objects are in `folder`."""

    def __init__(self, folder: Path, *options: str) -> None:
        environment = {**os.environ, **CREDENTIALS}
        super().__init__(ensure_versitygw(), folder, BUCKET, environment, options)
        self._roots = itertools.count()

    def new_root(self) -> str:
        """Returns the URL of a new root for one test."""
        return f"s3://{BUCKET}/test-{next(self._roots)}/kappa"


def bucket_settings(root: str, storage: StorageSettings, bootstrap_servers: str) -> str:
    """Returns the settings of a project whose root is in a bucket."""
    return f"""
root = "{root}"
[storage]
endpoint = "{storage.endpoint}"
[kafka]
bootstrap_servers = "{bootstrap_servers}"
"""


@contextmanager
def running_object_store(folder: Path, *options: str) -> Iterator[ObjectStore]:
    """Runs a server within the block, and deletes its objects afterwards."""
    running = ObjectStore(folder, *options)
    running.start()
    try:
        yield running
    finally:
        running.kill()
        shutil.rmtree(folder)
