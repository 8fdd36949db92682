"""A child process with a Spark of its own, which answers one request about the project's pipelines and ends.

Commands run no Spark themselves: it would take seconds, and the user's functions could do anything to the process. The
request and the answer are files of a folder that goes with the child. Read next: engine/children/describe.py, engine/children/law.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kappa.base.errors import KappaError
from kappa.base.jars import ensure_jars
from kappa.base.java import find_java
from kappa.base.settings import Settings


def ask(
    settings: Settings,
    folder: Path,
    program: str,
    pipelines: Mapping[str, str],
    *,
    patience_seconds: float,
    too_long: KappaError,
    **more: object,
) -> Any:
    """What `python -m PROGRAM` answers about these pipelines (name -> module) of the project in `folder`; `more` is what else it is told.

    Raises `too_long` where it does not end in time, and KappaError with its last words where it gives no answer.
    """
    jars = ensure_jars(find_java(), cache=settings.jars.cache, repository=settings.jars.repository)
    # The JVM may still be at its last words when its files go.
    with tempfile.TemporaryDirectory(prefix="kappa-child-", ignore_cleanup_errors=True) as scratch:
        request = {
            "folder": str(folder),
            "jars": [str(jar) for jar in jars.spark],
            "pipelines": pipelines,
            **more,
        }
        (Path(scratch) / "request.json").write_text(json.dumps(request), encoding="utf-8")
        # Or a file of the project named like a library would hide it, from the child and from Spark's workers.
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", program, scratch]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=patience_seconds,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise too_long from error
        answer = Path(scratch) / "answer.json"
        if not answer.exists():
            last = (
                done.stderr.strip().splitlines()
                or [f"it ended with {done.returncode} and said nothing"]
            )[-1]
            raise KappaError(
                f"Spark gave no answer about {', '.join(pipelines)}: {last}",
                hint="see whether Spark starts here: python -m kappa.setup",
            )
        return json.loads(answer.read_text(encoding="utf-8"))
