"""A rehearsal of an agent's files: changed rows of a sample, and walls around the code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kappa.agents.trial_run import rehearse_files
from kappa.replay.status.context import ProjectContext

pytestmark = [pytest.mark.jvm, pytest.mark.long, pytest.mark.timeout(1500)]

PIPELINE = '''
from kappa import Table, Topic, count, pipeline

EVENT = "visitor string not null, page string not null, n int"
VISITS = Topic("visits", partitions=2, key="visitor", event=EVENT)


@pipeline(
    reads={"visits": VISITS},
    writes=[Table("page_hits", keys=("page",), fold={"hits": count()})],
)
def web(visits):
    """Counts pages."""
    return {"page_hits": visits}
'''
FEWER = PIPELINE.replace('"page_hits": visits}', '"page_hits": visits.where("n > 1")}')
EVENTS = [{"visitor": "ada", "page": "/", "n": 1}, {"visitor": "bob", "page": "/x", "n": 2}]
# Each attempt is told in the error of the file, which the agent gets.
ATTEMPTS = """
import glob, os, socket, subprocess
told = []


def attempt(name, act):
    try:
        told.append(f"{name}: DONE {act()!r}"[:400])
    except BaseException as error:
        told.append(f"{name}: {type(error).__name__}")


attempt("settings", lambda: open("{folder}/kappa.toml").read())
attempt("file beside", lambda: open("{folder}/secret.txt").read())
attempt("root", lambda: os.listdir("{folder}/.kappa"))
attempt("passwd", lambda: open("/etc/passwd").read())
attempt("environment", lambda: [each for each in os.environ.values() if "CANARY" in each])
attempt("other environments", lambda: [open(each).read() for each in glob.glob("/proc/*/environ")])
attempt("home", lambda: os.listdir("/root"))
attempt("socket file", lambda: socket.socket(socket.AF_UNIX))
attempt("broker", lambda: socket.create_connection(("127.0.0.1", {port}), 1))
attempt("network", lambda: socket.create_connection(("192.0.2.1", 53), 1))
attempt("write", lambda: open("{folder}/pipelines/web.py", "w"))
attempt("signal", lambda: os.kill({pid}, 0))
cat = ["cat", "{folder}/secret.txt"]
attempt("program", lambda: subprocess.run(cat, capture_output=True).stdout)
raise ValueError("; ".join(told))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CANARY_VARIABLE", "CANARY")
    (tmp_path / "kappa.toml").write_text('[serve]\ntoken = "CANARY-0123456789abcdefgh"\n')
    (tmp_path / "secret.txt").write_text("CANARY")
    for name, text in (
        ("pipelines/web.py", PIPELINE),
        ("events/visits.ndjson", "".join(f"{json.dumps(each)}\n" for each in EVENTS)),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return tmp_path


def rehearsed(project: Path, text: str) -> dict[str, Any]:
    return rehearse_files(ProjectContext(project, None), {"pipelines/web.py": text})


def test_a_rehearsal_shows_rows_that_change(project: Path) -> None:
    found = rehearsed(project, FEWER)

    (web,) = found["pipelines"]
    (hits,) = web["tables"]
    assert found["refusals"] == []
    assert (hits["added"], hits["removed"], hits["changed"]) == (0, 1, 0)
    assert hits["removed_rows"] == [{"page": "/", "hits": 1}]
    assert (project / "pipelines" / "web.py").read_text() == PIPELINE


def test_code_of_an_agent_reaches_nothing(project: Path) -> None:
    """The code reaches no file of others, no network, no other process, and no secret."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        places = {"folder": project, "port": listening.getsockname()[1], "pid": os.getpid()}
        hostile = ATTEMPTS
        for name, value in places.items():
            hostile = hostile.replace(f"{{{name}}}", str(value))
        found = rehearsed(project, f"{PIPELINE}\n{hostile}")

    (refusal,) = found["refusals"]
    told = dict(
        each.split(": ", 1) for each in refusal["message"].partition("ValueError: ")[2].split("; ")
    )
    assert "CANARY" not in json.dumps(found)
    assert {name for name, each in told.items() if each.startswith("DONE")} == {
        # No variable of this process is there, and what `cat` may not read, it does not print.
        *("environment", "program")
    }
    assert (told["environment"], told["program"]) == ("DONE []", "DONE b''")
    assert len(told) == 13
    assert (project / "pipelines" / "web.py").read_text() == PIPELINE
