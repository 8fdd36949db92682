"""Fixtures of the tests of real job processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builds import JobProcess, Project

from kappa.kafka.client import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def spark_here(interpreted: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Sends workers the whole of the test's file: they cannot import it."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield interpreted
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.long)])
def roots(request: pytest.FixtureRequest) -> Iterator[None]:
    """Puts the builds that a test rehearses on the disk, or in a bucket: the same laws hold."""
    if request.param == "disk":
        yield
        return
    from rehearsed import rehearsed_in_bucket

    running, spark = (request.getfixturevalue(name) for name in ("object_store", "spark"))
    with rehearsed_in_bucket(running, spark):
        yield


@pytest.fixture
def project(tmp_path: Path, log: Log) -> Project:
    return Project(tmp_path / "prøject", log)


@pytest.fixture
def jobs() -> Iterator[list[JobProcess]]:
    """Jobs to see gone, whatever becomes of the test."""
    started: list[JobProcess] = []
    yield started
    for job in started:
        job.kill()
