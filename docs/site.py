"""A program that builds the documentation site from the pages of docs/.

`make site` runs the program, which writes site/. The site has a search and a light and a dark
theme, and works offline. The pages have the order of docs/README.md. The site has only the pages of
docs/, so a link to any other file is replaced by the name of the file. The site is built by
Zensical (requirements/site.lock). Diagrams need Mermaid, which is fetched by npm; without npm,
diagrams are shown as text.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
SITE = DOCS.parent / "site"
GLOSSARY = "reference/glossary.md"
# The version that Zensical's own script is written for, and the digest of npm's archive of it.
MERMAID = "mermaid@12.3.0"
MERMAID_SHA256 = "be0684e8d20bfc874df12c0f04927a5c482f57f2200eec54cca52a4583fd4040"
_MERMAID_FILE = "assets/mermaid.min.js"
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>[^)#:]+)(?:#[^)]*)?\)")
# `no-run` behind the language is a word for tests.
_FENCE = re.compile(r"^( *```\w+) no-run$", re.MULTILINE)
_PAGE = re.compile(r"- \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+\.md)\)")
_SECTION = re.compile(r"## (?P<title>.+)")
# Zensical warns of a link that leads nowhere, and ends with 0 all the same.
_ALL_IS_WELL = "No issues found"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

CONFIG = """
[project]
site_name = "Kappa"
site_description = "A replayable event platform: the log, the fold, the table, the query"
docs_dir = "docs"
site_dir = "site"
nav = {nav}
extra_javascript = {scripts}

[project.extra]
generator = false
# So that the search works where no server is; the plugin would load the same from elsewhere.
polyfills = ["assets/iframe-worker.js"]

[project.plugins.offline]

[project.theme]
language = "en"
font = false
features = [
  "content.code.copy",
  "content.tooltips",
  "navigation.footer",
  "navigation.indexes",
  "navigation.path",
  "navigation.tabs",
  "navigation.top",
  "search.highlight",
  "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme)"
toggle.icon = "lucide/sun-moon"
toggle.name = "Light"

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "As the system"

[project.markdown_extensions]
attr_list = {{}}
md_in_html = {{}}
tables = {{}}
toc.permalink = true
pymdownx.highlight.pygments_lang_class = true
pymdownx.inlinehilite = {{}}
{fences}
"""
_FENCES = """
pymdownx.superfences.custom_fences = [
  { name = "mermaid", class = "mermaid", format = "pymdownx.superfences.fence_code_format" },
]
"""


def nav_of(readme: str) -> list[dict[str, object]]:
    """Returns the navigation: the glossary, and the sections and pages of docs/README.md."""
    nav: list[dict[str, object]] = [{"Kappa": "README.md"}, {"Glossary": GLOSSARY}]
    pages: list[dict[str, str]] = []
    for line in readme.splitlines():
        if section := _SECTION.match(line):
            pages = []
            nav.append({section["title"]: pages})
        elif (page := _PAGE.match(line)) and page["path"] != GLOSSARY:
            pages.append({page["title"]: page["path"]})
    return nav


def site_text(text: str, place: str) -> str:
    """Returns the text of a page, changed for the site.

    A link to a file outside docs/ is replaced by the file's name. Words after the language of a
    code block are removed. `place` is the path of the page below docs/.
    """

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), found["path"]))
        return f"{found['text']} (`{target[3:]}`)" if target.startswith("../") else found[0]

    return _FENCE.sub(r"\1", _LINK.sub(link, text))


def build_site(site: Path, *, diagrams: bool) -> list[str]:
    """Builds the site in a folder, and returns the builder's warnings."""
    with tempfile.TemporaryDirectory(prefix="kappa-site-") as made:
        folder = Path(made)
        pages = folder / "docs"
        shutil.copytree(
            DOCS, pages, ignore=shutil.ignore_patterns("__pycache__", "generate.py", "site.py")
        )
        for page in pages.rglob("*.md"):
            place = page.relative_to(pages).as_posix()
            page.write_text(site_text(page.read_text(encoding="utf-8"), place), encoding="utf-8")
        has_diagrams = diagrams and put_mermaid(pages / _MERMAID_FILE)
        config = CONFIG.format(
            nav=_toml(nav_of((DOCS / "README.md").read_text(encoding="utf-8"))),
            scripts=json.dumps([_MERMAID_FILE] if has_diagrams else []),
            fences=_FENCES if has_diagrams else "pymdownx.superfences = {}",
        )
        (folder / "zensical.toml").write_text(config, encoding="utf-8")
        told = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--clean"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode:
            raise SystemExit(f"the site was not built:\n{told.stdout}{told.stderr}")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(folder / "site", site)
    said = _COLOUR.sub("", told.stdout + told.stderr)
    return [] if _ALL_IS_WELL in said else said.splitlines()


def put_mermaid(file: Path) -> bool:
    """Writes Mermaid's script to a file. Returns False if npm cannot fetch the script.

    If False is returned, the reason was printed. Raises SystemExit if the fetched archive has
    another digest than MERMAID_SHA256.
    """
    if shutil.which("npm") is None:
        print("diagrams stay texts: there is no npm")
        return False
    with tempfile.TemporaryDirectory(prefix="kappa-mermaid-") as folder:
        packed = subprocess.run(
            ["npm", "pack", "--silent", MERMAID],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        archives = [*Path(folder).glob("*.tgz")]
        if packed.returncode or len(archives) != 1:
            print(f"diagrams stay texts: npm pack {MERMAID}: {packed.stderr.strip()}")
            return False
        content = archives[0].read_bytes()
        if hashlib.sha256(content).hexdigest() != MERMAID_SHA256:
            raise SystemExit(f"{MERMAID} is not the archive of docs/site.py's MERMAID_SHA256")
        with tarfile.open(archives[0]) as opened:
            script = opened.extractfile("package/dist/mermaid.min.js")
            assert script is not None, "a release of Mermaid has this file"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(script.read())
    return True


def _toml(value: object) -> str:
    """Formats a list, a text, or a table of texts and lists, as TOML."""
    match value:
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            parts = (f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items())
            return f"{{{', '.join(parts)}}}"
        case _:
            return json.dumps(value)


if __name__ == "__main__":
    for complaint in build_site(SITE, diagrams=True):
        print(complaint)
    print(f"{SITE}/index.html")
