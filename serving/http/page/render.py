"""Renders pages: the templates, the functions for templates, and the headers of a page.

This is the only module that uses Jinja2. Records, keys and column names are untrusted, so each
value is escaped. If untrusted markup still reached a browser, the browser would run only scripts
that this server sends as files (Content-Security-Policy). If a template lacks a value, rendering
fails instead of leaving a blank. The package replay/page computes the values of the pages. The
pages load a few files: styles, scripts, and a chart library. These files are read once, and no
other file is served.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kappa.base.units import exact_number, size
from kappa.serving.access.roles import Act, Identity, may, refusal
from kappa.serving.http.page import formatting
from kappa.serving.http.problem import HttpError
from kappa.serving.http.request_checks import STATIC
from kappa.serving.http.rights import open_to_all
from kappa.serving.query.render import printable_text

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

# Signs that make a text look like another (Unicode's bidirectional algorithm, UAX 9).
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# A command of a few words that is a whole part of a hint.
_COMMAND = re.compile(
    r"((?:^|(?<=[,;] )|(?<=, or )|(?<=see ))kappa [a-z]+(?: [^\s,;]+){0,3})(?=$|[,;])"
)
# The dots within dotted names.
_NAME_DOTS = re.compile(r"(?<=[^\W\d])\.(?=[^\W\d])")


# The headings of problems that a person meets; of other problems the kind of the error.
_HEADINGS: Mapping[int, str] = {
    400: "This address cannot be read",
    403: "Not allowed",
    404: "Nothing is here",
    405: "Not allowed",
    429: "Too many requests",
    503: "Not available now",
}


@dataclass(frozen=True, slots=True)
class ProjectPlace:
    """The project that a server serves: its name, its root, and the server's host."""

    name: str
    root: str
    host: str


def page_html(
    name: str,
    *,
    place: ProjectPlace | None = None,
    now: datetime | None = None,
    asker: Identity | None = None,
    counts: Mapping[str, tuple[int, bool]] | None = None,
    **values: object,
) -> str:
    """Renders the template `name` with values, as of the time `now`.

    Each page names the project of `place`. The page offers only actions that `asker` may do, and no
    action if `asker` is None. `counts` maps the address of a page to the number that the navigation
    shows next to the page's name, and to True if the number is critical.
    """

    def may_do(act: str) -> bool:
        return asker is not None and may(asker, Act(act))

    def refused(act: str) -> str:
        """Returns the reason why the client may not do an act, or "" if the act is allowed."""
        if asker is None or may_do(act):
            return ""
        error = refusal(asker, Act(act))
        return f"{error.message}; {error.hint}"

    return _pages.get_template(f"{name}.html").render(
        place=place,
        now=now or datetime.now(UTC),
        asker=asker,
        counts=counts or {},
        may=may_do,
        refused=refused,
        **values,
    )


def problem_html(
    document: Mapping[str, Any],
    *,
    place: ProjectPlace | None = None,
    where: str = "",
    with_token: bool = False,
    asker: Identity | None = None,
    counts: Mapping[str, tuple[int, bool]] | None = None,
) -> str:
    """Renders an RFC 9457 problem document as a page with the problem and a hint.

    `where` is the path of the request. The page's navigation marks the current page by this path.
    """
    status = document["status"]
    kind = str(document["title"])
    return page_html(
        "problem",
        place=place,
        asker=asker,
        counts=counts,
        where=where,
        with_token=with_token,
        generation="",
        title=_HEADINGS.get(status, kind.capitalize())
        if kind in {"request", "usage"}
        else kind.capitalize(),
        status=status,
        detail=document.get("detail", ""),
        hint=document.get("hint", ""),
    )


def graph_svg(drawn: object, title: str) -> str:
    """Renders the drawing of a lineage as an SVG file, in colour but without links."""
    return _pages.get_template("graph.svg").render(drawn=drawn, title=printable_text(title))


def _relative_time(now: datetime, at: str | datetime | None) -> str:
    """Renders a time relative to `now`, with the exact time as a tooltip."""
    found = formatting.moment(at)
    if found is None:
        return Markup('<span class="muted">{}</span>').format(at or "—")
    template = Markup('<time datetime="{}" title="{}" data-relative>{}</time>')
    return template.format(
        found.isoformat(timespec="seconds"),
        formatting.exact(found),
        formatting.relative(found, now),
    )


def _clock_time(now: datetime, at: str) -> str:
    """Renders a time in UTC to the minute, or "" for a text that Python cannot parse as a time."""
    found = formatting.moment(at)
    return "" if found is None else formatting.clock(found, now)


def _exact_time(now: datetime, at: str, day: str = "") -> str:
    """Renders a time in UTC to the millisecond, with the time relative to `now` as a tooltip.

    The day is left out if it is `day`. A text that Python cannot parse as a time is rendered
    unchanged.
    """
    found = formatting.moment(at)
    shown = at.removeprefix(f"{day}T").replace("T", " ").removesuffix("Z")
    if found is None:
        return Markup("<span>{}</span>").format(shown)
    # A narrow window leaves out the fraction of the second.
    template = Markup('<time datetime="{}" title="{}">{}<span class="fraction">{}</span></time>')
    second, point, fraction = shown.partition(".")
    return template.format(
        found.isoformat(timespec="milliseconds"),
        formatting.relative(found, now),
        *(second, point + fraction),
    )


def _straight(found: object) -> object:
    """Replaces characters that change the direction of text with visible escapes."""
    if isinstance(found, str) and not isinstance(found, Markup):
        return _TURNS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", found)
    return found


def _breakable(text: str) -> Markup:
    """Renders a text whose dotted names, such as `pyspark.errors`, break only after their dots."""
    return Markup(".<wbr>").join(str(_straight(part)) for part in _NAME_DOTS.split(text))


def _commands(hint: str) -> Markup:
    """Renders a hint whose commands, such as `kappa logs web`, are shown as code."""
    parts = (str(_straight(part)) for part in _COMMAND.split(hint))
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(part) if place % 2 else part for place, part in enumerate(parts)
    )


def _environment() -> Environment:
    # Everything is escaped, whatever a template's file is called.
    pages = Environment(
        loader=PackageLoader("kappa.serving.http.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_straight,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "number": formatting.number,
        "exact_number": exact_number,
        "figure": formatting.figure,
        "duration": formatting.duration,
        "noun": formatting.noun,
        "short": formatting.short,
        "size": size,
        "value": formatting.value,
        "below": formatting.value_below,
        "exact": formatting.exact,
        "times": formatting.times,
        "breakable": _breakable,
        "commands": _commands,
        "with_times": formatting.with_times,
        "amount": formatting.amount,
        "per": formatting.per,
        "scaled": formatting.scaled,
        "spark": formatting.spark_points,
    }
    pages.globals |= {
        "moment": formatting.moment,
        "when": _relative_time,
        "clock": _clock_time,
        "exactly": _exact_time,
        "percent": formatting.percent,
        "shared_day": formatting.shared_day,
        "time_zones": formatting.time_zones,
        "number_columns": formatting.number_columns,
    }
    pages.tests |= {"numeric": formatting.is_number, "brief": formatting.is_brief}
    return pages


_pages = _environment()


_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOLDER = files("kappa.serving.http.page") / "static"
_FILES = {
    f"{folder}{each.name}": each.read_bytes()
    for folder, there in (("", _FOLDER), ("vendor/", _FOLDER / "vendor"))
    for each in there.iterdir()
    if each.name.rpartition(".")[2] in _TYPES
}
_TAGS = {name: f'"{hashlib.sha256(content).hexdigest()[:16]}"' for name, content in _FILES.items()}

static_router = APIRouter(include_in_schema=False)


@static_router.get(f"{STATIC}{{name:path}}")
@open_to_all
async def static(name: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Returns a file that the pages load, or 304 if the browser's copy is current.

    The answer contains `no-cache`, so browsers check each time whether their copy is current.
    """
    if name not in _FILES:
        raise HttpError(
            404, f"there is no file {name[:80]}", hint="the pages name those that there are"
        )
    headers = {**HEADERS, "ETag": _TAGS[name], "Cache-Control": "no-cache"}
    if if_none_match == _TAGS[name]:
        return Response(status_code=304, headers=headers)
    return Response(_FILES[name], headers=headers, media_type=_TYPES[name.rpartition(".")[2]])
