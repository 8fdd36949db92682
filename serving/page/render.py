"""The pages as text: templates, what they may use, and the headers that keep a browser to them. The only door to Jinja2.

Whatever stands in a record, a key or a name of a column is a stranger's: everything is escaped, and a browser that was deceived
all the same runs nothing that this server has not sent as a file (Content-Security-Policy). A template that misses something
fails, and prints no blank. Read next: marks.py, static.py, login.py; replay/page has what is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from serving.page import marks

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # `no-referrer` would have browsers send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def page_html(name: str, *, now: datetime | None = None, **told: object) -> str:
    """The page of that template, of what it is to tell at the time `now`."""
    return _pages.get_template(f"{name}.html").render(now=now or datetime.now(UTC), **told)


def problem_html(document: Mapping[str, Any]) -> str:
    """The page of an RFC 9457 problem document: what is wrong, and what to do now."""
    return page_html(
        "problem",
        title=str(document["title"]).capitalize(),
        status=document["status"],
        detail=document.get("detail", ""),
        hint=document.get("hint", ""),
    )


def _when(now: datetime, at: str | datetime | None) -> str:
    """A time, relative; exact when pointed at."""
    found = marks.moment(at)
    if found is None:
        return Markup('<span class="muted">{}</span>').format(at or "—")
    template = Markup('<time datetime="{}" title="{}" data-relative>{}</time>')
    return template.format(
        found.isoformat(timespec="seconds"), marks.exact(found), marks.relative(found, now)
    )


def _environment() -> Environment:
    # Of everything, whatever a template is called.
    pages = Environment(
        loader=PackageLoader("serving.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "number": marks.number,
        "duration": marks.duration,
        "short": marks.short,
        "value": marks.value,
        "exact": marks.exact,
        "row_values": marks.row_values,
    }
    pages.globals |= {"when": _when, "percent": marks.percent}
    pages.tests |= {"numeric": marks.is_number, "brief": marks.is_brief}
    return pages


_pages = _environment()
