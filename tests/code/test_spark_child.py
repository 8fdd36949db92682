"""Laws of Spark's children: progress arrives while one runs, and one that hangs is killed."""

from __future__ import annotations

import os
import sys

import pytest

from kappa.code.spark_child import PROGRESS, run_child

CHILD = f"""
import sys

import pytest
print("on stdout")
print("{PROGRESS}first of two", file=sys.stderr, flush=True)
print("a warning of Spark", file=sys.stderr, flush=True)
{{more}}
print("{PROGRESS}second of two", file=sys.stderr, flush=True)
sys.exit(3)
"""


def run(more: str, patience_seconds: float) -> tuple[int | None, list[str], list[str]]:
    said: list[str] = []
    command = [sys.executable, "-c", CHILD.format(more=more)]
    ended, last_lines = run_child(command, os.environ, patience_seconds, said.append)
    return ended, last_lines, said


def test_lines_of_progress_are_passed_on_and_others_are_kept_for_the_error() -> None:
    assert run("", 60) == (3, ["a warning of Spark"], ["first of two", "second of two"])


@pytest.mark.slow
def test_a_child_that_does_not_end_is_killed_and_what_it_reported_has_arrived() -> None:
    ended, _, said = run("import time; time.sleep(600)", 3)

    assert ended is None
    assert said == ["first of two"]
