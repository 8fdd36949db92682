"""An installed wheel needs nothing of this repository, and runs a project anywhere.

It runs the session of the README, as pasted, and the sessions of all templates.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from generated import generate
from house import HOUSE
from pasted import Reader
from testbed import PATIENCE_SECONDS, Testbed

from kappa.base.temporary_folders import user_cache
from kappa.code.new_project import create_project, next_commands, template_files, template_names
from kappa.kafka.producer import ProducedRecord

pytestmark = [pytest.mark.long, pytest.mark.jvm]

# Takes a template's name, and returns the rows of its README's last query.
Deployed = Callable[[str], list[dict[str, Any]]]
BESIDE = ("pyproject.toml", "README.md", "LICENSE")
USES = {"broker", "spark"}
MAKER = "kappa.engine.spark.cds"


class Installed(Testbed):
    """A project whose commands are those of the wheel in `venv`."""

    typist = None

    def __init__(self, folder: Path, venv: Path, *, whole: bool = False) -> None:
        super().__init__(folder, whole=whole)
        self.program = (str(venv / "bin" / "kappa"),)
        del self.environment["PYTHONPATH"]


def wheel(folder: Path) -> Path:
    """Builds a wheel from a copy of this tree, because a build leaves files in its tree."""
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


def installed(folder: Path, built: Path) -> Path:
    """Returns a new venv with a wheel; the required packages are those of this venv."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    pip("--python", python, "install", "--no-deps", str(built))
    (site,) = venv.glob("lib/python*/site-packages")
    # A folder that a .pth file names is searched, but what it says of this tree (.pth) is not read.
    (site / "required.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    where = [python, "-P", "-c", "import kappa; print(kappa.__file__)"]
    found = subprocess.run(where, env={}, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(site))
    return venv


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Path:
    venv = installed(tmp_path_factory.mktemp("venv"), built)
    # Class archives, which `kappa.setup` makes: those of these very packages.
    (venv / "kappa").symlink_to(Path(sys.prefix) / "kappa")
    return venv


def test_the_readme_works_when_pasted_where_a_wheel_is_installed(
    tmp_path: Path, venv: Path
) -> None:
    (site,) = venv.glob("lib/python*/site-packages")
    # A project's own `serving/`, `commands/`, `demo/` or `cli.py` is hidden by nothing.
    assert {path.name for path in site.iterdir() if path.suffix not in {".pth", ".dist-info"}} == {
        "kappa"
    }
    bed = Installed(tmp_path / "shop", venv)
    # The README's first command makes the project.
    shutil.rmtree(bed.folder)
    try:
        Reader(bed, venv / "bin", tmp_path).paste("README.md")

        assert bed.state().generation == 3
        visit = b'{"visitor": "ada", "page": "/", "happened_at": "2026-01-31T14:00:00Z"}'
        bed.log.produce([ProducedRecord(visit, key=b"ada") for _ in range(60)], "visits")
        bed.wait_until_folded("web", bed.log.end(["visits"]))
        said = bed.must("query", "select hits from page_hits order by page", "-o", "json")
        assert said.json()["rows"] == [{"hits": 62}, {"hits": 1}]
        bed.must("down")
        assert bed.pids() == []
    finally:
        bed.ensure_gone()


@pytest.fixture
def deployed(venv: Path, tmp_path: Path) -> Iterator[Deployed]:
    """Yields a function that runs a template's README commands, and returns the last rows."""
    bed = Installed(tmp_path / "shop", venv, whole=True)
    shutil.rmtree(bed.folder)
    home = tmp_path / "home"
    home.mkdir()
    # Nothing of this user's is found, but jars: they would be fetched again.
    bed.environment |= {"HOME": str(home), "KAPPA__JARS__CACHE": str(user_cache("jars"))}
    bed.environment.pop("XDG_CACHE_HOME", None)

    def rows(template: str) -> list[dict[str, Any]]:
        reader = Reader(bed, venv / "bin", tmp_path)
        screen = reader.type_in(f"kappa init shop --template {template} && cd shop")
        made = {str(each.relative_to(bed.folder)) for each in bed.folder.rglob("*")}
        assert made >= {*template_files(template)}
        commands = next_commands(template)
        assert [f"  {each}" for each in commands] == screen.splitlines()[-len(commands) :]
        reader.paste(f"kappa/templates/{template}/README.md")
        found = reader.type_in(f"{commands[-1]} -o json")
        reader.type_in("kappa down")
        assert bed.pids() == []
        answer: list[dict[str, Any]] = json.loads(found)["rows"]
        return answer

    try:
        yield rows
    finally:
        bed.ensure_gone()


# Each template is a test of its own, so that they are in different shares of the long suite.
def test_page_hits_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [(row["page"], row["hits"]) for row in deployed("page-hits")] == [
        ("/", 2),
        ("/health", 1),
    ]


def test_shop_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["country"] for row in deployed("shop")] == ["AT", "ES", "FR", "IT"]


def test_cdc_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [(row["country"], row["orders"]) for row in deployed("cdc")] == [
        ("ES", 2),
        ("FR", 1),
        ("IT", 1),
    ]


def test_iot_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["alarm"] for row in deployed("iot")] == ["silent", "back", "silent"]


def test_connect_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [(row["source"], row["connected"]) for row in deployed("connect")] == [
        ("advert", 2),
        ("friend", 5),
        ("search", 2),
    ]


def test_empty_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert sorted(row["id"] for row in deployed("empty")) == ["e1", "e2"]


def test_sessions_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["sessions"] for row in deployed("sessions")] == [10, 12, 12, 10]


def test_fraud_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["transfers"] for row in deployed("fraud")] == [2, 1, 1, 5, 1]


def test_trending_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["word"] for row in deployed("trending")] == [
        *("bread", "cat", "rain", "coffee", "train", "song"),
    ]


def test_ads_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["clicked"] for row in deployed("ads")] == [21, 18, 22]


def test_searches_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [(row["search"], row["offers"]) for row in deployed("searches")] == [
        ("s2", 20),
        ("s3", 1),
        ("s4", 2),
    ]


def test_recommend_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["other"] for row in deployed("recommend")] == ["aida", "carmen", "norma"]


def test_ab_test_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["converted"] for row in deployed("ab-test")] == [11, 8]


def test_facts_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["items"] for row in deployed("facts")] == [13, 8, 4, 11, 4]


def test_learner_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["model_right"] for row in deployed("learner")] == [31, 44, 36, 40, 45, 43, 40, 24]


def test_operations_goes_from_a_wheel_to_rows(deployed: Deployed) -> None:
    assert [row["service"] for row in deployed("operations")] == ["checkout", "checkout"]


@pytest.mark.timeout(1800)
def test_kappa_up_makes_class_archives(tmp_path: Path, built: Path) -> None:
    """A pip install has no archives: `kappa up` says that it makes them, and does so when idle."""
    venv = installed(tmp_path, built)
    bed = Installed(tmp_path / "shop", venv, whole=True)
    try:
        assert "class archives" in bed.must("up", "-d").err
        # The platform begins with it once a spare is warm.
        bed.wait(
            lambda: [os.getpriority(os.PRIO_PROCESS, each) for each in bed.pids(MAKER)] == [19],
            "the making, at the lowest priority",
            2 * PATIENCE_SECONDS,
        )
        bed.wait(
            lambda: {each.name.split("-")[0] for each in venv.glob("kappa/*.jsa")} == USES,
            "both archives",
            # At the lowest priority, on a busy machine.
            5 * PATIENCE_SECONDS,
        )
        bed.wait(lambda: "the making of class archives ended" in bed.logs(), "the end")
        assert sorted(path.suffix for path in (venv / "kappa").iterdir()) == [
            *(".jsa", ".jsa", ".lock", ".lock"),
        ]
        bed.must("down")
        assert "class archives" not in bed.must("up", "-d").err
        bed.must("down")
    finally:
        bed.ensure_gone()


def test_every_template_has_such_a_test() -> None:
    named = {name.replace("-", "_") for name in template_names()}

    assert named == {
        name.removeprefix("test_").removesuffix("_goes_from_a_wheel_to_rows")
        for name in globals()
        if name.endswith("_goes_from_a_wheel_to_rows")
    }


def test_mypy_strict_passes_on_pipelines(tmp_path: Path, venv: Path) -> None:
    """A wheel has `py.typed`: a user's declarations are checked against the public types."""
    demos = tmp_path / "demo"
    shutil.copytree(HOUSE / "pipelines", demos / "pipelines")
    projects = [demos]
    for name in template_names():
        projects.append(tmp_path / name)
        create_project(str(projects[-1]), name)
    # The examples of `kappa.Project` as one program.
    program = tmp_path / "program"
    program.mkdir()
    code = "\n".join(map(generate.example_of, generate.python_entries().values()))
    (program / "program.py").write_text(f"from kappa import Project, connect\n\n{code}")
    projects.append(program)
    (tmp_path / "wrong.py").write_text("import kappa\n\nkappa.Topic(17)\n", encoding="utf-8")

    for project in projects:
        files = [str(each.relative_to(project)) for each in project.rglob("*.py")]
        some = f"{len(files)} source file{'' if len(files) == 1 else 's'}"
        assert mypy(venv, project, *files) == f"Success: no issues found in {some}\n", project
    assert "incompatible type" in mypy(venv, tmp_path, "wrong.py")


def mypy(venv: Path, folder: Path, *names: str) -> str:
    """Returns the output of `mypy --strict` on these files, with the packages of `venv`."""
    # Tests of a project import `pipelines.web`, so the project's folder is the base of all modules.
    command = (sys.executable, "-m", "mypy", "--strict", "--config-file", "")
    command += ("--explicit-package-bases",)
    packages = (
        "--python-executable",
        str(venv / "bin" / "python"),
        "--cache-dir",
        str(venv / "mypy"),
    )
    ran = subprocess.run(
        [*command, *packages, *names], cwd=folder, env={}, stdout=subprocess.PIPE, check=False
    )
    return ran.stdout.decode()
