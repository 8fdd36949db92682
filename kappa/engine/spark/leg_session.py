"""The Spark session of one leg of a job.

The session starts in the background and stops when the leg ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kappa.engine.spark.jvm import Profile, cluster_for
from kappa.engine.spark.s3a import storage_of
from kappa.engine.spark.session import Machine, boot_for, warm_ahead
from kappa.engine.spark.session_control import activate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.base.settings import Settings


class LegSession:
    """The JVM of a leg and its Spark session, from their start to the end of the leg."""

    def __init__(self, settings: Settings, build: str, profile: Profile, local_dir: Path) -> None:
        """Stores the settings, the build and the profile.

        Only this job uses the folder `local_dir`, which may contain files of a killed job.
        """
        self._settings = settings
        self._build = build
        self._profile = profile
        self._folder = local_dir
        self._machine: Machine | None = None
        # The spare's own JVM, if warm and of another profile, and the JVM's session.
        self._warm: Machine | None = None
        self._at_hand: SparkSession | None = None
        self._beginning: Future[SparkSession] | None = None
        self._has_workers = False
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="session")

    def begin(self) -> None:
        """Starts the JVM and, in another thread, the session, unless they are started already.

        If this process is a spare with a warm JVM, the leg's own session starts only when it is
        requested.
        """
        if self._machine is not None:
            return
        self._warm = warm_ahead(other_than=self._profile)
        self._machine = boot_for(
            self._settings, profile=self._profile, name=self._build, local_dir=self._folder
        )
        # PySpark's modules import each other in circles: of two threads that import PySpark at
        # once, one may find half of a module.
        import_module("pyspark.sql")
        if self._warm is None:
            self._beginning = self._beside.submit(self._machine.session)

    @property
    def has_spare(self) -> bool:
        """Returns True if the warm JVM of a spare is available for slices of few rows."""
        return self._warm is not None

    @property
    def is_elsewhere(self) -> bool:
        """Returns True if the tasks run on a cluster, and the root is in a bucket.

        Then the workers can read files in the bucket, but no files of this machine.
        """
        cluster = cluster_for(self._settings, self._profile)
        return cluster is not None and storage_of(self._settings) is not None

    def __call__(self) -> SparkSession:
        """Returns the leg's session, and makes it active in this thread.

        Raises KappaError if the JVM of the session has exited.
        """
        self.begin()
        assert self._machine is not None, "it was started"
        if self._beginning is None:
            # A process has one session at a time.
            self._at_hand = self._warm = None
            self._beginning = self._beside.submit(self._machine.session)
        spark = self._beginning.result()
        activate(spark)
        return spark

    def at_hand(self) -> SparkSession:
        """Returns a session for a few rows, and makes it active in this thread.

        If a spare's warm JVM is available and the leg's own session was not requested yet, returns
        a session in the warm JVM. Otherwise, returns the leg's own session. After the leg's own
        session was requested, frames of the other session can no longer be used.
        """
        self.begin()
        if self._warm is None:
            return self()
        if self._at_hand is None:
            self._at_hand = self._warm.session()
        activate(self._at_hand)
        return self._at_hand

    def begin_workers(self, is_asked_to_stop: Callable[[], bool] = lambda: False) -> None:
        """Starts the Python workers of the leg's own session, unless they are started already.

        Does nothing if the leg is a tail, since the workers of a tail usually do not decode. Also
        does nothing if the leg's own session was not started yet. On a cluster, waits until there
        is an executor, or until `is_asked_to_stop` returns True.
        """
        if self._beginning is None or self._profile is Profile.TAIL or self._has_workers:
            return
        # This module imports PySpark.
        from kappa.engine.spark.workers import begin_executors, begin_workers  # noqa: PLC0415

        self._has_workers = True
        spark, cluster = self._beginning.result(), cluster_for(self._settings, self._profile)
        if cluster is None:
            begin_workers(spark)
        else:
            begin_executors(spark, cluster, self._folder, is_asked_to_stop)

    def __enter__(self) -> Self:
        """Empties the leg's folder, and returns this object."""
        shutil.rmtree(self._folder, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the session and the JVM, and deletes the leg's folder.

        If no session has started, the JVM is killed.
        """
        if self._machine is not None:
            if (
                self._beginning is not None
                and self._beginning.done()
                and self._beginning.exception() is None
            ):
                self._machine.end()
            else:
                self._machine.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
