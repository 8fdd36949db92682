"""Prepares a machine for the first run of Kappa: Java, jars, class archives, compiled loops.

Run `python -m kappa.setup` in any folder. In the folder of a project, the settings in `[jars]` name
the source of the jars. The first run takes a minute or two, and later runs take some seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from kappa.base.errors import KappaError
from kappa.base.java.jars import Jars, ensure_jars
from kappa.base.java.java import find_java
from kappa.base.sections import JarsSettings
from kappa.base.settings import load_settings_anywhere
from kappa.engine.spark.cds import ensure_archives, missing_archives
from kappa.state.files.bucket import is_bucket


def set_up(console: Console, settings: JarsSettings, *, for_bucket: bool = False) -> Jars:
    """Prepares this machine: Java, the jars, class archives and compiled loops.

    Class archives, with which JVMs start faster, are optional: if creating them fails, prints the
    error on `console` and continues. With `for_bucket`, also downloads the jars for a root in a
    bucket. Returns the jars. Raises KappaError if another step fails.
    """
    java = find_java()
    jars = ensure_jars(
        java, cache=settings.cache, repository=settings.repository, for_bucket=for_bucket
    )
    if missing_archives(jars):
        making = "making the class archives of Spark and Kafka (once, about a minute)"
        with _waiting(console, making):
            try:
                ensure_archives(jars)
            except KappaError as error:
                console.print(
                    f"{error.message}. JVMs start more slowly without it.",
                    soft_wrap=True,
                )
    # These imports compile loops; otherwise each worker of a catch-up waits for the compiler
    # (kappa/base/loops.py).
    with _waiting(console, "compiling the loops that read records (once, some seconds)"):
        for module in (
            "kappa.kafka.bulk_reader",
            "kappa.records.decode.find_loops",
            "kappa.records.decode.plain_avro",
            "kappa.records.decode.plain_protobuf",
        ):
            importlib.import_module(module)
    console.print(
        f"ready: Java {java.version} ({java.home}), "
        f"{len(jars.broker) + len(jars.spark) + len(jars.bucket)} jars in {jars.spark[0].parent}",
        soft_wrap=True,
    )
    return jars


@contextlib.contextmanager
def _waiting(console: Console, what: str) -> Iterator[None]:
    """Shows the name of a step on a terminal while the block runs.

    If `console` is not a terminal, prints the name as a line of text instead.
    """
    if not console.is_terminal:
        console.print(what)
    with console.status(what):
        yield


def main() -> int:
    """Prepares this machine, prints the progress to stderr, and returns the exit code."""
    console = Console(stderr=True)
    try:
        settings = load_settings_anywhere(Path.cwd())
        set_up(console, settings.jars, for_bucket=is_bucket(settings.root))
    except KappaError as error:
        console.print(f"{error.message}\n{error.hint}".strip(), soft_wrap=True)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
