"""Laws of Spark's children: progress arrives while one runs, and one that hangs is ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.code import spark_child
from kappa.code.spark_child import BEGINS, PROGRESS, ask, one_child
from kappa.code.task import ENDED

# What the program of a spare does with each task, without Spark.
CHILD = f"""
import json, os, sys
from pathlib import Path
print("on stdout")
for line in sys.stdin:
    folder = Path(json.loads(line)["arguments"][0])
    request = json.loads((folder / "request.json").read_text())
    answers = dict()
    print("a warning of Spark", file=sys.stderr, flush=True)
    exec(request["first"])
    for name, does in request["pipelines"].items():
        print(f"{BEGINS}{{name}}", file=sys.stderr, flush=True)
        print("{PROGRESS}first of two", file=sys.stderr, flush=True)
        exec(does)
        print("{PROGRESS}second of two", file=sys.stderr, flush=True)
        answers[name] = dict(pid=os.getpid())
        (folder / "answer.json").write_text(json.dumps(answers))
    print("{ENDED}0", file=sys.stderr, flush=True)
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks such a child, and returns its process and what it said."""
    (tmp_path / "kappa.toml").touch()
    settings = load_settings(tmp_path)
    monkeypatch.setattr(spark_child, "command_of", lambda *_: [sys.executable, "-c", CHILD])

    def ask_it(
        does: str = "", *, first: str = "", seconds: float = 60, **others: str
    ) -> tuple[Any, list[str]]:
        said: list[str] = []
        answers = ask(
            settings,
            tmp_path,
            "program",
            {"web": does, **others},
            seconds=lambda left: seconds / left,
            cut=lambda name, last: {"cut": name, "last": last},
            say=said.append,
            more=lambda: {"first": first},
        )
        return answers if others else answers["web"], said

    ask_it.settings = settings  # type: ignore[attr-defined]
    return ask_it


def test_lines_of_progress_are_passed_on(asked: Any) -> None:
    assert asked()[1] == ["first of two", "second of two"]


def test_the_last_other_line_is_in_the_error_about_a_child_without_an_answer(asked: Any) -> None:
    with pytest.raises(KappaError, match="no answer about web: a warning of Spark"):
        asked(first="sys.exit(3)")


@pytest.mark.slow
def test_a_child_that_never_begins_is_killed(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_child, "_START_SECONDS", 1.0)
    with pytest.raises(KappaError, match="no answer about web: it did not start within 1 s"):
        asked(first="import time; time.sleep(600)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "last"),
    [
        ("import time; time.sleep(600)", None),
        ("os._exit(3)", "a warning of Spark"),
        ("os.kill(os.getpid(), 11)", "a warning of Spark"),
        ("raise ValueError('x')", "ValueError: x"),
    ],
)
def test_one_pipeline_is_cut_by_name_and_others_go_on(
    asked: Any, does: str, last: str | None
) -> None:
    """Those before have their answers, and those after are asked of another child."""
    answers, _ = asked(a=does, b="", seconds=6)

    assert answers["a"] == {"cut": "a", "last": last}
    assert answers["web"].keys() == answers["b"].keys() == {"pid"}
    assert answers["web"] != answers["b"]


def test_requests_of_one_block_have_one_child_and_others_have_one_each(asked: Any) -> None:
    with one_child(asked.settings):
        first, second = asked()[0]["pid"], asked()[0]["pid"]
    third = asked()[0]["pid"]

    assert first == second != third
    assert not Path(f"/proc/{first}").exists()
    assert not Path(f"/proc/{third}").exists()
