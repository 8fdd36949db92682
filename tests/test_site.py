"""Laws of the site: every page and link exists, and no page sends requests to other hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer
from generated import imported
from house import HOUSE

from kappa.commands.app import app_of

DOCS = HOUSE / "docs"
MAKER = imported("site_maker", DOCS / "site.py")
# Pages whose commands nobody pastes, so that no other test runs them.
NAMING = ("start/coming-from.md", "start/problems.md", "start/faq.md", "howto/shell.md")


@dataclass
class Page(HTMLParser):
    """The links of a page, the ids to which links may lead, and the files that a browser loads."""

    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in {"canonical", "alternate"}:
            self.loaded.append(given.get("href", ""))
        elif "src" in given:
            self.loaded.append(given["src"])

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("zensical") is None:
        pytest.skip("not run: no zensical, which `make site` installs")
    folder = tmp_path_factory.mktemp("site")
    assert MAKER.build_site(folder, diagrams=False) == []
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = {}
    for path in site.rglob("*.html"):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        found[path.resolve()] = page
    return found


@pytest.mark.slow
def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    written = {
        path.relative_to(DOCS).with_suffix(".html").as_posix().replace("README", "index")
        for path in DOCS.rglob("*.md")
    }

    assert written - {path.relative_to(site).as_posix() for path in site.rglob("*.html")} == set()


@pytest.mark.slow
def test_every_link_within_the_site_holds(pages: dict[Path, Page]) -> None:
    assert [*_broken_links(pages)] == []


def _broken_links(pages: dict[Path, Page]) -> Iterator[tuple[str, str]]:
    for path, page in pages.items():
        # The page of what is not found stands anywhere below the site's address.
        if path.name == "404.html":
            continue
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            there = target.exists() and (
                not parts.fragment
                or target not in pages
                or unquote(parts.fragment) in pages[target].ids
            )
            if not there:
                yield path.name, link


@pytest.mark.slow
def test_a_page_loads_nothing_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Scripts, styles, fonts and pictures belong to the site itself."""
    loaded = {each for page in pages.values() for each in page.loaded}
    styles = {
        url
        for path in site.rglob("*.css")
        for url in re.findall(
            r"(?:@import|url\()\s*['\"]?([^'\")\s]+)", path.read_text(encoding="utf-8")
        )
    }

    assert loaded
    assert [each for each in loaded | styles if re.match(r"(https?:)?//", each)] == []


@pytest.mark.slow
def test_the_glossary_is_found_at_once(site: Path, pages: dict[Path, Page]) -> None:
    """Every page links to the glossary, and the search contains its words."""
    glossary = (site / "reference" / "glossary.html").resolve()
    leads = [
        path.name
        for path, page in pages.items()
        if path.name != "404.html"
        and glossary not in {(path.parent / urlsplit(each).path).resolve() for each in page.links}
    ]

    assert leads == []
    assert "The state of a build that readers may see" in (site / "search.js").read_text(
        encoding="utf-8"
    )


def test_a_fence_has_its_language_alone() -> None:
    assert MAKER.site_text("```sh no-run\nkappa up\n```\n", "a.md") == "```sh\nkappa up\n```\n"


def test_a_link_beside_docs_is_a_name() -> None:
    assert MAKER.site_text(
        "[x](../../SECURITY.md#a) [y](../design.md) ![z](../../z.png)", "a/b.md"
    ) == ("x (`SECURITY.md`) [y](../design.md) ![z](../../z.png)")


@pytest.mark.parametrize("page", NAMING)
def test_commands_that_a_page_names_are_there(page: str) -> None:
    """The options that the page names also exist."""
    root = typer.main.get_command(app_of())
    text = (DOCS / page).read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w.])kappa ((?:[a-z]+)(?: [^`\n&|#]*)?)", _code(text))

    assert named
    for typed in named:
        words = typed.split()
        command = root.commands.get(words[0])
        assert command is not None, typed
        if hasattr(command, "commands"):
            assert words[1] in command.commands, typed
            command = command.commands[words[1]]
        options = {word for option in command.params for word in option.opts}
        assert [
            word for word in words if re.match(r"--?[a-z]", word) and word not in options
        ] == [], typed


def _code(text: str) -> str:
    """Returns the code of a page: the texts within code marks, one per line."""
    fenced = re.findall(r"^```\w*[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join(
        [*fenced, *(each.replace("\n", " ") for each in re.findall(r"`([^`]+)`", rest))]
    )
