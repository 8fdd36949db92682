"""The addresses of boards: the list of them, and each one with its charts.

A board's file is read at each request, so a change is there when the page is loaded again. All who
look at a board share one look at its queries.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from kappa.base.errors import DeclarationError, KappaError
from kappa.declare.board import board_name, boards_in
from kappa.replay.page.answer import page
from kappa.replay.page.answers import BoardAnswer, answer_board, is_behind
from kappa.replay.page.api import desk_of
from kappa.serving.http.bounds import client_of
from kappa.serving.http.problem import HttpError
from kappa.serving.http.stand import stand_of

# A board is there to be watched: up to a third of the time goes into asking its queries.
_REST = 2

router = APIRouter(include_in_schema=False)


@router.get("/boards")
def boards(request: Request) -> Response:
    """Shows all boards of the project, also those with a mistake in their file."""
    desk, now = desk_of(request), datetime.now(UTC)
    found = boards_in(desk.here.settings.project)
    return page(
        request,
        "boards",
        desk.here.state(),
        now,
        boards={name: each for name, each in found.items() if not isinstance(each, KappaError)},
        wrong={name: each for name, each in found.items() if isinstance(each, KappaError)},
    )


@router.get("/boards/{name}")
def board(request: Request, name: str, *, kiosk: bool = False) -> Response:
    """Shows one board with its charts; `kiosk`: alone, in large letters, for a screen on a wall."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    found = boards_in(here.settings.project).get(board_name(name))
    if found is None:
        raise HttpError(
            404,
            f"the project has no board {name[:80]}",
            hint="a board is a file boards/NAME.toml beside kappa.toml; /boards lists them",
        )
    answer: BoardAnswer | None = None
    trouble: KappaError | None = None
    if isinstance(found, DeclarationError):
        trouble = found
    else:
        stand, asked, client = stand_of(request), found, client_of(request.scope)
        try:
            answer = desk.look(
                f"board {asked}",
                lambda: answer_board(
                    here.store,
                    stand.sandbox,
                    asked,
                    lease_seconds=stand.lease_seconds,
                    client=client,
                ),
                generation=state.generation,
                rest=_REST,
                client=client,
            )
        except KappaError as error:
            trouble = error
    return page(
        request,
        "board",
        state,
        now,
        title=name if isinstance(found, DeclarationError) else found.title,
        address=f"/boards/{quote(name)}",
        kiosk=kiosk,
        answer=answer,
        trouble=trouble,
        behind=answer is not None and is_behind(here.store, answer),
        reads=json.dumps([] if answer is None else answer.reads),
    )
