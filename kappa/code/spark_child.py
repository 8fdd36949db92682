"""A child process with its own Spark, which answers one request about pipelines and ends.

Commands run no Spark themselves: it would take seconds, and the user's functions could do anything
to the process. The request, the answer and all that the child keeps for a while are files of a
folder that is removed with the child, which ends with this process. Its programs are in
engine/children/, such as describe.py and law.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kappa.base.errors import KappaError
from kappa.base.process import tied
from kappa.base.scratch import CHILD, make_folder
from kappa.base.settings import Settings
from kappa.java.jars import ensure_jars
from kappa.java.java import find_java

# A line of a child's stderr that begins so is for the caller's `say`.
PROGRESS = "kappa progress: "
# How many last lines of stderr are kept for the error about a child that gives no answer.
_KEPT_LINES = 50


def ask(
    settings: Settings,
    folder: Path,
    program: str,
    pipelines: Mapping[str, str],
    *,
    patience_seconds: float,
    too_long: KappaError,
    say: Callable[[str], None] = lambda _line: None,
    **more: object,
) -> Any:
    """Returns the answer of `python -m PROGRAM` about pipelines of the project in `folder`.

    `pipelines` maps names to modules. `more` is added to the request; `say` takes the child's lines
    of progress as they arrive. Raises `too_long` if the child does not end in time, and KappaError
    with its last line if it gives no answer.
    """
    jars = ensure_jars(find_java(), cache=settings.jars.cache, repository=settings.jars.repository)
    scratch = make_folder(Path(tempfile.gettempdir()), CHILD)
    try:
        request = {
            "folder": str(folder),
            "jars": [str(jar) for jar in jars.spark],
            "pipelines": pipelines,
            **more,
        }
        (scratch / "request.json").write_text(json.dumps(request), encoding="utf-8")
        # Else a project's file named like a library hides it from the child and Spark's workers.
        environment = {**os.environ, "PYTHONSAFEPATH": "1", "TMPDIR": str(scratch)}
        command = [sys.executable, "-m", program, str(scratch)]
        ended, last_lines = run_child(tied(command), environment, patience_seconds, say)
        if ended is None:
            raise too_long
        answer = scratch / "answer.json"
        if not answer.exists():
            last = (last_lines or [f"it ended with {ended} and said nothing"])[-1]
            raise KappaError(
                f"Spark gave no answer about {', '.join(pipelines)}: {last}",
                hint="see whether Spark starts here: python -m kappa.setup",
            )
        return json.loads(answer.read_text(encoding="utf-8"))
    finally:
        # The JVM may still write; the next process removes what is left then.
        shutil.rmtree(scratch, ignore_errors=True)


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    patience_seconds: float,
    say: Callable[[str], None],
) -> tuple[int | None, list[str]]:
    """Runs a child and passes its lines of progress on as they arrive.

    Returns its exit code, or None if it was killed after its time, and the last other lines of
    its stderr.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    killed = threading.Event()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
    ) as process:

        def end() -> None:
            killed.set()
            process.kill()

        timer = threading.Timer(patience_seconds, end)
        timer.start()
        try:
            for line in process.stderr or ():
                if line.startswith(PROGRESS):
                    say(line.removeprefix(PROGRESS).rstrip())
                elif line.strip():
                    lines.append(line.strip())
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return None if killed.is_set() else process.returncode, list(lines)
