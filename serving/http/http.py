"""The HTTP server's application: routes, errors, and OpenAPI description.

The gate (request_checks.py) checks each request before the application handles it. This package
must not import rollouts. Therefore, another package passes in the routes that need rollouts, as
routers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import anyio
from fastapi import APIRouter, Depends, FastAPI, Request, Response, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from kappa.base.errors import KappaError
from kappa.serving.access.accounts import Accounts
from kappa.serving.http import queries
from kappa.serving.http.app_state import API, PROBLEM, Stand, counts_of, place_of, stand_of
from kappa.serving.http.bounds import Bounds, identity_in
from kappa.serving.http.page.render import HEADERS, problem_html
from kappa.serving.http.problem import (
    MEDIA_TYPE,
    HttpError,
    Problem,
    problem_of,
    refuse_websocket,
)
from kappa.serving.http.request_checks import OPEN, Gate
from kappa.serving.http.rights import ensure_route_allowed, open_to_all
from kappa.serving.http.token import WaitingLine

router = APIRouter()


class MountedApp(Protocol):
    """Another application that this server serves at one path, after checking each request."""

    @property
    def path(self) -> str:
        """Returns the path at which the application is served."""

    @property
    def app(self) -> Callable[..., Awaitable[None]]:
        """Returns the application as an ASGI callable."""

    @property
    def running(self) -> Callable[[], AbstractAsyncContextManager[None]]:
        """Returns a function that creates the context in which the application runs.

        The server calls this function once.
        """


def make_app(
    stand: Stand,
    *,
    accounts: Accounts,
    routers: Iterable[APIRouter] = (),
    mounted: MountedApp | None = None,
    beside: Iterable[AbstractAsyncContextManager[None]] = (),
    bounds: Bounds | None = None,
    state: Mapping[str, object] | None = None,
) -> Gate:
    """Creates the server's application, and returns the Gate that checks requests for it.

    `routers` come from other packages, and `state` contains the objects that their routes need.
    `accounts` contains the clients that the server knows. `mounted` is an application without
    routers; it checks the rights of its clients itself. `beside` are servers that run in the same
    event loop for as long as the application runs.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            async with AsyncExitStack() as running:
                for each in (*(() if mounted is None else (mounted.running(),)), *beside):
                    await running.enter_async_context(each)
                yield
        finally:
            stand.snapshots.close()
            await anyio.to_thread.run_sync(stand.sandbox.close)

    bounds = bounds or Bounds()
    app = _Described(
        title="Kappa",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
        # Generated clients name a function after each operation.
        generate_unique_id_function=lambda route: route.name,
        responses={"default": PROBLEM},
        dependencies=[Depends(ensure_route_allowed)],
    )
    app.state.stand = stand
    app.state.accounts = accounts
    app.state.place = None
    app.state.counts = None
    app.state.line = WaitingLine(bounds.wrong_seconds)
    for name, value in (state or {}).items():
        setattr(app.state, name, value)
    for each in (router, queries.router, *routers):
        app.include_router(each)
    if mounted is not None:
        app.router.routes.append(Route(mounted.path, mounted.app))
    app.add_exception_handler(KappaError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    return Gate(app, accounts=accounts, bounds=bounds, wrong=app.state.line)


class _Described(FastAPI):
    """An application whose OpenAPI description requires a token if the server requires one."""

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI description."""
        document = super().openapi()
        if self.state.accounts.is_guarded:
            document.setdefault("components", {})["securitySchemes"] = {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "a token of this server, or of the issuer that it trusts",
                }
            }
            document["security"] = [{"token": []}]
            for path in OPEN & document["paths"].keys():
                for operation in document["paths"][path].values():
                    operation["security"] = []
        return document


@router.get("/healthz", tags=["health"])
@open_to_all
async def healthz() -> dict[str, str]:
    """Returns 200 while the process runs."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    tags=["health"],
    responses={503: {"description": "What is missing", "content": {"application/json": {}}}},
)
@open_to_all
async def readyz(request: Request) -> JSONResponse:
    """Returns 200 if the server can answer queries, and otherwise 503 with the reasons."""
    missing = await anyio.to_thread.run_sync(stand_of(request).unready)
    return JSONResponse(
        {"status": "not ready" if missing else "ready", "missing": list(missing)},
        503 if missing else 200,
    )


async def _answer_error(request: Any, error: Exception) -> Any:
    """Answers a failed request with a problem document, or with a page for a browser.

    For the handshake of a websocket, the problem document is sent at once, and None is returned.
    For any other request, the answer is returned.
    """
    if isinstance(request, WebSocket):
        told = error if isinstance(error, KappaError) else HttpError(400, "the request is wrong")
        await refuse_websocket(told, request.send)
        return None
    to_a_person = "text/html" in request.headers.get(
        "accept", ""
    ) and not request.url.path.startswith(API)
    match error:
        case KappaError():
            problem = problem_of(error)
        case RequestValidationError():
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            problem = problem_of(
                HttpError(
                    400,
                    f"the request cannot be read: {where}: {first['msg']}",
                    hint="" if to_a_person else f"see {API}/openapi.json",
                )
            )
        case HTTPException():
            problem = problem_of(
                HttpError(
                    error.status_code,
                    f"there is no page {request.url.path[:80]}"
                    if to_a_person and error.status_code == 404
                    else str(error.detail),
                    hint="" if to_a_person else f"{API}/openapi.json lists all paths",
                    headers=error.headers,
                )
            )
        case _:
            problem = Problem(500, {"title": "failed", "status": 500})
    if to_a_person:
        return Response(
            problem_html(
                problem.document,
                place=place_of(request),
                where=request.url.path,
                with_token=request.app.state.accounts.is_guarded,
                asker=identity_in(request.scope),
                counts=await counts_of(request),
            ),
            problem.status,
            {**HEADERS, **problem.headers},
            media_type="text/html",
        )
    return JSONResponse(
        dict(problem.document), problem.status, dict(problem.headers), media_type=MEDIA_TYPE
    )
