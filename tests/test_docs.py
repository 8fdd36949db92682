"""Laws of the documentation: everything that can be compared with the code is compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from generated import generate

from kappa.base.errors import ExitCode
from kappa.base.sections import Section, description
from kappa.base.settings import Settings

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"\| `(?P<name>[a-z_.]+)` \| (?P<default>.*?) \| (?P<what>.*?) \|")


def settings(section: Section, prefix: str = "") -> Iterator[tuple[str, tuple[str, str]]]:
    for name, kind in section.kinds().items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from settings(value, f"{prefix}{name}.")
        elif prefix or name != "project":
            yield prefix + name, ("none" if value is None else f"`{value}`", description(kind))


def test_the_settings_page_tells_every_setting_with_its_default_and_what_it_is() -> None:
    page = {
        row["name"]: (row["default"], row["what"])
        for row in map(
            ROW.match,
            (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8").splitlines(),
        )
        if row
    }

    assert page == dict(settings(Settings()))


def test_every_exit_code_is_documented() -> None:
    told = re.findall(
        r"^\| (\d+) \|",
        (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert [int(code) for code in told] == sorted(ExitCode)


@pytest.mark.parametrize(
    "page",
    sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_files_that_the_readme_names_in_its_tree_are_there() -> None:
    (tree,) = re.findall(
        r"```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )

    paths = [line.split()[0] for line in tree.splitlines() if line and not line.startswith(" ")]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_files_that_pages_name_are_there() -> None:
    """A name may be the end of a path, for example `engine/job/job.py`."""
    pages = (ROOT / "CONTRIBUTING.md", ROOT / "docs/design.md", *ROOT.glob("docs/explain/**/*.md"))
    texts = (page.read_text(encoding="utf-8") for page in pages)
    named = {each for text in texts for each in re.findall(r"`((?:[\w.]+/)+\w+\.py)`", text)}
    tree = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for folder in ("kappa", "serving", "replay", "demo", "bench", "tests", "pipelines")
        for path in (ROOT / folder).rglob("*.py")
    ]

    assert named
    assert {each for each in named if not any(path.endswith(f"/{each}") for path in tree)} == set()


@pytest.mark.parametrize(
    "page",
    ["design.md", "explain/guarantees.md", "explain/faults.md", "explain/losses.md"],
)
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    named = set(
        re.findall(
            r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / page).read_text(encoding="utf-8")
        )
    )

    assert named
    assert [path for path, _ in sorted(named) if not (ROOT / path).exists()] == []
    assert [
        (path, test)
        for path, test in sorted(named)
        if test and f"\ndef {test}(" not in (ROOT / path).read_text(encoding="utf-8")
    ] == []


def test_generated_pages_are_what_the_code_says() -> None:
    """`make docs` writes these pages."""
    for name, text in generate.pages().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, name
