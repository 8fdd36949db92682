"""An installed wheel needs nothing of this repository: a project anywhere is run by it.

What it runs is the session of the README, as pasted.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from house import HOUSE
from pasted import Reader
from testbed import Testbed

from kappa.kafka.producer import ProducedRecord

pytestmark = [pytest.mark.long, pytest.mark.jvm]

BESIDE = ("pyproject.toml", "README.md", "LICENSE")


class Installed(Testbed):
    """A project whose commands are those of the wheel in `venv`."""

    typist = None

    def __init__(self, folder: Path, venv: Path) -> None:
        super().__init__(folder)
        self.program = (str(venv / "bin" / "kappa"),)
        del self.environment["PYTHONPATH"]


def wheel(folder: Path) -> Path:
    """A wheel of this tree, built beside it: a build leaves its traces in the tree it is given."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HOUSE / "kappa", source / "kappa", ignore=ignored)
    for name in BESIDE:
        shutil.copy(HOUSE / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source))
    (built,) = folder.glob("*.whl")
    return built


def pip(*arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", *quiet, *arguments], check=True)


def installed(folder: Path) -> Path:
    """A fresh venv with the wheel; the packages that it requires are those of this one."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    pip("--python", python, "install", "--no-deps", str(wheel(folder)))
    (site,) = venv.glob("lib/python*/site-packages")
    # A folder that a .pth file names is searched, but what it says of this tree (.pth) is not read.
    (site / "required.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    # Spark's class archive, which `kappa.setup` records: the one of these very packages.
    (venv / "kappa").symlink_to(Path(sys.prefix) / "kappa")
    where = [python, "-P", "-c", "import kappa; print(kappa.__file__)"]
    found = subprocess.run(where, env={}, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(site))
    return venv


def test_the_readme_works_when_pasted_where_a_wheel_is_installed(tmp_path: Path) -> None:
    venv = installed(tmp_path)
    (site,) = venv.glob("lib/python*/site-packages")
    # A project's own `serving/`, `commands/`, `demo/` or `cli.py` is hidden by nothing.
    assert {path.name for path in site.iterdir() if path.suffix not in {".pth", ".dist-info"}} == {
        "kappa"
    }
    bed = Installed(tmp_path / "project", venv)
    try:
        Reader(bed, venv / "bin").paste("README.md")

        assert bed.state().generation == 3
        visit = b'{"visitor": "ada", "page": "/", "at": "2026-01-31T14:00:00Z"}'
        bed.log.produce([ProducedRecord(visit, key=b"ada") for _ in range(60)], "visits")
        bed.wait_until_folded("web", bed.log.end(["visits"]))
        said = bed.must("query", "select hits from page_hits", "-o", "json")
        assert said.json()["rows"] == [{"hits": 60}]
        bed.must("down")
        assert bed.pids() == []
    finally:
        bed.ensure_gone()


def test_mypy_strict_passes_on_pipelines(tmp_path: Path) -> None:
    """A wheel has `py.typed`: a user's declarations are checked against the public API's types."""
    venv = installed(tmp_path)
    pipelines = [*HOUSE.glob("docs/gallery/*.py"), *HOUSE.glob("pipelines/*.py")]
    assert pipelines
    for each in pipelines:
        shutil.copy(each, tmp_path / each.name)
    (tmp_path / "wrong.py").write_text("import kappa\n\nkappa.Topic(17)\n", encoding="utf-8")

    assert mypy(venv, tmp_path, *(each.name for each in pipelines)) == (
        f"Success: no issues found in {len(pipelines)} source files\n"
    )
    assert "incompatible type" in mypy(venv, tmp_path, "wrong.py")


def mypy(venv: Path, folder: Path, *names: str) -> str:
    """Returns the output of `mypy --strict` over these files, with the packages of `venv`."""
    command = (sys.executable, "-m", "mypy", "--strict", "--config-file", "")
    packages = ("--python-executable", str(venv / "bin" / "python"), "--cache-dir", str(folder))
    ran = subprocess.run(
        [*command, *packages, *names], cwd=folder, env={}, stdout=subprocess.PIPE, check=False
    )
    return ran.stdout.decode()
