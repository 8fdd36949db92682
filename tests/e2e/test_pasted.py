"""The commands and snippets of the docs, run as pasted, in one project.

The test run's broker serves the project. test_wheel.py pastes the README, where Kappa starts a
broker of its own.

A ```sh block is run. A ```python block whose first line names a file is written to that file. A
block that cannot run here is marked `no-run`, and listed in NOT_RUN with the test that runs it, or
the reason why no test does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typed
from house import HOUSE
from pasted import Reader, blocks
from testbed import Testbed

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(1500)]

# In the order of a reader; each finds the project as the one before left it.
PAGES = (
    "docs/start/first-ten-minutes.md",
    "docs/howto/change-a-pipeline.md",
    "docs/howto/undo.md",
    "docs/howto/fix-rejects.md",
    "docs/howto/look-back.md",
    "docs/howto/shell.md",
    "docs/howto/changes.md",
    "docs/howto/export.md",
    "docs/howto/prove.md",
    "docs/howto/branch.md",
    "docs/howto/archive.md",
    "docs/howto/mend-damage.md",
    "docs/howto/serve.md",
    "docs/reference/http.md",
    "docs/howto/read-your-own-write.md",
    "docs/howto/windows.md",
    "docs/howto/silence.md",
    "docs/howto/debug-a-job.md",
    "docs/howto/retire-and-pause.md",
    "docs/howto/test-a-pipeline.md",
)
NOT_RUN = {
    "README.md": "a clone and make demo: CI runs make test in a clone; the rest: test_wheel.py",
    "docs/start/your-own-project.md": "a project of the reader's: test_wheel.py has all templates",
    "docs/start/install.md": "make setup: CI begins with it; pip install: test_wheel.py",
    "docs/howto/secure.md": "listens on all addresses, which no test may",
    "docs/howto/secured-kafka.md": "a cluster of the reader's: test_secured.py does its steps",
    "docs/reference/http.md": "a stream without an end: tests/serving/http/test_http.py reads it",
    "docs/howto/agents.md": "an extra of the reader's: test_python_api.py has an agent at work",
    "docs/howto/changes.md": "a stream without an end: test_changes_http.py reads it",
    "docs/howto/export.md": "a copy without an end: test_switch_for_clients.py follows one",
    "docs/howto/topics.md": "topics of the reader's: test_topics_by_hand.py does its steps",
    "docs/howto/sinks.md": "a pipeline of the reader's: test_sinks_served.py does its steps",
    "docs/howto/postgres.md": "a client of the reader's: test_postgres_clients.py has them",
    "docs/howto/collect.md": "settings of the reader's: test_collector.py does its steps",
    "docs/howto/alerts.md": "a receiver of the reader's: test_alert_outlets.py does its steps",
    "docs/howto/graph.md": "a README of the reader's: test_graph.py makes each form",
    "docs/howto/python.md": "npm's packages: test_typescript_client.py does its steps",
    "docs/howto/formats.md": "topics of the reader's: test_produce.py makes events of each format",
    "docs/howto/cluster.md": "a Spark cluster of the reader's: test_on_a_cluster.py has one",
    "docs/howto/bucket.md": "a bucket of the reader's: test_root_in_bucket.py has one",
    "docs/howto/move-a-root.md": "a bucket of the reader's: test_copy.py copies roots to one",
    "docs/howto/command-line.md": "a shell of the reader's: test_completion.py has bash",
    "docs/howto/deploy.md": "hosts of the reader: test_manifests.py checks units and manifests",
    "docs/howto/runbook.md": "brokers and hosts of the reader: no test has them all",
    "docs/howto/develop.md": "a loop without an end: tests/develop/test_loop.py saves files in it",
    "docs/howto/test-a-pipeline.md": "tests of the reader's: test_init.py runs those of templates",
    "docs/howto/scripts.md": "a pipeline of the reader's: test_cli_plan.py reads the documents",
    "docs/explain/one-record.md": "make setup, and its program: test_one_record.py runs it",
    "docs/howto/registry.md": "a registry of the reader's: test_registry.py does its steps",
    "docs/performance.md": "make bench, for hours: tests/bench tries its cells in small",
    "docs/explain/nexmark.md": "a script of this tree: test_nexmark.py compares its table",
    **dict.fromkeys(
        (
            f"docs/gallery/{name}.md"
            for name in (
                *("ab-test", "ads", "facts", "fraud", "iot", "learner", "recommend", "searches"),
                *("operations", "sessions", "shop", "trending"),
            )
        ),
        "a project of its own: test_wheel.py deploys it, test_gallery.py gives the answers",
    ),
    "CONTRIBUTING.md": "make targets, which CI runs, and make check of this very tree",
}


def test_what_does_not_run_is_listed() -> None:
    pages = [str(path.relative_to(HOUSE)) for path in HOUSE.glob("docs/**/*.md")]
    shown = {
        page
        for page in ["README.md", "CONTRIBUTING.md", *pages]
        if any(b.kind == "sh" for b in blocks(page))
    }
    marked = {page for page in shown if any(not block.run for block in blocks(page))}

    assert marked == NOT_RUN.keys()
    assert shown <= {*PAGES, *NOT_RUN}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Returns a folder with `kappa`, as in an activated venv; the typist runs its commands."""
    kappa = tmp_path / "bin" / "kappa"
    kappa.parent.mkdir()
    client = f'exec "{sys.executable}" -I -S "{typed.__file__}" "$TYPIST" "$@"'
    kappa.write_text(f"#!/bin/sh\n{client}\n", encoding="utf-8")
    kappa.chmod(0o755)
    return kappa.parent


def test_the_pages_work_when_pasted(tmp_path: Path, lent: str, programs: Path) -> None:
    bed = Testbed(tmp_path / "shop", listen="127.0.0.1:8717")
    broker = tomllib.loads(lent)["kafka"]["bootstrap_servers"]
    bed.environment["KAPPA__KAFKA__BOOTSTRAP_SERVERS"] = broker
    # The first page makes the project.
    shutil.rmtree(bed.folder)
    reader = Reader(bed, programs, tmp_path)
    try:
        screens = {page: reader.paste(page) for page in PAGES}

        # Two visits of "/" and one health check; without it after the change, with it after the
        # undo, and without it looking back.
        answers = re.findall(
            r"^ *(/\S*) +(\d+) *$", screens["docs/start/first-ten-minutes.md"], re.MULTILINE
        )
        every, without = [("/", "2"), ("/health", "1")], [("/", "2")]
        assert answers == [*every, *without, *every, *without]
        proved = screens["docs/howto/prove.md"]
        assert re.search(
            r"^proved: .*\n.*, folded again in \d+ random slices \(--seed \d+\)", proved
        )
        silent = re.findall(r"^ *(\w+) +2026-01-31", screens["docs/howto/silence.md"], re.MULTILINE)
        assert silent == ["roof"]
        # Each answer has the visit that was produced before it.
        written = screens["docs/howto/read-your-own-write.md"]
        assert re.findall(r"^ */jobs +(\d+) *$", written, re.MULTILINE) == ["1", "2"]
        assert '"hits":2' in written.replace(" ", "")
        # The reject was mended to a third visit of "/".
        assert '"hits":3' in screens["docs/howto/serve.md"].replace(" ", "")
        bed.must("down")
        assert bed.pids() == []
        # It needs no broker.
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
            cwd=bed.folder,
            env={**reader.environment, "PYTHONPATH": f"{bed.folder}:{HOUSE}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    finally:
        bed.ensure_gone()
