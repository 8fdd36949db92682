"""Fixtures of the tests of rehearsed builds, and of real job processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builds import JobProcess, Project
from rehearsing import Rehearse

from kappa.kafka.client import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa import Pipeline
    from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal


@pytest.fixture
def spark_here(interpreted: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Sends the whole test file to workers by value, because they cannot import it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield interpreted
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.long)])
def roots(request: pytest.FixtureRequest) -> Iterator[None]:
    """Puts the rehearsed builds of a test on the disk or in a bucket: the same laws hold."""
    if request.param == "disk":
        yield
        return
    from rehearsed import rehearsed_in_bucket

    running, spark = (request.getfixturevalue(name) for name in ("object_store", "spark"))
    with rehearsed_in_bucket(running, spark):
        yield


@pytest.fixture(scope="module")
def described(spark: SparkSession) -> Iterator[Callable[[Pipeline], LocalPipeline]]:
    """Yields a function that describes a pipeline in Spark, once per test file."""
    from kappa.engine.children.rehearsal import local_pipeline

    known: dict[int, tuple[Pipeline, LocalPipeline]] = {}
    with ExitStack() as opened:

        def describe_once(declared: Pipeline) -> LocalPipeline:
            if id(declared) not in known:
                known[id(declared)] = declared, opened.enter_context(local_pipeline(declared))
            return known[id(declared)][1]

        yield describe_once


@pytest.fixture
def rehearse(described: Callable[[Pipeline], LocalPipeline], tmp_path: Path) -> Iterator[Rehearse]:
    """Yields a function that begins builds, each in its own folder; they are closed at the end."""
    from kappa.engine.children.rehearsal import Rehearsal

    folders = (tmp_path / f"build-{number}" for number in itertools.count())
    with ExitStack() as begun:

        def begin(
            declared: Pipeline, log: MemoryLog, driver_rows: int = 1_000_000, **more: Any
        ) -> Rehearsal:
            local = described(declared)
            built = Rehearsal(next(folders), local, log, driver_rows=driver_rows, **more)
            begun.callback(built.close)
            return built

        yield begin


@pytest.fixture
def project(tmp_path: Path, log: Log) -> Project:
    return Project(tmp_path / "prøject", log)


@pytest.fixture
def jobs() -> Iterator[list[JobProcess]]:
    """Yields a list for jobs, and kills these jobs after the test."""
    started: list[JobProcess] = []
    yield started
    for job in started:
        job.kill()
