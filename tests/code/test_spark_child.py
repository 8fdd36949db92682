"""Laws of Spark's children: progress arrives while one runs, and one that hangs is ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.code import spark_child
from kappa.code.spark_child import PROGRESS, ask, one_child
from kappa.code.task import ENDED

# What the program of a spare does with each task, without Spark.
CHILD = f"""
import json, os, sys
from pathlib import Path
print("on stdout")
for line in sys.stdin:
    folder = Path(json.loads(line)["arguments"][0])
    request = json.loads((folder / "request.json").read_text())
    print("{PROGRESS}first of two", file=sys.stderr, flush=True)
    print("a warning of Spark", file=sys.stderr, flush=True)
    exec(request["does"])
    print("{PROGRESS}second of two", file=sys.stderr, flush=True)
    (folder / "answer.json").write_text(str(os.getpid()))
    print("{ENDED}0", file=sys.stderr, flush=True)
"""
TOO_LONG = KappaError("too long")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks such a child, and returns its process and what it said."""
    (tmp_path / "kappa.toml").touch()
    settings = load_settings(tmp_path)
    monkeypatch.setattr(spark_child, "command_of", lambda *_: [sys.executable, "-c", CHILD])

    def ask_it(does: str = "", patience_seconds: float = 60) -> tuple[int, list[str]]:
        said: list[str] = []
        answer = ask(
            settings,
            tmp_path,
            "program",
            {"web": "web"},
            patience_seconds=patience_seconds,
            too_long=TOO_LONG,
            say=said.append,
            does=does,
        )
        return answer, said

    ask_it.settings = settings  # type: ignore[attr-defined]
    return ask_it


def test_lines_of_progress_are_passed_on(asked: Any) -> None:
    assert asked()[1] == ["first of two", "second of two"]


def test_the_last_other_line_is_in_the_error_about_a_child_without_an_answer(asked: Any) -> None:
    with pytest.raises(KappaError, match="no answer about web: a warning of Spark"):
        asked("sys.exit(3)")


@pytest.mark.slow
def test_a_child_that_does_not_end_is_killed(asked: Any) -> None:
    with pytest.raises(KappaError) as error:
        asked("import time; time.sleep(600)", patience_seconds=3)

    assert error.value is TOO_LONG


def test_requests_of_one_block_have_one_child_and_others_have_one_each(asked: Any) -> None:
    with one_child(asked.settings):
        first, second = asked()[0], asked()[0]
    third = asked()[0]

    assert first == second != third
    assert not Path(f"/proc/{first}").exists()
    assert not Path(f"/proc/{third}").exists()
