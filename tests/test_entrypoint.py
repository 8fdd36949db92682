"""Checks of the image's entry point: it runs Kappa with its arguments, or a Spark executor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kappa.base.java.jars import spark_home

TREE = Path(__file__).parent.parent
ENTRY = TREE / "deploy" / "entrypoint.sh"
# As Spark 4.2 sets them in an executor's pod.
GIVEN = {
    "SPARK_APPLICATION_ID": "spark-1f",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_ID": "EXECID",
    "SPARK_EXECUTOR_MEMORY": "2048m",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "totals-1f-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


@pytest.fixture
def programs(tmp_path) -> Path:
    """Returns a folder of programs that print their name and arguments, one per line."""
    scripts = {
        "java": 'printf "%s\\n" java "$@"',
        "kappa": 'printf "%s\\n" kappa "$@"',
        "python": f'exec {sys.executable} "$@"',
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def called(programs: Path, *arguments: str, given: Mapping[str, str]) -> list[str]:
    """Returns the program that the entry point becomes, with its arguments."""
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(TREE), **given}
    return subprocess.run(
        [ENTRY, *arguments], env=environment, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_the_image_is_entered_by_it():
    image = (TREE / "Dockerfile").read_text(encoding="utf-8")

    assert f'ENTRYPOINT ["/opt/kappa/{ENTRY.relative_to(TREE)}"]\nCMD ["up"]\n' in image
    assert os.access(ENTRY, os.X_OK)


@pytest.mark.parametrize("arguments", [(), ("up",), ("query", "SELECT 'a  b'")])
def test_arguments_are_those_of_kappa(programs, arguments):
    assert called(programs, *arguments, given={}) == ["kappa", *arguments]


def test_spark_starts_an_executor_with_all_that_it_gives(programs):
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dx={number} and more" for number in range(11)}

    java, *arguments = called(programs, "executor", given={**GIVEN, **options})

    assert java == "java"
    assert arguments[:11] == list(options.values())
    assert arguments[11:13] == ["-Xms2048m", "-Xmx2048m"]
    assert arguments[13:15] == ["-cp", f"/opt/spark/conf::{spark_home()}/jars/*"]
    assert arguments[15] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    named = dict(zip(arguments[16::2], arguments[17::2], strict=True))
    assert named == {
        "--app-id": GIVEN["SPARK_APPLICATION_ID"],
        "--cores": GIVEN["SPARK_EXECUTOR_CORES"],
        "--driver-url": GIVEN["SPARK_DRIVER_URL"],
        "--executor-id": GIVEN["SPARK_EXECUTOR_ID"],
        "--hostname": GIVEN["SPARK_EXECUTOR_POD_IP"],
        "--podName": GIVEN["SPARK_EXECUTOR_POD_NAME"],
        "--resourceProfileId": GIVEN["SPARK_RESOURCE_PROFILE_ID"],
    }


def test_an_executor_that_lacks_something_does_not_start(programs):
    given = {name: value for name, value in GIVEN.items() if name != "SPARK_DRIVER_URL"}

    with pytest.raises(subprocess.CalledProcessError) as failed:
        called(programs, "executor", given=given)
    assert "SPARK_DRIVER_URL" in failed.value.stderr
