"""Spark for one leg of a job: it starts beside other work, and ends with the leg."""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import Machine, activate, boot_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.base.settings import Settings


class LegSession:
    """The JVM and the session of one leg."""

    def __init__(self, settings: Settings, build: str, profile: Profile, local_dir: Path) -> None:
        """Takes the job's own `local_dir`: it may contain what a killed job has left."""
        self._settings = settings
        self._build = build
        self._profile = profile
        self._folder = local_dir
        self._machine: Machine | None = None
        self._beginning: Future[SparkSession] | None = None
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="session")

    def begin(self) -> Future[SparkSession]:
        """Starts the JVM, and begins the session in another thread, if that was not done yet."""
        if self._beginning is None:
            self._machine = boot_for(
                self._settings, profile=self._profile, name=self._build, local_dir=self._folder
            )
            # Its modules import each other in circles: of two threads that import them at once, one
            # may find half of a module.
            import_module("pyspark.sql")
            self._beginning = self._beside.submit(self._machine.session)
        return self._beginning

    def __call__(self) -> SparkSession:
        """Returns the session, active in this thread. Raises KappaError if its JVM has ended."""
        spark = self.begin().result()
        activate(spark)
        return spark

    def __enter__(self) -> Self:
        """Returns itself, with a clean folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends both, in order where they were in use."""
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
