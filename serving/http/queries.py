"""Routes for queries: a sandbox answers untrusted SQL over the live builds.

The headers of an answer name the builds, offsets and versions from which the answer was read. A
request with `X-Kappa-Snapshot: new` pins a snapshot. The answer contains the snapshot's name in the
same header, and later requests send that name. A request with `Kappa-After: TOKEN` waits until
readers see a write, before its snapshot is pinned. Waiting requests occupy no threads, and no
places for queries. They share the result of one read of the offsets that readers see, and each
request compares these offsets with its write token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, FastAPI, Header, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kappa.base.errors import TimedOut, UsageError
from kappa.serving.access.roles import Act
from kappa.serving.http.app_state import API, OBJECT, PROBLEM, ROWS, SharedLook, Stand, stand_of
from kappa.serving.http.bounds import client_of
from kappa.serving.http.problem import HttpError
from kappa.serving.http.rights import asker, needs
from kappa.serving.http.snapshots import NEW
from kappa.serving.query.pin.moments import parse_offsets
from kappa.serving.query.pin.snapshot import head_of
from kappa.serving.query.pin.write_token import (
    LOOK_SECONDS,
    ServedLook,
    Shown,
    pipelines_behind,
    timeout_error,
)
from kappa.serving.query.reader.client import Client
from kappa.serving.query.sandbox.question import Format, Question, Reply

_FORMS: Mapping[str, Format] = {
    "application/json": Format.JSON,
    "application/x-ndjson": Format.JSONL,
    "text/csv": Format.CSV,
    "application/vnd.apache.arrow.stream": Format.ARROW,
    "application/vnd.apache.parquet": Format.PARQUET,
}
_ANSWER: Mapping[str, Any] = {
    "type": "object",
    "required": ["generation", "builds", "columns", "rows", "truncated"],
    "properties": {
        "generation": {"type": "integer"},
        "builds": {"type": "object", "additionalProperties": OBJECT},
        "columns": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "type"],
                "properties": {name: {"type": "string"} for name in ("name", "type")},
            },
        },
        "rows": ROWS,
        "truncated": {"type": "boolean"},
    },
}
_PIECE_BYTES = 1 << 16
# Clients and proxies accept some 8 KiB of headers.
_HEADER_CHARACTERS = 4000

router = APIRouter()


class Query(BaseModel):
    """A request with one query."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(
        description="one query that reads, in DuckDB's SQL",
        examples=["select * from page_hits limit 10"],
    )
    rows: int | None = Field(
        default=None, ge=0, description="most rows of the answer, below what the server allows"
    )


@router.post(
    f"{API}/query",
    tags=["query"],
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {
                kind: {"schema": _ANSWER} if form is Format.JSON else {}
                for kind, form in _FORMS.items()
            }
        },
        **dict.fromkeys((400, 406, 410, 413, 415, 422, 503, 504), PROBLEM),
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
@needs(Act.READ)
async def query(
    request: Request,
    accept: Annotated[str, Header()] = "application/json",
    x_kappa_snapshot: Annotated[str | None, Header()] = None,
    kappa_after: Annotated[
        str | None,
        Header(description="a token of `kappa produce`: wait until readers see these offsets"),
    ] = None,
    kappa_wait: Annotated[
        float | None,
        Header(
            ge=0,
            allow_inf_nan=False,
            description="seconds to wait at most, below what the server allows; then 504",
        ),
    ] = None,
) -> Response:
    """Answers one query from the live builds, or from the snapshot that the request names.

    The body is JSON, or the SQL itself (`application/sql`, `text/plain`). The format of the answer
    follows `Accept`: JSON, JSON lines, CSV, an Arrow stream or Parquet. The header
    `X-Kappa-Truncated` is `true` if rows were left out. An answer in JSON also contains this value,
    in `truncated`.
    """
    stand = stand_of(request)
    form, media_type = _format_of(accept)
    asked = _query_of(await request.body(), request.headers.get("content-type", "application/json"))
    question = Question(asked.sql, form, asked.rows, reader=asker(request))
    if kappa_after is not None:
        if x_kappa_snapshot not in {None, NEW}:
            raise HttpError(
                400,
                f"snapshot {x_kappa_snapshot[:40]} stays at its moment, and waits for no write",
                hint=f"send Kappa-After with X-Kappa-Snapshot: {NEW}, or leave it out",
            )
        await ensure_covered(request, kappa_after, kappa_wait)
    async with stand.sandbox.places.take_place(question.reader.name):
        reply, pinned = await anyio.to_thread.run_sync(
            _answer_query,
            stand,
            question,
            x_kappa_snapshot,
            client_of(request.scope),
            limiter=_thread_limiter(request.app, stand),
        )
    headers = _headers(reply, {} if pinned is None else {"X-Kappa-Snapshot": pinned})
    if reply.size > _PIECE_BYTES:
        return _Answer(reply, media_type, headers)
    with reply.body as body:
        return Response(body.read(), media_type=media_type, headers=headers)


@router.delete(f"{API}/snapshots/{{snapshot}}", tags=["query"], status_code=204)
@needs(Act.READ)
async def let_go(request: Request, snapshot: str) -> Response:
    """Releases a pinned snapshot before it expires."""
    await anyio.to_thread.run_sync(stand_of(request).snapshots.let_go, snapshot)
    return Response(status_code=204)


def _answer_query(
    stand: Stand, question: Question, snapshot: str | None, client: Client
) -> tuple[Reply, str | None]:
    if snapshot is None:
        reply = stand.sandbox.ask_query(
            stand.store, question, lease_seconds=stand.lease_seconds, client=client
        )
        return reply, None
    with stand.snapshots.held(snapshot, question.reader.name) as (name, pinned):
        return stand.sandbox.ask_pinned(stand.store, pinned, question, client=client), name


class _Answer(StreamingResponse):
    """A response that sends the file of a large answer."""

    def __init__(self, reply: Reply, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(self._pieces(reply), media_type=media_type, headers=headers)
        self._reply = reply

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Sends the answer, and then deletes its file, even if sending fails."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reply.body.close()

    @staticmethod
    async def _pieces(reply: Reply) -> AsyncIterator[bytes]:
        while piece := reply.body.read(_PIECE_BYTES):
            yield piece


def _headers(reply: Reply, more: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the headers of an answer: the builds, offsets and versions that were read.

    `more` contains further headers. A header that would be too long is left out.
    """
    head = head_of(reply.snapshot)
    builds = head["builds"]
    headers = {
        "X-Kappa-Generation": str(head["generation"]),
        "X-Kappa-Builds": _compact_json(
            {pipeline: each["build"] for pipeline, each in builds.items()}
        ),
        "X-Kappa-Offsets": _compact_json(
            {each["build"]: each["offsets"] for each in builds.values()}
        ),
        "X-Kappa-Versions": _compact_json(
            {each["build"]: each["versions"] for each in builds.values()}
        ),
        "X-Kappa-Rows": str(reply.rows),
        "X-Kappa-Truncated": str(reply.truncated).lower(),
        "Content-Length": str(reply.size),
        "Cache-Control": "no-store",
        **more,
    }
    return {name: value for name, value in headers.items() if len(value) <= _HEADER_CHARACTERS}


def _compact_json(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _format_of(accept: str) -> tuple[Format, str]:
    """Returns the supported format with the highest weight in an `Accept` header.

    The result contains the format and its media type. Raises HttpError if no format in `accept` is
    supported. Source: RFC 9110, 12.5.1.
    """
    asked = []
    for place, each in enumerate(accept.split(",")):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        weight = next(
            (
                _document_weight(value)
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


def _document_weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _query_of(body: bytes, content_type: str) -> Query:
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


def _thread_limiter(app: FastAPI, stand: Stand) -> anyio.CapacityLimiter:
    # Queries take none of the threads that answer other requests.
    if not hasattr(app.state, "threads"):
        app.state.threads = anyio.CapacityLimiter(stand.sandbox.allowance.at_once)
    limiter: anyio.CapacityLimiter = app.state.threads
    return limiter


# Most requests that wait at the same time.
MOST_WAITING = 256


class _Line:
    """The requests that wait until readers see a write.

    `length` is the number of these requests. They share one read of the offsets that readers see.
    """

    def __init__(self, look: ServedLook) -> None:
        self.length = 0
        self.look: SharedLook[Shown] = SharedLook(look.shown_offsets, seconds=LOOK_SECONDS)
        # The reasons for late requests are read one after the other.
        self.late = anyio.CapacityLimiter(1)


async def ensure_covered(request: Request, token: str, seconds: float | None) -> None:
    """Waits until readers see the offsets of a write token.

    The wait lasts at most `seconds`, and never longer than the server allows; then TimedOut is
    raised. Raises UsageError if the token is malformed, if nothing is served, or if no serving
    pipeline reads a topic of the token. Raises HttpError if too many requests wait.
    """
    stand, line, offsets = stand_of(request), _line_of(request), parse_offsets(token)
    most = stand.sandbox.allowance.wait_seconds
    seconds = most if seconds is None else min(seconds, most)
    if line.length >= MOST_WAITING:
        raise HttpError(
            503,
            f"{MOST_WAITING} requests wait for writes already",
            hint="come back in a while",
            headers={"Retry-After": "1"},
        )
    line.length += 1
    # A client of some tables is told no names of pipelines and topics.
    names = asker(request).tables.is_all
    try:
        due = asyncio.get_running_loop().time() + seconds
        while behind := pipelines_behind(offsets, await line.look.seen()):
            if asyncio.get_running_loop().time() >= due and not names:
                raise TimedOut(
                    f"readers do not see all of the write after {seconds:g} s",
                    hint="ask again, or wait longer: Kappa-Wait",
                )
            if asyncio.get_running_loop().time() >= due:
                late = partial(timeout_error, stand.store, behind, seconds)
                raise await anyio.to_thread.run_sync(late, limiter=line.late)
            await asyncio.sleep(LOOK_SECONDS)
    except UsageError as error:
        if names:
            raise
        raise UsageError(
            "the write token names a topic that nothing reads", hint="leave Kappa-After out"
        ) from error
    finally:
        line.length -= 1


def _line_of(request: Request) -> _Line:
    state = request.app.state
    if not hasattr(state, "waiting"):
        state.waiting = _Line(ServedLook(stand_of(request).store))
    found = state.waiting
    assert isinstance(found, _Line), "it was made here"
    return found
