"""The program `python -m demo`: the story on its own broker and project; 0 only if all held."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from demo.screen import Screen
from demo.story import Story, Wishes
from kappa.base.errors import ExitCode, KappaError


def main() -> int:
    """Runs the command. The folder is kept after a failure, or with --keep."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description=(
            "The platform on real data: a replay beside the job that serves, a switch, an undo; "
            "and the proof."
        ),
    )
    parser.add_argument(
        "--rate", type=float, default=1_000.0, help="further events per second (default 1000)"
    )
    parser.add_argument(
        "--flights", type=int, help="begin with so many flights instead of all 336,776"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the project's folder, to look around in it"
    )
    given = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As by Ctrl-C: all that the story started ends with it.
        signal.signal(number, signal.default_int_handler)
    _forget_settings()
    console = Console()
    # A file has no width of its own.
    screen = Screen(console if console.is_terminal else Console(width=140))
    folder = Path(tempfile.mkdtemp(prefix="kappa-demo-"))
    code = _tell(screen, folder, Wishes(rate=given.rate, flights=given.flights))
    if code == ExitCode.OK and not given.keep:
        shutil.rmtree(folder)
    else:
        screen.console.print(
            f"everything is in {folder}, logs in {folder}/project/.kappa/logs", soft_wrap=True
        )
    return code


def _forget_settings() -> None:
    """Forgets the user's settings, but for the source of jars: the demo has its own."""
    for name in [
        name
        for name in os.environ
        if name.startswith("KAPPA_") and not name.startswith("KAPPA__JARS__")
    ]:
        del os.environ[name]


def _tell(screen: Screen, folder: Path, wishes: Wishes) -> int:
    try:
        findings = Story(screen, folder, wishes).tell()
    except KappaError as error:
        screen.console.print(
            f"[bold red]The story ended early:[/bold red] {error.message}", soft_wrap=True
        )
        screen.console.print(error.hint, soft_wrap=True)
        return int(error.exit_code)
    except KeyboardInterrupt:
        screen.console.print("Interrupted. Everything was stopped.")
        return int(ExitCode.INTERRUPTED)
    screen.heading("What held")
    screen.findings(findings)
    held = all(finding.held for finding in findings)
    screen.console.print(
        f"\n{'All of it held' if held else 'NOT all of it held'}, in {screen.elapsed:.0f} seconds."
    )
    return int(ExitCode.OK if held else ExitCode.FAILED)


if __name__ == "__main__":
    sys.exit(main())
