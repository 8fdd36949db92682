"""A search in the documentation: the sections of its pages, ranked by BM25.

Source of the formula: Robertson and Zaragoza, The Probabilistic Relevance Framework,
2009. Only the functions that read the pages do I/O.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# The usual constants of BM25: how soon a word that is said often counts no more, and how much the
# length of a section matters.
_K1, _B = 1.5, 0.75
_WORD = re.compile(r"[a-z0-9_]+")
_HEADING = re.compile(r"^#{1,3} ", re.MULTILINE)
_LONGEST = 3_000
# A word in the title says more than one in the text.
_TITLE_TIMES = 6


@dataclass(frozen=True, slots=True)
class DocSection:
    """A section of a page: the page's path below docs/, the heading, and the text below it."""

    page: str
    heading: str
    text: str


def search_docs(query: str, *, limit: int = 5) -> tuple[DocSection, ...]:
    """Returns at most `limit` sections that match a query, the best match first."""
    sections = _sections()
    return tuple(sections[place] for place in ranked(query, _counted(), limit))


def ranked(query: str, counted: Sequence[Counter[str]], limit: int) -> list[int]:
    """Returns the indexes of at most `limit` texts that match a query, best first. Pure.

    The texts are ranked by BM25. `counted` contains one counter for each text, with the number of
    occurrences of each word.
    """
    lengths = [sum(each.values()) for each in counted]
    mean = (sum(lengths) / len(lengths) if lengths else 0.0) or 1.0
    scores = [0.0] * len(counted)
    for word in {*_words(query)}:
        having = sum(word in each for each in counted)
        rare = math.log(1 + (len(counted) - having + 0.5) / (having + 0.5))
        for place, each in enumerate(counted):
            times = each[word]
            norm = _K1 * (1 - _B + _B * lengths[place] / mean)
            scores[place] += rare * times * (_K1 + 1) / (times + norm) if times else 0.0
    best = sorted(range(len(counted)), key=lambda place: -scores[place])[:limit]
    return [place for place in best if scores[place] > 0]


def sections_of(page: str, text: str) -> list[DocSection]:
    """Splits the text of a Markdown page into its sections. Pure.

    `page` is the path of the page below docs/.
    """
    starts = [found.start() for found in _HEADING.finditer(text)] or [0]
    found = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        heading, _, body = text[start:end].partition("\n")
        found.append(DocSection(page, heading.lstrip("# ").strip(), body.strip()[:_LONGEST]))
    return found


@cache
def _sections() -> tuple[DocSection, ...]:
    folder = Path(__file__).parents[1] / "docs"
    return tuple(
        section
        for file in sorted(folder.glob("**/*.md"))
        for section in sections_of(
            file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8")
        )
    )


@cache
def _counted() -> tuple[Counter[str], ...]:
    return tuple(
        Counter([*_words(each.heading) * _TITLE_TIMES, *_words(each.text)]) for each in _sections()
    )


def _words(text: str) -> list[str]:
    # A plural is its singular, as far as a search goes.
    return [word.rstrip("s") or word for word in _WORD.findall(text.lower())]
