"""The HTTP server: SQL over what serves, for strangers, and a frame for what other rooms put beside it. The only door to FastAPI and uvicorn.

`POST /api/v1/query` is answered by the sandbox; headers name what the answer is true of. `X-Kappa-Snapshot: new` pins a
snapshot for many requests, and the answer's header of that name is what to send with the next. Errors are problems (problem.py).
What needs rollouts is given in as routers, by who may import both. Read next: gate.py, sandbox.py, snapshots.py; page/ for what people see.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from kappa.base.errors import KappaError
from kappa.state.store import Store
from serving.http.gate import OPEN, Bounds, Gate, Line
from serving.http.problem import MEDIA_TYPE, HttpError, Problem, problem_of
from serving.http.snapshots import Snapshots
from serving.page.render import HEADERS, problem_html
from serving.query.head import head_of
from serving.sandbox.question import Busy, Format, Question, Reply
from serving.sandbox.sandbox import Sandbox

API = "/api/v1"
_FORMS: Mapping[str, Format] = {
    "application/json": Format.JSON,
    "application/x-ndjson": Format.JSONL,
    "text/csv": Format.CSV,
    "application/vnd.apache.arrow.stream": Format.ARROW,
    "application/vnd.apache.parquet": Format.PARQUET,
}
# What is answered instead, wherever something is wrong (RFC 9457).
_PROBLEM: dict[str, Any] = {
    "description": "What is wrong, and what to do now",
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    name: {"type": "integer" if name == "status" else "string"}
                    for name in ("type", "title", "status", "detail", "hint")
                },
            }
        }
    },
}
_TO_THE_OVERVIEW = "the overview leads to every page: /"
_PIECE_BYTES = 1 << 16
# Clients and proxies take some 8 KiB of headers.
_HEADER_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Stand:
    """What the server stands on. `unready` says what is missing, in a sentence each; nothing where all is well."""

    store: Store
    sandbox: Sandbox
    snapshots: Snapshots
    lease_seconds: float
    unready: Callable[[], Sequence[str]]


class Query(BaseModel):
    """One query."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(
        description="one query that reads, in DuckDB's SQL",
        examples=["select * from page_hits limit 10"],
    )
    rows: int | None = Field(
        default=None, ge=0, description="most rows of the answer, below what the server allows"
    )


router = APIRouter()


def make_app(
    stand: Stand,
    *,
    token: str | None,
    routers: Iterable[APIRouter] = (),
    bounds: Bounds | None = None,
    state: Mapping[str, object] | None = None,
) -> Gate:
    """The whole application, behind its gate; `routers` are other rooms', and `state` what they stand on."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
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
        responses={"default": _PROBLEM},
    )
    app.state.stand = stand
    app.state.token = token
    app.state.line = Line(bounds.wrong_seconds)
    for name, value in (state or {}).items():
        setattr(app.state, name, value)
    for each in (router, *routers):
        app.include_router(each)
    app.add_exception_handler(KappaError, _told)
    app.add_exception_handler(RequestValidationError, _told)
    app.add_exception_handler(HTTPException, _told)
    return Gate(app, token=token, bounds=bounds, wrong=app.state.line)


class _Described(FastAPI):
    """Says in its description who may come in, where that is a question."""

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        document = super().openapi()
        if self.state.token is not None:
            document.setdefault("components", {})["securitySchemes"] = {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "what the server was started with",
                }
            }
            document["security"] = [{"token": []}]
            for path in OPEN & document["paths"].keys():
                for operation in document["paths"][path].values():
                    operation["security"] = []
        return document


def line_of(request: Request) -> Line:
    """Where wrong tokens wait."""
    line = request.app.state.line
    assert isinstance(line, Line), "make_app has put it"
    return line


def stand_of(request: Request) -> Stand:
    """What the server stands on."""
    stand = request.app.state.stand
    assert isinstance(stand, Stand), "make_app has put it"
    return stand


@router.get("/healthz", tags=["health"])
async def healthz() -> dict[str, str]:
    """The process is there and answers."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    tags=["health"],
    responses={503: {"description": "What is missing", "content": {"application/json": {}}}},
)
async def readyz(request: Request) -> JSONResponse:
    """Queries can be answered; 503 with what is missing where they cannot."""
    missing = await anyio.to_thread.run_sync(stand_of(request).unready)
    return JSONResponse(
        {"status": "not ready" if missing else "ready", "missing": list(missing)},
        503 if missing else 200,
    )


@router.post(
    f"{API}/query",
    tags=["query"],
    response_class=StreamingResponse,
    responses={
        200: {"content": {kind: {} for kind in _FORMS}},
        **dict.fromkeys((400, 406, 410, 413, 415, 422, 503), _PROBLEM),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": Query.model_json_schema()},
                "application/sql": {"schema": {"type": "string"}},
            },
        }
    },
)
async def query(
    request: Request,
    accept: Annotated[str, Header()] = "application/json",
    x_kappa_snapshot: Annotated[str | None, Header()] = None,
) -> Response:
    """Answers one query from what serves now, all of a build at one frontier, or from the snapshot that was pinned.

    The body is JSON, or the SQL itself (`application/sql`, `text/plain`). The answer is JSON, CSV, an Arrow stream or Parquet,
    by `Accept`; it says `truncated` where it was cut, in its headers too.
    """
    stand = stand_of(request)
    form, media_type = _form(accept)
    asked = _asked(await request.body(), request.headers.get("content-type", "application/json"))
    question = Question(asked.sql, form, asked.rows)
    async with _place(request.app, stand):
        reply, pinned = await anyio.to_thread.run_sync(
            _answered, stand, question, x_kappa_snapshot, limiter=_threads(request.app, stand)
        )
    return _Answer(reply, media_type, {} if pinned is None else {"X-Kappa-Snapshot": pinned})


@router.delete(f"{API}/snapshots/{{snapshot}}", tags=["query"], status_code=204)
async def let_go(request: Request, snapshot: str) -> Response:
    """Lets a pinned snapshot go before its time."""
    await anyio.to_thread.run_sync(stand_of(request).snapshots.let_go, snapshot)
    return Response(status_code=204)


def _answered(stand: Stand, question: Question, snapshot: str | None) -> tuple[Reply, str | None]:
    if snapshot is None:
        return stand.sandbox.ask(stand.store, question, lease_seconds=stand.lease_seconds), None
    with stand.snapshots.held(snapshot) as (name, pinned):
        return stand.sandbox.ask_pinned(stand.store, pinned, question), name


class _Answer(StreamingResponse):
    """An answer's bytes, which lie ready; what it was read from is in the headers."""

    def __init__(self, reply: Reply, media_type: str, more: Mapping[str, str]) -> None:
        head = head_of(reply.snapshot)
        builds = head["builds"]
        told = {
            "X-Kappa-Generation": str(head["generation"]),
            "X-Kappa-Builds": _compact(
                {pipeline: each["build"] for pipeline, each in builds.items()}
            ),
            "X-Kappa-Offsets": _compact(
                {each["build"]: each["offsets"] for each in builds.values()}
            ),
            "X-Kappa-Versions": _compact(
                {each["build"]: each["versions"] for each in builds.values()}
            ),
            "X-Kappa-Rows": str(reply.rows),
            "X-Kappa-Truncated": str(reply.truncated).lower(),
            "Content-Length": str(reply.size),
            "Cache-Control": "no-store",
            **more,
        }
        super().__init__(
            self._pieces(reply),
            media_type=media_type,
            headers={
                name: value for name, value in told.items() if len(value) <= _HEADER_CHARACTERS
            },
        )
        self._reply = reply

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Sends it; what lay ready goes, however that ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reply.body.close()

    @staticmethod
    async def _pieces(reply: Reply) -> AsyncIterator[bytes]:
        while piece := reply.body.read(_PIECE_BYTES):
            yield piece


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _form(accept: str) -> tuple[Format, str]:
    """The first of those asked for that there is, by weight (RFC 9110, 12.5.1)."""
    asked = []
    for place, each in enumerate(accept.split(",")):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        weight = next(
            (
                _weight(value)
                for name, _, value in (part.partition("=") for part in parameters)
                if name.strip() == "q"
            ),
            1.0,
        )
        asked.append((-weight, place, kind))
    for weight, _, kind in sorted(asked):
        for known, form in _FORMS.items():
            if weight and (
                kind in (known, "*/*") or (kind.endswith("/*") and known.startswith(kind[:-1]))
            ):
                return form, known if form is not Format.CSV else "text/csv; charset=utf-8"
    raise HttpError(
        406, f"an answer cannot be written as {accept}", hint=f"ask for one of {', '.join(_FORMS)}"
    )


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _asked(body: bytes, content_type: str) -> Query:
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind in {"application/sql", "text/plain"}:
            return Query(sql=body.decode())
        if kind == "application/json":
            return Query.model_validate_json(body)
    except UnicodeDecodeError as error:
        raise HttpError(400, "the query is not text in UTF-8", hint="send it in UTF-8") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise HttpError(
            400,
            f"the request cannot be read: {f'{where}: ' if where else ''}{first['msg']}",
            hint='send {"sql": "select ..."}',
        ) from error
    raise HttpError(
        415,
        f"a query does not come as {kind}",
        hint='send {"sql": "select ..."} as application/json, or the SQL itself as application/sql',
    )


@asynccontextmanager
async def _place(app: FastAPI, stand: Stand) -> AsyncIterator[None]:
    """Waits for one of the places that queries have, as long as a query may take; waiting costs no thread."""
    if not hasattr(app.state, "places"):
        app.state.places = asyncio.Semaphore(stand.sandbox.allowance.at_once)
    places: asyncio.Semaphore = app.state.places
    try:
        async with asyncio.timeout(stand.sandbox.allowance.seconds):
            await places.acquire()
    except TimeoutError:
        raise Busy(
            f"all {stand.sandbox.allowance.at_once} places for queries are taken",
            hint="ask again in a while; serve.queries in kappa.toml lets more run at once",
        ) from None
    try:
        yield
    finally:
        places.release()


def _threads(app: FastAPI, stand: Stand) -> anyio.CapacityLimiter:
    # Queries take none of the threads that everything else is answered by.
    if not hasattr(app.state, "threads"):
        app.state.threads = anyio.CapacityLimiter(stand.sandbox.allowance.at_once)
    limiter: anyio.CapacityLimiter = app.state.threads
    return limiter


async def _told(request: Request, error: Exception) -> Response:
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
                    hint=_TO_THE_OVERVIEW if to_a_person else f"see {API}/openapi.json",
                )
            )
        case HTTPException():
            problem = problem_of(
                HttpError(
                    error.status_code,
                    str(error.detail),
                    hint=_TO_THE_OVERVIEW if to_a_person else f"{API}/openapi.json lists all paths",
                    headers=error.headers,
                )
            )
        case _:
            problem = Problem(500, {"title": "failed", "status": 500})
    if to_a_person:
        return Response(
            problem_html(problem.document),
            problem.status,
            {**HEADERS, **problem.headers},
            media_type="text/html",
        )
    return JSONResponse(
        dict(problem.document), problem.status, dict(problem.headers), media_type=MEDIA_TYPE
    )
