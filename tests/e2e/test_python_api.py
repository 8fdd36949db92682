"""The page of `kappa.Project`, run as one program, and an agent that stages in the same project.

Everything is real: the broker, the jobs, the commands. The SDK's client talks to `kappa mcp` on
stdio.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from generated import generate
from mcp import Client, StdioServerParameters
from testbed import Testbed, platform

import kappa
from kappa.base.errors import UsageError

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(1800)]

WEB = '''
from pyspark.sql import functions as F
from kappa import Table, Topic, count, pipeline

EVENT = "visitor string not null, page string not null"
VISITS = Topic("visits", partitions=2, key="visitor", event=EVENT)


@pipeline(
    reads={"visits": VISITS},
    writes=[Table("page_hits", keys=("page",), fold={"hits": count()})],
)
def web(visits):
    """Counts the pages that people see."""
    return {"page_hits": visits}
'''
LOWER = WEB.replace(
    '"page_hits": visits}', '"page_hits": visits.withColumn("page", F.lower("page"))}'
)
UPPER = LOWER.replace("F.lower", "F.upper")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("python") / "shop"
    with platform(folder, listen="127.0.0.1:0", web=WEB) as bed:
        yield bed


def test_the_examples_are_one_program(
    bed: Testbed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each example of the page runs, in the page's order, and does what its method promises."""
    monkeypatch.chdir(bed.folder.parent)
    for name, value in bed.environment.items():
        monkeypatch.setenv(name, value)
    program: dict[str, Any] = {"Project": kappa.Project, "connect": kappa.connect}
    for name, thing in generate.python_entries().items():
        if name == "Project.plan":
            bed.declare("web", LOWER)
        if name == "Project.diff":
            bed.must("wait", "web")
        code = generate.example_of(thing)
        if name == "kappa.connect":
            # The port is one of this run.
            code = code.replace(
                "http://127.0.0.1:8717", str(bed.must("status", "-o", "json").json()["http"])
            )
        exec(compile(code, name, "exec"), program)
    asyncio.run(program["print_hits"]())

    project = program["project"]
    what = [(each["what"], each["state"]) for each in project.history()]
    assert [state for _, state in what] == ["served"] * 3
    assert project.query("select * from page_hits").fetchall() == [("/", 1)]
    assert "[('/', 1)]" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"event 1 .*page"):
        project.produce("visits", [{"visitor": "ada"}])


def test_an_agent_plans_and_stages(bed: Testbed) -> None:
    """The agent's rollout names the agent, and waits for a person's yes."""
    if "web" not in bed.state().serving:
        # This test runs alone: the examples of the page have not served anything.
        bed.must("deploy", "--yes")
    bed.must(
        "produce", "visits", "-", "--from", "jsonl", given='{"visitor": "bob", "page": "/x"}\n'
    )
    bed.declare("web", UPPER)
    program = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "cli", "--project", str(bed.folder), "mcp"],
        env={**bed.environment, "KAPPA_BY": "ada@test"},
    )

    async def play() -> None:
        async with Client(program, read_timeout_seconds=600) as client:

            async def call(tool: str, **given: Any) -> tuple[bool, Any]:
                found = await client.call_tool(tool, given)
                (content,) = found.content
                assert content.type == "text"
                failed = bool(found.is_error)
                return failed, content.text if failed else json.loads(content.text)

            failed, plan = await call("plan")
            assert not failed, plan
            (step,) = plan["steps"]
            assert (step["change"], plan["refusals"]) == ("changed", [])
            assert step["cost"]["records"] >= 1
            failed, staged = await call("stage", plan=plan["id"], reason="upper case")
            assert not failed, staged
            (rollout,) = staged["staged"]
            bed.must("wait", "web")
            failed, text = await call("request", act="promote", pipeline="web")
            assert failed
            assert "a person types: kappa promote web" in text
            failed, text = await call("stage", plan=plan["id"])
            assert failed
            assert "stale" in text
            assert rollout["pipeline"] == "web"

    asyncio.run(play())
    (waiting,) = bed.state().active_rollouts
    assert (waiting.by, waiting.waits) == ("agent mcp for ada@test", True)
    bed.must("abandon", "web")
