"""Rollouts of a Kappa project as a job of Dagster: plan, stage, wait, promote.

KAPPA_PROJECT=/srv/shop dagster dev -f dagster_rollout.py
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

PROJECT = Path(os.environ["KAPPA_PROJECT"])
PLAN = PROJECT / ".kappa" / "dagster.plan"
# Exit codes of Kappa: changes are pending; timed out, while the work goes on.
PENDING, TIMED_OUT = 3, 5


def kappa(context: dg.OpExecutionContext, *arguments: str, other: int = 0) -> tuple[int, Any]:
    """Runs a command; returns its exit code, 0 or `other`, and the document that it prints.

    Raises Failure for any other exit code. Only a command that timed out is worth a retry.
    """
    command = ["kappa", *arguments, "--quiet", "-o", "json"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    context.log.info("%s ended with %d\n%s", " ".join(command), done.returncode, done.stdout)
    if done.returncode in {0, other}:
        return done.returncode, json.loads(done.stdout)
    raise dg.Failure(
        done.stderr or done.stdout,
        metadata={"exit code": done.returncode},
        allow_retries=done.returncode == TIMED_OUT,
    )


@dg.op(out=dg.Out(dg.Nothing, is_required=False))
def plan(context: dg.OpExecutionContext) -> Iterator[dg.Output[None]]:
    """Plans all pipelines, and saves the plan. Nothing follows if nothing has changed."""
    code, _ = kappa(context, "plan", "--detailed-exitcode", "--out", str(PLAN), other=PENDING)
    if code == PENDING:
        yield dg.Output(None)


@dg.op(ins={"planned": dg.In(dg.Nothing)})
def stage(context: dg.OpExecutionContext) -> list[str]:
    """Begins the planned rollouts: readers see nothing of them yet. Returns their pipelines."""
    reason = f"Dagster run {context.run_id}"
    _, rollouts = kappa(context, "stage", "--plan", str(PLAN), "--reason", reason)
    return [rollout["pipeline"] for rollout in rollouts]


@dg.op(retry_policy=dg.RetryPolicy(max_retries=48))
def verified(context: dg.OpExecutionContext, staged: list[str]) -> list[str]:
    """Waits until each candidate has passed its verification: at most a day."""
    for pipeline in staged:
        kappa(context, "wait", pipeline, "--timeout", "1800")
    return staged


@dg.op
def promote(context: dg.OpExecutionContext, ready: list[str]) -> None:
    """Lets the candidates serve, all in one generation."""
    if ready:
        kappa(context, "promote", *ready, "--yes")


@dg.job
def rollout() -> None:
    """Rolls out what has changed in the project's files."""
    promote(verified(stage(plan())))


nightly = dg.ScheduleDefinition(
    job=rollout,
    cron_schedule=os.environ.get("KAPPA_CRON", "0 3 * * *"),
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
defs = dg.Definitions(jobs=[rollout], schedules=[nightly])
