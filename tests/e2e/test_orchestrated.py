"""Rollouts by Dagster's own daemon, with the file that docs/howto/orchestrate.md shows."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e_shop import LEAN_1, LEAN_2, order
from house import HOUSE, SUPPORT
from testbed import PATIENCE_SECONDS, Testbed, platform

from kappa.base.process import start_tied
from kappa.base.temporary_folders import user_cache
from kappa.replay.rollout.rollout import Phase

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(900)]

PROGRAM = HOUSE / "docs" / "howto" / "dagster_rollout.py"
PAGE = HOUSE / "docs" / "howto" / "orchestrate.md"
LOCK = SUPPORT / "dagster.lock"


def ensure_dagster() -> Path | None:
    """Returns the programs of an environment with Dagster, or None if it cannot be fetched."""
    cache = user_cache("dagster")
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    with (cache / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = place / "installed"
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, with_pip=True)
            pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
            installed = subprocess.run([*pip, "--require-hashes", "-r", LOCK], check=False)
            if installed.returncode:
                return None
            done.touch()
    return place / "bin"


@dataclass(frozen=True, slots=True)
class Dagster:
    """Dagster next to a platform."""

    programs: Path
    home: Path
    bed: Testbed

    @property
    def environment(self) -> dict[str, str]:
        path = [str(Path(sys.executable).parent), str(self.programs), os.environ["PATH"]]
        return {
            **self.bed.environment,
            "PATH": os.pathsep.join(path),
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "KAPPA_PROJECT": str(self.bed.folder),
            "KAPPA_CRON": "* * * * *",
        }

    def command(self, program: str, *arguments: str) -> list[str]:
        return [str(self.programs / program), *arguments, "-f", str(PROGRAM)]

    def run(self) -> subprocess.CompletedProcess[str]:
        """Runs the job once, without the schedule."""
        return subprocess.run(
            self.command("dagster", "job", "execute", "-j", "rollout"),
            env=self.environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )


@pytest.fixture
def dagster(tmp_path: Path) -> Iterator[Dagster]:
    programs = ensure_dagster()
    if programs is None:
        pytest.skip("not run: no dagster, since its packages cannot be fetched")
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with platform(tmp_path / "shop", shop=LEAN_1) as bed:
        bed.log.produce(map(order, range(300)), "orders")
        bed.must("deploy", "--yes")
        yield Dagster(programs, home, bed)


def test_the_page_shows_the_program_that_is_run() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert f"```python no-run\n{PROGRAM.read_text(encoding='utf-8')}```" in page


def test_dagster_rolls_out_what_has_changed(dagster: Dagster) -> None:
    bed = dagster.bed
    first = bed.live("shop")
    done = dagster.run()
    assert done.returncode == 0, done.stdout
    assert "RUN_SUCCESS" in done.stdout
    assert len(re.findall("STEP_SKIPPED", done.stdout)) == 3
    assert bed.live("shop") == first

    bed.declare("shop", LEAN_2)
    with (dagster.home / "daemon.log").open("wb") as output:
        daemon = start_tied(
            dagster.command("dagster-daemon", "run"),
            output=output,
            folder=dagster.home,
            environment=dagster.environment,
        )
    try:
        bed.wait(
            lambda: bed.live("shop") != first,
            f"a promote; {(dagster.home / 'daemon.log').read_text(errors='replace')[-3000:]}",
        )
    finally:
        daemon.terminate()
        daemon.wait(60)
    second = bed.live("shop")
    (shown,) = bed.must("history", "-o", "json").json()[-1:]
    assert "Dagster run" in str(shown)

    wrong = LEAN_2.replace(
        '"mean": avg_("amount")}', '"mean": avg_("amount")}, checks=["orders < 0"]'
    )
    assert wrong != LEAN_2
    bed.declare("shop", wrong)
    done = dagster.run()
    assert done.returncode != 0, done.stdout
    assert "RUN_FAILURE" in done.stdout
    assert re.search(r"kappa wait shop .* ended with 4", done.stdout), done.stdout
    assert done.stdout.count("STEP_RETRY") == 0
    assert bed.live("shop") == second
    assert bed.state().rollouts[-1].phase is Phase.FAILED
