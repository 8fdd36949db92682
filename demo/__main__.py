"""The program `python -m demo`: runs the story with a separate broker and project.

The exit code is 0 only if all conditions of the story's findings were met.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from demo.cluster.servers import credentials
from demo.screen import Screen
from demo.story import Story, Wishes
from kappa.base.errors import ExitCode, KappaError

_RATE = 1_000.0
# A cluster has fourteen processes here, for two cores: with all of the year they starve.
_CLUSTER_RATE, _CLUSTER_FLIGHTS = 30.0, 60_000


def main() -> int:
    """Parses the arguments and runs the story. The exit code is 0 if all conditions were met.

    After a failure, or with --keep, the folder of the run is kept.
    """
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description=(
            "The platform on real data: a replay beside the job that serves, a switch, an undo; "
            "and the proof."
        ),
    )
    parser.add_argument(
        "--rate",
        type=float,
        help=f"further events per second (default {_RATE:g}, on a cluster {_CLUSTER_RATE:g})",
    )
    parser.add_argument(
        "--flights",
        type=int,
        help="begin with so many flights instead of all 336,776 "
        f"(default on a cluster: {_CLUSTER_FLIGHTS:,})",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the project's folder, to look around in it"
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="on three brokers and a Spark cluster, which it starts on this machine",
    )
    parser.add_argument(
        "--root",
        choices=("folder", "bucket"),
        default="folder",
        help="where a cluster's root is; a bucket is of an S3 server, which it starts too",
    )
    given = parser.parse_args()
    in_bucket = given.root == "bucket"
    if in_bucket and not given.cluster:
        parser.error("--root bucket is for --cluster: a broker's log on this machine has no copy")
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As by Ctrl-C: all that the story started ends with it.
        signal.signal(number, signal.default_int_handler)
    _forget_settings()
    if in_bucket:
        os.environ.update(credentials())
    console = Console()
    # A file has no width of its own.
    screen = Screen(console if console.is_terminal else Console(width=140))
    folder = Path(tempfile.mkdtemp(prefix="kappa-demo-"))
    wishes = Wishes(
        given.rate or (_CLUSTER_RATE if given.cluster else _RATE),
        given.flights or (_CLUSTER_FLIGHTS if given.cluster else None),
        on_cluster=given.cluster,
        in_bucket=in_bucket,
    )
    code = _tell(screen, folder, wishes)
    if code == ExitCode.OK and not given.keep:
        shutil.rmtree(folder)
    else:
        kept = "kappa" if given.cluster else "project/.kappa"
        screen.console.print(
            f"everything is in {folder}, logs in {folder}/{kept}/logs", soft_wrap=True
        )
    return code


def _forget_settings() -> None:
    """Removes the user's settings from the environment, except the settings of the jars.

    Otherwise, the user's settings would override the settings of the demo.
    """
    for name in [
        name
        for name in os.environ
        if name.startswith(("KAPPA_", "AWS_")) and not name.startswith("KAPPA__JARS__")
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
