"""Runs an agent's requests as `kappa` commands, each in a separate process.

A command that loads the project's files runs code of the project, so it must never run in a server.
The journal records `agent NAME for USER` as the author of what the command does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kappa.base.errors import ConsentNeeded, KappaError, TimedOut, UsageError
from kappa.base.process import tied
from kappa.base.program import command_of
from kappa.base.sections import AgentAct
from kappa.replay.status.context import ProjectContext
from kappa.serving.access.roles import Identity

# A promote is followed to its end, a plan may describe functions by a Spark of its own.
_SECONDS = 600.0
_NAME = re.compile(r"[^\w.@+-]+")
_LONGEST_NAME, _LONGEST_REASON = 60, 300
# A pipeline, or the number of a rollout: neither an option nor a path.
_PIPELINE = re.compile(r"[A-Za-z0-9_][\w.-]{0,200}")


@dataclass(frozen=True, slots=True)
class AgentCaller:
    """The agent that calls a tool.

    `agent` is the name of the agent's program, and `identity` is the user for whom the agent acts.
    """

    agent: str
    identity: Identity

    @property
    def by(self) -> str:
        """Returns the name under which the journal records the agent's acts."""
        return acting_agent(self.agent, self.identity.name)


def acting_agent(agent: str, user: str) -> str:
    """Returns `agent NAME for USER`, the name under which the journal records an agent's acts.

    Clients choose both names. So each character other than a letter, a digit, or one of `_.@+-` is
    replaced, and long names are shortened.
    """
    names = (_NAME.sub("-", name).strip("-")[:_LONGEST_NAME] or "unnamed" for name in (agent, user))
    return "agent {} for {}".format(*names)


def run_command(here: ProjectContext, by: str, *words: str, project: Path | None = None) -> Any:
    """Runs a `kappa` command for the agent `by`, and returns the JSON that the command prints.

    `words` are the command and its arguments. Returns None if `words` do not request JSON.
    `project` is the folder of the project's files, if this is not the project's own folder. Raises
    KappaError, with the command's message and hint, if the command fails, and TimedOut if the
    command takes too long.
    """
    command = [
        *command_of("kappa.commands.main"),
        *("--project", str(project or here.settings.project)),
        *("--root", here.settings.root_url),
        *words,
    ]
    environment: Mapping[str, str] = {**os.environ, "KAPPA_BY": by, "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            tied(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(
            f"kappa {words[0]} did not end within {_SECONDS:g} s",
            hint="what it has begun goes on: see the status",
        ) from None
    if done.returncode:
        message, hint = _told(done.stderr.decode(errors="replace"))
        raise KappaError(message or f"kappa {words[0]} ended with {done.returncode}", hint=hint)
    return json.loads(done.stdout) if "json" in words else None


def request_act(
    here: ProjectContext, by: str, act: AgentAct, pipeline: str, reason: str
) -> dict[str, Any]:
    """Runs an act on a pipeline, waits for its end, and returns a document about the act.

    The document contains the act and either the pipeline or the affected rollouts. `by` is the name
    that the journal records. Raises UsageError if `pipeline` is not a valid name. Raises
    ConsentNeeded, with the command for a user to type, unless `[agents] may` lists the act.
    """
    if not _PIPELINE.fullmatch(pipeline):
        raise UsageError(
            f"{pipeline[:80]!r} is no name of a pipeline", hint="list_tables names the pipelines"
        )
    ensure_yes(here, act, f"kappa {act} {pipeline}")
    words = [str(act), pipeline, *reason_words(reason)]
    if act in {AgentAct.PROMOTE, AgentAct.UNDO, AgentAct.RETIRE}:
        words.append("--yes")
    if act in {AgentAct.PAUSE, AgentAct.RESUME}:
        run_command(here, by, *words)
        return {"done": str(act), "pipeline": pipeline}
    return {"done": str(act), "rollouts": run_command(here, by, *words, "-o", "json")}


def ensure_yes(here: ProjectContext, act: AgentAct, command: str) -> None:
    """Raises ConsentNeeded unless `[agents] may` lists the act.

    The error's hint contains `command`, the command that a user can type instead.
    """
    if act not in here.settings.agents.may:
        raise ConsentNeeded(
            f"an agent needs a person's yes to {act}",
            hint=f'a person types: {command}; or allows it in kappa.toml: [agents] may = ["{act}"]',
        )


def reason_words(reason: str) -> tuple[str, ...]:
    """Returns the command-line option with the reason on one line, or () if there is no reason."""
    # A character that moves a terminal's cursor, or turns text around, would show another reason.
    plain = "".join(each if each.isprintable() else " " for each in reason)
    line = " ".join(plain.split())[:_LONGEST_REASON]
    return (f"--reason={line}",) if line else ()


def _told(output: str) -> tuple[str, str]:
    """Returns the last error message in a command's stderr, and the hint after it.

    Each of the two is "" if the stderr does not contain it.
    """
    message = hint = ""
    for line in output.splitlines():
        if line.startswith("error: "):
            message, hint = line.removeprefix("error: "), ""
        elif line.startswith("hint: "):
            hint = line.removeprefix("hint: ")
    return message, hint
