"""A project over HTTP, for asyncio, with the methods of `kappa.Project` that a server offers.

Only `kappa.Project` has `plan`, `deploy` and `produce`: these methods need the project's files,
which an HTTP server never runs.
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from kappa.base.errors import Conflict, KappaError, TimedOut, Unreachable, UsageError

if TYPE_CHECKING:
    import httpx2

# ruff: noqa: PLC0415  # importing the package imports no library of HTTP or of data

_API = "/api/v1"
_ARROW, _EVENTS = "application/vnd.apache.arrow.stream", "text/event-stream"
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.5
_ENDED = frozenset({"served", "failed", "abandoned"})
_ERRORS: Mapping[int, type[KappaError]] = {
    **dict.fromkeys((400, 404, 406, 413, 415, 422), UsageError),
    **dict.fromkeys((409, 410, 412), Conflict),
    503: Unreachable,
    504: TimedOut,
}


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """The answer of a query over HTTP: rows as an Arrow stream, and the builds that were read.

    `truncated` is True if the server left out rows beyond its limit.
    """

    content: bytes
    generation: int
    builds: Mapping[str, str]
    truncated: bool

    def arrow(self) -> Any:
        """Returns the rows as a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.ipc.open_stream(io.BytesIO(self.content)).read_all()

    def df(self) -> Any:
        """Returns the rows as a `pandas.DataFrame`."""
        return self.arrow().to_pandas()

    def pl(self) -> Any:
        """Returns the rows as a `polars.DataFrame`.

        Raises UsageError if Polars is not installed.
        """
        from kappa.project.answers import polars_frame

        return polars_frame(self.arrow())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows as tuples of Python values, converted by Arrow."""
        return [tuple(row.values()) for row in self.arrow().to_pylist()]


@dataclass(frozen=True, slots=True)
class RemoteChangeSet:
    """A change set over HTTP: its head, its changes, and its cursor for a later call.

    Each change is a mapping with `op`, `before` and `after`, as `kappa changes -o jsonl` prints it.
    """

    head: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    cursor: str


class RemoteProject:
    """A project that `kappa up` or `kappa serve` offers over HTTP. Open it with `kappa.connect`.

    The methods raise the same errors as those of `kappa.Project`, with the server's message and
    hint.
    """

    def __init__(self, client: httpx2.AsyncClient) -> None:
        """Creates the object from an HTTP client whose base URL is the server's URL."""
        self._client = client

    async def query(
        self,
        sql: str,
        *,
        after: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the server waits
        snapshot: str | None = None,
    ) -> RemoteAnswer:
        """Answers a query from the live builds, or from a pinned snapshot.

        `after` is a write token: the server waits until readers see the token's records, for at
        most `timeout` seconds. `snapshot` is the name of a snapshot that `pin` has pinned; if it is
        None, the query reads the live builds.
        """
        headers = {"Accept": _ARROW}
        if after is not None:
            headers["Kappa-After"] = after
        if timeout is not None:
            headers["Kappa-Wait"] = str(timeout)
        if snapshot is not None:
            headers["X-Kappa-Snapshot"] = snapshot
        response = await self._ask("POST", "/query", headers=headers, json={"sql": sql})
        head = response.headers
        if "x-kappa-generation" not in head:
            raise _other_server(response)
        return RemoteAnswer(
            response.content,
            int(head["x-kappa-generation"]),
            json.loads(head.get("x-kappa-builds", "{}")),
            head.get("x-kappa-truncated") == "true",
        )

    @asynccontextmanager
    async def pin(self) -> AsyncIterator[RemoteTables]:
        """Pins a snapshot until the block ends. Yields an object that answers queries."""
        response = await self._ask(
            "POST",
            "/query",
            headers={"Accept": _ARROW, "X-Kappa-Snapshot": "new"},
            json={"sql": "select 1"},
        )
        name = response.headers.get("x-kappa-snapshot")
        if name is None:
            raise _other_server(response)
        try:
            yield RemoteTables(self, name)
        finally:
            # A snapshot that could not be released ends by itself.
            with suppress(KappaError):
                await self._ask("DELETE", f"/snapshots/{quote(name)}")

    async def tables(self) -> list[dict[str, Any]]:
        """Lists the served tables and views, with columns, rows and paths."""
        return list(await self._read("/tables"))

    async def status(self) -> dict[str, Any]:
        """Returns the serving builds, the rollouts in progress, and the lag of each build."""
        return dict(await self._read("/builds"))

    async def history(self) -> list[dict[str, Any]]:
        """Lists rollouts, proofs, retirements, pauses and redrives, oldest first."""
        return list(await self._read("/history"))

    async def rejects(
        self, pipeline: str | None = None, *, reason: str | None = None, limit: int = 20
    ) -> list[dict[str, Any]]:
        """Lists the newest rejects of the serving builds, with their position, content and reason.

        If `pipeline` or `reason` is given, only rejects of this pipeline or with this reason are
        listed. `limit` is the maximum number of rejects.
        """
        wanted = {"pipeline": pipeline, "reason": reason, "limit": str(limit)}
        given = {name: each for name, each in wanted.items() if each is not None}
        return list(_document(await self._ask("GET", "/rejects", params=given)))

    async def changes(
        self,
        table: str,
        *,
        since: str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[RemoteChangeSet]:
        """Yields a change set with a served `table`'s rows, and then change sets with net changes.

        The iteration does not end: it waits for later changes. `since`, `where` and `columns` are
        as for `Project.changes`. Raises Unreachable if the server ends the connection. Then call
        this method again, with the cursor of the last change set as `since`.
        """
        import httpx2

        wanted = {
            "since": since,
            "where": where,
            "columns": None if columns is None else ",".join(columns),
        }
        given = {name: each for name, each in wanted.items() if each is not None}
        path = f"{_API}/tables/{quote(table, safe='')}/changes"
        head: Mapping[str, Any] = {}
        rows: list[Mapping[str, Any]] = []
        try:
            async with self._client.stream(
                "GET", path, params=given, timeout=httpx2.Timeout(_PATIENCE_SECONDS)
            ) as response:
                if response.is_error:
                    await response.aread()
                _ensure_answered(response)
                if not response.headers.get("content-type", "").startswith(_EVENTS):
                    raise _other_server(response)
                async for event in httpx2.EventSource(response, max_event_size=None):
                    if not event.data:
                        # Only how soon to come back.
                        continue
                    data = json.loads(event.data)
                    match event.event:
                        case "begin":
                            head, rows = data, []
                        case "rows":
                            rows += data
                        case "commit":
                            yield RemoteChangeSet(head, tuple(rows), data["cursor"])
                        case "error":
                            raise KappaError(data["detail"], hint=data.get("hint", ""))
        except httpx2.TransportError as error:
            raise self._away(error) from error
        raise Unreachable(
            f"{self._client.base_url} has ended the changes of {table}",
            hint="ask again, with `since` the cursor of the last change set",
        )

    async def promote(
        self,
        *pipelines: str,
        timeout: float | None = None,  # noqa: ASYNC109  # the rollout goes on
    ) -> dict[str, Any]:
        """Promotes candidates that have passed their verification, and waits until they serve.

        `pipelines` are as for `Project.promote`. `timeout` is in seconds; None means no limit.
        Returns a mapping that describes the rollout, as an element of `history` does. Raises
        Conflict if another operator was first, and TimedOut after the timeout.
        """
        return await self._served({"intent": "promote", "pipelines": pipelines}, timeout)

    async def undo(
        self,
        pipeline: str,
        *,
        to: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the rollout goes on
    ) -> dict[str, Any]:
        """Switches a `pipeline` back to the build that served before, and waits until it serves.

        If `to` is given, switches to the build of generation `to` instead. `timeout`, the result
        and the errors are as for `promote`.
        """
        return await self._served({"intent": "undo", "pipelines": [pipeline], "to": to}, timeout)

    async def aclose(self) -> None:
        """Closes the connections to the server."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        """Returns this object."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections to the server."""
        await self.aclose()

    async def _served(self, intent: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        seen = await self._ask("GET", "/rollouts")
        if "etag" not in seen.headers:
            raise _other_server(seen)
        headers = {"If-Match": seen.headers["etag"], "Idempotency-Key": secrets.token_hex(16)}
        asked = _document(await self._ask("POST", "/rollouts", headers=headers, json=intent))
        number = asked["rollout"]
        due = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while True:
            row = dict(await self._read(f"/rollouts/{number}"))
            if row["state"] in _ENDED:
                break
            if due is not None and asyncio.get_running_loop().time() >= due:
                raise TimedOut(
                    f"rollout {number} is still {row['state']} after {seconds:g} s",
                    hint=f"it goes on: kappa wait {number}",
                )
            await asyncio.sleep(_LOOK_SECONDS)
        if row["state"] != "served":
            raise KappaError(
                f"rollout {number} of pipeline {row['pipeline']} {row['state']}: {row['why']}",
                hint=row["hint"] or "what served keeps serving",
            )
        return row

    async def _read(self, path: str) -> Any:
        return _document(await self._ask("GET", path))

    async def _ask(self, method: str, path: str, **given: Any) -> httpx2.Response:
        import httpx2

        try:
            response = await self._client.request(method, f"{_API}{path}", **given)
        except (httpx2.LocalProtocolError, UnicodeEncodeError):
            # The reason of a library shows the value, which may be a token.
            raise UsageError(
                "an argument has characters that no header of HTTP carries",
                hint="give write tokens and names of snapshots as the server has given them",
            ) from None
        except httpx2.TransportError as error:
            raise self._away(error) from error
        _ensure_answered(response)
        return response

    def _away(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"{self._client.base_url} does not answer: {error}",
            hint="kappa status shows where HTTP is served",
        )


class RemoteTables:
    """A snapshot that the server has pinned, so that all queries read the same frontiers."""

    def __init__(self, project: RemoteProject, name: str) -> None:
        """Stores the project, and the name under which the server keeps the snapshot.

        `RemoteProject.pin` releases the snapshot.
        """
        self._project = project
        self._name = name

    async def query(self, sql: str) -> RemoteAnswer:
        """Answers a query from the snapshot.

        Raises Conflict if the snapshot is no longer pinned.
        """
        return await self._project.query(sql, snapshot=self._name)


def connect(url: str, *, token: str | None = None) -> RemoteProject:
    """Opens the project that an HTTP server offers at `url`.

    `token` is the client's token, if the server requires a token. The function needs httpx2: `pip
    install 'kappa[client]'`. Raises UsageError if httpx2 is not installed, or if the URL or the
    token is not valid.

    Example:
        async def print_hits() -> None:
            async with connect("http://127.0.0.1:8717") as project:
                answer = await project.query("select page, hits from page_hits")
                print(answer.fetchall())
    """
    try:
        import httpx2
    except ModuleNotFoundError:
        raise UsageError(
            "httpx2 is not installed, by which this client speaks HTTP",
            hint="pip install 'kappa[client]'",
        ) from None
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError(
            "the token has characters that no header of HTTP carries",
            hint="a token that was read from a file may have the end of a line: token.strip()",
        )
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        client = httpx2.AsyncClient(base_url=url, headers=headers, timeout=_PATIENCE_SECONDS)
    except httpx2.InvalidURL as error:
        raise UsageError(
            f"{url!r} is not the URL of a server: {error}",
            hint="kappa status shows where HTTP is served, such as http://127.0.0.1:8717",
        ) from None
    return RemoteProject(client)


def _document(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        raise _other_server(response) from None


def _other_server(response: httpx2.Response) -> Unreachable:
    """Returns the error for a response that is not from Kappa, for example from a proxy."""
    return Unreachable(
        f"{response.url} answers {response.status_code}, and not as a server of Kappa does",
        hint="kappa status shows where HTTP is served; see any proxy before it",
    )


def _ensure_answered(response: httpx2.Response) -> None:
    if response.is_success:
        return
    if not response.is_error:
        raise _other_server(response)
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    problem = problem if isinstance(problem, dict) else {}
    kind = _ERRORS.get(response.status_code, KappaError)
    raise kind(
        problem.get("detail", f"the server answers {response.status_code}"),
        hint=problem.get("hint", ""),
    )
