"""A page as an answer of HTTP: what every page shows, and what this one was given."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response

from kappa.replay.page.api import desk_of
from kappa.replay.page.overview import health_of, phase_health
from kappa.replay.rollout.state import State
from kappa.serving.http.page.render import HEADERS, page_html

if TYPE_CHECKING:
    from kappa.replay.status.status import BuildStatus


def page(request: Request, name: str, state: State, now: datetime, **values: Any) -> Response:
    """Renders a page and returns it as a response."""
    desk = desk_of(request)
    supervised = desk.here.running is not None
    where = request.url.path

    def health(build: BuildStatus) -> object:
        return health_of(build, now, supervised=supervised)

    html = page_html(
        name,
        now=now,
        generation=state.generation,
        supervised=supervised,
        with_token=request.app.state.token is not None,
        where=where,
        health=health,
        phase_health=phase_health,
        **values,
    )
    return Response(html, headers=dict(HEADERS), media_type="text/html")
