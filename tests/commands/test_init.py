"""`kappa init`: each template is a project that loads, validates and passes its own tests."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from house import HOUSE
from programs import run_python
from shares import long_except
from typing_in import Kappa

from kappa.base import program
from kappa.code.new_project import next_commands, template_files, template_names
from kappa.code.project import load_pipelines
from kappa.declare.board import Board, boards_in
from kappa.testing import read_events

NAMES = ("ab-test", "ads", "cdc", "connect", "empty", "facts", "fraud", "iot", "learner")
NAMES += ("operations", "page-hits", "recommend", "searches", "sessions", "shop", "trending")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Returns an empty folder for a new project."""
    return tmp_path


def files_below(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


def test_the_templates_are_those_that_docs_name(kappa: Kappa) -> None:
    assert template_names() == NAMES
    page = (HOUSE / "docs" / "gallery" / "README.md").read_text(encoding="utf-8")
    rows = page.partition("## What a project has")[0]
    assert sorted(re.findall(r"^\| \[?`([\w-]+)`", rows, re.MULTILINE)) == [*NAMES]

    named = re.sub(r"[\s│]+", " ", kappa("init", "--help").has(0).out)
    assert f"{', '.join(NAMES[:-1])} or {NAMES[-1]}" in named


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_template_makes_a_whole_project(name: str, kappa: Kappa, tmp_path: Path) -> None:
    code, out, err = kappa("init", "shop", "--template", name)
    project = tmp_path / "shop"

    assert (code, err) == (0, "")
    made = files_below(project)
    assert made == {*template_files(name)}
    assert made >= {"kappa.toml", "README.md", "AGENTS.md", ".gitignore"}
    assert made >= {".github/workflows/kappa.yml"}
    assert all(f"\n  {each}\n" in out for each in made)
    pipelines = load_pipelines(project)
    topics = {topic.name for pipeline in pipelines.values() for topic in pipeline.topics}
    # A `later/` folder has further events of the same topics.
    assert {*read_events(project / "events")} == topics
    assert all(read_events(project / "events").values())
    for pipeline in pipelines.values():
        assert f"tests/test_{pipeline.name}.py" in made
    boards = boards_in(project)
    assert all(isinstance(board, Board) for board in boards.values())
    assert boards or name == "empty"
    readme = (project / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"(?:events|pipelines|boards)/[\w./-]+\.\w+", readme):
        assert path in made, path


@pytest.mark.parametrize("name", NAMES)
def test_the_next_commands_lead_to_an_answer(name: str, kappa: Kappa) -> None:
    _, out, _ = kappa("init", "my-shop", "--template", name)

    commands = out.partition("\nnext:\n")[2].splitlines()
    assert commands == ["  cd my-shop", *(f"  {each}" for each in next_commands(name))]
    assert commands[1:3] == ["  kappa up -d", "  kappa topics create"]
    assert commands[-2] == "  kappa deploy --yes"
    assert commands[-1].startswith('  kappa query "select ')
    assert {each.split()[1] for each in commands[3:-2]} == {"produce"}


def test_page_hits_is_the_default_and_the_tutorials_project(kappa: Kappa, tmp_path: Path) -> None:
    kappa("init", "shop")

    web = (tmp_path / "shop" / "pipelines" / "web.py").read_text(encoding="utf-8")
    code = re.sub(r'^ *""".*?"""\n+', "", web, flags=re.DOTALL | re.MULTILINE)
    for page in ("README.md", "docs/start/first-ten-minutes.md"):
        (shown,) = re.findall(
            r"```python\n# pipelines/web\.py\n(.*?)```",
            (HOUSE / page).read_text(encoding="utf-8"),
            re.DOTALL,
        )
        assert shown == code, page


def test_files_that_exist_are_named_and_nothing_is_written(kappa: Kappa, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for name in ("README.md", "tests"):
        (tmp_path / "shop" / name).write_text("mine", encoding="utf-8")

    there = "has README.md, tests/test_main.py already, so nothing was written"
    ended = kappa("init", "shop", "--template", "empty").has(2, there, "hint: give another name")

    assert ended.out == ""
    assert files_below(tmp_path) == {"shop/README.md", "shop/tests"}
    assert (tmp_path / "shop" / "README.md").read_text(encoding="utf-8") == "mine"


def test_a_dot_is_this_folder_with_what_is_in_it(kappa: Kappa, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")

    ended = kappa("init", ".", "--template", "empty").has(0)

    assert "cd " not in ended.out
    assert files_below(tmp_path) == {"notes.txt", *template_files("empty")}
    assert kappa("init", ".", "--template", "empty")[0] == 2


def test_an_unknown_template_lists_those_that_are_there(kappa: Kappa, tmp_path: Path) -> None:
    near = f"did you mean shop? there are {', '.join(NAMES)}"
    kappa("init", "shop", "--template", "shopp").has(2, "there is no template shopp", near)

    assert files_below(tmp_path) == set()


@pytest.mark.parametrize("name", ["", "..", "my shop", "a/.hidden", "/", "a\nb", "$HOME"])
def test_a_bad_name_is_refused(name: str, kappa: Kappa, tmp_path: Path) -> None:
    kappa("init", name).has(2, "is not a valid project name", "hint: a name has letters")

    assert files_below(tmp_path) == set()


def test_the_folder_of_the_flag_project_takes_the_new_project(kappa: Kappa, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    typed = ("--project", "work", "init", "shop", "--template", "empty")
    kappa(*typed).has(0, out="  cd work/shop\n")
    assert files_below(tmp_path / "work" / "shop") == {*template_files("empty")}
    kappa("--project", "work", "init", ".", "--template", "empty").has(0, out="  cd work\n")
    kappa("--project", "wrok", "init", "shop").has(2, "there is no folder wrok")
    kappa("--root", "elsewhere", "init", "other").has(2, "set root in its kappa.toml")
    assert not (tmp_path / "other").exists()


def test_a_file_of_that_name_is_refused(kappa: Kappa, tmp_path: Path) -> None:
    (tmp_path / "shop").touch()

    kappa("init", "shop").has(2, "shop is a file")


def test_the_files_are_for_others_as_the_user_wants(
    kappa: Kappa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files have the modes of the user's umask, while Kappa's other files are private."""
    monkeypatch.setattr(program, "_users_umask", [0o022])
    before = os.umask(0o077)
    try:
        kappa("init", "work/shop", "--template", "empty")
    finally:
        os.umask(before)

    modes = {
        stat.S_IMODE(each.stat().st_mode)
        for each in tmp_path.rglob("*")
        if each.is_dir() or each.is_file()
    }
    assert modes == {0o755, 0o644}


def test_init_imports_no_spark(tmp_path: Path) -> None:
    code = (
        "import sys; from kappa.commands.app import run_command; "
        "run_command(['init', 'shop']); "
        "print([name for name in ('pyspark', 'duckdb', 'deltalake', 'pyarrow', 'confluent_kafka', "
        "'numba') if name in sys.modules])"
    )
    found = run_python("-c", code, folder=tmp_path, check=True)

    assert found.stdout.splitlines()[-1] == "[]"
    assert (tmp_path / "shop" / "kappa.toml").is_file()


# Spark begins twice, and the laws of a template are tried by a hundred slices.
@pytest.mark.timeout(1500)
@pytest.mark.jvm
@pytest.mark.parametrize("name", long_except(["page-hits"], NAMES))
def test_a_template_validates_and_passes_its_tests(
    name: str, kappa: Kappa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kappa("init", "shop", "--template", name)
    project = tmp_path / "shop"
    monkeypatch.chdir(project)

    code, out, err = kappa("validate")
    assert code == 0, f"{out}{err}"
    lines = [line.partition(": ")[2].partition(" ")[0] for line in out.splitlines()]
    assert {*lines} == {"valid"}

    done = subprocess.run(
        [sys.executable, "-P", "-m", "cli", "test"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(HOUSE), "PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE)
